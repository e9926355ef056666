"""Make the page that leads to all pages of the gallery, and the script they share."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from reftables import paths
from reftables.errors import run
from reftables.files import write_atomically
from reftables.gallery import gallery_index
from reftables.page import TEMPLATES
from reftables.results import read_expected

SCRIPTS = ("vendor/datatables.min.js", "gallery.js")


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--expected", required=True, help="what is shown: the cells")
    options.add_argument("--index", type=Path, required=True, help="page to write")
    options.add_argument("--script", type=Path, required=True, help="script to write")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    cells = read_expected(args.expected)["cells"]
    pages = [
        (
            cell["model"],
            cell["benchmark"],
            cell["split"],
            os.path.relpath(paths.GALLERY.format(**cell), args.index.parent),
        )
        for cell in cells
    ]
    write_atomically(args.script, "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in SCRIPTS))
    write_atomically(args.index, gallery_index(pages))


if __name__ == "__main__":
    run(main)
