"""95 % confidence intervals of the metrics of a split.

The samples of one image are not independent, so images are drawn, not samples: a bootstrap with the
image as cluster. Where that is blind (all values are 0 or all are 1) or needless (values of 0 and 1,
no image repeats) a metric gets Wilson's score interval instead.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from reftables.scoring.scores import Ratio

RESAMPLES = 2_000
SEED = 0
TAILS = (0.025, 0.975)
_Z = 1.959963984540054  # quantile of the normal distribution at the upper tail
_MOST_WEIGHTS = 2**22  # held at a time: 32 MB

Interval = tuple[float, float]


def intervals(metrics: Mapping[str, Ratio], clusters: Sequence[str], *, n: int) -> dict[str, Interval | None]:
    """(low, high) of each metric in the metric's own unit; None where it is undefined.

    `clusters` names the image of each row; `n` is the number of samples: less than the rows where a
    sample is a unit of paired questions. A metric without a value has no interval, nor has one with
    a single image to draw from.
    """
    images, codes = np.unique(np.asarray(clusters, dtype=np.str_), return_inverse=True)
    found = {name: _without_drawing(ratio, codes, n) for name, ratio in metrics.items()}
    drawn = [name for name, ratio in metrics.items() if found[name] is None and _can_be_drawn(ratio, codes)]
    if drawn:
        found.update(zip(drawn, _bootstrap([metrics[name] for name in drawn], codes, len(images)), strict=True))
    return found


def _without_drawing(ratio: Ratio, codes: NDArray[np.intp], n: int) -> Interval | None:
    """Wilson's interval where it applies."""
    samples = int(np.count_nonzero(ratio.denominator)) * n / max(len(codes), 1)
    if ratio.value in (0, 1):
        return wilson(ratio.value, samples)
    sums = _sums_by_image(ratio, codes)
    above, below = sums[:, sums[1] > 0]
    repeats = len(below) < samples
    is_share = np.isin(above / below, (0, 1)).all() and np.unique(below).size == 1
    return wilson(float(np.mean(above > 0)), len(below)) if is_share and not repeats else None


def _can_be_drawn(ratio: Ratio, codes: NDArray[np.intp]) -> bool:
    _, below = _sums_by_image(ratio, codes)
    return bool(np.count_nonzero(below) > 1)


def _sums_by_image(ratio: Ratio, codes: NDArray[np.intp]) -> NDArray[np.float64]:
    """(2, images): the sums of numerator and denominator."""
    return np.stack([np.bincount(codes, weights) for weights in (ratio.numerator, ratio.denominator)])


def wilson(share: float, n: float) -> Interval:
    """Wilson's score interval of a share of `n` independent samples."""
    squared = _Z * _Z / n
    middle = share + squared / 2
    reach = _Z * math.sqrt(share * (1 - share) / n + squared / (4 * n))
    low, high = (middle - reach) / (1 + squared), (middle + reach) / (1 + squared)
    # At the ends the formula gives exactly the share, the arithmetic only nearly.
    return (0.0 if share == 0 else low), (1.0 if share == 1 else high)


def _bootstrap(ratios: Sequence[Ratio], codes: NDArray[np.intp], images: int) -> list[Interval]:
    """The percentile intervals of `ratios`, all from the same draws."""
    low, high = np.nanquantile(drawn_values(ratios, codes, images), TAILS, axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def drawn_values(ratios: Sequence[Ratio], codes: NDArray[np.intp], images: int) -> NDArray[np.float64]:
    """The value of each of `ratios` in every draw, (RESAMPLES, ratios), all from the same draws.

    `codes` is the image of each row, from 0 to `images` - 1. A draw is one row of multinomial weights,
    (images,), so all sums of all draws are one matrix product. Of a metric that only some rows have a
    draw may hold none: then it says nothing, and its value is NaN.
    """
    sums = np.concatenate([_sums_by_image(ratio, codes) for ratio in ratios])
    totals = np.concatenate([weights @ sums.T for weights in _weights(images)])
    above, below = totals[:, ::2], totals[:, 1::2]
    values: NDArray[np.float64] = np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)
    return values


def _weights(images: int) -> Iterator[NDArray[np.float64]]:
    """How often each image is drawn: blocks of (draws, images), `RESAMPLES` draws in all.

    Counting draws costs a tenth of numpy's `multinomial`, which has the same distribution.
    """
    random = np.random.default_rng(SEED)
    most = max(1, _MOST_WEIGHTS // images)
    for start in range(0, RESAMPLES, most):
        weights = np.empty((min(most, RESAMPLES - start), images))
        for row, drawn in zip(weights, random.integers(images, size=weights.shape, dtype=np.int32), strict=True):
            row[:] = np.bincount(drawn, minlength=images)
        yield weights
