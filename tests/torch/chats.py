"""What the tests of chat models share: what they ask, and jobs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reftables.models import vlm, vlm_model
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Prediction, Request, Task

BOXES = AnswerFormat(notation=Notation.JSON, coordinates=Coordinates.PIXELS, order=Order.XY, prompt="qwen", grid=None)
SIZES = [(90, 60), (64, 100), (350, 200)]
TEXTS = ["the red mug", "left one?", "Where is <it>?"]
MOST = 48  # new tokens; some answers end before, some don't


def make_job(folder: Path | str, form: AnswerFormat = BOXES, **identity: Any) -> Job:
    return Job(
        model="chat",
        benchmark="mine",
        split="val",
        task=Task.BOXES,
        form=form,
        identity={"backend": "vlm", "weights": str(folder), "max_new_tokens": MOST, **identity},
        execution={},
    )


def predict(requests: Sequence[Request], job: Job) -> list[Prediction]:
    return sorted(vlm.predict(requests, job), key=lambda prediction: prediction.id)


def load(job: Job) -> vlm_model.ChatModel:
    return vlm_model.load(job, max_new_tokens=MOST, system=None, pixels={}, trust_remote_code=False)
