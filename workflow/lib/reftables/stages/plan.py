"""Print what a run would do, as far as it is known before it starts. Writes nothing.

Requests are counted in the request files that are there already, and by the configured number of
samples elsewhere; answers in the store are counted where requests and manifest are there to know
their keys.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from reftables import paths
from reftables.config import Cell, Config, load
from reftables.errors import run
from reftables.files import read_requests, read_truth
from reftables.manifest import image_digests
from reftables.models.job import Job
from reftables.rows import limited
from reftables.stages.infer import WRITER
from reftables.store import Store, key_of


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--config", type=json.loads, required=True, help="the whole configuration, as JSON")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    print("\n".join(report(load(args.config))))


def report(config: Config) -> Iterator[str]:
    """The lines of the plan: one a cell."""
    cells = list(config.cells())
    yield f"{len(config.models)} models, {len(config.benchmarks)} benchmarks, {len(cells)} cells"
    if config.limit is not None:
        yield f"only the first {config.limit:,} samples of each split"
    yield f"{'model':24} {'benchmark':20} {'split':14} {'requests':>9} {'in store':>9}  predictions"
    for cell in cells:
        number = count_requests(cell, config.limit)
        stored = count_stored(cell, config) if cell.model.module.STORED else "-"
        there = "there" if Path(_path(paths.PREDICTIONS, cell)).exists() else "to make"
        yield (
            f"{cell.model.name:24} {cell.benchmark.name:20} {cell.split:14} "
            f"{'unknown' if number is None else f'{number:,}':>9} {stored:>9}  {there}"
        )


def count_requests(cell: Cell, limit: int | None) -> int | None:
    """How many requests a cell has: by its truth file, else by the configured number of samples."""
    truth = Path(_path(paths.TRUTH, cell))
    if truth.exists():
        return len(limited(read_truth(truth), limit))
    expected = cell.benchmark.splits[cell.split]
    return expected if expected is None or limit is None else min(expected, limit)


def count_stored(cell: Cell, config: Config) -> str:
    """How many of a cell's requests the store answers; `unknown` before their files are there."""
    requests_path, truth_path = Path(_path(paths.REQUESTS, cell)), Path(_path(paths.TRUTH, cell))
    manifest, root = config.manifest(cell)
    if not (requests_path.exists() and truth_path.exists() and manifest and root and Path(manifest).exists()):
        return "unknown"
    requests = read_requests(requests_path, prompt=cell.form.prompt)
    requests = requests[: len(limited(read_truth(truth_path), config.limit))]
    digests = image_digests(manifest, root, {request.image for request in requests})
    backend = cell.model.module
    job = Job(
        model=cell.model.name,
        benchmark=cell.benchmark.name,
        split=cell.split,
        task=cell.benchmark.task,
        form=cell.form,
        identity=cell.model.identity,
        execution=cell.model.execution,
    )
    store = Store(Path(_path(paths.STORE, cell)), cell.split, WRITER)
    store.read()
    keys = [key_of({"backend": cell.model.backend, **backend.decides(r, job, digests[r.image])}) for r in requests]
    return f"{sum(key in store for key in keys):,}"


def _path(pattern: str, cell: Cell) -> str:
    return pattern.format(
        model=cell.model.name, benchmark=cell.benchmark.name, split=cell.split, prompt=cell.form.prompt
    )


if __name__ == "__main__":
    run(main)
