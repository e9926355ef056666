"""What the footnotes of the tables say: everything a reader must know before comparing two numbers."""

from collections.abc import Iterable, Iterator, Mapping

from reftables.errors import counted
from reftables.overalls import define_overalls, missing_tasks
from reftables.published import Key, Published
from reftables.results import Kind, Result, Scoring
from reftables.rows import Status, Task
from reftables.tables import Cell, Column, Table

NOTABLE = 0.5  # points between the two scorings
NO_SOURCE = "no published value with a source"


class Footnotes:
    """Numbers footnotes from 1 as they come up; the same text keeps its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def marks(self, texts: Iterable[str]) -> list[int]:
        return sorted({self._numbers.setdefault(text, len(self._numbers) + 1) for text in texts})

    @property
    def texts(self) -> list[str]:
        return list(self._numbers)


def of_column(table: Table, column: Column) -> Iterator[str]:
    """What concerns every number of a column."""
    results = table.results_in(column)
    if not results:
        yield "printed by papers that don't say how they pool the splits: nothing of ours can stand beside it"
        return
    first = results[0]
    if first.custom is not None:
        yield f"custom set ({first.custom}): no published number can stand beside it"
    elif not first.official:
        yield "not over the splits of the papers' overalls: no published number can stand beside it"
    for option, value in first.options.items():
        yield f"scored with {option}: {str(value).lower()}"
    yield from first.split_notes
    sizes = {split: part.n for split, part in table.splits_of(first.model, column.benchmark).items()}
    if column.kind == Kind.OVERALL:
        overall = next(o for o in define_overalls(first.task, sizes) if o.name == column.split)
        yield f"{overall.name}: {overall.description}; the interval allows for errors that the splits share"
    elif first.task == Task.ANSWERS and (missing := missing_tasks(list(sizes))):
        yield f"no overall: it is the mean of six tasks, and there is no {', '.join(missing)}"


def of_result(table: Table, column: Column, result: Result) -> Iterator[str]:
    """What concerns one model on one split, whatever the metric."""
    if result.limit is not None:
        yield f"only the first {result.limit:,} samples: no published number can stand beside it"
    if result.partial:
        gaps = result.status.get(Status.MISSING, 0) + result.status.get(Status.ERROR, 0)
        yield (
            f"partial: {gaps:,} of {total(result):,} samples have no answer and count as wrong; "
            "no published number can stand beside it"
        )
    if result.dropped:
        left_out = counted(result.dropped, "sample", "samples")
        yield f"the authors' script leaves {left_out} out of its denominator; here all count, as wrong"
    yield from result.notes


def total(result: Result) -> int:
    """The answers that were asked for; more than `n` where questions are paired."""
    return result.requests or result.n


def of_number(table: Table, column: Column, result: Result, cell: Cell) -> Iterator[str]:
    """What concerns one number."""
    if cell.value is None:
        yield from _undefined(table, column, result)
    elif cell.scoring == Scoring.ROBUST:
        yield (
            "robust: the papers have no parser for this answer format; "
            "their numbers are made otherwise and do not stand beside it"
        )
    elif notable_robust(table, column, cell) is not None:
        yield (
            "the robust parser differs by half a point or more, as named: "
            "that difference is the parser's, not the model's"
        )


def notable_robust(table: Table, column: Column, cell: Cell) -> float | None:
    """The robust value beside an official one, where the two are at least NOTABLE apart."""
    robust = table.cell(cell.model, column, Scoring.ROBUST)
    if cell.value is None or robust is None or robust.value is None:
        return None
    apart = abs(robust.value - cell.value) >= NOTABLE - 1e-9  # decimal fractions in binary
    return robust.value if apart else None


def _undefined(table: Table, column: Column, result: Result) -> Iterator[str]:
    if column.kind == Kind.OVERALL:
        parts = table.splits_of(result.model, result.benchmark)
        empty = [split for split in parts if _lacks_value(table, result.model, column._replace(split=split))]
        yield f"no {column.split}: {', '.join(empty)} has no value"
    elif not all_unparsed(result):
        yield f"{column.metric} is undefined: no sample counts for it"


def _lacks_value(table: Table, model: str, column: Column) -> bool:
    cell = table.shown(model, column)
    return cell is None or cell.value is None


def all_unparsed(result: Result) -> bool:
    """Whether not one answer could be read, so that there is no number."""
    read = result.status.get(Status.OK, 0) + result.status.get(Status.TRUNCATED, 0)
    return bool(result.status) and not read


def lacks_published(published: Published, model: str, column: Column) -> bool:
    """Whether a paper's row, which has this metric of the benchmark elsewhere, has no number in this column."""
    if column.kind != Kind.SPLIT or Key(column.benchmark, column.split, column.metric, model) in published:
        return False
    return any((key.benchmark, key.metric, key.model) == (column.benchmark, column.metric, model) for key in published)


def of_sources(model: str, cells: Mapping[Column, Cell]) -> list[str]:
    """Where the published numbers of `model` come from; with several sources, which column has which."""
    columns: dict[tuple[str, str], list[str]] = {}
    for column, cell in cells.items():
        if cell.grade is not None and cell.source is not None:
            split, _, _ = column.split.partition("/")
            columns.setdefault((cell.grade, cell.source), []).append(f"{column.benchmark} {split}")
    return [
        f"{model}, {grade}: {source}" + (f" ({', '.join(dict.fromkeys(where))})" if len(columns) > 1 else "")
        for (grade, source), where in columns.items()
    ]
