"""Two scores of the same samples: how far apart they are, and whether that could be chance.

The difference is first minus second. Its 95 % interval is a paired bootstrap with the image as cluster:
both sides get the same draws of images, so what is hard for both drops out. Metrics of 0 and 1 also
get McNemar's exact test: were neither side better, the samples that only one has right would fall to
either side like a fair coin. That test takes samples as independent, which those of one image are not;
the interval does not. No p value is corrected for the number of comparisons.

Source: Q. McNemar, Psychometrika 12 (1947); B. Efron, R. Tibshirani, An Introduction to the Bootstrap (1993).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reftables.results import Scoring
from reftables.samples import SUM_METRICS, Samples
from reftables.scoring.intervals import TAILS, drawn_values
from reftables.scoring.scores import Ratio


class Side(NamedTuple):
    """One of the two: a model's samples, under one scoring."""

    model: str
    scoring: Scoring
    samples: Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric of two sides; values, difference and interval are fractions."""

    metric: str
    first: str
    second: str
    first_scoring: Scoring
    second_scoring: Scoring
    n: int
    first_value: float
    second_value: float
    difference: float
    low: float | None  # None: no sample differs, or all are of one image
    high: float | None
    wins: int  # samples at which the first is better
    losses: int
    p: float | None  # McNemar's; None where values other than 0 and 1 occur


class _Pairing(NamedTuple):
    metric: str
    first: Side
    second: Side


def mcnemar(wins: int, losses: int) -> float:
    """The two-sided exact p value: twice the binomial tail of the rarer outcome, 1 at most."""
    n, rarer = wins + losses, min(wins, losses)
    tail = term = 1
    for k in range(rarer):
        term = term * (n - k) // (k + 1)
        tail += term
    p: float = 2 * tail / 2**n
    return min(1.0, p)


def shared_metrics(first: Side, second: Side) -> list[str]:
    """The metrics of which both have at least one value."""
    known = second.samples.metrics(second.scoring)
    return [
        metric
        for metric in first.samples.metrics(first.scoring)
        if metric in known
        and not np.isnan(first.samples.values(first.scoring, metric)).all()
        and not np.isnan(second.samples.values(second.scoring, metric)).all()
    ]


def compare(sides: Sequence[tuple[Side, Side]]) -> list[Comparison]:
    """Every shared metric of every pair of sides; all sides are of one split, row by row the same samples."""
    pairings = [_Pairing(metric, *pair) for pair in sides for metric in shared_metrics(*pair)]
    if not pairings:
        return []
    images, codes = np.unique(np.asarray(sides[0][0].samples.images, dtype=np.str_), return_inverse=True)
    ratios = [side.samples.ratio(side.scoring, p.metric) for p in pairings for side in (p.first, p.second)]
    if len(images) > 1:
        drawn = drawn_values(ratios, codes, len(images))
        intervals = [_interval(a - b) for a, b in zip(drawn.T[::2], drawn.T[1::2], strict=True)]
    else:
        intervals = [(None, None)] * len(pairings)
    return [
        _comparison(pairing, a, b, interval)
        for pairing, a, b, interval in zip(pairings, ratios[::2], ratios[1::2], intervals, strict=True)
    ]


def _interval(differences: NDArray[np.float64]) -> tuple[float | None, float | None]:
    low, high = np.nanquantile(differences, TAILS)
    return float(low), float(high)


def _comparison(
    pairing: _Pairing, first: Ratio, second: Ratio, interval: tuple[float | None, float | None]
) -> Comparison:
    metric, one, other = pairing
    values = one.samples.values(one.scoring, metric)
    others = other.samples.values(other.scoring, metric)
    weights = one.samples.weights(metric)
    both = ~np.isnan(values) & ~np.isnan(others)
    wins, losses = (round(float(weights[both & better].sum())) for better in (values > others, values < others))
    is_share = metric not in SUM_METRICS and np.isin([values[both], others[both]], (0, 1)).all()
    first_value, second_value = first.value or 0.0, second.value or 0.0
    low, high = interval if wins or losses else (None, None)
    return Comparison(
        metric=metric,
        first=one.model,
        second=other.model,
        first_scoring=one.scoring,
        second_scoring=other.scoring,
        n=round(float(weights[both].sum())),
        first_value=first_value,
        second_value=second_value,
        difference=first_value - second_value,
        low=low,
        high=high,
        wins=wins,
        losses=losses,
        p=mcnemar(wins, losses) if is_share else None,
    )


class Differing(NamedTuple):
    """A row at which the two sides differ; `values` are theirs."""

    row: int
    first: float
    second: float


def differing(first: Side, second: Side, metric: str) -> list[Differing]:
    """The rows at which the sides differ, the largest differences first, wins before losses."""
    values = first.samples.values(first.scoring, metric)
    others = second.samples.values(second.scoring, metric)
    rows = np.flatnonzero(np.nan_to_num(values - others))
    gaps = (values - others)[rows]
    ordered = rows[np.lexsort((rows, -gaps, -np.abs(gaps)))]
    return [Differing(int(row), float(values[row]), float(others[row])) for row in ordered]
