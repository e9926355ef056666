"""Write the answers in the notation of Kosmos-2 as a log of fairseq, which the authors' own scorer reads."""

import argparse
from collections.abc import Iterable, Sequence

from reftables.errors import run
from reftables.files import read_shard, write_atomically
from reftables.rows import Prediction


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--predictions", required=True, help="prediction file")
    options.add_argument("--log", required=True, help="log to write")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    write_atomically(args.log, fairseq_log(read_shard(args.predictions)))


# What ends a line for a reader of text files.
_LINE_ENDS = str.maketrans("\r\n", "  ")


def fairseq_log(predictions: Iterable[Prediction]) -> str:
    """A hypothesis line an answer: its id, a score that nobody knows any more, its text."""
    lines = [f"H-{answer.id}\tnan\t{(answer.text or '').translate(_LINE_ENDS)}" for answer in predictions]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    run(main)
