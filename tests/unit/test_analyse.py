"""The stage: which comparisons and breakdowns a finished run gives, and which lists lie beside them."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reftables import paths
from reftables.analysis import read_analysis
from reftables.errors import DataError
from reftables.stages import analyse
from tests.scored import Run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return Run(tmp_path / "results")


def scored(run: Run, model: str, values: Sequence[int], *, scorings: Sequence[str] = ("robust",)) -> None:
    """A model with `values` as its precision@1 on refcoco val, under each of `scorings`."""
    share = sum(values) / len(values)
    run.cell(model, "refcoco", "val", n=len(values), **{name: {"precision@1": share} for name in scorings})
    path = Path(paths.SAMPLES.format(model=model, benchmark="refcoco", split="val"))
    path.parent.mkdir(parents=True, exist_ok=True)
    header = ["id", "image", "status", *(f"{name}_precision@1" for name in scorings)]
    rows = [[i, f"{i // 2}.jpg", "ok", *([value] * len(scorings))] for i, value in enumerate(values)]
    path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n", encoding="utf-8")


def analysed(run: Run, *pairs: list[str]) -> dict[str, Any]:
    path = Path(paths.TRUTH.format(benchmark="refcoco", split="val"))
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = ["dog", "left dog", "the big dog", "cat"]
    rows = [
        {"id": i, "image": f"{i // 2}.jpg", "width": 640, "height": 480, "expression": text, "bbox_xywh": [0, 0, 9, 9]}
        for i, text in enumerate(texts)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run.comparisons = [*pairs]
    analyse.main(["--expected", str(run.write()), "--results", "results"])
    content: dict[str, Any] = json.loads(Path("results/analysis.json").read_text(encoding="utf-8"))
    return content


def test_configured_pairs_are_compared_with_examples_of_wins_and_losses(run: Run):
    scored(run, "one", [1, 1, 0, 0])
    scored(run, "two", [0, 0, 0, 1])
    (found,) = analysed(run, ["one", "two"])["comparisons"]
    assert (found["first"], found["second"], found["difference"], found["lead"]) == ("one", "two", 0.25, True)
    assert (found["wins_first"], found["losses_first"]) == ([[0, "dog"], [1, "left dog"]], [[3, "cat"]])


def test_the_list_of_a_pair_has_every_sample_at_which_it_differs(run: Run):
    scored(run, "one", [1, 1, 0, 0])
    scored(run, "two", [0, 0, 0, 1])
    analysed(run, ["one", "two"])
    with Path("results/comparisons/one.vs.two.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], row["difference"]) for row in rows] == [("0", "1.0"), ("1", "1.0"), ("3", "-1.0")]


def test_lists_of_pairs_no_longer_compared_are_removed(run: Run):
    scored(run, "one", [1, 1, 0, 0])
    scored(run, "two", [0, 0, 0, 1])
    analysed(run, ["one", "two"])
    analysed(run)
    assert list(Path("results/comparisons").iterdir()) == []


def test_official_and_robust_of_a_model_are_always_compared(run: Run):
    scored(run, "one", [1, 1, 0, 0], scorings=("official", "robust"))
    (found,) = analysed(run)["comparisons"]
    assert (found["first_scoring"], found["second_scoring"], found["wins"]) == ("official", "robust", 0)


def test_a_model_without_a_readable_answer_is_left_out(run: Run):
    scored(run, "one", [1, 1, 0, 0])
    run.cell("mute", "refcoco", "val", robust={"precision@1": None}, status={"unparsed": 4})
    content = analysed(run, ["one", "mute"])
    assert content["comparisons"] == []
    assert {part["model"] for part in content["breakdowns"]} == {"one"}


def test_breakdowns_are_of_the_lead_metric(run: Run):
    scored(run, "one", [1, 1, 0, 0])
    parts = [part for part in analysed(run)["breakdowns"] if part["breakdown"] == "position words"]
    assert [(part["group"], part["n"], part["value"]) for part in parts] == [("with", 1, 1.0), ("without", 3, 1 / 3)]


def test_models_with_other_samples_are_refused(run: Run):
    scored(run, "one", [1, 1, 0, 0])
    scored(run, "two", [0, 0, 0])
    with pytest.raises(DataError, match=r"refcoco val: the models' samples are not the same: \{'one': 4, 'two': 3\}"):
        analysed(run, ["one", "two"])


def test_an_analysis_of_other_results_is_refused(run: Run):
    scored(run, "one", [1, 1, 0, 0])
    analysed(run)
    run.cells[0]["lineage"] = {**run.cells[0]["lineage"], "model": "another"}
    with pytest.raises(DataError, match=r"made for other results .* --forcerun analyse"):
        read_analysis("results/analysis.json", run.expected)


def test_what_is_written_is_read_back(run: Run):
    scored(run, "one", [1, 1, 0, 0], scorings=("official", "robust"))
    content = analysed(run)
    again = read_analysis("results/analysis.json", run.expected)
    assert json.loads(again.as_json(run.expected)) == content
