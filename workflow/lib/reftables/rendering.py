"""The printed tables as Markdown, and what all printed forms say around them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from reftables.grids import Grid
from reftables.sheets import Entry, Heading, Row, Section, Sheet

SAMPLE = "sample data, not comparable with any paper"
LEGEND = (
    "All numbers are percent. ± is the longer arm of the 95 % interval, whose ends are in tables.csv.",
    "Scoring is official (the authors' parser and arithmetic) unless a number is marked robust.",
    "Rows in italics are papers' numbers, none of them run here; paper is the number of the model's or the benchmark's "
    "own publisher, secondary one that others printed.",
    "exact: within rounding and one sample of the published number. within: the published number lies in our interval. "
    "no: neither.",
    "Behind a number stands how many of its answers were not plainly ok, and why.",
)
# Underscores inside a word, as in `mean_iou`, are no markup.
_MARKDOWN = re.compile(r"([\\|*`\[\]~]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z]))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the numbers come from, for the foot of the tables."""

    sample: bool
    selection: Mapping[str, str]
    config_files: Sequence[str]
    citations: Sequence[str]  # of the data
    lineage_parts: Sequence[str]
    lineages: Sequence[tuple[str, Sequence[str]]]  # "model on benchmark split", one hash a part


def escape(text: str) -> str:
    """`text` as plain text in a Markdown table: one line, no markup."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN.sub(r"\\\1", plain)


def markdown(sections: Sequence[Section], origin: Origin, grids: Sequence[Grid] = ()) -> str:
    """results/tables.md."""
    lines = ["# Tables", ""]
    if origin.sample:
        lines += [f"**{SAMPLE}**", ""]
    lines += [f"- {escape(line)}" for line in LEGEND]
    for section in sections:
        lines += ["", *_section(section)]
    for grid in grids:
        lines += ["", *_grid(grid)]
    return "\n".join([*lines, "", *_foot(origin), ""])


def _section(section: Section) -> Iterator[str]:
    for level, sheet in enumerate(section.sheets, start=2):
        if level > 2:
            yield ""
        yield f"{'#' * level} {escape(sheet.title)}"
        yield ""
        yield from _sheet(sheet)
    if section.footnotes:
        yield ""
        yield from (f"{number}. {escape(text)}" for number, text in enumerate(section.footnotes, start=1))


def _sheet(sheet: Sheet) -> Iterator[str]:
    if len(sheet.metrics) == 1:
        yield f"Metric: {escape(sheet.metrics[0])}"
        yield ""
    yield _line(["model", *(_heading(heading) for heading in sheet.headings)])
    yield _line(["---", *("---:" for _ in sheet.headings)])
    yield from (_row(row) for row in sheet.rows)


def _grid(grid: Grid) -> Iterator[str]:
    yield from (f"## {escape(grid.title)}", "", escape(grid.method), "")
    yield _line(list(map(escape, grid.headings)))
    yield _line(["---"] * grid.names + ["---:"] * (len(grid.headings) - grid.names))
    yield from (_line(list(map(escape, row))) for row in grid.rows)


def _line(fields: Sequence[str]) -> str:
    return f"| {' | '.join(fields)} |"


def _heading(heading: Heading) -> str:
    words = [heading.benchmark, heading.split, heading.metric]
    name = " ".join(escape(word) for word in words if word) + _marks(heading.marks)
    return f"{name}<br>{escape(heading.size)}" if heading.size else name


def _row(row: Row) -> str:
    return _line([_entry(entry, italic=row.paper) for entry in (row.label, *row.entries)])


def _entry(entry: Entry, *, italic: bool) -> str:
    text = escape(entry.text)
    parts = [f"*{text}*" if italic and text else text, entry.interval]
    if entry.remarks:
        parts.append(f"({escape(', '.join(entry.remarks))})")
    reading = " ".join(part for part in parts if part)
    return ", ".join(part for part in (reading, escape(entry.tally)) if part) + _marks(entry.marks)


def _marks(numbers: Sequence[int]) -> str:
    return f" <sup>{','.join(map(str, numbers))}</sup>" if numbers else ""


def _foot(origin: Origin) -> Iterator[str]:
    yield "## What these tables are made of"
    yield ""
    for name, value in origin.selection.items():
        yield f"- {escape(name)}: {escape(value)}"
    yield f"- config files: {escape(', '.join(origin.config_files))}"
    if origin.citations:
        yield ""
        yield "Data, to be cited:"
        yield ""
        yield from (f"- {escape(citation)}" for citation in origin.citations)
    yield ""
    yield "Lineage, one hash for each part of what a number depends on:"
    yield ""
    yield _line(["number", *(escape(part) for part in origin.lineage_parts)])
    yield _line(["---"] * (1 + len(origin.lineage_parts)))
    for name, hashes in origin.lineages:
        yield _line([escape(name), *(escape(value) for value in hashes)])
