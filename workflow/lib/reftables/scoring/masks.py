"""Referring segmentation: how far predicted and true masks overlap, on sets with and without no-target samples.

One scoring, written as official. No mask is decoded, unless `eval_size` asks for another size.

Sources: henghuiding/ReLA, gres_model/evaluation/refer_evaluation.py (gIoU and cIoU with no-target samples);
yz93/LAVT-RIS, test.py (mean and overall IoU, precision). Unlike there, a missing answer is wrong whatever
the truth, and a share of no samples is null.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reftables import rle
from reftables.rle import Rle
from reftables.rows import AnswerFormat, Notation, Prediction, Status, TruthRow
from reftables.scoring import boxes
from reftables.scoring.scores import Ratio, Scores

THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
BOX_THRESHOLD = 0.5

_READABLE = frozenset({Status.OK, Status.TRUNCATED})
_BOXES_AS_MASKS = "boxes_as_masks: the model gives boxes; the first of each answer is filled and scored as its mask"


@dataclass(frozen=True, slots=True)
class Answers:
    """What each row of a split was answered."""

    masks: Sequence[Mapping[str, Any] | None]  # as submitted, unchecked; None: no mask was given
    says_none: Sequence[bool | None]  # the explicit word that there is no target (True) or one (False)
    statuses: Sequence[Status]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Overlaps:
    """Pixels of the true masks, of the predicted ones and of both, (n,) each; 0 where a mask isn't there."""

    truth: NDArray[np.int64]
    predicted: NDArray[np.int64]
    intersection: NDArray[np.int64]

    @property
    def union(self) -> NDArray[np.int64]:
        return self.truth + self.predicted - self.intersection


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What each row asked for and got, (n,) each. A row without an answer is neither `some` nor `none`."""

    has_target: NDArray[np.bool_]
    some: NDArray[np.bool_]  # a target was predicted
    none: NDArray[np.bool_]  # no target was predicted


def score(
    truth: Sequence[TruthRow], predictions: Sequence[Prediction], form: AnswerFormat, options: Mapping[str, Any]
) -> Scores:
    """The scores of a split; row i of `truth` is what `predictions[i]` answers.

    Options: `strict`: a precision threshold must be exceeded, not only reached; `eval_size`: both masks are
    first resized to this many pixels a side, whatever the image's shape. Raises DataError for a mask that
    is not a valid RLE of its image's size: then the file is damaged, not the answer wrong.
    """
    strict, side = bool(options.get("strict")), options.get("eval_size")
    answers = fill_boxes(truth, predictions, form) if form.notation is not Notation.RLE else read_masks(predictions)
    true_masks = [None if row.get("no_target") else row["mask"] for row in truth]
    masks = check(truth, answers.masks)
    overlaps = measure(_resized(true_masks, side), _resized(masks, side))
    verdicts = judge(true_masks, answers, overlaps)
    intersection, union = counted(overlaps, verdicts)
    return Scores(
        n=len(truth),
        requests=None,
        statuses=answers.statuses,
        official={
            **metrics(intersection, union, verdicts, strict=strict),
            f"box_precision@{BOX_THRESHOLD}": box_precision(truth, masks, verdicts),
        },
        robust=None,
        columns={"intersection": intersection.tolist(), "union": union.tolist()},
        notes=[*answers.notes, *_option_notes(strict, side)],
    )


def read_masks(predictions: Sequence[Prediction]) -> Answers:
    """The masks that were predicted. An `ok` answer with neither a mask nor the word `no_target` is empty."""
    readable = [prediction.status in _READABLE for prediction in predictions]
    return Answers(
        masks=[p.rle if read else None for p, read in zip(predictions, readable, strict=True)],
        says_none=[p.no_target if read else None for p, read in zip(predictions, readable, strict=True)],
        statuses=[
            Status.EMPTY if p.status is Status.OK and p.rle is None and not p.no_target else p.status
            for p in predictions
        ],
    )


def fill_boxes(truth: Sequence[TruthRow], predictions: Sequence[Prediction], form: AnswerFormat) -> Answers:
    """The first box of each answer in text, filled. Whoever writes a box says that there is a target."""
    found = boxes.read_answers(truth, predictions, form)
    masks: list[Rle | None] = [None] * len(truth)
    firsts = found.boxes.firsts
    for i, box in zip(found.boxes.rows[firsts].tolist(), found.boxes.xyxy[firsts].tolist(), strict=True):
        masks[i] = rle.from_box(box, (truth[i]["height"], truth[i]["width"]))
    says_none = [None if mask is None else False for mask in masks]
    return Answers(masks, says_none, found.statuses, [_BOXES_AS_MASKS, *found.notes])


def check(truth: Sequence[TruthRow], masks: Sequence[Mapping[str, Any] | None]) -> list[Rle | None]:
    """The predicted masks as pycocotools can be given them; DataError for one that is none, with the sample's id."""
    there = [i for i, mask in enumerate(masks) if mask is not None]
    found = rle.check(
        [masks[i] for i in there],
        [(truth[i]["height"], truth[i]["width"]) for i in there],
        names=[f"prediction of sample {truth[i]['id']}" for i in there],
    )
    checked: list[Rle | None] = [None] * len(masks)
    for i, mask in zip(there, found, strict=True):
        checked[i] = mask
    return checked


