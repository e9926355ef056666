"""What the tables must show: every cell with its lineage, written when the workflow is read.

`results/expected.json` is an input of the rule `tables`, so a changed selection or lineage remakes
the tables, and `render` refuses a number whose lineage is another.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reftables import paths
from reftables.config import Benchmark, Cell, Config
from reftables.downloads import Download, ImageFolder
from reftables.files import pretty_json, write_atomically
from reftables.lineage import Lineages


def table_specs(config: Config) -> dict[str, dict[str, Any]]:
    """The tables with a selected benchmark; a benchmark in none of them goes to one named after its task."""
    specs: dict[str, dict[str, Any]] = {}
    for name, table in config.tables.items():
        shown = [benchmark for benchmark in table["benchmarks"] if benchmark in config.benchmarks]
        if shown:
            specs[name] = {**table, "benchmarks": shown}
    placed = {benchmark for spec in specs.values() for benchmark in spec["benchmarks"]}
    for benchmark in config.benchmarks.values():
        if benchmark.name not in placed:
            spec = specs.setdefault(str(benchmark.task), {"benchmarks": [], "metrics": [], "published": []})
            spec["benchmarks"].append(benchmark.name)
    return specs


def is_sample(benchmark: Benchmark, config: Config) -> bool:
    """Whether a benchmark is made of drawn scenes."""
    folder = f"{config.sample['folder']}/"
    return any(isinstance(value, str) and value.startswith(folder) for value in benchmark.own.values())


def citations(config: Config) -> list[str]:
    """What to cite for the data behind the selected numbers, and its licence; each source once."""
    cells = list(config.cells())
    files = [file for cell in cells for file in cell.files()]
    opened = {cell.benchmark.image_root(cell.split) for cell in cells if cell.model.module.LOOKS}
    sources: list[Download | ImageFolder] = [*config.downloads_behind(files)]
    sources += [images for images in config.images.values() if images.folder in opened]
    return list(dict.fromkeys(f"{source.citation or source.name}. Licence: {source.licence}" for source in sources))


def expected(config: Config, lineages: Lineages, config_files: Sequence[str]) -> dict[str, Any]:
    """The content of `results/expected.json`."""
    return {
        "selection": {
            "models": list(config.models),
            "benchmarks": list(config.benchmarks),
            "limit": config.limit,
        },
        "config_files": list(config_files),
        "sample": any(is_sample(benchmark, config) for benchmark in config.benchmarks.values()),
        "cells": [_cell(cell, lineages) for cell in config.cells()],
        "tables": table_specs(config),
        "citations": citations(config),
        "comparisons": [list(pair) for pair in config.compared_pairs],
        "splits": {benchmark.name: list(benchmark.splits) for benchmark in config.benchmarks.values()},
    }


def _cell(cell: Cell, lineages: Lineages) -> dict[str, Any]:
    names = {"model": cell.model.name, "benchmark": cell.benchmark.name, "split": cell.split}
    reason = cell.benchmark.custom(cell.split)
    return {
        **names,
        "task": cell.benchmark.task,
        "notation": cell.form.notation,
        "metrics": paths.METRICS.format(**names),
        "published": cell.model.published,
        "official": reason is None,
        "custom": reason,
        "scoring": dict(cell.benchmark.scoring),
        "partial": cell.model.partial,
        "lineage": lineages.metrics(cell),
    }


def write_when_different(content: object, path: str, *, dry: bool) -> None:
    """Write the JSON of `content` only when the file would differ.

    The time of `results/expected.json` is what tells Snakemake that the tables are stale. A dry run changes
    nothing that is there, nor does any call while another run holds the folder's lock: that run's tables are
    made from these files.
    """
    text = pretty_json(content)
    target = Path(path)
    if not target.is_file() or (not dry and not _is_locked() and target.read_text(encoding="utf-8") != text):
        write_atomically(target, text)


def _is_locked() -> bool:
    """Whether a run of Snakemake goes on in this folder; our own takes the lock only later."""
    return any(Path(".snakemake/locks").glob("*.lock"))
