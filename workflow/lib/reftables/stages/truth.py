"""Make the truth file of one split from the benchmark's own files, its number of samples checked."""

import argparse
import json
from collections.abc import Sequence
from importlib import import_module

from reftables.errors import DataError, run
from reftables.files import dump_json, write_atomically, write_jsonl
from reftables.rows import Task


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--benchmark", required=True)
    options.add_argument("--split", required=True)
    options.add_argument("--task", type=Task, required=True)
    options.add_argument("--source", required=True, help="module of reftables.benchmarks that reads the files")
    options.add_argument("--settings", type=json.loads, required=True, help="the source's own config keys, as JSON")
    options.add_argument("--expected", type=int, help="number of samples; left out, it is not checked")
    options.add_argument("--truth", required=True, help="truth file to write")
    options.add_argument("--notes", required=True, help="JSON list of notes to write")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    source = import_module(f"reftables.benchmarks.{args.source}")
    rows, notes = source.read_truth(args.settings, benchmark=args.benchmark, split=args.split, task=args.task)
    files = ", ".join(source.truth_files(args.settings, args.split))
    if not rows:
        raise DataError(f"{files}: no sample of {args.benchmark}/{args.split} is in there")
    if args.expected is not None and len(rows) != args.expected:
        raise DataError(
            f"{files}: {len(rows):,} samples, expected {args.expected:,}. Use the right file, or state its number in "
            f"benchmarks.{args.benchmark}.splits.{args.split}; the tables then call the split custom."
        )
    write_jsonl(args.truth, rows)
    write_atomically(args.notes, f"{dump_json(notes)}\n")


if __name__ == "__main__":
    run(main)
