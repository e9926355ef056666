"""The comparisons as they are read: plain tables of texts for Markdown, LaTeX and the page."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from reftables.analysis import Compared
from reftables.results import Scoring
from reftables.sheets import signed

METHOD = (
    "Both sides on the same samples; the difference is the first minus the second, in points, with its 95 % interval "
    "from a paired bootstrap that draws images. Wins and losses are the samples at which the first is better or worse; "
    "p is McNemar's exact test, for metrics of 0 and 1 only, uncorrected for the number of comparisons."
)
SCORINGS_METHOD = (
    "The same answers scored twice, as far as the two scorings differ: official (the authors' parser and arithmetic) "
    "minus robust. The difference is the parser's, not the model's."
)
HEADINGS = ("split", "metric", "n", "first", "second", "difference", "95 % interval", "wins", "losses", "p")


@dataclass(frozen=True, slots=True)
class Grid:
    """A table whose first `names` columns are words and whose others are numbers."""

    title: str
    method: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int


def comparison_grids(comparisons: Iterable[Compared]) -> list[Grid]:
    """Models against models, and official against robust where the two differ; only the lead metrics."""
    leads = [compared for compared in comparisons if compared.lead]
    models = [compared for compared in leads if not compared.of_scorings]
    scorings = [c for c in leads if c.of_scorings and (c.comparison.wins or c.comparison.losses)]
    grids = [
        Grid("Comparisons", METHOD, ("models", *HEADINGS), list(map(_models_row, models)), names=3),
        Grid("Official against robust", SCORINGS_METHOD, ("model", *HEADINGS), list(map(_scorings_row, scorings)), 3),
    ]
    return [grid for grid in grids if grid.rows]


def _models_row(compared: Compared) -> list[str]:
    comparison = compared.comparison
    return [f"{comparison.first} - {comparison.second}", *_fields(compared)]


def _scorings_row(compared: Compared) -> list[str]:
    return [compared.comparison.first, *_fields(compared)]


def _fields(compared: Compared) -> Iterator[str]:
    comparison = compared.comparison
    robust = Scoring.ROBUST in (comparison.first_scoring, comparison.second_scoring) and not compared.of_scorings
    yield f"{compared.benchmark} {compared.split}"
    yield f"{comparison.metric} (robust)" if robust else comparison.metric
    yield f"{comparison.n:,}"
    yield f"{100 * comparison.first_value:.2f}"
    yield f"{100 * comparison.second_value:.2f}"
    yield signed(100 * comparison.difference)
    yield span(comparison.low, comparison.high)
    yield f"{comparison.wins:,}"
    yield f"{comparison.losses:,}"
    yield p_value(comparison.p)


def span(low: float | None, high: float | None) -> str:
    """An interval of differences, in points."""
    return "" if low is None or high is None else f"{signed(100 * low)} to {signed(100 * high)}"


def p_value(p: float | None) -> str:
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
