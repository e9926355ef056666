"""The splits the papers evaluate: names, sources and numbers of samples."""

from collections.abc import Mapping
from typing import NamedTuple

from reftables.rows import Task


class Official(NamedTuple):
    """An official benchmark; a count of None is one that nobody has confirmed: nothing is checked against it."""

    task: Task
    sources: frozenset[str]
    counts: Mapping[str, int | None]


_REFCOCO = {"val": 10_834, "testA": 5_657, "testB": 5_095}
_REFCOCO_PLUS = {"val": 10_758, "testA": 5_726, "testB": 4_889}
_REFCOCOG = {"val": 4_896, "test": 9_602}
_MDETR = frozenset({"mdetr"})
_MASKS = frozenset({"mdetr", "refer"})
_POINTS = frozenset({"refspatial"})

OFFICIAL: Mapping[str, Official] = {
    "refcoco": Official(Task.BOXES, _MDETR, _REFCOCO),
    "refcoco+": Official(Task.BOXES, _MDETR, _REFCOCO_PLUS),
    "refcocog": Official(Task.BOXES, _MDETR, _REFCOCOG),
    "masks-refcoco": Official(Task.MASKS, _MASKS, _REFCOCO),
    "masks-refcoco+": Official(Task.MASKS, _MASKS, _REFCOCO_PLUS),
    "masks-refcocog": Official(Task.MASKS, _MASKS, _REFCOCOG),
    "masks-refcocog-google": Official(Task.MASKS, frozenset({"refer"}), {"val": None}),
    "grefcoco": Official(Task.MASKS, frozenset({"grefer"}), {"val": None, "testA": None, "testB": None}),
    "refspatial": Official(Task.POINTS, _POINTS, {"location": 100, "placement": 100, "unseen": 77}),
    "refspatial-expand": Official(Task.POINTS, _POINTS, {"location": 241, "placement": 200}),
    "surds": Official(
        Task.ANSWERS,
        frozenset({"surds"}),
        # requests: 925 units a task, with two complementary questions in four of them
        {"yaw": 1_850, "xy2d": 925, "depth": 925, "distance": 1_850, "left_right": 1_850, "front_behind": 1_850},
    ),
}


def why_custom(benchmark: str, task: Task, source: str, split: str, count: int | None) -> str | None:
    """Why a configured split is not the papers' own; None where it is.

    `count` is the number the configuration expects, and so the number that is checked.
    """
    official = OFFICIAL.get(benchmark)
    if official is None:
        return "not a benchmark of the papers"
    if task != official.task or source not in official.sources:
        return f"task {task} from source {source}, not the papers' own"
    if split not in official.counts:
        return "not a split of the papers"
    expected = official.counts[split]
    if expected is not None and count != expected:
        return f"{'an unchecked number of' if count is None else f'{count:,}'} samples, the papers have {expected:,}"
    return None
