"""What was scored: the metrics files that results/expected.json names, each checked against its lineage."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from reftables.errors import DataError
from reftables.files import dump_json, read_text, short
from reftables.rows import Status, Task


class Scoring(StrEnum):
    """Whose parser and arithmetic made a number."""

    OFFICIAL = "official"
    ROBUST = "robust"


class Kind(StrEnum):
    """What a result covers."""

    SPLIT = "split"  # one metrics file
    OVERALL = "overall"  # several splits of a benchmark, combined under a reserved name
    SUBSET = "subset"  # part of a split, named `{split}/{subset}`


class Score(NamedTuple):
    """One metric: a fraction and its 95 % interval; None where it is undefined or unknown."""

    value: float | None
    low: float | None = None
    high: float | None = None


Scores = Mapping[Scoring, Mapping[str, Score]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The scores of one model on one split, on several combined, or on part of one."""

    model: str
    benchmark: str
    split: str
    task: Task
    kind: Kind = Kind.SPLIT
    published: str | None  # the model's name in published.csv
    official: bool  # the papers' own samples, all of them
    custom: str | None  # why not, where the config or the source says so
    partial: bool  # samples are missing, and count as wrong
    limit: int | None  # only the first so many samples
    options: Mapping[str, Any]  # of the scorer: `eval_size`, `strict`
    n: int
    requests: int | None  # where they differ from n
    status: Mapping[str, int]
    scores: Scores  # a scoring that the answer format lacks has no key
    dropped: int = 0  # samples the authors' script leaves out
    notes: Sequence[str] = ()  # on this model's answers
    split_notes: Sequence[str] = ()  # on the split, whatever the model
    counted: Mapping[str, int] = field(default_factory=dict)  # samples of the metrics that are not over all n
    groups: Mapping[str, Any] = field(default_factory=dict)
    lineage: Mapping[str, Any] = field(default_factory=dict)
    tokens: Mapping[str, int] = field(default_factory=dict)  # spent, where the backend counted them

    @property
    def comparable(self) -> bool:
        """Whether a paper's number may stand beside this one."""
        return not self.closed and not self.partial

    @property
    def closed(self) -> bool:
        """Whether no paper's number may stand in the same column: other samples, whatever the model."""
        return not self.official or self.limit is not None

    def size(self, metric: str) -> int:
        """The samples that a metric is over."""
        return self.counted.get(metric, self.n)

    @property
    def unparsed(self) -> int:
        return self.status.get(Status.UNPARSED, 0)

    def shown_scoring(self, metric: str) -> Scoring | None:
        """Official where the answer format has it, else robust; None where the metric isn't there at all."""
        return next((scoring for scoring in Scoring if metric in self.scores.get(scoring, {})), None)


def read_config(path: str, known_by: str | None) -> dict[str, Any]:
    """The configuration of a run, from its file; DataError where its hash is not `known_by`."""
    config: dict[str, Any] = json.loads(read_text(path))
    if known_by is not None and short(config) != known_by:
        raise DataError(
            f"{path} is of another configuration: another run holds this folder, or began meanwhile. Run again when "
            "it has ended, or with its configuration."
        )
    return config


def read_expected(path: str | Path) -> dict[str, Any]:
    """results/expected.json: what is to be shown."""
    try:
        return dict(json.loads(read_text(path)))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: not JSON: {error}. Remove the file and run snakemake again.") from error


def read_results(expected: Mapping[str, Any]) -> list[Result]:
    """One result a cell of results/expected.json, in its order; DataError where a file is stale."""
    limit = expected["selection"]["limit"]
    return [_result(cell, _read_metrics(cell), limit) for cell in expected["cells"]]


def _read_metrics(cell: Mapping[str, Any]) -> dict[str, Any]:
    path = Path(cell["metrics"])
    try:
        metrics = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: not JSON: {error}. Remove the file and run again.") from error
    _check_lineage(path, cell, metrics.get("lineage", {}))
    return dict(metrics)


def _check_lineage(path: Path, cell: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Refuse a number that something older made: a failed rerun leaves such files standing."""
    expected = cell["lineage"]
    changed = sorted(part for part in {*expected, *found} if expected.get(part) != found.get(part))
    if not changed:
        return
    model, benchmark, split = cell["model"], cell["benchmark"], cell["split"]
    differences = "; ".join(
        f"{part} is {dump_json(found.get(part))}, expected {dump_json(expected.get(part))}" for part in changed
    )
    raise DataError(
        f"{path}: {model} on {benchmark} {split} was scored with another {' and '.join(changed)} ({differences}). "
        "No table was written. Score it anew from the start, answers in the store are kept: "
        f"snakemake --cores 1 --forcerun results/truth/{benchmark}/{split}.jsonl infer_{model} score -- "
        "results/tables.md, with the same --configfile as before."
    )


def _result(cell: Mapping[str, Any], metrics: Mapping[str, Any], limit: int | None) -> Result:
    try:
        status = metrics["status"]
        rows = metrics.get("requests") or metrics["n"]
        gaps = status.get(Status.MISSING, 0) + status.get(Status.ERROR, 0)
        return Result(
            model=cell["model"],
            benchmark=cell["benchmark"],
            split=cell["split"],
            task=Task(cell["task"]),
            published=cell["published"],
            official=cell["official"] and cell["custom"] is None,
            custom=cell["custom"],
            partial=cell["partial"] and gaps > 0,
            # A split that has fewer rows than the limit is whole.
            limit=limit if limit is not None and rows >= limit else None,
            options=cell.get("scoring", {}),
            n=metrics["n"],
            requests=metrics.get("requests"),
            status=status,
            scores=dict(_scores(metrics, metrics.get("intervals", {}))),
            dropped=metrics.get("official_dropped") or 0,
            notes=[note for note in metrics["notes"] if note not in metrics.get("split_notes", [])],
            split_notes=metrics.get("split_notes", []),
            counted=metrics.get("counted", {}),
            groups=metrics.get("groups") or {},
            lineage=cell["lineage"],
            tokens=metrics.get("tokens") or {},
        )
    except KeyError as error:
        raise DataError(f"{cell['metrics']}: no {error}. Remove the file and run again.") from error


def _scores(values: Mapping[str, Any], intervals: Mapping[str, Any]) -> Iterator[tuple[Scoring, dict[str, Score]]]:
    for scoring in Scoring:
        if values.get(scoring) is not None:
            bounds = intervals.get(scoring) or {}
            yield (
                scoring,
                {
                    metric: Score(value, *(bounds.get(metric) or (None, None)))
                    for metric, value in values[scoring].items()
                },
            )


def subsets(result: Result) -> Iterator[Result]:
    """The results of the groups of a split, as far as its metrics file has them; they carry no interval.

    Group `step` with value 1 is named `{split}/step1`, group `scene` with value indoor `{split}/indoor`.
    """
    for group, parts in result.groups.items():
        for value in sorted(parts, key=lambda value: (len(value), value) if value.isdigit() else (0, value)):
            part = parts[value]
            name = f"{group}{value}" if value.isdigit() else value
            yield derived(result, Kind.SUBSET, f"{result.split}/{name}", n=part["n"], scores=dict(_scores(part, {})))


def derived(result: Result, kind: Kind, split: str, *, n: int, scores: Scores) -> Result:
    """`result` with other samples: what belongs to its own metrics file is left behind."""
    return replace(
        result,
        kind=kind,
        split=split,
        n=n,
        scores=scores,
        requests=None,
        status={},
        dropped=0,
        notes=(),
        split_notes=(),
        counted={},
        groups={},
    )
