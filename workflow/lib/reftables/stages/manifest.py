"""Write the manifest of the images one split names in a user's own folder."""

import argparse
from collections.abc import Sequence

from reftables.errors import run
from reftables.files import read_truth
from reftables.manifest import make_manifest, write_manifest


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--truth", required=True, help="truth file whose images are read")
    options.add_argument("--root", required=True, help="folder of the images")
    options.add_argument("--manifest", required=True, help="manifest to write")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    names = {row["image"] for row in read_truth(args.truth)}
    write_manifest(args.manifest, make_manifest(args.root, sorted(names)))


if __name__ == "__main__":
    run(main)
