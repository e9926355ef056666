"""A finished run to render: writes metrics files and the results/expected.json that names them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LINEAGE = {"code": "c0de", "config": "c0f1", "model": "30de", "source": "50ce"}


class Run:
    """Collects cells; `write` gives the arguments of the stage."""

    def __init__(self, folder: Path, *, limit: int | None = None, sample: bool = False) -> None:
        self.folder = folder
        self.limit = limit
        self.sample = sample
        self.cells: list[dict[str, Any]] = []
        self.tables: dict[str, dict[str, Any]] = {}
        self.splits: dict[str, list[str]] = {}
        self.citations: list[str] = []
        self.comparisons: list[list[str]] = []

    def table(
        self, name: str, benchmarks: Sequence[str], *, metrics: Sequence[str] = (), published: Sequence[str] = ()
    ) -> "Run":
        self.tables[name] = {"benchmarks": [*benchmarks], "metrics": [*metrics], "published": [*published]}
        return self

    def cell(
        self,
        model: str,
        benchmark: str,
        split: str,
        *,
        task: str = "boxes",
        published: str | None = None,
        custom: str | None = None,
        partial: bool = False,
        scoring: Mapping[str, Any] | None = None,
        **metrics: Any,
    ) -> "Run":
        """Add a cell; `metrics` are fields of its metrics file, sensible where not given."""
        path = self.folder / "metrics" / model / benchmark / f"{split}.json"
        self.cells.append(
            {
                "model": model,
                "benchmark": benchmark,
                "split": split,
                "task": task,
                "notation": "kosmos",
                "metrics": str(path),
                "published": published,
                "official": custom is None,
                "custom": custom,
                "partial": partial,
                "scoring": dict(scoring or {}),
                "lineage": LINEAGE,
            }
        )
        splits = self.splits.setdefault(benchmark, [])
        if split not in splits:
            splits.append(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(metrics_file(**metrics)), encoding="utf-8")
        return self

    @property
    def expected(self) -> dict[str, Any]:
        return {
            "selection": {"models": [], "benchmarks": [], "limit": self.limit},
            "config_files": ["config/config.yaml"],
            "sample": self.sample,
            "cells": self.cells,
            "tables": self.tables,
            "citations": self.citations,
            "splits": self.splits,
            "comparisons": self.comparisons,
        }

    def write(self) -> Path:
        path = self.folder / "expected.json"
        path.write_text(json.dumps(self.expected), encoding="utf-8")
        return path


def metrics_file(
    *,
    n: int = 1000,
    official: Mapping[str, float | None] | None = None,
    robust: Mapping[str, float | None] | None = None,
    arm: float | None = 0.01,
    status: Mapping[str, int] | None = None,
    notes: Sequence[str] = (),
    split_notes: Sequence[str] = (),
    lineage: Mapping[str, str] = LINEAGE,
    **others: Any,
) -> dict[str, Any]:
    """A metrics file whose intervals are `arm` wide to both sides (None: it has none)."""
    scorings = {"official": official, "robust": robust}
    intervals = {
        name: {metric: None if value is None else [value - arm, value + arm] for metric, value in values.items()}
        for name, values in scorings.items()
        if values is not None and arm is not None
    }
    tallies = {"ok": others.get("requests", n)} if status is None else status
    return {
        "n": n,
        "status": dict(tallies),
        **scorings,
        "intervals": intervals,
        "notes": [*split_notes, *notes],
        "split_notes": [*split_notes],
        "lineage": dict(lineage),
        **others,
    }
