"""What every scoring task returns: ratios of sums over the rows of a split."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reftables.rows import Status


@dataclass(frozen=True, slots=True)
class Ratio:
    """One metric of a split: sum of `numerator` over sum of `denominator`, both (rows,) float64.

    A mean has denominator 1 everywhere; a share of some rows only has 0 elsewhere; overall IoU has
    intersection over union; a row that is half of a paired unit has 0.5. Never NaN.
    """

    numerator: NDArray[np.float64]
    denominator: NDArray[np.float64]

    @classmethod
    def mean(cls, values: NDArray[Any] | Sequence[float]) -> "Ratio":
        numerator = np.asarray(values, dtype=np.float64)
        return cls(numerator, np.ones_like(numerator))

    @property
    def value(self) -> float | None:
        """Exactly rounded sums, one division last; None where the denominator is 0."""
        below = math.fsum(self.denominator.tolist())
        return math.fsum(self.numerator.tolist()) / below if below else None

    @property
    def hits(self) -> int | None:
        """The numerator where every row is one thing, or an equal part of one, and its value 0 or 1; else None."""
        inside = self.denominator > 0
        values = self.numerator[inside] / self.denominator[inside]
        if not inside.any() or self.denominator.max() > 1 or not np.isin(values, (0, 1)).all():
            return None
        return round(math.fsum(self.numerator.tolist()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The scores of one split; all arrays and lists have one entry a row of the truth file, in its order."""

    n: int  # the denominator: samples, or units where questions are paired
    requests: int | None  # rows where they differ from n, else None
    statuses: Sequence[Status]
    official: Mapping[str, Ratio] | None  # None: the format has no official scorer
    robust: Mapping[str, Ratio] | None  # None: the task has one scoring only (masks)
    official_undefined: NDArray[np.bool_] | None = None  # rows where the authors' script crashes: no value, wrong
    official_dropped: int | None = None  # rows the authors' script leaves out of its denominator
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # further columns of the samples file
    groups: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # breakdown name -> the group of each row
    notes: Sequence[str] = ()
