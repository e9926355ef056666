"""Time from an annotation file to its Kosmos request file, against a scan of all images per annotation.

    PYTHONPATH=workflow/lib python tests/speed/bench_locout.py

Reads the annotations of refcoco val from REFTABLES_REAL_DATA (default: ../shared/data beside the
repository), or makes as many of the same shape. Prints processor seconds, the best of a few runs, and
two ratios: how many times faster than the scan (wanted: 15 or more), and how much longer twice the
data takes (wanted: 2.2 or less).
"""

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reftables.benchmarks import mdetr
from reftables.files import format_request, write_atomically
from reftables.rows import Task

EXPRESSIONS = 10_834  # refcoco val
IMAGES = "/data"
RUNS = 7


def main() -> None:
    root = read_annotations()
    with tempfile.TemporaryDirectory() as folder:
        once, twice = Path(folder, "once.json"), Path(folder, "twice.json")
        once.write_text(json.dumps(root), encoding="utf-8")
        twice.write_text(json.dumps(doubled(root)), encoding="utf-8")
        size = once.stat().st_size
        ours, theirs = Path(folder, "ours.locout"), Path(folder, "theirs.locout")
        scan = seconds(lambda: write_by_scan(once, theirs))
        single, double = best_pair(lambda: write_by_join(once, ours), lambda: write_by_join(twice, Path(folder, "2")))
        same = ours.read_bytes() == theirs.read_bytes()
    print(f"{len(root['annotations']):,} annotations, {size / 1e6:.1f} MB; the same bytes: {same}")
    print(f"scan per annotation {scan:.3f} s, ours {single:.3f} s: {scan / single:.1f} times faster")
    print(f"twice the data {double:.3f} s: {double / single:.2f} times as long")


def write_by_join(annotations: Path, locout: Path) -> None:
    """What the truth and requests stages do for one split."""
    settings = {"annotations": str(annotations), "images": IMAGES}
    rows = mdetr.read_truth(settings, benchmark="refcoco", split="val", task=Task.BOXES).rows
    texts = mdetr.request_texts(rows, settings, split="val", prompt="kosmos")
    images = mdetr.image_root(settings, "val")
    lines = [
        format_request(f"{images}/{row['image']}", text, prompt="kosmos") for row, text in zip(rows, texts, strict=True)
    ]
    write_atomically(locout, "".join(f"{line}\n" for line in lines))


def write_by_scan(annotations: Path, locout: Path) -> None:
    """The slow reference: every annotation looks through all images for its own."""
    root = json.loads(annotations.read_text(encoding="utf-8"))
    with locout.open("w", encoding="utf-8", newline="\n") as file:
        for annotation in root["annotations"]:
            matches = [image for image in root["images"] if image["id"] == annotation["image_id"]]
            name, caption = matches[0]["file_name"], matches[0]["caption"]
            folder = "train2014" if "train2014" in name else "val2014"
            file.write(f"[image]{IMAGES}/{folder}/{name}<tab><grounding><phrase>{caption}</phrase>\n")


def seconds(work: Callable[[], None]) -> float:
    """The processor time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def best_pair(first: Callable[[], None], second: Callable[[], None]) -> tuple[float, float]:
    """The shortest processor times of two jobs, run in turns so that both see the same machine."""
    times = [(seconds(first), seconds(second)) for _ in range(RUNS)]
    return min(first for first, _ in times), min(second for _, second in times)


def read_annotations() -> dict[str, Any]:
    repository = Path(__file__).resolve().parents[2]
    data = Path(os.environ.get("REFTABLES_REAL_DATA", repository.parent / "shared" / "data"))
    real = data / "mdetr" / "finetune_refcoco_val.json"
    return json.loads(real.read_text(encoding="utf-8")) if real.is_file() else made_up_annotations()


def made_up_annotations() -> dict[str, Any]:
    """As many entries as refcoco val, of the same shape."""
    images, annotations = [], []
    for number in range(EXPRESSIONS):
        caption = f"the man in the red shirt number {number}"
        image = {"file_name": f"COCO_train2014_{number // 7:012d}.jpg", "height": 480, "width": 640, "id": number}
        images.append(image | {"caption": caption, "dataset_name": "refcoco", "tokens_negative": [[0, len(caption)]]})
        box = [number % 400 + 0.25, number % 300 + 0.5, 120.75, 90.5]
        annotation = {"area": 10927.875, "iscrowd": 0, "image_id": number, "category_id": 1, "id": number, "bbox": box}
        annotations.append(annotation | {"original_id": number // 3, "tokens_positive": [[0, len(caption)]]})
    return {"images": images, "annotations": annotations}


def doubled(root: dict[str, Any]) -> dict[str, Any]:
    """The same entries twice, the copies under ids of their own."""
    shift = 1 + max(entry["id"] for key in ("images", "annotations") for entry in root[key])
    images = root["images"] + [image | {"id": image["id"] + shift} for image in root["images"]]
    copies = [a | {"id": a["id"] + shift, "image_id": a["image_id"] + shift} for a in root["annotations"]]
    return {"images": images, "annotations": root["annotations"] + copies}


if __name__ == "__main__":
    main()
