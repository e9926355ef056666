"""Whole runs of Snakemake, in wall seconds on two cores.

- the sample, from nothing to its tables
- one recorded model on the eight splits of the RefCOCO family, from its answers to the tables
- a dry run of 8 models on 25 splits
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from bench_boxes import write_log
from bench_locout import made_up_annotations

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("REFTABLES_REAL_DATA", REPOSITORY.parent / "shared" / "data"))
SPLITS = {"refcoco": ["val", "testA", "testB"], "refcoco+": ["val", "testA", "testB"], "refcocog": ["val", "test"]}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        print(f"the sample                          {snakemake(Path(folder), {}):6.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        config = eight_recorded_splits(Path(folder))
        print(f"eight recorded splits to tables     {snakemake(Path(folder), config):6.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        seconds = snakemake(Path(folder), many_cells(Path(folder)), "--dry-run", "--quiet", "all")
        print(f"dry run of 8 models on 25 splits    {seconds:6.2f} s")


def snakemake(folder: Path, config: dict[str, Any], *arguments: str) -> float:
    """Seconds of one run to the tables in `folder`."""
    overlay = folder / "overlay.yaml"
    overlay.write_text(yaml.safe_dump(config), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--snakefile",
        str(REPOSITORY / "Snakefile"),
        "--directory",
        str(folder),
    ]
    started = time.monotonic()
    subprocess.run(
        [*command, "--configfile", str(overlay), *arguments, "--cores", "2", "results/tables.md"],
        check=True,
        capture_output=True,
    )
    return time.monotonic() - started


def benchmark(annotations: str, splits: dict[str, int | None]) -> dict[str, Any]:
    return {"task": "boxes", "source": "mdetr", "splits": splits, "annotations": annotations, "images": "/images"}


def eight_recorded_splits(folder: Path) -> dict[str, Any]:
    """The real annotations where they are at hand, made-up ones of the same size elsewhere."""
    benchmarks = {}
    for name, splits in SPLITS.items():
        for split in splits:
            path = DATA / "mdetr" / f"finetune_{name}_{split}.json"
            if not path.is_file():
                path = folder / path.name
                path.write_text(json.dumps(made_up_annotations()), encoding="utf-8")
            write_log(path, folder / f"{name}.{split}.out")
        benchmarks[name] = benchmark(f"{path.parent}/finetune_{{benchmark}}_{{split}}.json", dict.fromkeys(splits))
    identity = {"backend": "recorded", "format": "fairseq", "predictions": "{benchmark}.{split}.out"}
    return {
        "benchmarks": benchmarks,
        "models": {"theirs": {"identity": identity, "formats": {"boxes": {"notation": "kosmos"}}}},
        "run": {"models": ["theirs"], "benchmarks": list(benchmarks)},
    }


def many_cells(folder: Path) -> dict[str, Any]:
    (folder / "annotations.json").write_text(json.dumps(made_up_annotations()), encoding="utf-8")
    models = {
        f"model-{seed}": {
            "identity": {"backend": "baselines", "strategy": "random", "seed": seed},
            "formats": {"boxes": {"notation": "kosmos"}},
        }
        for seed in range(8)
    }
    many = benchmark("annotations.json", {f"split{number}": None for number in range(25)})
    return {"benchmarks": {"many": many}, "models": models, "run": {"models": list(models), "benchmarks": ["many"]}}


if __name__ == "__main__":
    main()
