"""Write the manifest of the images one split names, after fetching those that are missing, where a source is given."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from reftables.errors import run
from reftables.files import read_truth
from reftables.manifest import make_manifest, write_manifest


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--truth", required=True, help="truth file whose images are read")
    options.add_argument("--root", required=True, help="folder of the images")
    options.add_argument("--source", type=json.loads, help="where to get missing images: an entry of `images`, as JSON")
    options.add_argument("--manifest", required=True, help="manifest to write")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    names = sorted({row["image"] for row in read_truth(args.truth)})
    if args.source is None:
        write_manifest(args.manifest, make_manifest(args.root, names))
        return
    from reftables.images import collect  # here, because it brings Pillow and requests

    images = collect(
        Path(args.root),
        names,
        urls=args.source["urls"],
        copies=Path(args.source["path"]) if args.source["path"] else None,
        connections=args.source["connections"],
    )
    write_manifest(args.manifest, images.lines)
    print(f"{len(names):,} images, {images.fetched:,} of them fetched now ({images.bytes:,} bytes)")


if __name__ == "__main__":
    run(main)
