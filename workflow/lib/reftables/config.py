"""The configuration: checked against its schema and across its fields, as objects the workflow asks."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from reftables import paths
from reftables.benchmarks import SOURCES
from reftables.benchmarks.official import why_custom
from reftables.config_checks import check_addresses, check_names, check_targets, check_values, told
from reftables.declared import declared_format
from reftables.downloads import Download, ImageFolder, read_downloads, read_images
from reftables.errors import ConfigError
from reftables.models import BACKENDS
from reftables.models.job import Job
from reftables.paths import fill
from reftables.rows import AnswerFormat, Task
from reftables.scoring import METRICS

T = TypeVar("T")

SCHEMA = Path(__file__).parents[2] / "schemas" / "config.schema.yaml"

SCORING_OPTIONS: Mapping[Task, set[str]] = {Task.MASKS: {"strict", "eval_size"}}
COMMON_BENCHMARK_KEYS = {"task", "source", "splits", "folders", "scoring"}
COMMON_EXEC_KEYS = {"threads", "gpu", "mem_mb", "runtime", "api_slots", "env", "shards"}


def fill_all(settings: Mapping[str, Any], **names: str) -> dict[str, Any]:
    """`settings` with every text value filled."""
    return {key: fill(value, **names) if isinstance(value, str) else value for key, value in settings.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark of the registry."""

    name: str
    task: Task
    source: str
    splits: Mapping[str, int | None]
    folders: Mapping[str, str]
    scoring: Mapping[str, Any]
    own: Mapping[str, Any]  # the source's own keys, templates unfilled

    @property
    def module(self) -> ModuleType:
        return import_module(f"reftables.benchmarks.{self.source}")

    def settings(self, split: str) -> dict[str, Any]:
        """The source's own keys for one split."""
        return fill_all(self.own, benchmark=self.name, split=self.folders.get(split, split))

    def image_root(self, split: str) -> str:
        """The folder that the image paths of the truth are relative to."""
        return str(self.module.image_root(self.settings(split), split))

    def custom(self, split: str) -> str | None:
        """Why the split is not the official one, None where it is."""
        return why_custom(self.name, self.task, self.source, split, self.splits[split])


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model of the registry."""

    name: str
    identity: Mapping[str, Any]
    execution: Mapping[str, Any]
    formats: Mapping[Task, AnswerFormat]
    benchmarks: tuple[str, ...] | None
    published: str | None
    partial: bool

    @property
    def backend(self) -> str:
        return str(self.identity["backend"])

    @property
    def module(self) -> ModuleType:
        return import_module(f"reftables.models.{self.backend}")

    @property
    def shards(self) -> int:
        """How many jobs predict a split; always one where answers cost nothing."""
        return int(self.execution["shards"]) if self.module.STORED else 1

    def answers(self, benchmark: Benchmark) -> bool:
        """Whether the model is evaluated on `benchmark`."""
        return benchmark.task in self.formats and (self.benchmarks is None or benchmark.name in self.benchmarks)


@dataclass(frozen=True, slots=True)
class Cell:
    """One model on one split: what is predicted, scored and shown together."""

    model: Model
    benchmark: Benchmark
    split: str

    @property
    def form(self) -> AnswerFormat:
        return self.model.formats[self.benchmark.task]

    def job(self) -> Job:
        """What the backend is told; no truth, which only `infer` may hand it."""
        return Job(
            model=self.model.name,
            benchmark=self.benchmark.name,
            split=self.split,
            task=self.benchmark.task,
            form=self.form,
            identity=self.model.identity,
            execution=self.model.execution,
        )

    def files(self) -> list[str]:
        """Every file behind the cell that is given or downloaded: of its truth, its requests and its answers."""
        settings, source = self.benchmark.settings(self.split), self.benchmark.module
        model = self.model
        answers = model.module.answer_files(
            model.identity, model=model.name, benchmark=self.benchmark.name, split=self.split
        )
        requests = source.request_files(settings, self.split, self.form.prompt)
        return [*source.truth_files(settings, self.split), *requests, *answers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration; `models` and `benchmarks` are the selected ones, in the order of `run`."""

    sample: Mapping[str, Any]
    benchmarks: Mapping[str, Benchmark]
    models: Mapping[str, Model]
    tables: Mapping[str, Mapping[str, Any]]
    comparisons: tuple[tuple[str, str], ...]  # of all models of the registry
    gallery: Mapping[str, int]
    downloads: Mapping[str, Download]
    images: Mapping[str, ImageFolder]
    limit: int | None

    def manifest(self, cell: Cell) -> tuple[str, str] | tuple[None, None]:
        """(manifest, folder its names are relative to) of the images a model opens; nothing where it opens none."""
        if not cell.model.module.LOOKS:
            return None, None
        root = cell.benchmark.image_root(cell.split)
        drawn = str(self.sample["folder"])
        if root.startswith(f"{drawn}/"):
            return f"{drawn}/manifest.tsv", drawn
        return paths.MANIFEST.format(benchmark=cell.benchmark.name, split=cell.split), root

    def images_of(self, root: str) -> ImageFolder | None:
        """What fetches the images of a benchmark's image root; None where that is a folder of the user's own."""
        return next((images for images in self.images.values() if images.folder == root), None)

    def downloads_behind(self, files: Iterable[str]) -> list[Download]:
        """The downloads that `files` come from, each once, in the order of the config."""
        wanted = set(files)
        return [download for download in self.downloads.values() if not wanted.isdisjoint(download.targets)]

    @property
    def compared_pairs(self) -> list[tuple[str, str]]:
        """The pairs to compare, as far as both models are selected."""
        return [pair for pair in self.comparisons if set(pair) <= self.models.keys()]

    def cells(self) -> Iterator[Cell]:
        """Every selected model on every split of every selected benchmark it answers."""
        for model in self.models.values():
            for benchmark in self.benchmarks.values():
                if model.answers(benchmark):
                    for split in benchmark.splits:
                        yield Cell(model, benchmark, split)


