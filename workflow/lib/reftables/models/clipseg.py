"""CLIPSeg through transformers, on this machine: a mask for an expression.

The model answers with 352 x 352 logits. In this order: sigmoid; the probabilities resized to the image,
bilinear as `torch.nn.functional.interpolate` with `align_corners=False` does it; a pixel is inside where
its probability exceeds `threshold`. Another order gives other masks.

The image tower runs once an image, text tower and decoder once an expression, each alone: the logits
are then exactly those of the whole model at batch size 1. A batch of expressions moves logits by
rounding, and pixels at the threshold with them, for little gain: the image tower is most of the work.

Source: timojl/clipseg, models/clipseg.py and Quickstart.ipynb.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from reftables import rle
from reftables.errors import ConfigError
from reftables.models import local
from reftables.models.job import Job
from reftables.rows import Notation, Prediction, Request, Status, Task

if TYPE_CHECKING:
    from reftables.models.clipseg_model import ClipSeg

READS_TRUTH = False
LOOKS = True
STORED = True
WRITES_FORMAT = False
TASKS = frozenset({Task.MASKS})
REQUIRED = local.REQUIRED
OPTIONAL = local.OPTIONAL | {"threshold"}  # that a pixel's probability must exceed; 0.35 unless given
EXECUTION = local.EXECUTION - {"batch_size"}

THRESHOLD = 0.35

answer_files = local.answer_files


def check(job: Job) -> None:
    """ConfigError where identity or answer format cannot be."""
    local.check(job)
    _threshold(job)
    if job.form.notation is not Notation.RLE:
        raise ConfigError(
            f"models.{job.model}.formats.masks.notation: clipseg answers in rle, not in {job.form.notation}."
        )


def decides(request: Request, job: Job, image_digest: str) -> dict[str, Any]:
    """Weights, threshold and code, the expression, the image by its digest."""
    return {
        **local.decides(job, __name__),
        "threshold": _threshold(job),
        "text": request.text,
        "image": image_digest,
    }


def predict(requests: Sequence[Request], job: Job) -> Iterator[Prediction]:
    """Answers image by image."""
    local.require_torch(job)
    if not requests:
        return iter(())
    from reftables.models.clipseg_model import load

    predictions = _answer_all(requests, load(job), _threshold(job))
    return local.with_progress(predictions, len(requests), job)


def _threshold(job: Job) -> float:
    threshold = job.identity.get("threshold", THRESHOLD)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold < 1:
        raise ConfigError(
            f"models.{job.model}.identity.threshold: {threshold!r} is no probability to exceed, 0 or more and below 1."
        )
    return float(threshold)


def _answer_all(requests: Sequence[Request], model: "ClipSeg", threshold: float) -> Iterator[Prediction]:
    look = lru_cache(1)(lambda path: model.look(local.read_image(path)))

    def predict_one(batch: Sequence[Request]) -> list[Prediction]:
        (request,) = batch
        mask = rle.from_mask(model.segment(look(request.image), request.text, threshold))
        return [Prediction(id=request.id, status=Status.OK, rle=mask, weights=model.version)]

    return local.answer_in_batches(sorted(requests, key=attrgetter("image")), 1, predict_one)
