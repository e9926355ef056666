"""From annotations and a log to metrics: refcoco val (10,834 expressions), one process, both scorings, no intervals.

Twice: once from function to function, and once stage by stage as Snakemake does it, with truth, requests,
predictions, samples and metrics written and read again. Beside them a plain loop that scores sample by
sample. Prints process seconds (imports included), peak memory, and what was imported.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("REFTABLES_REAL_DATA", REPOSITORY.parent / "shared" / "data"))
FORM = json.dumps({"notation": "kosmos", "coordinates": None, "order": None, "prompt": "kosmos", "grid": 32})

DIRECT = """
import gc, json, resource, sys, time
gc.disable()
from reftables.benchmarks import mdetr
from reftables.files import pretty_json
from reftables.models import recorded
from reftables.models.job import Job
from reftables.rows import Request, Task, parse_answer_format
from reftables.scoring import boxes
from reftables.stages.score import samples_csv, summary
annotations, log, out, form = sys.argv[1:]
settings = {"annotations": annotations, "images": "/images"}
rows = mdetr.read_truth(settings, benchmark="refcoco", split="val", task=Task.BOXES).rows
identity = {"backend": "recorded", "format": "fairseq", "predictions": log}
form = parse_answer_format(form)
names = {"model": "m", "benchmark": "refcoco", "split": "val"}
job = Job(task=Task.BOXES, form=form, identity=identity, execution={}, truth=rows, **names)
predictions = list(recorded.predict([Request(row["id"], row["image"], row["expression"]) for row in rows], job))
scores = boxes.score(rows, predictions, form, {})
open(f"{out}/direct", "w").write(pretty_json(summary(scores, [row["image"] for row in rows], with_intervals=False)))
open(f"{out}/direct.csv", "w").write(samples_csv(rows, scores))
heavy = [name for name in ("torch", "pandas") if name in sys.modules]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(json.dumps({"seconds": time.process_time(), "peak": peak, "heavy": heavy}))
"""

STAGES = """
import json, resource, sys, time
from reftables.stages import infer, requests, score, truth
annotations, log, out, form = sys.argv[1:]
settings = json.dumps({"annotations": annotations, "images": "/images"})
common = ["--benchmark", "refcoco", "--split", "val", "--task", "boxes"]
source = ["--source", "mdetr", "--settings", settings]
files = {name: f"{out}/{name}" for name in ("truth", "notes", "requests", "predictions", "metrics", "samples")}
given = lambda *names: [part for name in names for part in (f"--{name}", files[name])]
identity = json.dumps({"backend": "recorded", "format": "fairseq", "predictions": log})
model = ["--model", "m", "--format", form]
truth.main([*common, *source, *given("truth", "notes")])
requests.main(["--split", "val", "--prompt", "kosmos", *source, *given("truth", "requests")])
infer.main([*common, *model, "--identity", identity, "--store", out, *given("requests", "truth", "predictions")])
score.main([*common, *model, "--no-intervals", *given("truth", "notes", "predictions", "metrics", "samples")])
heavy = [name for name in ("torch", "pandas") if name in sys.modules]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(json.dumps({"seconds": time.process_time(), "peak": peak, "heavy": heavy}))
"""

LOOP = """
import csv, json, os, re, sys, time, unicodedata
import numpy as np
annotations, log, out, _ = sys.argv[1:]
PAIR = re.compile(r"<patch_index_(\\d+)><patch_index_(\\d+)>")
OFFICIAL = re.compile(r"<phrase>([^<]*)</phrase><object>(.*?)</object>")
ROBUST = re.compile(r"<phrase>(.*?)</phrase><object>(.*?)</object>")
plain = lambda text: text.strip()
tolerant = lambda text: " ".join(unicodedata.normalize("NFKC", text).split())
def corners(first, second):
    (r1, c1), (r2, c2) = divmod(first, 32), divmod(second, 32)
    if c1 == c2 or r1 == r2:
        return c1 / 32, r1 / 32, (c2 + 1) / 32, (r2 + 1) / 32
    return (c1 + .5) / 32, (r1 + .5) / 32, (c2 + .5) / 32, (r2 + .5) / 32
def iou(p, t):
    side = np.clip(np.minimum(p[2:], t[2:]) - np.maximum(p[:2], t[:2]), 0, None)
    inter = side[0] * side[1]
    union = (p[2] - p[0]) * (p[3] - p[1]) + (t[2] - t[0]) * (t[3] - t[1]) - inter
    return inter / union if union else np.float32(0)
