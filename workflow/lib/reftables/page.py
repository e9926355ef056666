"""results/index.html: the tables for the eye, with plots, breakdowns, comparisons and failures.

One self-contained file: styles, scripts and data inside, no network. Without scripts the tables stand as
they are printed. Two libraries move it, both inside: DataTables (MIT) sorts and searches the HTML tables
that are there, and Observable Plot (ISC, with d3) draws dots and intervals as SVG from data.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from reftables.analysis import Analysis, Breakdown, Compared
from reftables.footnotes import total
from reftables.grids import METHOD, SCORINGS_METHOD, p_value, span
from reftables.rendering import LEGEND, SAMPLE, Origin
from reftables.results import Result
from reftables.rows import Status
from reftables.sheets import Section, signed
from reftables.tables import Column, Table

TEMPLATES = Path(__file__).parent / "templates"


class Field(NamedTuple):
    """A text and what it is ordered by where that isn't the text."""

    text: str
    order: float | None = None


class ListedRow(NamedTuple):
    models: Sequence[str]  # hidden with any of them
    fields: Sequence[Field]


@dataclass(frozen=True, slots=True)
class Listing:
    """A long table, shown by pages. Its first `names` columns are words."""

    title: str
    headings: Sequence[str]
    names: int
    rows: Sequence[ListedRow]


