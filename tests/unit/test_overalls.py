"""Overalls: which there are, and what they are made of."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reftables.overalls import RESERVED_SPLITS, SURDS_TASKS, combine, define_overalls, missing_tasks
from reftables.results import Result, Score, Scoring
from reftables.rows import Task

REFSPATIAL = {"location": 100, "placement": 100, "unseen": 77}


def result(split: str, score: Score, *, n: int, task: Task = Task.POINTS, limit: int | None = None) -> Result:
    return Result(
        model="mine",
        benchmark="refspatial",
        split=split,
        task=task,
        published=None,
        official=True,
        custom=None,
        partial=False,
        limit=limit,
        options={},
        n=n,
        requests=None,
        status={"ok": n - 1, "unparsed": 1},
        scores={Scoring.OFFICIAL: {"accuracy": score}},
    )


def overall_of(name: str, results: list[Result]) -> Result:
    overalls = define_overalls(results[0].task, {part.split: part.n for part in results})
    return combine(results, next(overall for overall in overalls if overall.name == name))


def refspatial_results() -> list[Result]:
    values = {"location": Score(0.52, 0.4, 0.6), "placement": Score(0.53, 0.4, 0.6), "unseen": Score(0.3766, 0.3, 0.5)}
    return [result(split, values[split], n=n) for split, n in REFSPATIAL.items()]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("micro", (52 + 53 + 77 * 0.3766) / 277),
        ("macro", (0.52 + 0.53 + 0.3766) / 3),
        ("micro-without-unseen", 0.525),
        ("macro-without-unseen", 0.525),
    ],
)
def test_points_overall_has_its_weights(name: str, value: float):
    score = overall_of(name, refspatial_results()).scores[Scoring.OFFICIAL]["accuracy"]
    assert score.value == pytest.approx(value, abs=1e-12)


def test_interval_of_an_overall_is_the_weighted_mean_of_the_ends():
    score = overall_of("macro", refspatial_results()).scores[Scoring.OFFICIAL]["accuracy"]
    assert (score.low, score.high) == pytest.approx((1.1 / 3, 1.7 / 3))


@given(values=st.lists(st.floats(0, 1), min_size=3, max_size=3))
@settings(max_examples=50, deadline=None)
def test_overall_lies_between_its_splits(values: list[float]):
    parts = [result(s, Score(v), n=n) for (s, n), v in zip(REFSPATIAL.items(), values, strict=True)]
    value = overall_of("micro", parts).scores[Scoring.OFFICIAL]["accuracy"].value
    assert value is not None
    assert min(values) - 1e-12 <= value <= max(values) + 1e-12


def test_a_split_without_a_value_leaves_the_overall_without_one():
    parts = [result("location", Score(None), n=100), *refspatial_results()[1:]]
    assert overall_of("micro", parts).scores[Scoring.OFFICIAL]["accuracy"] == Score(None, None, None)


def test_overall_counts_the_samples_and_statuses_of_its_splits():
    micro = overall_of("micro", refspatial_results())
    assert (micro.n, micro.unparsed) == (277, 3)


def test_overall_of_a_limited_split_is_limited():
    parts = [*refspatial_results()[:2], result("unseen", Score(0.1), n=20, limit=20)]
    assert overall_of("micro", parts).limit == 20


@pytest.mark.parametrize(
    ("task", "splits", "names"),
    [
        pytest.param(Task.POINTS, ["location", "placement", "unseen"], list(RESERVED_SPLITS[:2]), id="three"),
        pytest.param(Task.POINTS, ["location", "placement"], ["micro", "macro"], id="no unseen to leave out"),
        pytest.param(Task.POINTS, ["location"], [], id="one split is no overall"),
        pytest.param(Task.ANSWERS, SURDS_TASKS, ["overall"], id="six tasks"),
        pytest.param(Task.ANSWERS, SURDS_TASKS[:5], [], id="five tasks are no overall"),
        pytest.param(Task.BOXES, ["val", "test"], [], id="boxes"),
        pytest.param(Task.MASKS, ["val", "test"], [], id="masks"),
    ],
)
def test_overalls_of_a_task(task: Task, splits: list[str], names: list[str]):
    found = [overall.name for overall in define_overalls(task, dict.fromkeys(splits, 10))]
    assert [name for name in found if "without" not in name] == names


def test_overalls_without_unseen_need_unseen():
    without = [o.name for o in define_overalls(Task.POINTS, REFSPATIAL) if "without" in o.name]
    assert without == ["micro-without-unseen", "macro-without-unseen"]


def test_only_the_overall_of_all_refspatial_splits_is_the_papers():
    assert [
        define_overalls(Task.POINTS, sizes)[0].whole for sizes in (REFSPATIAL, {"location": 1, "placement": 1})
    ] == [
        True,
        False,
    ]


def test_missing_tasks_are_named():
    assert missing_tasks(["yaw", "depth"]) == ["xy2d", "distance", "left_right", "front_behind"]
