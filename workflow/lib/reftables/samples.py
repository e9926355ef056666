"""The scores of every sample of one model on one split, read back from results/samples."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reftables.errors import DataError
from reftables.results import Scoring
from reftables.scoring.scores import Ratio

# Metrics that divide one sum by another: these two columns of every row.
SUM_METRICS = frozenset({"overall_iou", "gres_ciou"})
NUMERATOR, DENOMINATOR = "intersection", "union"
UNIT_METRIC = "score"  # of units, where a file has the column `unit`


@dataclass(frozen=True, slots=True)
class Samples:
    """One line a row of the truth file, in its order: id, image, status, further columns, metrics."""

    frame: pd.DataFrame

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def images(self) -> list[str]:
        return [str(image) for image in self.frame["image"]]

    @property
    def ids(self) -> list[int]:
        return [int(i) for i in self.frame["id"]]

    @property
    def statuses(self) -> list[str]:
        return [str(status) for status in self.frame["status"]]

    def metrics(self, scoring: Scoring) -> list[str]:
        prefix = f"{scoring}_"
        return [name.removeprefix(prefix) for name in self.frame.columns if name.startswith(prefix)]

    def values(self, scoring: Scoring, metric: str) -> NDArray[np.float64]:
        """(rows,): the value of every row, NaN where the metric leaves it out.

        Where the authors' script has no value for a row that counts, the row is wrong.
        """
        values = self._column(f"{scoring}_{metric}")
        robust = f"{Scoring.ROBUST}_{metric}"
        if scoring == Scoring.OFFICIAL and robust in self.frame.columns:
            values = np.where(np.isnan(values) & ~np.isnan(self._column(robust)), 0.0, values)
        return values

    def weights(self, metric: str) -> NDArray[np.float64]:
        """(rows,): how much of a sample each row is; the rows of a unit of paired questions share one."""
        if metric != UNIT_METRIC or "unit" not in self.frame.columns:
            return np.ones(len(self))
        _, members, sizes = np.unique(self.frame["unit"].to_numpy(), return_inverse=True, return_counts=True)
        shares: NDArray[np.float64] = 1 / sizes[members]
        return shares

    def ratio(self, scoring: Scoring, metric: str) -> Ratio:
        """The metric as the scorer made it: a ratio of sums over the rows."""
        values = self.values(scoring, metric)
        inside = ~np.isnan(values)
        if metric in SUM_METRICS:
            return Ratio(self._column(NUMERATOR) * inside, self._column(DENOMINATOR) * inside)
        weights = self.weights(metric) * inside
        return Ratio(np.where(inside, values, 0.0) * weights, weights)

    def _column(self, name: str) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self.frame[name].to_numpy(dtype=np.float64)
        return values


def read_samples(path: str | Path) -> Samples:
    try:
        frame = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype={"image": str, "status": str})
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file. Score the split again.") from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise DataError(f"{path}: not a CSV: {error}. Remove the file and run again.") from error
    if missing := {"id", "image", "status"} - set(frame.columns):
        raise DataError(f"{path}: no column {', '.join(sorted(missing))}. Remove the file and run again.")
    return Samples(frame)
