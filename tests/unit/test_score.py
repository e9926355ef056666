"""The score stage: what goes into the metrics file and the CSV of samples."""

import numpy as np
import pytest

from reftables.rows import Prediction, Status
from reftables.scoring import METRICS
from reftables.scoring.scores import Ratio, Scores
from reftables.stages.score import mixed, samples_csv, sizes_of, summary, tokens, weights

ROWS = [{"id": i, "image": f"{i // 2}.jpg"} for i in range(4)]
IMAGES = [row["image"] for row in ROWS]


def scores(*statuses: Status, **others: object) -> Scores:
    fields = {
        "n": 4,
        "requests": None,
        "statuses": statuses or [Status.OK] * 4,
        "official": {"accuracy": Ratio.mean([1, 0, 0, 1])},
        "robust": {"accuracy": Ratio.mean([1, 0.25, 0, 1])},
    }
    return Scores(**(fields | others))  # type: ignore[arg-type]


def test_both_scorings_have_values_counts_and_intervals() -> None:
    found = summary(scores(), IMAGES, with_intervals=True)
    assert (found["official"], found["robust"]) == ({"accuracy": 0.5}, {"accuracy": 0.5625})
    assert found["counts"] == {"official": {"accuracy": 2}, "robust": {}}
    low, high = found["intervals"]["robust"]["accuracy"]
    assert low <= 0.5625 <= high


def test_no_parsed_answer_is_no_number() -> None:
    found = summary(scores(*[Status.UNPARSED] * 3, Status.EMPTY), IMAGES, with_intervals=True)
    assert found["official"] == {"accuracy": None}
    assert found["status"] == {"unparsed": 3, "empty": 1}
    assert "intervals" not in found


def test_one_truncated_answer_is_enough_for_a_number() -> None:
    found = summary(scores(Status.TRUNCATED, *[Status.UNPARSED] * 3), IMAGES, with_intervals=False)
    assert found["official"] == {"accuracy": 0.5}


def test_metrics_over_some_samples_say_over_how_many() -> None:
    some = Ratio(np.array([1.0, 0, 0, 0]), np.array([1.0, 0, 1, 0]))
    assert sizes_of(scores(official={"accuracy": Ratio.mean([1] * 4), "n_acc": some})) == {"n_acc": 2}


def test_pixels_are_no_hits() -> None:
    assert Ratio(np.array([30.0, 0]), np.array([30.0, 10])).hits is None


def test_halves_of_units_add_up_to_hits() -> None:
    assert Ratio(np.array([0.5, 0.5, 0, 0]), np.full(4, 0.5)).hits == 1


def test_a_sample_without_a_value_has_an_empty_field() -> None:
    undefined = np.array([False, True, False, False])
    left_out = Ratio(np.array([1.0, 0, 0, 0]), np.array([1.0, 1, 0, 1]))
    text = samples_csv(ROWS, scores(official={"a": left_out}, robust=None, official_undefined=undefined))
    assert text.split("\n")[:5] == [
        "id,image,status,official_a",
        "0,0.jpg,ok,1",
        "1,0.jpg,ok,",
        "2,1.jpg,ok,",
        "3,1.jpg,ok,0",
    ]


def test_groups_are_broken_down() -> None:
    found = summary(scores(groups={"step": [1, 1, 2, 10]}), IMAGES, with_intervals=False)["groups"]["step"]
    assert {step: (part["n"], part["official"]["accuracy"]) for step, part in found.items()} == {
        "1": (2, 0.5),
        "10": (1, 1.0),
        "2": (1, 0.0),
    }


def test_tokens_are_summed_where_they_are_counted() -> None:
    spent = [Prediction(id=0, status=Status.OK, tokens_in=5, tokens_out=2), Prediction(id=1, status=Status.MISSING)]
    assert tokens(spent) == {"tokens": {"in": 5, "out": 2}}
    assert tokens(spent[1:]) == {}


def test_answers_of_several_versions_of_the_weights_are_noted() -> None:
    answered = [Prediction(id=i, status=Status.OK, weights=f"{'ab'[i % 2] * 40}") for i in range(4)]
    assert weights(answered) == ["a" * 40, "b" * 40]
    assert mixed(weights(answered)) == ["answers of 2 versions of the weights: aaaaaaaaaaaa, bbbbbbbbbbbb"]
    assert mixed(weights(answered[::2])) == mixed(weights([Prediction(id=0, status=Status.OK)])) == []


@pytest.mark.parametrize("task", list(METRICS))
def test_scorers_give_the_metrics_that_tables_may_ask_for(task: str) -> None:
    from importlib import import_module

    from reftables.rows import AnswerFormat, Coordinates, Notation, Order

    form = AnswerFormat(
        notation={"answers": Notation.SURDS, "masks": Notation.RLE}.get(task, Notation.JSON),
        coordinates=Coordinates.PIXELS,
        order=Order.XY,
        prompt="plain",
        grid=None,
    )
    row = {"id": 0, "image": "a.jpg", "width": 4, "height": 3, "expression": "it", "bbox_xywh": [0, 0, 2, 2]}
    row |= {"mask": {"size": [3, 4], "counts": "039"}, "step": 1, "question": "depth", "unit": 0, "variant": None}
    row |= {"options": ["a", "b"], "answer": "a", "bbox": None}
    found = import_module(f"reftables.scoring.{task}").score([row], [Prediction(id=0, status=Status.MISSING)], form, {})
    assert set(found.official or found.robust) == set(METRICS[task])
