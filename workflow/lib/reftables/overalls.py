"""The overalls of a benchmark: computed from the scores of its splits, under reserved split names.

Points (RefSpatial-Bench): `micro` weights the splits by their samples, `macro` weights them alike; each
also without the split `unseen`, which only models trained on RefSpatial are meant for. Answers (SURDS):
`overall`, the mean of the six tasks, only where all six are there. Boxes and masks have none.

An overall's interval goes from the weighted mean of the lower ends to that of the upper ends. Splits may
share images, so their errors may be correlated; the standard deviation of a weighted mean is at most the
weighted mean of the standard deviations, whatever the correlation, so under the normal approximation this
interval covers at least the 95 % of the splits' own.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import mul

from reftables.results import Kind, Result, Score, Scores, Scoring, derived
from reftables.rows import Task

UNSEEN = "unseen"
SURDS_TASKS = ("yaw", "xy2d", "depth", "distance", "left_right", "front_behind")
REFSPATIAL_SPLITS = ("location", "placement", UNSEEN)
RESERVED_SPLITS = ("micro", "macro", f"micro-without-{UNSEEN}", f"macro-without-{UNSEEN}", "overall")


@dataclass(frozen=True, slots=True)
class Overall:
    """A weighted mean of splits. `whole`: over the very splits that a paper's overall is over."""

    name: str
    weights: Mapping[str, float]  # split to weight; they sum to 1
    whole: bool

    @property
    def description(self) -> str:
        equal = len(set(self.weights.values())) == 1 and not self.name.startswith("micro")
        return f"{'mean' if equal else 'mean, weighted by samples,'} of {', '.join(self.weights)}"


def missing_tasks(splits: Sequence[str]) -> list[str]:
    """The SURDS tasks that `splits` lack: with any of them missing there is no overall."""
    return [task for task in SURDS_TASKS if task not in splits]


def define_overalls(task: Task, sizes: Mapping[str, int]) -> list[Overall]:
    """The overalls of a benchmark whose splits have `sizes` samples."""
    if task == Task.ANSWERS and not missing_tasks(list(sizes)):
        return [Overall("overall", dict.fromkeys(SURDS_TASKS, 1 / len(SURDS_TASKS)), whole=True)]
    if task == Task.POINTS:
        return list(_of_points(sizes))
    return []


def _of_points(sizes: Mapping[str, int]) -> Iterator[Overall]:
    seen = {split: n for split, n in sizes.items() if split != UNSEEN}
    for chosen, suffix in ((sizes, ""), (seen, f"-without-{UNSEEN}")):
        if len(chosen) < 2 or (suffix and len(seen) == len(sizes)):
            continue
        total, whole = sum(chosen.values()), set(sizes) == set(REFSPATIAL_SPLITS)
        yield Overall(f"micro{suffix}", {split: n / total for split, n in chosen.items()}, whole)
        yield Overall(f"macro{suffix}", {split: 1 / len(chosen) for split in chosen}, whole)


def combine(results: Sequence[Result], overall: Overall) -> Result:
    """The overall of one model on one benchmark; `results` are those of its splits."""
    parts = [result for result in results if result.split in overall.weights]
    weights = [overall.weights[part.split] for part in parts]
    total = derived(
        parts[0], Kind.OVERALL, overall.name, n=sum(part.n for part in parts), scores=_combine_scores(parts, weights)
    )
    return replace(
        total,
        official=overall.whole and all(part.official for part in parts),
        custom=next((part.custom for part in parts if part.custom), None),
        partial=any(part.partial for part in parts),
        requests=sum(part.requests or part.n for part in parts) if any(part.requests for part in parts) else None,
        limit=max((part.limit for part in parts if part.limit is not None), default=None),
        status=sum((Counter(part.status) for part in parts), Counter()),
    )


def _combine_scores(parts: Sequence[Result], weights: Sequence[float]) -> Scores:
    """Every metric that all parts have, scoring by scoring."""
    scores: dict[Scoring, dict[str, Score]] = {}
    for scoring in Scoring:
        tables = [part.scores.get(scoring, {}) for part in parts]
        shared = [metric for metric in tables[0] if all(metric in table for table in tables)]
        if shared:
            scores[scoring] = {metric: _combine([table[metric] for table in tables], weights) for metric in shared}
    return scores


def _combine(scores: Sequence[Score], weights: Sequence[float]) -> Score:
    """The weighted means of the values, of the lower and of the upper ends."""
    return Score(*(_mean(ends, weights) for ends in zip(*scores, strict=True)))


def _mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """The weighted mean; None where one value is None."""
    known = [value for value in values if value is not None]
    return math.fsum(map(mul, weights, known)) if len(known) == len(values) else None
