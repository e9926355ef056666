"""The tables as data: which cells stand in which table, beside which published number, and as CSV frames."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import NamedTuple

import pandas as pd

from reftables.errors import ConfigError
from reftables.overalls import RESERVED_SPLITS, combine, define_overalls
from reftables.published import Key, Published, PublishedCell
from reftables.results import Kind, Result, Score, Scoring, subsets
from reftables.rows import Task

# What a table shows where its config lists no metrics. Of the masks' two lists the first applies that has a
# value: on sets with no-target samples the gres metrics stand for the plain ones.
DEFAULT_METRICS: Mapping[Task, Sequence[Sequence[str]]] = {
    Task.BOXES: (("precision@1",),),
    Task.POINTS: (("accuracy",),),
    Task.ANSWERS: (("score",),),
    Task.MASKS: (("mean_iou", "overall_iou"), ("gres_giou", "gres_ciou", "n_acc", "t_acc")),
}
ROUNDING = 0.005  # points; papers print two decimals


class Reproduces(StrEnum):
    """How our number stands to the published one."""

    EXACT = "exact"  # within the rounding and one sample
    WITHIN = "within"  # the published value lies in our interval
    NO = "no"


class Column(NamedTuple):
    """One column of a table."""

    benchmark: str
    split: str
    metric: str
    kind: Kind

    @property
    def name(self) -> str:
        return f"{self.benchmark}/{self.split}/{self.metric}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A row of results/tables.csv, whose columns these are. Values, bounds and delta in percent, unrounded.

    A number that only a paper has: `value`, `n` and `scoring` are None and `model` is the paper's name.
    """

    table: str
    benchmark: str
    split: str
    model: str
    metric: str
    scoring: Scoring | None
    value: float | None
    low: float | None
    high: float | None
    n: int | None
    unparsed: int | None
    published: float | None
    delta: float | None
    reproduces: Reproduces | None
    grade: str | None
    source: str | None
    custom: bool
    partial: bool
    limit: int | None


