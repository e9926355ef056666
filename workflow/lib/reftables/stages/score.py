"""Score one split of one model: metrics of the split, and the scores of every sample."""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from reftables.csv_rows import csv_text
from reftables.digests import read_digests
from reftables.errors import run
from reftables.files import (
    pretty_json,
    read_predictions,
    read_truth,
    without_garbage_collection,
    write_atomically,
)
from reftables.rows import Prediction, Status, Task, TruthRow, limited, parse_answer_format
from reftables.scoring.intervals import intervals
from reftables.scoring.scores import Ratio, Scores

ANSWERED = {Status.OK, Status.TRUNCATED}


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", required=True)
    options.add_argument("--benchmark", required=True)
    options.add_argument("--split", required=True)
    options.add_argument("--task", type=Task, required=True)
    options.add_argument("--format", type=parse_answer_format, required=True, help="the model's answer format, as JSON")
    options.add_argument("--options", type=json.loads, default={}, help="options of the task's scorer, as JSON")
    options.add_argument("--limit", type=int, help="only the first samples")
    options.add_argument("--no-intervals", action="store_true", help="leave the intervals out (for benchmarks)")
    options.add_argument("--lineage", type=json.loads, default={}, help="what the numbers depend on, as JSON")
    options.add_argument("--truth", required=True, help="truth file")
    options.add_argument("--notes", required=True, help="notes on the truth")
    options.add_argument("--digests", action="append", default=[], help="digest file of a download behind the numbers")
    options.add_argument("--predictions", required=True, help="prediction file")
    options.add_argument("--metrics", required=True, help="metrics file to write")
    options.add_argument("--samples", required=True, help="CSV of the scores of every sample to write")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    # Hundreds of thousands of rows: the collector's passes would be a third of the time.
    with without_garbage_collection():
        scorer = import_module(f"reftables.scoring.{args.task}")
        truth = limited(read_truth(args.truth), args.limit)
        predictions = read_predictions(args.predictions, expected=[row["id"] for row in truth])
        scores: Scores = scorer.score(truth, predictions, args.format, args.options)
        truth_notes = json.loads(Path(args.notes).read_text(encoding="utf-8"))
        versions = weights(predictions)
        metrics = {
            "benchmark": args.benchmark,
            "split": args.split,
            "model": args.model,
            "task": str(args.task),
            **summary(scores, [row["image"] for row in truth], with_intervals=not args.no_intervals),
            **tokens(predictions),
            **({"weights": versions} if versions else {}),
            **digests_of(args.digests),
            "notes": [*truth_notes, *scores.notes, *mixed(versions)],
            "split_notes": truth_notes,  # those of them that hold whatever the model
            "lineage": args.lineage,
        }
        write_atomically(args.samples, samples_csv(truth, scores))
        write_atomically(args.metrics, pretty_json(metrics))


def summary(scores: Scores, images: Sequence[str], *, with_intervals: bool) -> dict[str, Any]:
    """Values, counts, intervals and breakdowns of both scorings; `images` is the image of every row.

    Where no answer could be parsed there is no number: every value is null.
    """
    tallies = Counter(scores.statuses)
    parsed = any(tallies[status] for status in ANSWERED)
    scorings = {"official": scores.official, "robust": scores.robust}
    result: dict[str, Any] = {
        "n": scores.n,
        **({} if scores.requests is None else {"requests": scores.requests}),
        "status": {str(status): tallies[status] for status in Status if tallies[status]},
    }
    for name, ratios in scorings.items():
        result[name] = None if ratios is None else values(ratios, parsed=parsed)
    if sizes := sizes_of(scores):
        result["counted"] = sizes
    if parsed:
        result["counts"] = {name: counts(ratios) for name, ratios in scorings.items() if ratios is not None}
    if parsed and with_intervals:
        result["intervals"] = both_intervals(scorings, images, n=scores.n)
    if scores.official_dropped is not None:
        result["official_dropped"] = scores.official_dropped
    if scores.groups:
        result["groups"] = {name: breakdown(scores, groups, parsed=parsed) for name, groups in scores.groups.items()}
    return result


def values(ratios: Mapping[str, Ratio], *, parsed: bool) -> dict[str, float | None]:
    return {metric: ratio.value if parsed else None for metric, ratio in ratios.items()}


