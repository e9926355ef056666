"""Compare models sample by sample, and break their scores down by properties of the samples."""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from reftables import paths
from reftables.analysis import Analysis, Breakdown, Compared, breakdown_row, compared_row
from reftables.breakdowns import Part, Told, break_down, labels, lead_metric
from reftables.comparing import Comparison, Side, compare, differing
from reftables.csv_rows import csv_text
from reftables.errors import DataError, run
from reftables.files import read_truth, write_atomically
from reftables.results import Result, Scoring, read_expected, read_results
from reftables.rows import Task
from reftables.samples import Samples, read_samples

EXAMPLES = 5  # wins and losses named in the page; the lists have all
COMPARISONS = ("benchmark", "split", "lead", *(field.name for field in fields(Comparison)))
BREAKDOWNS = ("benchmark", "split", "model", "metric", "scoring", *Part._fields)
DIFFERENCES = ("benchmark", "split", "id", "image", "expression", "metric", "scoring", "first", "second", "difference")


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--expected", required=True, help="what is shown: cells, comparisons, lineage")
    options.add_argument("--results", type=Path, required=True, help="folder to write to")
    return options


class Split(NamedTuple):
    """One split with the samples of every model that has a number on it."""

    benchmark: str
    split: str
    task: Task
    expressions: Sequence[str]
    groups: Mapping[str, Sequence[str]]
    samples: Mapping[str, Samples]


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    expected = read_expected(args.expected)
    pairs = [(first, second) for first, second in expected["comparisons"]]
    lists: dict[str, list[dict[str, Any]]] = {paths.COMPARISON.format(first=a, second=b): [] for a, b in pairs}
    comparisons: list[Compared] = []
    breakdowns: list[Breakdown] = []
    for split in read_splits(read_results(expected)):
        comparisons += compare_split(split, pairs)
        breakdowns += break_down_split(split)
        for (first, second), rows in zip(pairs, lists.values(), strict=True):
            rows += win_loss_list(split, first, second)
    write_atomically(args.results / "analysis.json", Analysis(comparisons, breakdowns).as_json(expected))
    write_atomically(args.results / "comparisons.csv", table_csv(map(compared_row, comparisons), COMPARISONS))
    write_atomically(args.results / "breakdowns.csv", table_csv(map(breakdown_row, breakdowns), BREAKDOWNS))
    for path, rows in lists.items():
        write_atomically(args.results / "comparisons" / Path(path).name, table_csv(rows, DIFFERENCES))
    remove_others(args.results / "comparisons", {Path(path).name for path in lists})


def remove_others(folder: Path, kept: set[str]) -> None:
    """Remove the lists of pairs that are not compared any more."""
    for path in folder.glob("*.csv"):
        if path.name not in kept:
            path.unlink()


def read_splits(results: Sequence[Result]) -> Iterator[Split]:
    """Every split once; a model none of whose answers could be read has no number, and is left out."""
    by_split: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        by_split.setdefault((result.benchmark, result.split), []).append(result)
    for (benchmark, split), found in tqdm(by_split.items(), unit="split"):
        readable = [result for result in found if has_number(result)]
        samples = {
            result.model: read_samples(paths.SAMPLES.format(model=result.model, benchmark=benchmark, split=split))
            for result in readable
        }
        truth = read_truth(paths.TRUTH.format(benchmark=benchmark, split=split))
        sizes = {model: len(table) for model, table in samples.items()}
        if len(set(sizes.values())) > 1:
            raise DataError(f"{benchmark} {split}: the models' samples are not the same: {sizes}. Score it anew.")
        rows = truth[: next(iter(sizes.values()), 0)]  # a limited run scores the first ones only
        yield Split(benchmark, split, found[0].task, [row["expression"] for row in rows], labels(rows), samples)


def has_number(result: Result) -> bool:
    return any(score.value is not None for scores in result.scores.values() for score in scores.values())


def shown_scoring(samples: Samples) -> Scoring:
    """Official where the answer format has it, else robust."""
    return Scoring.OFFICIAL if samples.metrics(Scoring.OFFICIAL) else Scoring.ROBUST


def shared_scoring(first: Samples, second: Samples) -> Scoring:
    """The scoring two models are compared in: official where both have it, else robust."""
    both_official = shown_scoring(first) == shown_scoring(second) == Scoring.OFFICIAL
    return Scoring.OFFICIAL if both_official else Scoring.ROBUST


def compare_split(split: Split, pairs: Sequence[tuple[str, str]]) -> Iterator[Compared]:
    """The pairs of models that are both there, then official against robust of every model that has both."""
    sides = [sides_of(split, *pair) for pair in pairs if set(pair) <= split.samples.keys()]
    sides += [
        (Side(model, Scoring.OFFICIAL, samples), Side(model, Scoring.ROBUST, samples))
        for model, samples in split.samples.items()
        if samples.metrics(Scoring.OFFICIAL) and samples.metrics(Scoring.ROBUST)
    ]
    by_names = {(first.model, second.model): (first, second) for first, second in sides}
    for comparison in compare(sides):
        first, second = by_names[comparison.first, comparison.second]
        lead = comparison.metric == lead_metric(split.task, first.samples, first.scoring)
        wins, losses = examples(split, comparison, first, second) if lead else ([], [])
        yield Compared(
            benchmark=split.benchmark, split=split.split, lead=lead, comparison=comparison, wins=wins, losses=losses
        )


def sides_of(split: Split, first: str, second: str) -> tuple[Side, Side]:
    scoring = shared_scoring(split.samples[first], split.samples[second])
    return Side(first, scoring, split.samples[first]), Side(second, scoring, split.samples[second])


def examples(
    split: Split, comparison: Comparison, first: Side, second: Side
) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """A few wins and a few losses of the first side, the clearest ones: id and expression."""
    ids = first.samples.ids
    rows = differing(first, second, comparison.metric)
    wins = [(ids[r.row], split.expressions[r.row]) for r in rows if r.first > r.second]
    losses = [(ids[r.row], split.expressions[r.row]) for r in rows if r.first < r.second]
    return wins[:EXAMPLES], losses[:EXAMPLES]


def win_loss_list(split: Split, first: str, second: str) -> Iterator[dict[str, Any]]:
    """Every sample at which the two models differ in the lead metric."""
    if not {first, second} <= split.samples.keys():
        return
    one, other = sides_of(split, first, second)
    metric = lead_metric(split.task, one.samples, one.scoring)
    if metric is None or metric not in other.samples.metrics(other.scoring):
        return
    ids, images = one.samples.ids, one.samples.images
    for row, value, other_value in differing(one, other, metric):
        yield {
            "benchmark": split.benchmark,
            "split": split.split,
            "id": ids[row],
            "image": images[row],
            "expression": split.expressions[row],
            "metric": metric,
            "scoring": one.scoring,
            "first": value,
            "second": other_value,
            "difference": value - other_value,
        }


def break_down_split(split: Split) -> Iterator[Breakdown]:
    told = {}
    for model, samples in split.samples.items():
        scoring = shown_scoring(samples)
        metric = lead_metric(split.task, samples, scoring)
        if metric is not None:
            told[model] = Told(samples, scoring, metric)
    for model, parts in break_down(told, split.groups).items():
        _, scoring, metric = told[model]
        for part in parts:
            yield Breakdown(
                benchmark=split.benchmark, split=split.split, model=model, metric=metric, scoring=scoring, part=part
            )


def table_csv(rows: Iterable[Mapping[str, Any]], header: Sequence[str]) -> str:
    return csv_text(header, ([row[name] for name in header] for row in rows))


if __name__ == "__main__":
    run(main)
