"""A Qwen2.5-VL of some hundred million random weights: requests in batches against one by one.

    PYTHONPATH=workflow/lib:. python -m tests.speed.bench_vlm [--requests 16] [--batch-size 8] [--threads N]

Needs the extra `torch`, 2 GB of memory and a minute. Both ways are the backend's own, in one process, on images of 640
x 480 pixels. Prints requests a second, their ratio, and how many answers are the same. On a GPU, which a single request
leaves idle for the most part, a batch brings more.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

if find_spec("torch") is None or find_spec("transformers") is None:
    print("not measured: needs torch and transformers (make bench EXTRAS=torch)")
    sys.exit()

import numpy as np
import torch
from PIL import Image

from reftables.models import vlm
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Prediction, Request, Task
from tests.torch import tiny_qwen

SIZE_HW = (480, 640)
TOKENS = 24  # of an answer: a box
WIDE = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "initializer_range": 0.02,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [16, 24, 24]},
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--requests", type=int, default=16)
    options.add_argument("--batch-size", type=int, default=8)
    options.add_argument("--threads", type=int, default=1, help="more measure what else the machine does as well")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        weights = tiny_qwen.save(
            Path(folder) / "weights", tiny_qwen.QWEN25, text=WIDE, vision={"out_hidden_size": 1024}
        )
        requests = draw_requests(Path(folder), args.requests)
        job = job_of(weights)
        predict(requests[:1], job)  # the first call of a kernel is slow
        start = time.perf_counter()
        alone = predict(requests, job)
        between = time.perf_counter()
        batched = predict(requests, replace(job, execution={"batch_size": args.batch_size}))
        end = time.perf_counter()
    slow, fast = between - start, end - between
    print(f"{args.requests} requests, {args.threads} threads, loading included")
    print(
        f"one by one {len(alone) / slow:.2f} requests/s, {args.batch_size} at once {len(alone) / fast:.2f}: "
        f"{slow / fast:.2f} times faster"
    )
    same = sum(one.text == other.text for one, other in zip(alone, batched, strict=True))
    print(f"the same answers: {same} of {len(alone)}")


def predict(requests: Sequence[Request], job: Job) -> list[Prediction]:
    return sorted(vlm.predict(requests, job), key=lambda prediction: prediction.id)


def draw_requests(folder: Path, number: int) -> list[Request]:
    """Texts of two lengths about images of one size."""
    draw = np.random.default_rng(0)
    requests = []
    for id_ in range(number):
        path = folder / f"{id_}.png"
        Image.fromarray(draw.integers(0, 256, (*SIZE_HW, 3), dtype=np.uint8)).save(path)
        requests.append(Request(id_, str(path), f"mug {id_:02d}" + " left" * (id_ % 2)))
    return requests


def job_of(weights: Path) -> Job:
    form = AnswerFormat(
        notation=Notation.JSON, coordinates=Coordinates.RESIZED_PIXELS, order=Order.XY, prompt="qwen", grid=None
    )
    identity = {"backend": "vlm", "weights": str(weights), "max_new_tokens": TOKENS}
    return Job(model="chat", benchmark="mine", split="val", task=Task.BOXES, form=form, identity=identity, execution={})


if __name__ == "__main__":
    main()