class Examples(NamedTuple):
    title: str
    models: Sequence[str]
    wins: Sequence[tuple[int, str]]
    losses: Sequence[tuple[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the page has beside the printed tables."""

    comparisons: Listing
    breakdowns: Listing
    failures: Listing
    examples: Sequence[Examples]
    sources: Sequence[str]
    data: dict[str, Any]  # what the plots draw


def index_page(
    sections: Sequence[Section], tables: Sequence[Table], results: Sequence[Result], analysis: Analysis, origin: Origin
) -> str:
    return (
        environment()
        .get_template("index.html.j2")
        .render(
            sections=sections,
            origin=origin,
            legend=LEGEND,
            sample_line=SAMPLE,
            comparison_method=METHOD,
            scorings_method=SCORINGS_METHOD,
            view=view_of(tables, results, analysis),
        )
    )


@cache
def environment() -> jinja2.Environment:
    """Templates that escape every text, but for this package's own files and JSON that cannot close its element."""
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.globals["asset"] = asset
    found.filters["embedded"] = embedded
    found.filters["order"] = order
    return found


def asset(name: str) -> Markup:
    """A bundled script or style sheet."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def embedded(value: object) -> Markup:
    """JSON for a script element; `<` is written as an escape, so that no text in it can end the element."""
    return Markup(json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"))


def order(text: str) -> float:
    """What a number of a table is sorted by; what is none stands below all numbers."""
    try:
        return float(text)
    except ValueError:
        return -1.0


def view_of(tables: Sequence[Table], results: Sequence[Result], analysis: Analysis) -> View:
    shown = list(figures(tables))
    models = dict.fromkeys([*(result.model for result in results), *(row["model"] for f in shown for row in f["rows"])])
    return View(
        comparisons=comparison_list(analysis.comparisons),
        breakdowns=breakdown_list(analysis.breakdowns),
        failures=failure_list(results),
        examples=[examples_of(compared) for compared in analysis.comparisons if compared.wins or compared.losses],
        sources=list(sources_of(tables)),
        data={
            "models": list(models),
            "figures": shown,
            "breakdowns": [breakdown_point(breakdown) for breakdown in analysis.breakdowns],
            "comparisons": [comparison_point(c) for c in analysis.comparisons if c.lead and is_telling(c)],
        },
    )


def percent(fraction: float | None) -> float | None:
    return None if fraction is None else round(100 * fraction, 3)


def figures(tables: Iterable[Table]) -> Iterator[dict[str, Any]]:
    """One plot a column of the tables: every model's number, and the published ones."""
    for table in tables:
        for column in table.columns:
            if rows := list(_figure_rows(table, column)):
                yield {"title": f"{column.benchmark} {column.split}: {column.metric}", "rows": rows}


def _figure_rows(table: Table, column: Column) -> Iterator[dict[str, Any]]:
    for model in table.models:
        cell = table.shown(model, column)
        if cell is not None and cell.value is not None:
            ours = [None if number is None else round(number, 3) for number in (cell.value, cell.low, cell.high)]
            yield dict(zip(("model", "value", "low", "high", "published"), [model, *ours, cell.published], strict=True))
    for model in table.papers:
        cell = table.cell(model, column, None)
        if cell is not None:
            yield {"model": model, "value": None, "low": None, "high": None, "published": cell.published}


def sources_of(tables: Iterable[Table]) -> Iterator[str]:
    """Where published numbers come from, each source once."""
    told = dict.fromkeys(
        f"{result.published if result else cell.model}, {cell.grade}: {cell.source}"
        for table in tables
        for cell in table.cells.values()
        if cell.source is not None
        for result in [table.results.get((cell.model, cell.benchmark, cell.split))]
    )
    yield from told


def breakdown_point(breakdown: Breakdown) -> dict[str, Any]:
    part = breakdown.part
    return {
        "split": f"{breakdown.benchmark} {breakdown.split}",
        "model": breakdown.model,
        "breakdown": part.breakdown,
        "group": part.group,
        "n": part.n,
        "value": percent(part.value),
        "low": percent(part.low),
        "high": percent(part.high),
    }


def breakdown_list(breakdowns: Iterable[Breakdown]) -> Listing:
    headings = ("split", "breakdown", "group", "model", "metric", "n", "value", "95 % interval")
    rows = []
    for b in breakdowns:
        interval = "" if b.part.low is None or b.part.high is None else f"{b.part.low:.2%} to {b.part.high:.2%}"
        names = (f"{b.benchmark} {b.split}", b.part.breakdown, b.part.group, b.model, f"{b.metric} ({b.scoring})")
        numbers = [
            Field(f"{b.part.n:,}", b.part.n),
            Field(f"{100 * b.part.value:.2f}", b.part.value),
            Field(interval.replace("%", ""), b.part.low),
        ]
        rows.append(ListedRow([b.model], [*map(Field, names), *numbers]))
    return Listing("Breakdowns", headings, 5, rows)


def is_telling(compared: Compared) -> bool:
    """Whether there is a difference to draw; equal scorings are the rule and say nothing."""
    return not compared.of_scorings or bool(compared.comparison.wins or compared.comparison.losses)


def pair_of(compared: Compared) -> str:
    comparison = compared.comparison
    if compared.of_scorings:
        return f"{comparison.first}: {comparison.first_scoring} - {comparison.second_scoring}"
    return f"{comparison.first} - {comparison.second}"


def comparison_point(compared: Compared) -> dict[str, Any]:
    comparison = compared.comparison
    return {
        "models": [comparison.first, comparison.second],
        "pair": pair_of(compared),
        "split": f"{compared.benchmark} {compared.split}",
        "value": percent(comparison.difference),
        "low": percent(comparison.low),
        "high": percent(comparison.high),
        "n": comparison.n,
    }


def comparison_list(comparisons: Iterable[Compared]) -> Listing:
    headings = ("pair", "split", "metric", "n", "first", "second", "difference", "95 % interval", "wins", "losses", "p")
    rows = []
    for compared in comparisons:
        if not is_telling(compared):
            continue
        c = compared.comparison
        scoring = "" if compared.of_scorings else f" ({c.first_scoring})"
        names = (pair_of(compared), f"{compared.benchmark} {compared.split}", f"{c.metric}{scoring}")
        numbers = [
            Field(f"{c.n:,}", c.n),
            Field(f"{100 * c.first_value:.2f}", c.first_value),
            Field(f"{100 * c.second_value:.2f}", c.second_value),
            Field(signed(100 * c.difference), c.difference),
            Field(span(c.low, c.high), c.low),
            Field(f"{c.wins:,}", c.wins),
            Field(f"{c.losses:,}", c.losses),
            Field(p_value(c.p), c.p),
        ]
        rows.append(ListedRow([c.first, c.second], [*map(Field, names), *numbers]))
    return Listing("Comparisons", headings, 3, rows)


def examples_of(compared: Compared) -> Examples:
    comparison = compared.comparison
    title = f"{pair_of(compared)}, {compared.benchmark} {compared.split}: samples that differ most"
    return Examples(title, [comparison.first, comparison.second], compared.wins, compared.losses)


def failure_list(results: Sequence[Result]) -> Listing:
    """How many answers have which status, as far as a status occurs at all."""
    statuses = [status for status in Status if any(result.status.get(status) for result in results)]
    rows = [
        ListedRow(
            [result.model],
            [
                Field(f"{result.benchmark} {result.split}"),
                Field(result.model),
                Field(f"{total(result):,}", total(result)),
                *(Field(f"{result.status.get(s, 0):,}", result.status.get(s, 0)) for s in statuses),
            ],
        )
        for result in results
    ]
    return Listing("Failures", ("split", "model", "answers", *statuses), 2, rows)