def measure(true_masks: Sequence[Rle | None], masks: Sequence[Rle | None]) -> Overlaps:
    """Areas of masks and of what they share, pair by pair; the masks of a pair have the same size."""
    pairs = [(i, t, m) for i, (t, m) in enumerate(zip(true_masks, masks, strict=True)) if t and m]
    shared = np.zeros(len(masks), dtype=np.int64)
    shared[[i for i, _, _ in pairs]] = rle.intersections([t for _, t, _ in pairs], [m for _, _, m in pairs])
    return Overlaps(_areas(true_masks), _areas(masks), shared)


def _areas(masks: Sequence[Rle | None]) -> NDArray[np.int64]:
    """(n,): 0 where there is no mask; a mask that several rows share is measured once."""
    once = {id(mask): mask for mask in masks if mask is not None}
    area_of = dict(zip(once, rle.areas([*once.values()]).tolist(), strict=True))
    return np.array([area_of.get(id(mask), 0) for mask in masks], dtype=np.int64)


def _resized(masks: Sequence[Rle | None], side: int | None) -> Sequence[Rle | None]:
    """The masks at `side` x `side` pixels, each that several rows share once; as they are where `side` is None."""
    if side is None:
        return masks
    once = {id(mask): mask for mask in masks if mask is not None}
    done = {key: rle.resized(mask, side) for key, mask in once.items()}
    return [None if mask is None else done[id(mask)] for mask in masks]


def judge(true_masks: Sequence[Rle | None], answers: Answers, overlaps: Overlaps) -> Verdicts:
    """Whether each answer predicts a target: its explicit word, else whether its mask has pixels."""
    given = np.array([mask is not None for mask in answers.masks], dtype=bool)
    yes = np.array([word is False for word in answers.says_none], dtype=bool)
    no = np.array([word is True for word in answers.says_none], dtype=bool)
    none = no | given & ~yes & (overlaps.predicted == 0)
    has_target = np.array([mask is not None for mask in true_masks], dtype=bool)
    return Verdicts(has_target=has_target, some=given & ~none, none=none)


def counted(overlaps: Overlaps, verdicts: Verdicts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Intersection and union of each row as they count, (n,) each.

    A target sample answered "no target" has no intersection, but the union of its mask as submitted. A
    no-target sample has a union only where something was predicted: all of that.
    """
    intersection = np.where(verdicts.has_target & verdicts.some, overlaps.intersection, 0)
    wrongly_predicted = np.where(verdicts.some, overlaps.predicted, 0)
    return intersection, np.where(verdicts.has_target, overlaps.union, wrongly_predicted)


def metrics(
    intersection: NDArray[np.int64], union: NDArray[np.int64], verdicts: Verdicts, *, strict: bool
) -> dict[str, Ratio]:
    """All mask metrics. Mean and overall IoU are undefined where there are no-target samples: gIoU and cIoU stand.

    A union of 0 gives IoU 0; in gIoU a no-target sample that was predicted as none counts 1.
    """
    target = verdicts.has_target
    iou = np.divide(intersection, union, out=np.zeros(len(union)), where=union > 0)
    plain = np.full(len(union), target.all())
    reached = {threshold: iou > threshold if strict else iou >= threshold for threshold in THRESHOLDS}
    return {
        "mean_iou": _ratio(iou * plain, plain),
        "overall_iou": _ratio(intersection * plain, union * plain),
        **{f"precision@{threshold}": _ratio(hit & target, target) for threshold, hit in reached.items()},
        "gres_giou": Ratio.mean(np.where(target, iou, verdicts.none)),
        "gres_ciou": _ratio(intersection, union),
        "n_acc": _ratio(verdicts.none & ~target, ~target),
        "t_acc": _ratio(verdicts.some & target, target),
    }


def _ratio(numerator: NDArray[Any], denominator: NDArray[Any]) -> Ratio:
    return Ratio(numerator.astype(np.float64), denominator.astype(np.float64))


def box_precision(truth: Sequence[TruthRow], masks: Sequence[Rle | None], verdicts: Verdicts) -> Ratio:
    """Share of the samples with an annotated box where the tight box of the mask has IoU >= 0.5 with it.

    A sample of no target, or of several, has no such box and is left out; one without a predicted target
    is wrong. Masks have their native size here, whatever `eval_size`.
    """
    annotated = np.array(["bbox_xywh" in row for row in truth], dtype=bool)
    rows = np.flatnonzero(annotated & verdicts.some).tolist()
    found_xyxy = rle.tight_boxes([mask for i in rows if (mask := masks[i]) is not None])
    true_xyxy = np.array([truth[i]["bbox_xywh"] for i in rows], dtype=np.float64).reshape(-1, 4)
    true_xyxy[:, 2:] += true_xyxy[:, :2]
    iou = boxes.paired_iou(found_xyxy.astype(np.float32), true_xyxy.astype(np.float32))
    hits = np.zeros(len(truth), dtype=bool)
    hits[rows] = iou >= BOX_THRESHOLD
    return _ratio(hits, annotated)


def _option_notes(strict: bool, side: int | None) -> list[str]:
    notes = []
    if side is not None:
        notes.append(f"eval_size: both masks were resized to {side}x{side} pixels (nearest) before they were compared")
    if strict:
        notes.append("strict: precision counts samples above the threshold, not those at it")
    return notes