def load(raw: Mapping[str, Any]) -> Config:
    """Check `raw` and build the configuration; ConfigError names the key at fault."""
    checked = _validated(raw)
    benchmarks = {name: _benchmark(name, entry) for name, entry in checked["benchmarks"].items()}
    models = {name: _model(name, entry, benchmarks) for name, entry in checked["models"].items()}
    downloads = read_downloads(checked["downloads"])
    run = checked["run"]
    selected = Config(
        sample=checked["sample"],
        benchmarks={name: _known(benchmarks, name, "run.benchmarks") for name in run["benchmarks"]},
        models={name: _known(models, name, "run.models") for name in run["models"]},
        tables=checked["tables"],
        comparisons=_comparisons(checked["comparisons"], models),
        gallery=checked["gallery"],
        downloads=downloads,
        images=read_images(checked["images"], downloads),
        limit=None if run["limit"] is None else int(run["limit"]),
    )
    _check_pairs(selected)
    _check_tables(selected.tables, benchmarks)
    return selected


def _known(registry: Mapping[str, T], name: str, key: str) -> T:
    if name not in registry:
        raise ConfigError(f"{key}: {name!r} is not in the registry; it has {', '.join(sorted(registry))}")
    return registry[name]


def _validated(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `raw` with the schema's defaults, or one error that names the key."""
    check_values(raw)
    schema = _schema()
    config = copy.deepcopy(dict(raw))
    error = best_match(Draft202012Validator(schema).iter_errors(config))
    if error is not None:
        raise ConfigError(told(error))
    _add_defaults(schema, config)
    check_names(config)
    check_addresses(config)
    check_targets(config)
    return config


@cache
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))
    return schema


def _add_defaults(schema: Mapping[str, Any], value: Any) -> None:
    """Set what `value` lacks and the schema has a default for, in place and all the way down."""
    if not isinstance(value, dict):
        return
    properties = schema.get("properties", {})
    for name, part in properties.items():
        if "default" in part:
            value.setdefault(name, copy.deepcopy(part["default"]))
        if name in value:
            _add_defaults(part, value[name])
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        for name in value.keys() - properties.keys():
            _add_defaults(others, value[name])


def _check_keys(key: str, found: set[str], required: set[str], optional: set[str], owner: str) -> None:
    if missing := sorted(required - found):
        raise ConfigError(f"{key}.{missing[0]}: {owner} needs this key")
    if unknown := sorted(found - required - optional):
        known = ", ".join(sorted(required | optional)) or "none"
        raise ConfigError(f"{key}.{unknown[0]}: {owner} has no such key; its keys: {known}")


def _benchmark(name: str, entry: Mapping[str, Any]) -> Benchmark:
    key = f"benchmarks.{name}"
    if entry["source"] not in SOURCES:
        raise ConfigError(f"{key}.source: {entry['source']!r} is unknown; sources: {', '.join(SOURCES)}")
    benchmark = Benchmark(
        name=name,
        task=Task(entry["task"]),
        source=entry["source"],
        splits={split: None if count is None else int(count) for split, count in entry["splits"].items()},
        folders=entry.get("folders", {}),
        scoring=entry["scoring"],
        own={k: v for k, v in entry.items() if k not in COMMON_BENCHMARK_KEYS},
    )
    module = benchmark.module
    _check_keys(key, set(benchmark.own), set(module.REQUIRED), set(module.OPTIONAL), f"source {benchmark.source}")
    for name, value in benchmark.own.items():
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{key}.{name}: {value!r} is no path or name; source {benchmark.source} needs a text")
    if benchmark.task not in module.TASKS:
        raise ConfigError(f"{key}.task: source {benchmark.source} serves {', '.join(sorted(module.TASKS))}")
    options = SCORING_OPTIONS.get(benchmark.task, set())
    _check_keys(f"{key}.scoring", set(benchmark.scoring), set(), options, f"the scorer of {benchmark.task}")
    if unknown := sorted(set(benchmark.folders) - set(benchmark.splits)):
        raise ConfigError(f"{key}.folders.{unknown[0]}: no such split; splits: {', '.join(benchmark.splits)}")
    return benchmark


