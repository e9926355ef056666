"""Which samples of a split are worth a look: the worst, the best, the unread, those that models disagree on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from reftables.results import Scoring
from reftables.rows import Status, Task
from reftables.samples import Samples

# The metric a sample is graded by: finer than those of a table, the first of these that has a value.
GRADES: Mapping[Task, Sequence[str]] = {
    Task.BOXES: ("mean_iou",),
    Task.POINTS: ("accuracy",),
    Task.ANSWERS: ("request_accuracy",),
    Task.MASKS: ("mean_iou", "gres_giou"),
}
SEED = 0


class Group(StrEnum):
    """Why a sample is shown; it may belong to several."""

    WORST = "worst"
    BEST = "best"
    UNPARSED = "unparsed"  # and all others without a usable answer
    DISAGREE = "disagree"  # the models' grades lie far apart


@dataclass(frozen=True, slots=True)
class Chosen:
    """A row of the split. `spread`: the best model's grade less the worst's."""

    row: int
    groups: Sequence[Group]
    grade: float
    spread: float
    others: Mapping[str, float]  # the other models' grades


def grades(task: Task, samples: Samples) -> NDArray[np.float64]:
    """(rows,): the grade of every sample, robust where there are both; what has no value is graded 0."""
    scoring = Scoring.ROBUST if samples.metrics(Scoring.ROBUST) else Scoring.OFFICIAL
    known = samples.metrics(scoring)
    for metric in GRADES[task]:
        if metric in known and not np.isnan(values := samples.values(scoring, metric)).all():
            return np.nan_to_num(values)
    return np.zeros(len(samples))


def choose(task: Task, model: Samples, others: Mapping[str, Samples], *, each: int) -> list[Chosen]:
    """At most `each` samples of every group, in the order of the split.

    Equals are drawn, not taken from the top of the file, where they would be of a few images only.
    """
    own = grades(task, model)
    theirs = {name: grades(task, samples) for name, samples in others.items()}
    everyone = np.stack([own, *theirs.values()])
    spread = everyone.max(axis=0) - everyone.min(axis=0)
    unread = np.array([status not in (Status.OK, Status.TRUNCATED) for status in model.statuses])
    drawn = np.random.default_rng(SEED).permutation(len(own))
    members = {
        Group.WORST: _first(drawn, own, ~unread, each),
        Group.BEST: _first(drawn, -own, ~unread & (own > 0), each),
        Group.UNPARSED: _first(drawn, own, unread, each),
        Group.DISAGREE: _first(drawn, -spread, spread > 0, each),
    }
    rows = sorted({row for found in members.values() for row in found})
    return [
        Chosen(
            row,
            [group for group, found in members.items() if row in found],
            float(own[row]),
            float(spread[row]),
            {name: float(values[row]) for name, values in theirs.items()},
        )
        for row in rows
    ]


def _first(drawn: NDArray[np.intp], key: NDArray[np.float64], kept: NDArray[np.bool_], each: int) -> set[int]:
    """The rows with the smallest keys of those kept; among equals in the order drawn."""
    rows = drawn[kept[drawn]]
    return set(rows[np.argsort(key[rows], kind="stable")][:each].tolist())