def both_intervals(
    scorings: Mapping[str, Mapping[str, Ratio] | None], images: Sequence[str], *, n: int
) -> dict[str, dict[str, Any]]:
    """The intervals of both scorings, from the same resamples."""
    present = {name: ratios for name, ratios in scorings.items() if ratios is not None}
    flat = {f"{name} {metric}": ratio for name, ratios in present.items() for metric, ratio in ratios.items()}
    found = intervals(flat, images, n=n)
    return {name: {metric: found[f"{name} {metric}"] for metric in ratios} for name, ratios in present.items()}


def sizes_of(scores: Scores) -> dict[str, int]:
    """How many samples a metric is over, where it leaves some out; a metric has one size in both scorings."""
    rows = len(scores.statuses)
    sizes = {}
    for ratios in (scores.robust or {}, scores.official or {}):
        for metric, ratio in ratios.items():
            if (counted := int(np.count_nonzero(ratio.denominator))) < rows:
                sizes[metric] = counted
    return sizes


def counts(ratios: Mapping[str, Ratio]) -> dict[str, int]:
    """The hits of every metric that counts hits."""
    return {metric: hits for metric, ratio in ratios.items() if (hits := ratio.hits) is not None}


def breakdown(scores: Scores, groups: Sequence[Any], *, parsed: bool) -> dict[str, dict[str, Any]]:
    """The values of every group of rows, in the order of the groups' names."""
    labels = np.array([str(group) for group in groups])
    result = {}
    for label in sorted(set(labels.tolist())):
        inside = labels == label
        result[label] = {"n": int(inside.sum())} | {
            name: None if ratios is None else values(_rows(ratios, inside), parsed=parsed)
            for name, ratios in (("official", scores.official), ("robust", scores.robust))
        }
    return result


def _rows(ratios: Mapping[str, Ratio], inside: Any) -> dict[str, Ratio]:
    return {metric: Ratio(ratio.numerator[inside], ratio.denominator[inside]) for metric, ratio in ratios.items()}


def tokens(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Tokens spent, where the backend counted them."""
    spent = {
        "in": [p.tokens_in for p in predictions if p.tokens_in is not None],
        "out": [p.tokens_out for p in predictions if p.tokens_out is not None],
    }
    counted = {name: sum(numbers) for name, numbers in spent.items() if numbers}
    return {"tokens": counted} if counted else {}


def weights(predictions: Sequence[Prediction]) -> list[str]:
    """Which weights answered, where a model ran on this machine; more than one where a revision has moved on."""
    return sorted({p.weights for p in predictions if p.weights is not None})


def mixed(versions: Sequence[str]) -> list[str]:
    """A note that the answers are not those of one model."""
    if len(versions) < 2:
        return []
    return [f"answers of {len(versions)} versions of the weights: {', '.join(version[:12] for version in versions)}"]


def digests_of(paths: Sequence[str]) -> dict[str, Any]:
    """sha256 of what was downloaded for the truth, the requests and the answers, by path."""
    digests = {path: sha256 for digest_file in paths for path, sha256 in read_digests(Path(digest_file)).items()}
    return {"digests": digests} if digests else {}


def samples_csv(truth: Sequence[TruthRow], scores: Scores) -> str:
    """One line a row: id, image, status, the task's own columns, then every metric of both scorings.

    A field is empty where the metric leaves the row out, or where the authors' script has no value for it.
    """
    columns: dict[str, Sequence[Any]] = {
        "id": [row["id"] for row in truth],
        "image": [row["image"] for row in truth],
        "status": scores.statuses,
        **scores.columns,
    }
    for metric, ratio in (scores.official or {}).items():
        columns[f"official_{metric}"] = sample_values(ratio, scores.official_undefined)
    for metric, ratio in (scores.robust or {}).items():
        columns[f"robust_{metric}"] = sample_values(ratio, None)
    return csv_text(columns, zip(*columns.values(), strict=True))


def sample_values(ratio: Ratio, undefined: Any) -> list[float | int | None]:
    """The value of every row, as integers where all are whole; None where there is none."""
    inside = ratio.denominator > 0
    if undefined is not None:
        inside &= ~undefined
    quotients = np.divide(ratio.numerator, ratio.denominator, out=np.zeros_like(ratio.numerator), where=inside)
    whole = quotients == np.floor(quotients)
    values: list[float | int | None] = quotients.astype(np.int64).tolist() if whole.all() else quotients.tolist()
    if not inside.all():
        values = [value if defined else None for value, defined in zip(values, inside.tolist(), strict=True)]
    return values


if __name__ == "__main__":
    run(main)
