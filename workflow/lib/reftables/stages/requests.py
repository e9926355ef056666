"""Write the requests of one split for one prompt family, a line a sample."""

import argparse
import json
from collections.abc import Sequence
from importlib import import_module

from reftables.errors import run
from reftables.files import format_request, read_truth, write_atomically


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--split", required=True)
    options.add_argument("--prompt", required=True, help="template family of the requests")
    options.add_argument("--source", required=True, help="module of reftables.benchmarks that writes the texts")
    options.add_argument("--settings", type=json.loads, required=True, help="the source's own config keys, as JSON")
    options.add_argument("--truth", required=True, help="truth file to read")
    options.add_argument("--requests", required=True, help="request file to write")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    source = import_module(f"reftables.benchmarks.{args.source}")
    rows = read_truth(args.truth)
    texts = source.request_texts(rows, args.settings, split=args.split, prompt=args.prompt)
    root = source.image_root(args.settings, args.split)
    lines = [
        format_request(f"{root}/{row['image']}", text, prompt=args.prompt)
        for row, text in zip(rows, texts, strict=True)
    ]
    write_atomically(args.requests, "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    run(main)
