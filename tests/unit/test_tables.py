"""Which number stands where, and beside which published one."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reftables.errors import ConfigError
from reftables.overalls import SURDS_TASKS
from reftables.published import Grade, Key, Published, PublishedCell
from reftables.results import Kind, Scoring, read_results
from reftables.tables import (
    Column,
    Reproduces,
    Table,
    TableSpec,
    build_tables,
    judge,
    tidy_frame,
    wide_frame,
)
from tests.scored import Run

VAL = Column("refcoco", "val", "precision@1", Kind.SPLIT)
PERCENT = st.floats(0, 100)


def paper(value: float, grade: Grade = Grade.PUBLISHER) -> PublishedCell:
    return PublishedCell(value, f"{value:.2f}", grade, "its paper")


PUBLISHED: Published = {
    Key("refcoco", "val", "precision@1", "Kosmos-2"): paper(52.32),
    Key("refcoco", "val", "precision@1", "OFA"): paper(90.05, Grade.SECONDARY),
    Key("refspatial", "micro", "accuracy", "SpaceTools"): paper(53.07),
    Key("refspatial", "overall", "accuracy", "Qwen"): paper(69.9),
    Key("refspatial", "location/step1", "accuracy", "RoboRefer"): paper(50.0),
    Key("surds", "overall", "score", "GRPO"): paper(40.8),
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def tables_of(run: Run) -> list[Table]:
    expected = run.expected
    specs = {name: TableSpec(**spec) for name, spec in expected["tables"].items()}
    return build_tables(read_results(expected), specs, expected["splits"], PUBLISHED)


def table_of(run: Run) -> Table:
    return tables_of(run)[0]


def kosmos(run: Run, **fields: Any) -> Table:
    """A table of one model on refcoco val, compared with Kosmos-2, and two rows that papers have."""
    defaults = {"n": 10_834, "official": {"precision@1": 0.5232}, "published": "Kosmos-2"}
    run.table("boxes", ["refcoco"], published=["Kosmos-2", "OFA"])
    return table_of(run.cell("mine", "refcoco", "val", **{**defaults, **fields}))


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        pytest.param(52.32, Reproduces.EXACT, id="equal"),
        pytest.param(52.32 + 0.005 + 100 / 10_834, Reproduces.EXACT, id="one sample more, rounded"),
        pytest.param(52.32 + 0.006 + 100 / 10_834, Reproduces.WITHIN, id="beyond one sample"),
        pytest.param(52.9, Reproduces.WITHIN, id="published at the end of the interval"),
        pytest.param(53.5, Reproduces.NO, id="published outside the interval"),
    ],
)
def test_verdict(value: float, verdict: Reproduces):
    assert judge(value, value - 0.58, value + 0.58, 52.32, n=10_834) == verdict


@given(value=PERCENT, published=PERCENT, arm=st.floats(0, 10), n=st.integers(1, 20_000))
@settings(max_examples=100, deadline=None)
def test_verdict_is_the_same_above_and_below(value: float, published: float, arm: float, n: int):
    above = judge(value, value - arm, value + arm, published, n=n)
    below = judge(-value, -value - arm, -value + arm, -published, n=n)
    assert above == below


@given(value=PERCENT, published=PERCENT, n=st.integers(1, 20_000))
@settings(max_examples=100, deadline=None)
def test_without_an_interval_a_number_is_exact_or_not_at_all(value: float, published: float, n: int):
    assert judge(value, None, None, published, n=n) in {Reproduces.EXACT, Reproduces.NO}


@given(hits=st.integers(0, 10_834))
@settings(max_examples=100, deadline=None)
def test_a_share_printed_with_two_decimals_is_reproduced_exactly(hits: int):
    value = 100 * hits / 10_834
    assert judge(value, None, None, round(value, 2), n=10_834) == Reproduces.EXACT


def test_official_number_stands_beside_the_published_one(run: Run):
    cell = kosmos(run).shown("mine", VAL)
    assert cell is not None
    assert (cell.published, cell.reproduces, cell.delta) == (52.32, Reproduces.EXACT, pytest.approx(0, abs=1e-9))


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        pytest.param({"custom": "8,811 samples"}, None, id="custom"),
        pytest.param({"partial": True, "status": {"ok": 10_000, "missing": 834}}, None, id="partial"),
        pytest.param({"n": 20}, 20, id="limited"),
        pytest.param({"official": None, "robust": {"precision@1": 0.5232}}, None, id="robust only"),
        pytest.param({"published": None}, None, id="no name"),
    ],
)
def test_what_cannot_be_compared_has_no_published_number(run: Run, fields: dict[str, Any], limit: int | None):
    run.limit = limit
    cell = kosmos(run, **fields).shown("mine", VAL)
    assert cell is not None
    assert (cell.published, cell.delta, cell.reproduces, cell.grade, cell.source) == (None,) * 5


@pytest.mark.parametrize(
    ("fields", "limit", "papers"),
    [
        pytest.param({}, None, ["Kosmos-2", "OFA"], id="official"),
        pytest.param({"custom": "8,811 samples"}, None, [], id="custom"),
        pytest.param({"n": 20}, 20, [], id="limited"),
        pytest.param(
            {"partial": True, "status": {"missing": 1}}, None, ["Kosmos-2", "OFA"], id="partial: one row only"
        ),
    ],
)
def test_papers_stand_only_in_columns_of_their_own_samples(
    run: Run, fields: dict[str, Any], limit: int | None, papers: list[str]
):
    run.limit = limit
    assert kosmos(run, **fields).papers == papers


def test_a_limit_that_cuts_nothing_leaves_the_split_comparable(run: Run):
    run.limit = 20_000
    cell = kosmos(run).shown("mine", VAL)
    assert cell is not None
    assert (cell.limit, cell.published) == (None, 52.32)


def test_partial_is_a_permission_until_samples_are_missing(run: Run):
    cell = kosmos(run, partial=True).shown("mine", VAL)
    assert cell is not None
    assert (cell.partial, cell.published) == (False, 52.32)


def test_tables_show_official_scoring_and_keep_both_in_the_csv(run: Run):
    table = kosmos(run, robust={"precision@1": 0.6})
    cell = table.shown("mine", VAL)
    assert cell is not None
    assert cell.scoring == Scoring.OFFICIAL
    assert tidy_frame([table])["scoring"].dropna().tolist() == ["official", "robust"]


def test_robust_scoring_is_shown_where_the_format_has_no_official_one(run: Run):
    cell = kosmos(run, official=None, robust={"precision@1": 0.6}).shown("mine", VAL)
    assert cell is not None
    assert (cell.scoring, cell.value) == (Scoring.ROBUST, 60.0)


def test_tidy_csv_has_the_columns_that_scripts_rely_on(run: Run):
    assert ",".join(tidy_frame([kosmos(run)]).columns) == (
        "table,benchmark,split,model,metric,scoring,value,low,high,n,unparsed,published,delta,reproduces,grade,source,"
        "custom,partial,limit"
    )


def test_tidy_csv_has_percent_unrounded(run: Run):
    frame = tidy_frame([kosmos(run, official={"precision@1": 5668 / 10_834})])
    assert frame["value"].iloc[0] == 100 * (5668 / 10_834)


def test_tidy_csv_has_the_papers_rows_without_a_value(run: Run):
    frame = tidy_frame([kosmos(run)])
    row = frame[frame["model"] == "OFA"].iloc[0]
    assert (row["published"], row["grade"], str(row["value"])) == (90.05, "secondary", "nan")


def test_tidy_csv_counts_the_unparsed(run: Run):
    frame = tidy_frame([kosmos(run, status={"ok": 10_831, "unparsed": 3})])
    assert frame["unparsed"].iloc[0] == 3


def test_wide_csv_has_a_row_a_model_and_marks_papers(run: Run):
    frame = wide_frame(kosmos(run))
    assert frame[["model", "origin", "refcoco/val/precision@1"]].to_numpy().tolist() == [
        ["mine", "run", 52.32],
        ["Kosmos-2", "paper", 52.32],
        ["OFA", "paper", 90.05],
    ]


def test_columns_follow_the_table_then_the_splits_then_the_metrics(run: Run):
    metrics = {"mean_iou": 0.3, "overall_iou": 0.4}
    for benchmark, split in (("b", "val"), ("a", "test"), ("a", "val")):
        run.cell("mine", benchmark, split, task="masks", official=metrics)
    run.splits["a"] = ["val", "test"]
    names = [column.name for column in table_of(run.table("t", ["a", "b"])).columns]
    assert names == [f"{where}/{metric}" for where in ("a/val", "a/test", "b/val") for metric in metrics]


@pytest.mark.parametrize(
    ("task", "metrics", "shown"),
    [
        ("boxes", ["precision@1", "mean_iou"], ["precision@1"]),
        ("points", ["accuracy", "any_hit"], ["accuracy"]),
        ("answers", ["score", "request_accuracy"], ["score"]),
        ("masks", ["mean_iou", "overall_iou", "precision@0.5"], ["mean_iou", "overall_iou"]),
        (
            "masks",
            ["gres_giou", "gres_ciou", "n_acc", "t_acc"],
            ["gres_giou", "gres_ciou", "n_acc", "t_acc"],
        ),
    ],
)
def test_a_table_without_metrics_shows_those_of_its_task(run: Run, task: str, metrics: list[str], shown: list[str]):
    run.cell("mine", "b", "val", task=task, official=dict.fromkeys(metrics, 0.5))
    assert [column.metric for column in table_of(run.table("t", ["b"])).columns] == shown


@pytest.mark.parametrize(
    ("undefined", "shown"),
    [
        (["n_acc", "gres_giou"], ["mean_iou"]),
        (["mean_iou"], ["gres_giou", "n_acc"]),
        (["mean_iou", "gres_giou", "n_acc"], ["mean_iou"]),
    ],
    ids=["every sample has a target", "some have none", "nothing parsed"],
)
def test_masks_show_the_metrics_that_are_defined(run: Run, undefined: list[str], shown: list[str]):
    values = dict.fromkeys(["mean_iou", "gres_giou", "n_acc"], 0.5) | dict.fromkeys(undefined)
    run.cell("mine", "b", "val", task="masks", official=values)
    assert [column.metric for column in table_of(run.table("t", ["b"])).columns] == shown


def test_a_metric_that_no_result_has_is_a_config_error(run: Run):
    run.table("boxes", ["refcoco"], metrics=["mIoU"])
    run.cell("mine", "refcoco", "val", official={"precision@1": 0.5})
    with pytest.raises(ConfigError, match=r"tables\.boxes\.metrics: no result has mIoU; there are precision@1"):
        tables_of(run)


def points(run: Run, splits: dict[str, int], *, published: str | None = None, papers: tuple[str, ...] = ()) -> Table:
    groups = {"step": {step: {"n": 7, "official": {"accuracy": 0.5}, "robust": None} for step in ("10", "1", "2")}}
    for split, n in splits.items():
        official = {"accuracy": 0.5}
        run.cell("m", "refspatial", split, task="points", n=n, official=official, groups=groups, published=published)
    return table_of(run.table("t", ["refspatial"], published=papers))


REFSPATIAL = {"location": 100, "placement": 100, "unseen": 77}


def test_overalls_stand_behind_the_splits(run: Run):
    overalls = ["micro", "macro", "micro-without-unseen", "macro-without-unseen"]
    assert [column.split for column in points(run, REFSPATIAL).columns] == [*REFSPATIAL, *overalls]


def test_pooled_number_of_a_paper_stands_beside_micro(run: Run):
    cell = points(run, REFSPATIAL, published="SpaceTools").cells[
        "m", "refspatial", "micro", "accuracy", Scoring.OFFICIAL
    ]
    assert cell.published == 53.07


def test_pooled_number_of_a_paper_needs_the_same_splits(run: Run):
    splits = {"location": 100, "placement": 100}
    cell = points(run, splits, published="SpaceTools").cells["m", "refspatial", "micro", "accuracy", Scoring.OFFICIAL]
    assert cell.published is None


def test_an_overall_that_we_do_not_compute_has_a_column_of_its_own(run: Run):
    table = points(run, REFSPATIAL, papers=("Qwen",))
    last = table.columns[-1]
    assert last.split == "overall"
    assert table.shown("m", last) is None


def test_steps_stand_apart_in_numeric_order(run: Run):
    columns = points(run, {"location": 100}).subsets
    assert [column.split for column in columns] == ["location/step1", "location/step2", "location/step10"]


def test_a_step_is_compared_but_too_small_for_a_verdict(run: Run):
    table = points(run, {"location": 100}, published="RoboRefer")
    cell = table.cells["m", "refspatial", "location/step1", "accuracy", Scoring.OFFICIAL]
    assert (cell.published, cell.delta, cell.reproduces) == (50.0, 0.0, None)


def test_surds_overall_is_the_mean_of_the_six_tasks(run: Run):
    for place, split in enumerate(SURDS_TASKS):
        run.cell("m", "surds", split, task="answers", n=925, official={"score": place / 10}, published="GRPO")
    cell = table_of(run.table("t", ["surds"])).cells["m", "surds", "overall", "score", Scoring.OFFICIAL]
    assert (cell.value, cell.published, cell.reproduces) == (pytest.approx(25.0), 40.8, Reproduces.NO)


def test_five_surds_tasks_have_no_overall(run: Run):
    for split in SURDS_TASKS[:5]:
        run.cell("m", "surds", split, task="answers", n=925, official={"score": 0.5})
    assert "overall" not in {column.split for column in table_of(run.table("t", ["surds"])).columns}
