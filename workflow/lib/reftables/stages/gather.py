"""Gather the shards of one split into its prediction file: every sample once, none missing."""

import argparse
from collections.abc import Sequence

from reftables.errors import preview, run
from reftables.files import check_ids, read_requests, read_shard, read_truth, write_predictions
from reftables.paths import fill
from reftables.rows import limited, parse_answer_format


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--format", type=parse_answer_format, required=True, help="the model's answer format, as JSON")
    options.add_argument("--requests", required=True, help="request file")
    options.add_argument("--truth", help="truth file, for --limit")
    options.add_argument("--limit", type=int, help="only the first samples")
    options.add_argument("--shard", required=True, help="prediction file of a shard, with {shard} and {shards}")
    options.add_argument("--shards", type=int, required=True, help="number of shards")
    options.add_argument("--predictions", required=True, help="prediction file to write")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    requests = read_requests(args.requests, prompt=args.format.prompt)
    if args.limit is not None and args.truth:
        requests = requests[: len(limited(read_truth(args.truth), args.limit))]
    shards = [fill(args.shard, shard=str(number), shards=str(args.shards)) for number in range(args.shards)]
    predictions = [prediction for shard in shards for prediction in read_shard(shard)]
    check_ids(preview(shards), [p.id for p in predictions], [request.id for request in requests])
    write_predictions(args.predictions, predictions)


if __name__ == "__main__":
    run(main)
