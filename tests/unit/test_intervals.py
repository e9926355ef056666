"""95 % intervals: images drawn with replacement, Wilson where that is blind or needless."""

import numpy as np
import pytest

from reftables.scoring.intervals import RESAMPLES, SEED, TAILS, intervals, wilson
from reftables.scoring.scores import Ratio

# Five images of different difficulty, one to nine samples each.
IMAGES = [name for name, count in zip("abcde", (9, 1, 4, 6, 2), strict=True) for _ in range(count)]
RANDOM = np.random.default_rng(1)
HITS = (RANDOM.random(len(IMAGES)) < 0.6).astype(float)
SHARES = RANDOM.random(len(IMAGES))
FLAGS = np.array([name in "ac" for name in IMAGES], dtype=float)


def bootstrap_slowly(ratio: Ratio, images: list[str]) -> tuple[float, float]:
    """The same draws, one image and one sample at a time."""
    names = sorted(set(images))
    values = []
    for draw in np.random.default_rng(SEED).integers(len(names), size=(RESAMPLES, len(names)), dtype=np.int32):
        rows = [row for image in draw for row, name in enumerate(images) if name == names[image]]
        below = ratio.denominator[rows].sum()
        if below:
            values.append(ratio.numerator[rows].sum() / below)
    low, high = np.quantile(values, TAILS)
    return float(low), float(high)


@pytest.mark.parametrize(
    "ratio",
    [
        pytest.param(Ratio.mean(HITS), id="hits"),
        pytest.param(Ratio.mean(SHARES), id="shares"),
        pytest.param(Ratio(SHARES * 50, SHARES * 50 + 10), id="sums-over-sums"),
        pytest.param(Ratio(SHARES * FLAGS, FLAGS), id="some-rows-only"),
    ],
)
def test_images_are_drawn_with_all_their_samples(ratio: Ratio):
    assert intervals({"metric": ratio}, IMAGES, n=len(IMAGES))["metric"] == pytest.approx(
        bootstrap_slowly(ratio, IMAGES), abs=1e-12
    )


def test_all_metrics_have_the_intervals_they_have_alone():
    metrics = {"hits": Ratio.mean(HITS), "none": Ratio.mean(HITS * 0), "shares": Ratio.mean(SHARES)}
    together = intervals(metrics, IMAGES, n=len(IMAGES))
    assert list(together) == list(metrics)
    for name, ratio in metrics.items():
        assert together[name] == pytest.approx(intervals({name: ratio}, IMAGES, n=len(IMAGES))[name])


def test_many_images_are_drawn_in_blocks(monkeypatch: pytest.MonkeyPatch):
    metrics = {"shares": Ratio.mean(SHARES)}
    whole = intervals(metrics, IMAGES, n=len(IMAGES))["shares"]
    monkeypatch.setattr("reftables.scoring.intervals._MOST_WEIGHTS", 7 * 5)
    blocks = intervals(metrics, IMAGES, n=len(IMAGES))["shares"]
    assert blocks == pytest.approx(whole, abs=0.05)  # other draws of the same distribution


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [
        pytest.param(8, 10, 0.4901625, 0.9433178, id="8-of-10"),
        pytest.param(0, 10, 0.0, 0.2775328, id="0-of-10"),
        pytest.param(10, 10, 0.7224672, 1.0, id="10-of-10"),
        pytest.param(1, 1, 0.2065493, 1.0, id="1-of-1"),
    ],
)
def test_wilson_gives_the_published_values(hits: int, n: int, low: float, high: float):
    assert wilson(hits / n, n) == pytest.approx((low, high), abs=1e-6)


def test_hits_on_images_that_never_repeat_get_wilson():
    hits = Ratio.mean([1, 0, 1, 1])
    assert intervals({"hits": hits}, ["a", "b", "c", "d"], n=4)["hits"] == wilson(0.75, 4)


def test_hits_of_some_rows_whose_images_never_repeat_get_wilson_over_those():
    hits = Ratio(np.array([1.0, 0, 1, 0]), np.array([1.0, 1, 1, 0]))
    assert intervals({"hits": hits}, ["a", "b", "c", "c"], n=4)["hits"] == wilson(2 / 3, 3)


def test_hits_that_agree_within_repeated_images_are_drawn_all_the_same():
    hits = Ratio.mean([1, 1, 0, 0, 1, 1])
    assert intervals({"hits": hits}, list("aabbcc"), n=6)["hits"] == bootstrap_slowly(hits, list("aabbcc"))


def test_shares_on_images_that_never_repeat_are_drawn():
    shares = Ratio.mean([0.5, 0.25, 1.0, 0.0])
    assert intervals({"shares": shares}, list("abcd"), n=4)["shares"] == pytest.approx(
        bootstrap_slowly(shares, list("abcd")), abs=1e-12
    )


@pytest.mark.parametrize("value", [0, 1])
def test_values_that_are_all_equal_get_wilson_though_images_repeat(value: int):
    equal = Ratio.mean([value] * len(IMAGES))
    assert intervals({"equal": equal}, IMAGES, n=len(IMAGES))["equal"] == wilson(value, len(IMAGES))


def test_a_sum_over_sums_that_is_all_0_counts_samples_not_pixels():
    nothing = Ratio(np.zeros(len(IMAGES)), np.full(len(IMAGES), 5000.0))
    assert intervals({"overall": nothing}, IMAGES, n=len(IMAGES))["overall"] == wilson(0, len(IMAGES))


def test_a_unit_of_two_questions_is_one_sample():
    half = np.full(6, 0.5)
    units = Ratio(half * [1, 1, 0, 0, 1, 1], half)
    assert intervals({"units": units}, list("aabbcc"), n=3)["units"] == wilson(2 / 3, 3)


@pytest.mark.parametrize(
    ("ratio", "images"),
    [
        pytest.param(Ratio.mean([]), [], id="no-rows"),
        pytest.param(Ratio(np.zeros(3), np.zeros(3)), ["a", "b", "c"], id="no-row-of-the-metric"),
        pytest.param(Ratio.mean([0, 1, 1]), ["a", "a", "a"], id="one-image"),
        pytest.param(Ratio(np.array([0.3, 0]), np.array([1.0, 0])), ["a", "b"], id="one-image-of-the-metric"),
    ],
)
def test_without_two_images_to_draw_there_is_no_interval(ratio: Ratio, images: list[str]):
    assert intervals({"metric": ratio}, images, n=len(images)) == {"metric": None}
