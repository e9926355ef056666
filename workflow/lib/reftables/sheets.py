"""The tables as they are read: every field as text in parts, and the numbered footnotes below."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from reftables import footnotes
from reftables.footnotes import Footnotes
from reftables.published import Grade, Key, Published
from reftables.results import Kind, Result, Scoring
from reftables.rows import Status
from reftables.tables import Cell, Column, Table

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Entry:
    """One field. All parts together read `57.42 ±1.3 (paper 57.42, Δ 0.00, exact), 3 unparsed`."""

    text: str = ""
    interval: str = ""
    remarks: Sequence[str] = ()
    tally: str = ""
    marks: Sequence[int] = ()  # its footnotes


@dataclass(frozen=True, slots=True)
class Heading:
    """The head of one column. `metric` is empty where all columns of the sheet have the same."""

    benchmark: str
    split: str
    metric: str
    size: str
    marks: Sequence[int]


@dataclass(frozen=True, slots=True)
class Row:
    """One model; `paper` where only a paper has its numbers."""

    label: Entry
    paper: bool
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Sheet:
    """One printed table."""

    title: str
    metrics: Sequence[str]
    headings: Sequence[Heading]
    rows: Sequence[Row]

    @property
    def spans(self) -> list[tuple[str, int]]:
        """The benchmarks above the columns, each with the number of columns it spans."""
        return [(name, len(list(group))) for name, group in groupby(heading.benchmark for heading in self.headings)]


@dataclass(frozen=True, slots=True)
class Section:
    """What is printed of one table: itself, its breakdown by parts of the splits if it has one, the footnotes."""

    name: str
    sheets: Sequence[Sheet]
    footnotes: Sequence[str]


def build_section(table: Table, published: Published) -> Section:
    """The printed form of `table`; `published` gives the papers' numbers as printed."""
    writer = _Writer(table, published, Footnotes())
    sheets = [writer.sheet(table.name, table.columns)]
    if table.subsets:
        # One metric is enough here; tables.csv has all of them.
        first = {column.benchmark: column.metric for column in reversed(table.columns)}
        chosen = [column for column in table.subsets if column.metric == first[column.benchmark]]
        sheets.append(writer.sheet(f"{table.name}, by parts of the splits", chosen))
    return Section(table.name, sheets, writer.notes.texts)