def _model(name: str, entry: Mapping[str, Any], benchmarks: Mapping[str, Benchmark]) -> Model:
    key = f"models.{name}"
    backend = entry["identity"]["backend"]
    if backend not in BACKENDS:
        raise ConfigError(f"{key}.identity.backend: {backend!r} is unknown; backends: {', '.join(BACKENDS)}")
    model = Model(
        name=name,
        identity=entry["identity"],
        execution=entry["exec"],
        formats={
            Task(task): declared_format(f"{key}.formats.{task}", Task(task), f) for task, f in entry["formats"].items()
        },
        benchmarks=tuple(entry["benchmarks"]) if "benchmarks" in entry else None,
        published=entry.get("published"),
        partial=entry["partial"] == "allow",
    )
    module = model.module
    owner = f"backend {backend}"
    own_identity = set(model.identity) - {"backend"}
    _check_keys(f"{key}.identity", own_identity, set(module.REQUIRED), set(module.OPTIONAL), owner)
    own_exec = set(model.execution) - COMMON_EXEC_KEYS
    _check_keys(f"{key}.exec", own_exec, set(), set(module.EXECUTION), owner)
    if unable := sorted(set(model.formats) - set(module.TASKS)):
        raise ConfigError(f"{key}.formats.{unable[0]}: {owner} answers {', '.join(sorted(module.TASKS))} only")
    for limited_to in model.benchmarks or ():
        _known(benchmarks, limited_to, f"{key}.benchmarks")
    return model


def _comparisons(pairs: list[list[str]], models: Mapping[str, Model]) -> tuple[tuple[str, str], ...]:
    for place, pair in enumerate(pairs):
        for name in pair:
            _known(models, name, f"comparisons[{place}]")
    return tuple((first, second) for first, second in pairs)


def _check_pairs(config: Config) -> None:
    """Every selected model must have a benchmark, every benchmark a model, every pair a prompt that exists."""
    cells = list(config.cells())
    for model in config.models.values():
        if not any(cell.model is model for cell in cells):
            tasks = ", ".join(model.formats)
            raise ConfigError(f"run.models: {model.name} answers {tasks}, which no selected benchmark asks of it")
    for benchmark in config.benchmarks.values():
        if not any(cell.benchmark is benchmark for cell in cells):
            raise ConfigError(f"run.benchmarks: no selected model answers {benchmark.name} (task {benchmark.task})")
    for cell in cells:
        _check_cell(cell)
        benchmark, prompts = cell.benchmark, cell.benchmark.module.PROMPTS
        if cell.form.prompt not in prompts:
            raise ConfigError(
                f"models.{cell.model.name}.formats.{benchmark.task}.prompt: source {benchmark.source} of benchmark "
                f"{benchmark.name} cannot write {cell.form.prompt!r}; it writes {', '.join(sorted(prompts))}"
            )


def _check_cell(cell: Cell) -> None:
    """What only the source or the backend can judge, before anything is run; those without a `check` take all."""
    benchmark, model = cell.benchmark, cell.model
    if check_source := getattr(benchmark.module, "check", None):
        check_source(benchmark.settings(cell.split), benchmark=benchmark.name, task=benchmark.task)
    if check_backend := getattr(model.module, "check", None):
        check_backend(cell.job())


def _check_tables(tables: Mapping[str, Mapping[str, Any]], benchmarks: Mapping[str, Benchmark]) -> None:
    for name, table in tables.items():
        shown = [_known(benchmarks, benchmark, f"tables.{name}.benchmarks") for benchmark in table["benchmarks"]]
        tasks = dict.fromkeys(benchmark.task for benchmark in shown)
        known = [metric for task in tasks for metric in METRICS[task]]
        if unknown := [metric for metric in table["metrics"] if metric not in known]:
            owners = ", ".join(tasks)
            raise ConfigError(
                f"tables.{name}.metrics: {unknown[0]!r} is no metric of {owners}; they have {', '.join(known)}"
            )
