"""Process time and size of the page and its analysis: eight splits of true size, four models, six comparisons.

python tests/speed/bench_page.py
"""

import os
import random
import tempfile
from itertools import combinations
from pathlib import Path
from time import process_time

from reftables import paths
from reftables.files import write_jsonl
from reftables.stages import analyse, render
from tests.scored import Run

# Samples and images of the splits of RefCOCO, RefCOCO+ and RefCOCOg.
SPLITS = {
    "refcoco": {"val": (10_834, 1_500), "testA": (5_657, 750), "testB": (5_095, 750)},
    "refcoco+": {"val": (10_758, 1_500), "testA": (5_726, 750), "testB": (4_889, 750)},
    "refcocog": {"val": (4_896, 1_300), "test": (9_602, 2_600)},
}
MODELS = {"one": 0.85, "two": 0.8, "three": 0.6, "four": 0.2}  # and the share each gets right
WORDS = ("left", "red", "man", "dog", "cup", "behind", "the", "small", "table", "near")
METRICS = ("precision@1", "mean_box", "upper_bound", "mean_iou")
MEGABYTE = 1_000_000


def write_split(run: Run, benchmark: str, split: str, size: int, images: int) -> None:
    rng = random.Random(size)
    rows = [
        {
            "id": i,
            "image": f"{i % images}.jpg",
            "width": 640,
            "height": 480,
            "expression": " ".join(rng.choices(WORDS, k=rng.randint(1, 9))),
            "bbox_xywh": [0, 0, rng.randint(20, 600), rng.randint(20, 400)],
        }
        for i in range(size)
    ]
    write_jsonl(paths.TRUTH.format(benchmark=benchmark, split=split), rows)
    header = ["id", "image", "status", *(f"{name}_{metric}" for name in ("official", "robust") for metric in METRICS)]
    for model, share in MODELS.items():
        hits = [rng.random() < share for _ in range(size)]
        lines = [[i, f"{i % images}.jpg", "ok", *([int(hit)] * (len(header) - 3))] for i, hit in enumerate(hits)]
        path = Path(paths.SAMPLES.format(model=model, benchmark=benchmark, split=split))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(",".join(map(str, line)) + "\n" for line in [header, *lines]), encoding="utf-8")
        scores = dict.fromkeys(METRICS, sum(hits) / size)
        run.cell(model, benchmark, split, n=size, official=scores, robust=scores, published="Kosmos-2")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run = Run(Path("results")).table("kosmos2", list(SPLITS), published=["Kosmos-2"])
        for benchmark, splits in SPLITS.items():
            for split, (size, images) in splits.items():
                write_split(run, benchmark, split, size, images)
        run.comparisons = [list(pair) for pair in combinations(MODELS, 2)]
        expected = str(run.write())

        started = process_time()
        analyse.main(["--expected", expected, "--results", "results"])
        analysed = process_time() - started

        started = process_time()
        render.main(["--expected", expected, "--analysis", paths.ANALYSIS, "--config", "{}", "--results", "results"])
        rendered = process_time() - started

        print(f"analyse     {analysed:.2f} s")
        print(f"render      {rendered:.2f} s")
        print(f"index.html  {Path(paths.INDEX).stat().st_size / MEGABYTE:.2f} MB")


if __name__ == "__main__":
    main()