def scores(answer, caption, size, t, pattern, alike):
    found = [corners(int(a), int(b)) for phrase, pairs in pattern.findall(answer)
             if alike(phrase) == alike(caption) for a, b in PAIR.findall(pairs)]
    boxes = [(np.array(box) * size).astype(np.float32) for box in found or [(0, 0, 0, 0)]]
    first = iou(boxes[0], t)
    return first >= .5, iou(np.mean(boxes, axis=0), t) >= .5, any(iou(b, t) >= .5 for b in boxes), first
root = json.load(open(annotations))
images = {image["id"]: image for image in root["images"]}
answers = {}
for line in open(log, encoding="utf-8"):
    fields = line.rstrip("\\n").split("\\t")
    if fields[0].startswith("H-"):
        answers[int(fields[0][2:])] = fields[2].split("</image>")[-1]
rows = []
for number, annotation in enumerate(root["annotations"]):
    image = images[annotation["image_id"]]
    size = np.array([image["width"], image["height"]] * 2)
    x, y, w, h = annotation["bbox"]
    t = np.array([x, y, x + w, y + h]).astype(np.float32)
    given = (answers[number], image["caption"], size, t)
    rows.append([number, image["file_name"], *scores(*given, OFFICIAL, plain), *scores(*given, ROBUST, tolerant)])
with open(f"{out}/loop.csv", "w") as file:
    csv.writer(file).writerows(rows)
metrics = [float(np.mean(column)) for column in list(zip(*rows))[2:]]
json.dump(metrics, open(f"{out}/loop.json", "w"))
print(json.dumps({"seconds": time.process_time(), "hits": int(sum(row[2] for row in rows)), "n": len(rows)}))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        annotations = annotation_file(Path(folder))
        log = write_log(annotations, Path(folder, "val.out"))
        runs = {
            name: min((measure(program, annotations, log, folder) for _ in range(3)), key=lambda run: run["seconds"])
            for name, program in (("directly", DIRECT), ("by stages", STAGES), ("plain loop", LOOP))
        }
        direct, staged = (json.loads(Path(folder, name).read_text()) for name in ("direct", "metrics"))
    loop = runs["plain loop"]
    same = direct["counts"] == staged["counts"] and direct["counts"]["official"]["precision@1"] == loop["hits"]
    print(f"{direct['n']:,} expressions, precision@1 {direct['official']['precision@1']:.4f}; all agree: {same}")
    for name, run in runs.items():
        ratio = loop["seconds"] / run["seconds"]
        memory = f", peak {run['peak']} MB, heavy imports {run['heavy']}" if "peak" in run else ""
        print(f"{name:10} {run['seconds']:.3f} s: the loop takes {ratio:.2f} times as long{memory}")


def annotation_file(folder: Path) -> Path:
    real = DATA / "mdetr" / "finetune_refcoco_val.json"
    if real.is_file():
        return real
    from bench_locout import made_up_annotations

    path = folder / "annotations.json"
    path.write_text(json.dumps(made_up_annotations()), encoding="utf-8")
    return path


def write_log(annotations: Path, path: Path) -> Path:
    """A fairseq log whose boxes are the true ones, every third moved by some cells."""
    root = json.loads(annotations.read_text(encoding="utf-8"))
    sizes = {image["id"]: (image["width"], image["height"], image["caption"]) for image in root["images"]}
    rng = np.random.default_rng(0)
    lines = []
    for number, annotation in enumerate(root["annotations"]):
        width, height, caption = sizes[annotation["image_id"]]
        x, y, w, h = annotation["bbox"]
        cells = np.clip(np.array([x / width, y / height, (x + w) / width, (y + h) / height]) * 32, 0, 31).astype(int)
        if number % 3 == 0:
            cells = np.clip(cells + rng.integers(-4, 5, 4), 0, 31)
        first, second = cells[1] * 32 + cells[0], cells[3] * 32 + cells[2]
        box = f"<patch_index_{first:04d}><patch_index_{second:04d}>"
        answer = f"<image></image><grounding><phrase>{caption}</phrase><object>{box}</object></s>"
        lines += [f"S-{number}\t<s>{caption}", f"H-{number}\t-0.1\t{answer}", f"P-{number}\t-0.1"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def measure(program: str, annotations: Path, log: Path, folder: str) -> dict[str, object]:
    """Run `program` in a fresh interpreter and return what it prints."""
    command = [sys.executable, "-c", program, str(annotations), str(log), folder, FORM]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # as the workflow sets it
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    result: dict[str, object] = json.loads(re.findall(r"^\{.*\}$", done.stdout, re.MULTILINE)[-1])
    return result


if __name__ == "__main__":
    main()
