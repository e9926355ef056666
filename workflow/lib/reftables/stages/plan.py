"""Print what a run would do, as far as it is known before it starts. Writes nothing.

Requests are counted in the request files that are there already, and by the configured number of
samples elsewhere; answers in the store are counted where requests and manifest are there to know
their keys. The size of a download is that of the config, else what its server tells when asked.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from reftables import paths
from reftables.config import Cell, Config, load
from reftables.downloads import Download
from reftables.errors import run
from reftables.files import read_requests, read_text, read_truth
from reftables.lineage import Digests, Lineage, Lineages, made_by_rules
from reftables.manifest import image_digests
from reftables.results import read_config
from reftables.rows import limited
from reftables.store import Store, key_of


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--config", required=True, help="file of the whole configuration")
    options.add_argument("--known-by", required=True, help="hash that its content must have")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    print("\n".join(report(load(read_config(args.config, args.known_by)))))


def report(config: Config) -> Iterator[str]:
    """The lines of the plan: one a cell, then what is to be downloaded."""
    cells = list(config.cells())
    digests = Digests(Path(paths.DIGESTS))
    lineages = Lineages(config, made_by_rules(config, digests), digests)
    yield f"{len(config.models)} models, {len(config.benchmarks)} benchmarks, {len(cells)} cells"
    if config.limit is not None:
        yield f"only the first {config.limit:,} samples of each split"
    yield f"{'model':24} {'benchmark':20} {'split':14} {'requests':>9} {'in store':>9}  numbers"
    for cell in cells:
        number = count_requests(cell, config.limit)
        stored = count_stored(cell, config) if cell.model.module.STORED else "-"
        state = "there" if is_scored(cell, lineages.metrics(cell)) else "to make"
        yield (
            f"{cell.model.name:24} {cell.benchmark.name:20} {cell.split:14} "
            f"{'unknown' if number is None else f'{number:,}':>9} {stored:>9}  {state}"
        )
    yield from downloads(config)


def downloads(config: Config) -> Iterator[str]:
    """What is still to be fetched: one line a file, one with their sum, one a folder of images."""
    files = [file for cell in config.cells() for file in cell.files()]
    missing = [d for d in config.downloads_behind(files) if not all(Path(output).exists() for output in d.outputs)]
    sizes = sizes_of(missing)
    for download, size in zip(missing, sizes, strict=True):
        shown = "size unknown" if size is None else f"{size:,} bytes"
        yield f"{shown:>20}  {download.to} from {download.path or download.urls[0]}"
    if missing:
        known = [size for size in sizes if size is not None]
        unknown = len(missing) - len(known)
        more = f", and {unknown} files of unknown size" if unknown else ""
        yield f"{sum(known):>14,} bytes  to download{more}"
    yield from _missing_images(config)


def sizes_of(missing: Sequence[Download]) -> list[int | None]:
    """The size of each download: as the config says, else as its server tells within a few seconds."""
    if not missing:
        return []
    from reftables.fetch import Patience, size_of  # here, because it brings requests

    def size(download: Download) -> int | None:
        if download.path is not None:
            return 0  # linked to
        return download.size or size_of(download.urls[0], Patience(connect_s=3, read_s=3))

    with ThreadPoolExecutor(len(missing)) as pool:
        return list(pool.map(size, missing))


def _missing_images(config: Config) -> Iterator[str]:
    """How many images are missing of each folder; known for the splits whose truth is there."""
    splits: dict[str, set[Path]] = {}
    for cell in config.cells():
        if cell.model.module.LOOKS:
            splits.setdefault(cell.benchmark.image_root(cell.split), set()).add(Path(_path(paths.TRUTH, cell)))
    for images in config.images.values():
        truths = splits.get(images.folder, set())
        read = [path for path in truths if path.exists()]
        names = {row["image"] for path in read for row in read_truth(path)}
        number = sum(not (Path(images.folder) / name).exists() for name in names)
        about = f", about {number * images.average_size:,} bytes" if images.average_size else ""
        if read:
            yield f"{number:,} images to fetch into {images.folder}{about}"
        if len(read) < len(truths):
            yield f"images of {len(truths) - len(read)} splits in {images.folder}: their number is not known yet"


def is_scored(cell: Cell, lineage: Lineage) -> bool:
    """Whether the cell's metrics file is there and of this configuration."""
    path = Path(_path(paths.METRICS, cell))
    if not path.exists():
        return False
    try:
        return bool(json.loads(read_text(path)).get("lineage") == lineage)
    except json.JSONDecodeError:
        return False


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
    job = cell.job()
    store = Store(Path(_path(paths.STORE, cell)), cell.split)
    store.read()
    keys = [key_of({"backend": cell.model.backend, **backend.decides(r, job, digests[r.image])}) for r in requests]
    return f"{sum(key in store for key in keys):,}"


def _path(pattern: str, cell: Cell) -> str:
    return pattern.format(
        model=cell.model.name, benchmark=cell.benchmark.name, split=cell.split, prompt=cell.form.prompt
    )


if __name__ == "__main__":
    run(main)
