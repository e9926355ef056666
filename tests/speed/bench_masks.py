"""Time to make and to score the masks of a split of RefCOCO's size, against decoding every mask.

    PYTHONPATH=workflow/lib python tests/speed/bench_masks.py

Makes up 3,811 objects in images of 640x480, with 10,834 expressions and as many predicted masks. Prints
processor seconds (the best of a few runs, in turns) and what they are to be: scoring, its checks of every
RLE included, at least 15 times faster than a loop that decodes both masks of each pair, with equal mean and
overall IoU to the last digit; less than 400 MB at the peak; every object drawn once.
"""

import json
import math
import pickle
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as coco_mask

from reftables import rle
from reftables.benchmarks import refer
from reftables.rows import AnswerFormat, Notation, Prediction, Status, Task, TruthRow
from reftables.scoring import masks

EXPRESSIONS, OBJECTS = 10_834, 3_811  # refcoco val
WIDTH, HEIGHT = 640, 480
SIZE_WH = np.array([[WIDTH], [HEIGHT]])
CORNERS = 40  # of an outline
RUNS = 3
RLE = AnswerFormat(notation=Notation.RLE, coordinates=None, order=None, prompt="plain", grid=None)


def main() -> None:
    generator = np.random.default_rng(42)
    outlines = [made_up_outline(generator) for _ in range(OBJECTS)]
    with tempfile.TemporaryDirectory() as folder:
        settings = write_annotations(Path(folder), outlines)
        rows, making = timed(lambda: read_rows(settings))
    print(f"{EXPRESSIONS:,} rows from refs and instances: {making:.2f} s, {drawn_once(rows):,} objects drawn")
    for i, row in enumerate(rows):
        row["mask"] = rows[row.get("mask_of", i)]["mask"]  # as reading the truth file does

    predictions = made_up_predictions(generator, outlines, rows)
    characters = [len(prediction.rle["counts"]) for prediction in predictions if prediction.rle]
    print(f"{len(predictions):,} pairs of {WIDTH}x{HEIGHT}, {sum(characters) / len(characters):.0f} characters a mask")
    ours = [timed(lambda: score(rows, predictions)) for _ in range(RUNS)]
    print(f"peak memory {peak_megabytes():.0f} MB (wanted: less than 400)")
    loops = [timed(lambda: score_by_decoding(rows, predictions)) for _ in range(RUNS)]
    fast, slow = min(seconds for _, seconds in ours), min(seconds for _, seconds in loops)
    print(f"scoring {fast:.3f} s, decoding both {slow:.3f} s: {slow / fast:.1f} times faster (wanted: 15 or more)")
    print(f"mean and overall IoU {ours[0][0]}; equal: {ours[0][0] == loops[0][0]}")


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` gives, and its processor time in seconds."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def made_up_outline(generator: np.random.Generator) -> list[float]:
    """A wobbly ellipse `[x1, y1, x2, y2, ...]`, as large as the objects that RefCOCO asks for."""
    angles = np.sort(generator.uniform(0, 2 * np.pi, CORNERS))
    radii = generator.uniform(0.05, 0.25, size=(2, 1)) * SIZE_WH
    centre = generator.uniform(0.2, 0.8, size=(2, 1)) * SIZE_WH
    wobble = 1 + 0.05 * generator.standard_normal(CORNERS)
    points = centre + radii * wobble * np.array([np.cos(angles), np.sin(angles)])
    return [float(v) for v in np.clip(points, 0, SIZE_WH).T.round(2).ravel()]


def write_annotations(folder: Path, outlines: Sequence[Sequence[float]]) -> dict[str, str]:
    """The files of the refer source, one object an image."""
    images = [
        {"id": i, "file_name": f"COCO_train2014_{i:012d}.jpg", "width": WIDTH, "height": HEIGHT} for i in range(OBJECTS)
    ]
    annotations = [
        {"id": i, "image_id": i, "category_id": 1, "iscrowd": 0, "bbox": [0, 0, 9, 9], "segmentation": [outline]}
        for i, outline in enumerate(outlines)
    ]
    refs: list[dict[str, Any]] = [
        {"ref_id": i, "ann_id": i, "image_id": i, "split": "val", "sentences": []} for i in range(OBJECTS)
    ]
    for i in range(EXPRESSIONS):
        refs[i % OBJECTS]["sentences"].append({"sent_id": i, "sent": f"the thing number {i}"})
    settings = {"refs": str(folder / "refs.p"), "instances": str(folder / "instances.json"), "images": "/coco"}
    Path(settings["refs"]).write_bytes(pickle.dumps(refs, protocol=2))
    Path(settings["instances"]).write_text(json.dumps({"images": images, "annotations": annotations}), encoding="utf-8")
    return settings


def read_rows(settings: Mapping[str, str]) -> list[TruthRow]:
    return refer.read_truth(settings, benchmark="masks-refcoco", split="val", task=Task.MASKS).rows


def drawn_once(rows: Sequence[TruthRow]) -> int:
    return sum("mask" in row for row in rows)


def made_up_predictions(
    generator: np.random.Generator, outlines: Sequence[Sequence[float]], rows: Sequence[TruthRow]
) -> list[Prediction]:
    """The truth's outline as a whole and each corner moved: IoU between 0 and 1."""
    predictions = []
    for row in rows:
        points = np.array(outlines[int(row["image"][-16:-4])]).reshape(-1, 2).T
        moved = points + generator.normal(0, 40, size=(2, 1)) + generator.normal(0, 2, size=points.shape)
        mask = rle.from_polygons([np.clip(moved, 0, SIZE_WH).T.ravel().tolist()], (HEIGHT, WIDTH))
        predictions.append(Prediction(id=row["id"], status=Status.OK, rle=mask))
    return predictions


def score(rows: Sequence[TruthRow], predictions: Sequence[Prediction]) -> tuple[float | None, float | None]:
    official = masks.score(rows, predictions, RLE, {}).official or {}
    return official["mean_iou"].value, official["overall_iou"].value


def score_by_decoding(rows: Sequence[TruthRow], predictions: Sequence[Prediction]) -> tuple[float, float]:
    """The slow reference: both masks of every pair as arrays."""
    ious, intersections, unions = [], 0, 0
    for row, prediction in zip(rows, predictions, strict=True):
        truth, predicted = coco_mask.decode(row["mask"]), coco_mask.decode(prediction.rle)
        intersection = int(np.logical_and(truth, predicted).sum())
        union = int(np.logical_or(truth, predicted).sum())
        ious.append(intersection / union if union else 0.0)
        intersections, unions = intersections + intersection, unions + union
    return math.fsum(ious) / len(ious), intersections / unions


def peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)  # bytes on macOS, else kB


if __name__ == "__main__":
    main()