@dataclass(frozen=True, slots=True)
class _Writer:
    table: Table
    published: Published
    notes: Footnotes

    def sheet(self, title: str, columns: Sequence[Column]) -> Sheet:
        metrics = list(dict.fromkeys(column.metric for column in columns))
        headings = [self.heading(column, with_metric=len(metrics) > 1) for column in columns]
        rows = [self.row(model, columns) for model in self.table.models]
        rows += [self.paper_row(model, columns) for model in self.table.papers]
        # Not every model of a table stands in its breakdown.
        return Sheet(title, metrics, headings, [row for row in rows if any(entry.text for entry in row.entries)])

    def heading(self, column: Column, *, with_metric: bool) -> Heading:
        told = self.leads(column) and column.kind != Kind.SUBSET
        return Heading(
            benchmark=column.benchmark,
            split=column.split,
            metric=column.metric if with_metric else "",
            size=" or ".join(sorted({size(result, column.metric) for result in self.table.results_in(column)})),
            marks=self.notes.marks(footnotes.of_column(self.table, column)) if told else (),
        )

    def leads(self, column: Column) -> bool:
        """Whether this is the first column of its split: what concerns all metrics is said there."""
        return next(c for c in self.columns if (c.benchmark, c.split) == (column.benchmark, column.split)) == column

    @property
    def columns(self) -> list[Column]:
        return [*self.table.columns, *self.table.subsets]

    def row(self, model: str, columns: Sequence[Column]) -> Row:
        cells = {column: cell for column in self.columns if (cell := self.table.shown(model, column))}
        name = next(result.published for result in self.table.results.values() if result.model == model)
        sources = footnotes.of_sources(name, cells) if name else []
        label = Entry(model, marks=self.notes.marks(sources))
        return Row(label, False, [self.entry(column, cells.get(column)) for column in columns])

    def entry(self, column: Column, cell: Cell | None) -> Entry:
        if cell is None:
            return Entry()
        result = self.table.results[cell.model, cell.benchmark, cell.split]
        leads = self.leads(column) and column.kind == Kind.SPLIT
        unsourced = self.unsourced(column, result, cell)
        marks = self.notes.marks(self.entry_notes(column, result, cell, leads=leads, unsourced=unsourced))
        if cell.value is None:
            return Entry(NOTHING, remarks=unread(result), marks=marks)
        return Entry(
            text=f"{cell.value:.2f}",
            interval=interval(cell),
            remarks=[
                *restrictions(cell),
                *(["paper -"] if unsourced else self.comparison(cell, result)),
                *self.other_scoring(column, cell),
            ],
            tally=tally(result) if leads else "",
            marks=marks,
        )

    def entry_notes(self, column: Column, result: Result, cell: Cell, *, leads: bool, unsourced: bool) -> Iterator[str]:
        if leads:
            yield from footnotes.of_result(self.table, column, result)
        if column.kind != Kind.SUBSET:
            yield from footnotes.of_number(self.table, column, result, cell)
        if unsourced:
            yield footnotes.NO_SOURCE

    def unsourced(self, column: Column, result: Result, cell: Cell) -> bool:
        """Whether a published number could stand here, if only one had a source."""
        name = result.published
        if name is None or cell.value is None or not result.comparable or cell.scoring != Scoring.OFFICIAL:
            return False
        return footnotes.lacks_published(self.published, name, column)

    def comparison(self, cell: Cell, result: Result) -> list[str]:
        if cell.published is None or result.published is None:
            return []
        parts = [f"{origin(cell)} {self.printed(cell, result.published)}"]
        if cell.delta is not None:
            parts.append(f"Δ {signed(cell.delta)}")
        return [*parts, *([cell.reproduces] if cell.reproduces else [])]

    def other_scoring(self, column: Column, cell: Cell) -> list[str]:
        robust = None if column.kind == Kind.SUBSET else footnotes.notable_robust(self.table, column, cell)
        return [] if robust is None else [f"robust {robust:.2f}"]

    def printed(self, cell: Cell, model: str) -> str:
        return self.published[Key(cell.benchmark, cell.split, cell.metric, model)].text

    def paper_row(self, model: str, columns: Sequence[Column]) -> Row:
        cells = {column: cell for column in self.columns if (cell := self.table.cell(model, column, None))}
        label = Entry(model, marks=self.notes.marks(footnotes.of_sources(model, cells)))
        return Row(label, True, [self.paper_entry(model, column, cells.get(column)) for column in columns])

    def paper_entry(self, model: str, column: Column, cell: Cell | None) -> Entry:
        if cell is not None:
            return Entry(self.printed(cell, model))
        is_open = (column.benchmark, column.split) not in self.table.closed
        if is_open and footnotes.lacks_published(self.published, model, column):
            return Entry(NOTHING, marks=self.notes.marks([footnotes.NO_SOURCE]))
        return Entry()


def size(result: Result, metric: str) -> str:
    """How many samples a number is made of."""
    return f"n={result.size(metric):,}" + ("" if result.requests is None else f" ({result.requests:,} requests)")


def unread(result: Result) -> list[str]:
    """What stands in place of a number where not one answer could be read."""
    if result.kind != Kind.SPLIT or not footnotes.all_unparsed(result):
        return []
    return [f"{count:,} of {footnotes.total(result):,} {status}" for status, count in _statuses(result)]


def tally(result: Result) -> str:
    """How many answers have another status than `ok`, and which."""
    return ", ".join(f"{count:,} {status}" for status, count in _statuses(result))


def _statuses(result: Result) -> list[tuple[Status, int]]:
    """The statuses other than `ok` that occur, in their fixed order."""
    return [(status, result.status[status]) for status in Status if status != Status.OK and result.status.get(status)]


def interval(cell: Cell) -> str:
    """The longer arm of the 95 % interval, in points; the CSV has both ends."""
    if cell.value is None or cell.low is None or cell.high is None:
        return ""
    return f"±{max(cell.value - cell.low, cell.high - cell.value):.1f}"


def restrictions(cell: Cell) -> list[str]:
    """What keeps a number from being compared, in a word each."""
    words = []
    if cell.scoring == Scoring.ROBUST:
        words.append("robust")
    if cell.limit is not None:
        words.append(f"first {cell.limit:,}")
    if cell.partial:
        words.append("partial")
    return words


def origin(cell: Cell) -> str:
    """`paper` for a number its own publisher printed, `secondary` for one that others did."""
    return "paper" if cell.grade == Grade.PUBLISHER else str(cell.grade)


def signed(points: float) -> str:
    """Points with two decimals and a sign; what rounds to zero has none."""
    text = f"{points:+.2f}"
    return text[1:] if text[1:] == "0.00" else text
