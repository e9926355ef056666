# make tables    set up and evaluate the bundled sample: results/tables.md
# make test      the tests (EXTRAS=torch adds those that run models)
# make test-all  also the slow ones
# make test-slurm  those on a real SLURM, which they start and stop (needs root once; skipped where it cannot run)
# make lint      ruff, mypy, snakefmt, snakemake --lint
# make bench     the speed measurements of tests/speed

SHELL := /bin/bash
PYTHON ?= python3
EXTRAS ?=
CORES ?= $(shell nproc)
VENV := .venv
BIN := $(VENV)/bin
REQUIREMENTS := requirements.txt $(if $(EXTRAS),requirements-$(EXTRAS).txt)
READY := $(VENV)/.ready$(if $(EXTRAS),-$(EXTRAS))

.PHONY: tables test test-all test-slurm lint bench clean

tables: $(READY)
	$(BIN)/snakemake --cores $(CORES) --quiet rules host
	@echo "The tables: results/tables.md, results/tables.csv, results/index.html"

test: $(READY)
	$(BIN)/python -m pytest -m "not slow and not slurm"

test-all: $(READY)
	$(BIN)/python -m pytest -m "not slurm"

test-slurm:
	$(MAKE) $(VENV)/.ready-cluster EXTRAS=cluster
	$(BIN)/python -m pytest -m slurm

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/snakemake --lint
	$(BIN)/snakemake --lint --configfile config/paper.yaml

bench: $(READY)
	$(BIN)/python -m tests.speed

$(VENV): $(READY)

$(READY): $(REQUIREMENTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(REQUIREMENTS:%=-r %)
	touch $@

clean:
	rm -rf results resources .snakemake
