"""What the stage `analyse` found out and `render` shows: results/analysis.json."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from reftables.breakdowns import Part
from reftables.comparing import Comparison
from reftables.errors import DataError
from reftables.files import canonical_json, pretty_json, read_text
from reftables.results import Scoring


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A comparison on one split. `wins` and `losses` name a few samples: id and expression."""

    benchmark: str
    split: str
    lead: bool  # the metric its task is told by
    comparison: Comparison
    wins: Sequence[tuple[int, str]] = ()
    losses: Sequence[tuple[int, str]] = ()

    @property
    def of_scorings(self) -> bool:
        """Official against robust of one model, not two models."""
        return self.comparison.first == self.comparison.second


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """One group of a breakdown of one model on one split."""

    benchmark: str
    split: str
    model: str
    metric: str
    scoring: Scoring
    part: Part


@dataclass(frozen=True, slots=True)
class Analysis:
    comparisons: Sequence[Compared] = ()
    breakdowns: Sequence[Breakdown] = ()

    def as_json(self, expected: Mapping[str, Any]) -> str:
        return pretty_json(
            {
                "lineage": lineage_of(expected),
                "comparisons": [
                    {**compared_row(c), "wins_first": list(c.wins), "losses_first": list(c.losses)}
                    for c in self.comparisons
                ],
                "breakdowns": [breakdown_row(b) for b in self.breakdowns],
            }
        )


def compared_row(compared: Compared) -> dict[str, Any]:
    """A row of results/comparisons.csv."""
    where = {"benchmark": compared.benchmark, "split": compared.split, "lead": compared.lead}
    return {**where, **asdict(compared.comparison)}


def breakdown_row(breakdown: Breakdown) -> dict[str, Any]:
    """A row of results/breakdowns.csv."""
    names = ("benchmark", "split", "model", "metric", "scoring")
    return {**{name: getattr(breakdown, name) for name in names}, **breakdown.part._asdict()}


def lineage_of(expected: Mapping[str, Any]) -> str:
    """What an analysis was made for: the cells with their lineages, and the pairs to compare."""
    content = canonical_json([expected["cells"], expected["comparisons"]])
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def read_analysis(path: str | Path, expected: Mapping[str, Any]) -> Analysis:
    """The analysis of the very results that are to be shown; DataError where it is of others."""
    try:
        content = json.loads(read_text(path))
        if content["lineage"] != lineage_of(expected):
            raise DataError(
                f"{path}: made for other results ({content['lineage']}, expected {lineage_of(expected)}). "
                "No table was written. Make it anew: snakemake --forcerun analyse"
            )
        return Analysis(
            [_compared(row) for row in content["comparisons"]],
            [_breakdown(row) for row in content["breakdowns"]],
        )
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not an analysis: {error!r}. Remove the file and run again.") from error


def _compared(row: Mapping[str, Any]) -> Compared:
    found = {field.name: row[field.name] for field in fields(Comparison)}
    found |= {name: Scoring(row[name]) for name in ("first_scoring", "second_scoring")}
    return Compared(
        benchmark=row["benchmark"],
        split=row["split"],
        lead=row["lead"],
        comparison=Comparison(**found),
        wins=[(i, text) for i, text in row["wins_first"]],
        losses=[(i, text) for i, text in row["losses_first"]],
    )


def _breakdown(row: Mapping[str, Any]) -> Breakdown:
    return Breakdown(
        benchmark=row["benchmark"],
        split=row["split"],
        model=row["model"],
        metric=row["metric"],
        scoring=Scoring(row["scoring"]),
        part=Part(**{name: row[name] for name in Part._fields}),
    )
