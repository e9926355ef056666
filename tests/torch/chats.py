"""What the tests of chat models share: jobs, and requests about noise."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from reftables.models import vlm, vlm_model
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Prediction, Request, Task

BOXES = AnswerFormat(notation=Notation.JSON, coordinates=Coordinates.PIXELS, order=Order.XY, prompt="qwen", grid=None)
SIZES = [(90, 60), (64, 100), (350, 200)]
TEXTS = ["the red mug", "left one?", "Where is <it>?"]
MOST = 48  # new tokens; some answers end before, some don't


def draw_requests(folder: Path) -> list[Request]:
    """Every text of every image, images in turn; the images are noise."""
    draw = np.random.default_rng(0)
    for number, (width, height) in enumerate(SIZES):
        noise = draw.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{number}.png")
    pairs = [(number, text) for text in TEXTS for number in range(len(SIZES))]
    return [Request(id_, str(folder / f"{number}.png"), text) for id_, (number, text) in enumerate(pairs)]


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
