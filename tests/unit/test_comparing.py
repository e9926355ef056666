"""Paired differences against slow references: the binomial tail summed, the bootstrap as a plain loop."""

import math
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reftables.comparing import Comparison, Side, compare, differing, mcnemar
from reftables.results import Scoring
from reftables.samples import Samples


def side(model: str, columns: Mapping[str, Sequence[Any]], *, scoring: Scoring = Scoring.ROBUST) -> Side:
    rows = len(next(iter(columns.values())))
    defaults = {"id": range(rows), "image": [f"{i}.jpg" for i in range(rows)], "status": ["ok"] * rows}
    return Side(model, scoring, Samples(pd.DataFrame({**defaults, **columns})))


def only(first: Mapping[str, Sequence[Any]], second: Mapping[str, Sequence[Any]]) -> Comparison:
    (found,) = compare([(side("one", first), side("two", second))])
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_twice_the_rarer_binomial_tail(wins: int, losses: int):
    n = wins + losses
    tail = sum(Fraction(math.comb(n, k), 2**n) for k in range(min(wins, losses) + 1))
    assert mcnemar(wins, losses) == pytest.approx(float(min(Fraction(1), 2 * tail)), rel=1e-12)


@pytest.mark.parametrize(
    ("wins", "losses", "p"),
    [(0, 0, 1.0), (5, 5, 1.0), (10, 0, 2 / 1024), (0, 10, 2 / 1024), (2500, 2300, 0.00407)],
)
def test_mcnemar_of_known_counts(wins: int, losses: int, p: float):
    assert mcnemar(wins, losses) == pytest.approx(p, rel=0.01)


def test_a_difference_is_first_minus_second_with_wins_and_losses():
    found = only({"robust_m": [1, 1, 1, 0]}, {"robust_m": [0, 0, 1, 1]})
    assert (found.first_value, found.second_value, found.difference) == (0.75, 0.5, 0.25)
    assert (found.wins, found.losses, found.p) == (2, 1, 1.0)


def test_equal_sides_have_no_interval():
    found = only({"robust_m": [1, 0, 1]}, {"robust_m": [1, 0, 1]})
    assert (found.difference, found.low, found.high, found.p) == (0.0, None, None, 1.0)


def test_values_between_0_and_1_have_an_interval_and_no_p():
    found = only({"robust_m": [0.9, 0.2, 0.4]}, {"robust_m": [0.5, 0.3, 0.1]})
    assert found.p is None
    assert found.low is not None
    assert found.low <= found.difference


def test_samples_of_one_image_stay_together():
    """All of an image's samples agree, so drawing samples would make the interval far too narrow."""
    random.seed(3)
    wins = [random.random() < 0.5 for _ in range(20)]
    first = [float(win) for win in wins for _ in range(10)]
    images = [f"{i}.jpg" for i in range(20) for _ in range(10)]
    found = only({"robust_m": first, "image": images}, {"robust_m": [0.0] * 200, "image": images})
    means = []
    for _ in range(2000):
        drawn = random.choices(wins, k=20)
        means.append(sum(drawn) / 20)
    low, high = np.quantile(means, [0.025, 0.975])
    assert found.low == pytest.approx(low, abs=0.051)
    assert found.high == pytest.approx(high, abs=0.051)


def test_a_unit_of_two_questions_counts_once():
    columns = {"unit": [0, 0, 1, 1], "image": ["a", "a", "b", "b"]}
    found = only({**columns, "robust_score": [1, 1, 0, 0]}, {**columns, "robust_score": [0, 0, 0, 0]})
    assert (found.n, found.wins, found.difference) == (2, 1, 0.5)


def test_ratios_of_sums_are_compared_as_such():
    first = {"intersection": [90, 1], "union": [100, 10], "robust_overall_iou": [0.9, 0.1]}
    second = {"intersection": [50, 10], "union": [100, 10], "robust_overall_iou": [0.5, 1.0]}
    found = only(first, second)
    assert found.difference == pytest.approx(91 / 110 - 60 / 110)
    assert found.p is None


def test_a_sample_the_authors_have_no_value_for_is_wrong():
    columns = {"official_m": [1, None], "robust_m": [1, 1]}
    one, other = (side("one", columns, scoring=scoring) for scoring in Scoring)
    (found,) = compare([(one, other)])
    assert (found.first_value, found.second_value, found.n) == (0.5, 1.0, 2)


def test_a_metric_that_one_side_lacks_is_passed_over():
    assert compare([(side("one", {"robust_m": [1]}), side("two", {"robust_other": [1]}))]) == []


def test_the_largest_differences_come_first_and_wins_before_losses():
    first, second = side("one", {"robust_m": [0.2, 1, 0, 0.5]}), side("two", {"robust_m": [0.1, 0, 1, 0.5]})
    assert [row.row for row in differing(first, second, "m")] == [1, 2, 0]
