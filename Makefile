# make tables    set up and evaluate the bundled sample: results/tables.md (EXTRAS=torch: also by a real model)
# make test      the tests (EXTRAS="torch cluster" adds those that run models and those of cluster executors)
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
REQUIREMENTS := requirements.txt $(EXTRAS:%=requirements-%.txt)
READY := $(VENV)/.ready$(subst $() ,,$(EXTRAS:%=-%))
OVERLAY := $(if $(filter torch,$(EXTRAS)),--configfile config/torch.yaml)

.PHONY: tables test test-all test-slurm lint bench clean

tables: $(READY)
	$(BIN)/snakemake $(OVERLAY) --cores $(CORES) --quiet rules host
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
