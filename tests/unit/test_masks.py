"""Mask metrics, against decoded arrays and rules written down row by row."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from PIL import Image
from pycocotools import mask as coco_mask

from reftables import rle
from reftables.errors import DataError
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Prediction, Status, TruthRow
from reftables.scoring import masks
from reftables.scoring.scores import Scores

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' decode

Mask = NDArray[np.uint8]
RLE = AnswerFormat(notation=Notation.RLE, coordinates=None, order=None, prompt="plain", grid=None)
JSON = AnswerFormat(notation=Notation.JSON, coordinates=Coordinates.PIXELS, order=Order.XY, prompt="plain", grid=None)
HEIGHT, WIDTH = 3, 5


def encode(mask: Mask) -> rle.Rle:
    encoded = coco_mask.encode(np.asfortranarray(mask))
    return {"size": list(encoded["size"]), "counts": encoded["counts"].decode()}


def stretch(length: int, start: int, stop: int) -> rle.Rle:
    """A mask of one line of pixels, inside from `start` to `stop`."""
    return encode(np.array([[start <= x < stop for x in range(length)]], dtype=np.uint8))


def row_of(i: int, mask: rle.Rle | None, **more: Any) -> TruthRow:
    height, width = mask["size"] if mask else (HEIGHT, WIDTH)
    truth: TruthRow = {"no_target": True} if mask is None else {"mask": mask}
    return {"id": i, "image": f"{i}.jpg", "width": width, "height": height} | truth | more


def answer(i: int, mask: rle.Rle | None = None, status: Status = Status.OK, **more: Any) -> Prediction:
    return Prediction(id=i, status=status, rle=mask, **more)


def score(
    truth: Sequence[rle.Rle | None], predictions: Sequence[rle.Rle | None], **options: Any
) -> dict[str, float | None]:
    rows = [row_of(i, mask) for i, mask in enumerate(truth)]
    return values(masks.score(rows, [answer(i, mask) for i, mask in enumerate(predictions)], RLE, options))


def values(scores: Scores) -> dict[str, float | None]:
    assert scores.official is not None
    return {metric: ratio.value for metric, ratio in scores.official.items()}


# Cases


def test_two_samples_of_the_case_file(cases):
    [case] = [case for case in cases("masks") if case["id"] == "two-samples"]
    truth = [stretch(200, 0, union) for _, union in case["samples"]]
    predicted = [stretch(200, 0, intersection) for intersection, _ in case["samples"]]
    assert score(truth, predicted).items() >= case["expected"].items()


def test_overlapping_parts_of_the_case_file(cases):
    [case] = [case for case in cases("masks") if case["id"] == "overlapping-parts"]
    union = np.zeros(case["size"], np.uint8)
    for left, top, _, _, right, bottom, _, _ in case["truth_polygons"]:
        union[top:bottom, left:right] = 1
    truth = rle.from_polygons(case["truth_polygons"], tuple(case["size"]))
    assert score([truth], [encode(union)])["mean_iou"] == case["expected"]["mean_iou"]


def test_implied_no_targets_of_the_case_file(cases):
    [case] = [case for case in cases("masks") if case["id"] == "no-target-implied"]
    truth = [stretch(200, 0, area) if area else None for _, area, _ in case["samples"]]
    predicted = [stretch(200, area - shared, area - shared + p) for p, area, shared in case["samples"]]
    rows = [row_of(i, mask) | {"width": 200, "height": 1} for i, mask in enumerate(truth)]
    found = values(masks.score(rows, [answer(i, mask) for i, mask in enumerate(predicted)], RLE, {}))
    assert {metric: found[metric] for metric in case["expected"]} == case["expected"]


def test_bad_rles_of_the_case_file_are_errors_that_name_the_sample(cases):
    [case] = [case for case in cases("masks") if case["id"] == "bad-rle"]
    rows = [row_of(i, case["good"]) for i in range(8)]
    for bad in case["bad"]:
        predictions = [answer(i, bad if i == 7 else case["good"]) for i in range(8)]
        with pytest.raises(DataError, match="prediction of sample 7: not a valid RLE mask"):
            masks.score(rows, predictions, RLE, {})


# Against an independent reference


def reference(truth: Sequence[Mask | None], predictions: Sequence[Prediction], strict: bool) -> dict[str, float | None]:
    """The metrics by the table of their definitions, one sample after the other, on decoded masks."""
    ious, shared_sum, union_sum, precision, none_right, some_right = [], 0, 0, [], [], []
    for mask, prediction in zip(truth, predictions, strict=True):
        given = None
        if prediction.status in {Status.OK, Status.TRUNCATED} and prediction.rle is not None:
            given = coco_mask.decode(dict(prediction.rle))
        flag = prediction.no_target if prediction.status in {Status.OK, Status.TRUNCATED} else None
        if given is None and not flag:
            says = "nothing"
        elif flag is not None:
            says = "none" if flag else "some"
        else:
            says = "some" if given is not None and given.any() else "none"
        predicted = np.zeros((HEIGHT, WIDTH), np.uint8) if given is None else given
        if mask is None:
            ious.append(1.0 if says == "none" else 0.0)
            union_sum += int(predicted.sum()) if says == "some" else 0
            none_right.append(says == "none")
            continue
        shared = int(np.logical_and(mask, predicted).sum()) if says == "some" else 0
        union = int(np.logical_or(mask, predicted).sum())
        shared_sum, union_sum = shared_sum + shared, union_sum + union
        ious.append(shared / union if union else 0.0)
        precision.append(ious[-1])
        some_right.append(says == "some")
    only_targets = not none_right

    def share(hits: Sequence[bool | float]) -> float | None:
        return math.fsum(hits) / len(hits) if hits else None

    def above(threshold: float) -> float | None:
        return share([iou > threshold if strict else iou >= threshold for iou in precision])

    overall = shared_sum / union_sum if union_sum else None
    return {
        "mean_iou": share(ious) if only_targets else None,
        "overall_iou": overall if only_targets else None,
        **{f"precision@{threshold}": above(threshold) for threshold in (0.5, 0.6, 0.7, 0.8, 0.9)},
        "gres_giou": share(ious),
        "gres_ciou": overall,
        "n_acc": share(none_right),
        "t_acc": share(some_right),
        "box_precision@0.5": None,
    }


PIXELS = arrays(np.uint8, (HEIGHT, WIDTH), elements=st.integers(0, 1))
SAMPLES = st.tuples(
    st.none() | PIXELS,
    st.none() | PIXELS,
    st.sampled_from([None, None, True, False]),
    st.sampled_from([Status.OK, Status.OK, Status.OK, Status.TRUNCATED, Status.REFUSED, Status.ERROR, Status.MISSING]),
)


@settings(max_examples=100, deadline=None)
@given(samples=st.lists(SAMPLES, min_size=1, max_size=6), strict=st.booleans())
def test_metrics_follow_the_table_of_definitions(samples: list[Any], strict: bool):
    truth = [mask for mask, _, _, _ in samples]
    predictions = [
        answer(i, None if given is None else encode(given), status, no_target=flag)
        for i, (_, given, flag, status) in enumerate(samples)
    ]
    rows = [row_of(i, None if mask is None else encode(mask)) for i, mask in enumerate(truth)]
    scores = masks.score(rows, predictions, RLE, {"strict": strict})
    assert values(scores) == reference(truth, predictions, strict)
    assert sum(scores.columns["union"]) >= sum(scores.columns["intersection"])


# No-target samples

NOTHING = encode(np.zeros((HEIGHT, WIDTH), np.uint8))
DOT = encode(np.eye(1, WIDTH, 2, dtype=np.uint8).repeat(HEIGHT, axis=0))  # one column of 3 pixels

FLAGS = {
    "empty mask": (answer(0, NOTHING), 1, 0),
    "a mask": (answer(0, DOT), 0, 3),
    "the word alone": (answer(0, no_target=True), 1, 0),
    "the word beside a mask": (answer(0, DOT, no_target=True), 1, 0),
    "denied, with an empty mask": (answer(0, NOTHING, no_target=False), 0, 0),
    "no answer": (answer(0), 0, 0),
    "denied, without a mask": (answer(0, no_target=False), 0, 0),
    "refused": (answer(0, status=Status.REFUSED), 0, 0),
    "refused, with an empty mask": (answer(0, NOTHING, Status.REFUSED), 0, 0),
    "missing, with the word": (answer(0, status=Status.MISSING, no_target=True), 0, 0),
}


@pytest.mark.parametrize(("prediction", "right", "union"), FLAGS.values(), ids=FLAGS.keys())
def test_a_no_target_sample_is_right_where_an_answer_says_so(prediction, right, union):
    scores = masks.score([row_of(0, None)], [prediction], RLE, {})
    found = values(scores)
    assert (found["gres_giou"], found["n_acc"], found["t_acc"]) == (right, right, None)
    assert scores.columns == {"intersection": [0], "union": [union]}


def test_a_target_answered_no_target_keeps_the_union_of_its_mask():
    truth = encode(np.ones((HEIGHT, WIDTH), np.uint8))
    scores = masks.score([row_of(0, truth), row_of(1, DOT)], [answer(0, DOT, no_target=True), answer(1, DOT)], RLE, {})
    assert scores.columns == {"intersection": [0, 3], "union": [HEIGHT * WIDTH, 3]}
    assert values(scores)["t_acc"] == 0.5


def test_mean_and_overall_iou_are_undefined_beside_no_target_samples():
    found = score([DOT, None], [DOT, NOTHING])
    assert (found["mean_iou"], found["overall_iou"], found["gres_giou"], found["gres_ciou"]) == (None, None, 1, 1)


def test_precision_leaves_no_target_samples_out():
    assert score([DOT, None], [DOT, DOT])["precision@0.5"] == 1


# Gaps


def test_a_gap_costs_as_much_as_the_worst_answer():
    rows = [row_of(0, DOT), row_of(1, DOT)]
    scores = masks.score(rows, [answer(0, DOT), answer(1, status=Status.MISSING)], RLE, {})
    found = values(scores)
    assert (found["mean_iou"], found["overall_iou"], found["t_acc"]) == (0.5, 0.5, 0.5)
    assert scores.columns == {"intersection": [3, 0], "union": [3, 3]}


STATUSES = {
    "mask": (answer(0, DOT), Status.OK),
    "empty mask": (answer(0, NOTHING), Status.OK),
    "no target": (answer(0, no_target=True), Status.OK),
    "nothing": (answer(0), Status.EMPTY),
    "a target without a mask": (answer(0, no_target=False), Status.EMPTY),
    "cut": (answer(0, DOT, Status.TRUNCATED), Status.TRUNCATED),
    "refused": (answer(0, status=Status.REFUSED), Status.REFUSED),
    "error": (answer(0, status=Status.ERROR), Status.ERROR),
    "missing": (answer(0, status=Status.MISSING), Status.MISSING),
}


@pytest.mark.parametrize(("prediction", "status"), STATUSES.values(), ids=STATUSES.keys())
def test_an_answer_with_neither_mask_nor_word_is_empty(prediction, status):
    assert masks.score([row_of(0, DOT)], [prediction], RLE, {}).statuses == [status]


def test_two_empty_masks_have_iou_0():
    assert score([NOTHING], [NOTHING])["mean_iou"] == 0


# Options


@pytest.mark.parametrize(("strict", "expected"), [(False, 1), (True, 0)])
def test_a_threshold_is_reached_or_exceeded(strict, expected):
    truth, predicted = stretch(10, 0, 10), [stretch(10, 0, reached) for reached in (5, 6, 7, 8, 9)]
    for mask, threshold in zip(predicted, (0.5, 0.6, 0.7, 0.8, 0.9), strict=True):
        assert score([truth], [mask], strict=strict)[f"precision@{threshold}"] == expected


@settings(max_examples=30, deadline=None)
@given(truth=PIXELS, predicted=PIXELS)
def test_both_masks_are_resized_where_the_option_asks(truth: Mask, predicted: Mask):
    big = [np.asarray(Image.fromarray(mask).resize((8, 8), Image.Resampling.NEAREST)) for mask in (truth, predicted)]
    assert score([encode(truth)], [encode(predicted)], eval_size=8) == score([encode(big[0])], [encode(big[1])])


def test_options_are_noted():
    scores = masks.score([row_of(0, DOT)], [answer(0, DOT)], RLE, {"strict": True, "eval_size": 480})
    assert scores.notes == [
        "eval_size: both masks were resized to 480x480 pixels (nearest) before they were compared",
        "strict: precision counts samples above the threshold, not those at it",
    ]


def test_native_size_needs_no_note():
    assert masks.score([row_of(0, DOT)], [answer(0, DOT)], RLE, {"strict": False}).notes == []


# Boxes of masks, masks of boxes

TRUE_BOX = {"bbox_xywh": [2, 0, 1, 3]}

BOXES = {
    "same box": (TRUE_BOX, answer(0, DOT), 1),
    "box of twice the size": ({"bbox_xywh": [2, 0, 2, 3]}, answer(0, DOT), 1),
    "box of more than that": ({"bbox_xywh": [2, 0, 2.1, 3]}, answer(0, DOT), 0),
    "empty mask": (TRUE_BOX, answer(0, NOTHING), 0),
    "mask taken back": (TRUE_BOX, answer(0, DOT, no_target=True), 0),
    "no mask": (TRUE_BOX, answer(0, status=Status.MISSING), 0),
    "several objects": ({}, answer(0, DOT), None),
}


@pytest.mark.parametrize(("true_box", "prediction", "expected"), BOXES.values(), ids=BOXES.keys())
def test_box_precision_compares_the_tight_box(true_box, prediction, expected):
    scores = masks.score([row_of(0, DOT, **true_box)], [prediction], RLE, {})
    assert values(scores)["box_precision@0.5"] == expected


def test_box_precision_leaves_no_target_samples_out():
    rows = [row_of(0, None), row_of(1, DOT, **TRUE_BOX)]
    scores = masks.score(rows, [answer(0, DOT), answer(1, DOT)], RLE, {})
    assert values(scores)["box_precision@0.5"] == 1


def text(i: int, words: str | None, status: Status = Status.OK) -> Prediction:
    return Prediction(id=i, status=status, text=words)


def test_a_box_in_text_is_filled():
    scores = masks.score([row_of(0, DOT)], [text(0, '{"bbox_2d": [2, 0, 3, 3]}')], JSON, {})
    assert values(scores)["mean_iou"] == 1
    assert scores.statuses == [Status.OK]
    assert scores.notes == [
        "boxes_as_masks: the model gives boxes; the first of each answer is filled and scored as its mask"
    ]


def test_a_box_of_patches_is_filled():
    kosmos = AnswerFormat(notation=Notation.KOSMOS, coordinates=None, order=None, prompt="kosmos", grid=32)
    whole = encode(np.ones((64, 64), np.uint8))
    words = "<phrase>a dog</phrase><object><patch_index_0000><patch_index_1023></object>"
    scores = masks.score([row_of(0, whole, expression="a dog")], [text(0, words)], kosmos, {})
    assert scores.columns == {
        "intersection": [62 * 62],
        "union": [64 * 64],
    }  # from centre to centre of the corner cells


def test_the_first_box_is_filled():
    scores = masks.score([row_of(0, DOT)], [text(0, "[[2, 0, 3, 3], [0, 0, 5, 3]]")], JSON, {})
    assert scores.columns == {"intersection": [3], "union": [3]}


def test_a_box_claims_a_target():
    rows = [row_of(0, None), row_of(1, None)]
    scores = masks.score(rows, [text(0, "[0, 0, 0, 0]"), text(1, "there is none")], JSON, {})
    assert values(scores)["n_acc"] == 0
    assert scores.statuses == [Status.OK, Status.UNPARSED]


def test_answers_without_a_box_are_wrong_by_their_status():
    answers = [text(0, "no idea"), text(1, ""), text(2, "[2, 0, 3, 3]", Status.REFUSED), text(3, "[2, 0, 3, 3]")]
    scores = masks.score([row_of(i, DOT) for i in range(4)], answers, JSON, {})
    assert scores.statuses == [Status.UNPARSED, Status.EMPTY, Status.REFUSED, Status.OK]
    assert values(scores)["mean_iou"] == 0.25