class CellKey(NamedTuple):
    """What a cell of a table is known by."""

    model: str
    benchmark: str
    split: str
    metric: str
    scoring: Scoring | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table: its columns, the models that were run, the models that only papers have, every cell."""

    name: str
    columns: Sequence[Column]  # of splits and overalls
    subsets: Sequence[Column]  # of parts of splits
    results: Mapping[tuple[str, str, str], Result]  # by model, benchmark, split
    models: Sequence[str]
    papers: Sequence[str]  # those with a number in one of the columns
    closed: Collection[tuple[str, str]]  # (benchmark, split) that no paper's number may stand in
    cells: Mapping[CellKey, Cell]

    def cell(self, model: str, column: Column, scoring: Scoring | None) -> Cell | None:
        """The number of `model` in `column`; scoring None: the one that only a paper has."""
        return self.cells.get(CellKey(model, column.benchmark, column.split, column.metric, scoring))

    def results_in(self, column: Column) -> list[Result]:
        """The results of all models in a column."""
        keys = [(model, column.benchmark, column.split) for model in self.models]
        return [self.results[key] for key in keys if key in self.results]

    def splits_of(self, model: str, benchmark: str) -> dict[str, Result]:
        """The results of one model on the splits of a benchmark, in their order."""
        found = [r for r in self.results.values() if (r.model, r.benchmark, r.kind) == (model, benchmark, Kind.SPLIT)]
        return {result.split: result for result in found}

    def shown(self, model: str, column: Column) -> Cell | None:
        """The number to show of a model that was run: official where its answer format has that, else robust."""
        result = self.results.get((model, column.benchmark, column.split))
        scoring = result.shown_scoring(column.metric) if result else None
        return self.cell(model, column, scoring) if scoring else None


class TableSpec(NamedTuple):
    """A table as the config asks for it."""

    benchmarks: Sequence[str]
    metrics: Sequence[str]  # none: the defaults of the task
    published: Sequence[str]


def build_tables(
    results: Sequence[Result],
    specs: Mapping[str, TableSpec],
    splits: Mapping[str, Sequence[str]],
    published: Published,
) -> list[Table]:
    """The tables of `specs`; `splits` gives the order of the splits of each benchmark."""
    complete = [*results, *_overalls(results, splits)]
    complete += [part for result in results for part in subsets(result)]
    return [
        _table(name, spec, [result for result in complete if result.benchmark in spec.benchmarks], splits, published)
        for name, spec in specs.items()
    ]


def _overalls(results: Sequence[Result], splits: Mapping[str, Sequence[str]]) -> Iterator[Result]:
    parts: dict[tuple[str, str], dict[str, Result]] = {}
    for result in results:
        parts.setdefault((result.model, result.benchmark), {})[result.split] = result
    for (_, benchmark), by_split in parts.items():
        ordered = [by_split[split] for split in splits[benchmark] if split in by_split]
        for overall in define_overalls(ordered[0].task, {part.split: part.n for part in ordered}):
            yield combine(ordered, overall)


def _table(
    name: str, spec: TableSpec, results: Sequence[Result], splits: Mapping[str, Sequence[str]], published: Published
) -> Table:
    columns = _columns(name, spec, results, splits, published)
    closed = {(result.benchmark, result.split) for result in results if result.closed}
    open_splits = {(column.benchmark, column.split) for column in columns} - closed
    cells = [cell for result in results for cell in _cells(name, result, published)]
    cells += [cell for model in spec.published for cell in _paper_cells(name, model, open_splits, published)]
    keyed = {CellKey(cell.model, cell.benchmark, cell.split, cell.metric, cell.scoring): cell for cell in cells}
    return Table(
        name=name,
        columns=[column for column in columns if column.kind != Kind.SUBSET],
        subsets=[column for column in columns if column.kind == Kind.SUBSET],
        results={(result.model, result.benchmark, result.split): result for result in results},
        models=_unique(result.model for result in results),
        papers=[model for model in _unique(spec.published) if _has_number(model, columns, keyed)],
        closed=closed,
        cells=keyed,
    )


def _has_number(model: str, columns: Iterable[Column], cells: Mapping[CellKey, Cell]) -> bool:
    return any(CellKey(model, column.benchmark, column.split, column.metric, None) in cells for column in columns)


def _unique(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _columns(
    name: str, spec: TableSpec, results: Sequence[Result], splits: Mapping[str, Sequence[str]], published: Published
) -> list[Column]:
    """The columns by benchmark, split (as configured, overalls next, subsets last) and metric."""
    columns = []
    for benchmark in _unique(spec.benchmarks):
        inside = [result for result in results if result.benchmark == benchmark]
        kinds = {result.split: result.kind for result in inside}
        order = [split for split in splits.get(benchmark, []) if split in kinds]
        order += [split for split in kinds if split not in order]
        for split in [*order, *_paper_overalls(spec, inside, published)]:
            columns += [
                Column(benchmark, split, metric, kinds.get(split, Kind.OVERALL)) for metric in _metrics(spec, inside)
            ]
    shown = {column.metric for column in columns}
    if results and (lacking := [metric for metric in spec.metrics if metric not in shown]):
        there = sorted({metric for result in results for scores in result.scores.values() for metric in scores})
        raise ConfigError(f"tables.{name}.metrics: no result has {', '.join(lacking)}; there are {', '.join(there)}")
    return columns


def _metrics(spec: TableSpec, results: Sequence[Result]) -> list[str]:
    """The metrics of one benchmark's columns: those the table lists, or the defaults, that any result has a value of.

    Where no result has any value (no answer could be parsed), those that are there without one.
    """
    scores = [item for result in results for scores in result.scores.values() for item in scores.items()]
    there = {metric for metric, score in scores if score.value is not None} or {metric for metric, _ in scores}
    lists = [spec.metrics] if spec.metrics else DEFAULT_METRICS[results[0].task] if results else []
    chosen = [[metric for metric in metrics if metric in there] for metrics in lists]
    return next((metrics for metrics in chosen if metrics), [])


def _paper_overalls(spec: TableSpec, results: Sequence[Result], published: Published) -> list[str]:
    """Overalls of one benchmark that papers print and we don't compute, such as one whose pooling isn't stated."""
    comparable = {result.benchmark for result in results if not result.closed}
    ours = {result.split for result in results}
    return _unique(
        key.split
        for key in published
        if key.model in spec.published and key.benchmark in comparable and key.split in set(RESERVED_SPLITS) - ours
    )


def _cells(table: str, result: Result, published: Published) -> Iterator[Cell]:
    """Both scorings of every metric; a published number stands beside the official one only."""
    for scoring, scores in result.scores.items():
        for metric, score in scores.items():
            paper = None
            if result.published is not None and result.comparable and scoring == Scoring.OFFICIAL:
                paper = published.get(Key(result.benchmark, result.split, metric, result.published))
            yield _cell(table, result, metric, scoring, score, paper)


def _cell(table: str, result: Result, metric: str, scoring: Scoring, score: Score, paper: PublishedCell | None) -> Cell:
    value, low, high = (None if part is None else 100 * part for part in score)
    delta, verdict = None, None
    if paper is not None and value is not None:
        delta = value - paper.value
        # A subset is too small for a verdict: one of 7 samples is 14 points.
        verdict = None if result.kind == Kind.SUBSET else judge(value, low, high, paper.value, n=result.size(metric))
    return Cell(
        table=table,
        benchmark=result.benchmark,
        split=result.split,
        model=result.model,
        metric=metric,
        scoring=scoring,
        value=value,
        low=low,
        high=high,
        n=result.size(metric),
        unparsed=None if result.kind == Kind.SUBSET else result.unparsed,
        published=paper.value if paper else None,
        delta=delta,
        reproduces=verdict,
        grade=paper.grade if paper else None,
        source=paper.source if paper else None,
        custom=not result.official,
        partial=result.partial,
        limit=result.limit,
    )


def judge(value: float, low: float | None, high: float | None, published: float, *, n: int) -> Reproduces:
    """Whether `value` reproduces `published`, all in percent. Without an interval nothing can be `within`."""
    if abs(value - published) <= ROUNDING + 100 / n + 1e-9:  # the last term: decimal fractions in binary
        return Reproduces.EXACT
    if low is not None and high is not None and low <= published <= high:
        return Reproduces.WITHIN
    return Reproduces.NO


def _paper_cells(
    table: str, model: str, open_splits: Collection[tuple[str, str]], published: Published
) -> Iterator[Cell]:
    for key, paper in published.items():
        if key.model == model and (key.benchmark, key.split) in open_splits:
            yield Cell(
                table=table,
                benchmark=key.benchmark,
                split=key.split,
                model=model,
                metric=key.metric,
                scoring=None,
                value=None,
                low=None,
                high=None,
                n=None,
                unparsed=None,
                published=paper.value,
                delta=None,
                reproduces=None,
                grade=paper.grade,
                source=paper.source,
                custom=False,
                partial=False,
                limit=None,
            )


def tidy_frame(tables: Iterable[Table]) -> pd.DataFrame:
    """One row a number, the columns of `Cell`."""
    names = [field.name for field in fields(Cell)]
    frame = pd.DataFrame([asdict(cell) for table in tables for cell in table.cells.values()], columns=names)
    return frame.astype(dict.fromkeys(("n", "unparsed", "limit"), "Int64"))


def wide_frame(table: Table) -> pd.DataFrame:
    """One row a model, one column a number in percent, unrounded; `origin` tells runs from papers.

    `scoring` and `limit` say how the row's numbers were made ("official robust": some each).
    """
    rows = [_wide_row(table, model) for model in table.models]
    for model in table.papers:
        cells = {column.name: table.cell(model, column, None) for column in table.columns}
        rows.append({"model": model, "origin": "paper"} | {name: c.published for name, c in cells.items() if c})
    names = ["model", "origin", "scoring", "partial", "limit", *(column.name for column in table.columns)]
    return pd.DataFrame(rows, columns=names).astype({"limit": "Int64", "partial": "boolean"})


def _wide_row(table: Table, model: str) -> dict[str, object]:
    cells = {column.name: table.shown(model, column) for column in table.columns}
    there = [cell for cell in cells.values() if cell is not None]
    return {
        "model": model,
        "origin": "run",
        "scoring": " ".join(scoring for scoring in Scoring if any(cell.scoring == scoring for cell in there)),
        "partial": any(cell.partial for cell in there),
        "limit": max((cell.limit for cell in there if cell.limit is not None), default=None),
        **{name: cell.value for name, cell in cells.items() if cell is not None},
    }
