"""The stage: what is printed, what is refused, what lies in the folder afterwards."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reftables.analysis import Analysis, Compared
from reftables.comparing import Comparison
from reftables.errors import ConfigError, DataError
from reftables.overalls import SURDS_TASKS
from reftables.rendering import SAMPLE, escape
from reftables.results import Scoring
from reftables.sheets import signed
from reftables.stages import render
from tests.scored import LINEAGE, Run

PUBLISHED = """\
benchmark,split,metric,model,value,grade,source
refcoco,testA,precision@1,Kosmos-2,57.42,publisher,its README
refcoco,val,precision@1,Kosmos-2,52.32,publisher,its README
refcoco,val,precision@1,OFA-L* (a | b),79.9,secondary,"somebody's <table>"
surds,overall,score,GRPO,40.80,publisher,its abstract
surds,depth,score,GRPO,69.84,secondary,a note
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def rendered(run: Run) -> str:
    """results/tables.md of `run`."""
    published = run.folder / "published.csv"
    published.write_text(PUBLISHED, encoding="utf-8")
    render.main(["--expected", str(run.write()), "--published", str(published), "--results", str(run.folder)])
    return (run.folder / "tables.md").read_text(encoding="utf-8")


def kosmos(run: Run, **fields: Any) -> str:
    defaults = {"n": 5657, "official": {"precision@1": 3248 / 5657}, "arm": 0.013, "published": "Kosmos-2"}
    return rendered(run.table("kosmos2", ["refcoco"]).cell("mine", "refcoco", "testA", **{**defaults, **fields}))


def footnotes(text: str) -> list[str]:
    return re.findall(r"(?m)^\d+\. (.*)$", text)


@pytest.mark.parametrize(
    ("fields", "reads"),
    [
        pytest.param({}, "57.42 ±1.3 (paper 57.42, Δ 0.00, exact)", id="exact"),
        pytest.param({"official": {"precision@1": 0.5655}}, "56.55 ±1.3 (paper 57.42, Δ -0.87, within)", id="within"),
        pytest.param({"official": {"precision@1": 0.6}}, "60.00 ±1.3 (paper 57.42, Δ +2.58, no)", id="no"),
        pytest.param({"published": None}, "57.42 ±1.3 |", id="nothing to compare"),
        pytest.param({"published": None, "arm": None}, "| 57.42 |", id="no interval"),
        pytest.param(
            {"status": {"ok": 5653, "unparsed": 3, "truncated": 1}},
            "57.42 ±1.3 (paper 57.42, Δ 0.00, exact), 3 unparsed, 1 truncated",
            id="tallies",
        ),
        pytest.param(
            {"official": {"precision@1": None}, "status": {"unparsed": 5657}},
            "| - (5,657 of 5,657 unparsed) |",
            id="all unparsed",
        ),
        pytest.param(
            {"official": {"precision@1": None}, "status": {"unparsed": 5650, "refused": 7}},
            "| - (5,650 of 5,657 unparsed, 7 of 5,657 refused) |",
            id="nothing readable",
        ),
        pytest.param(
            {"official": None, "robust": {"precision@1": 0.6}}, "60.00 ±1.3 (robust) <sup>1</sup>", id="robust"
        ),
        pytest.param(
            {"robust": {"precision@1": 0.6}},
            "57.42 ±1.3 (paper 57.42, Δ 0.00, exact, robust 60.00) <sup>2</sup>",
            id="scorings apart",
        ),
        pytest.param(
            {"partial": True, "status": {"ok": 5650, "missing": 7}}, "57.42 ±1.3 (partial), 7 missing", id="partial"
        ),
    ],
)
def test_a_cell_reads(run: Run, fields: dict[str, Any], reads: str):
    assert reads in kosmos(run, **fields)


def test_a_limited_cell_says_so(run: Run):
    run.limit = 20
    text = kosmos(run, n=20, official={"precision@1": 0.55})
    assert "55.00 ±1.3 (first 20) <sup>1</sup>" in text
    assert footnotes(text) == ["only the first 20 samples: no published number can stand beside it"]


def test_a_custom_set_says_why(run: Run):
    text = kosmos(run, custom="5,000 samples, the papers have 5,657")
    assert footnotes(text) == [
        "custom set (5,000 samples, the papers have 5,657): no published number can stand beside it"
    ]


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        pytest.param({}, "Kosmos-2, publisher: its README", id="source"),
        pytest.param({"notes": ["7 captions never match"]}, "7 captions never match", id="note of the metrics file"),
        pytest.param({"official_dropped": 4}, "the authors' script leaves 4 samples out of", id="dropped"),
        pytest.param({"scoring": {"eval_size": 480}}, "scored with eval_size: 480", id="scorer's option"),
        pytest.param({"robust": {"precision@1": 0.5792}}, "the robust parser differs by half a point", id="notable"),
        pytest.param({"partial": True, "status": {"error": 2}}, "partial: 2 of 5,657 samples have", id="partial"),
        pytest.param({"official": {"precision@1": None}}, "precision@1 is undefined", id="undefined"),
    ],
)
def test_a_footnote_tells(run: Run, fields: dict[str, Any], note: str):
    assert any(text.startswith(note) for text in footnotes(kosmos(run, **fields)))


def test_scorings_less_than_half_a_point_apart_need_no_footnote(run: Run):
    assert not any("robust parser" in note for note in footnotes(kosmos(run, robust={"precision@1": 0.5790})))


def test_a_note_that_all_models_share_is_about_the_data_and_stands_at_the_column(run: Run):
    run.table("t", ["refcoco"])
    for model, notes in (("one", ["own"]), ("two", [])):
        run.cell(model, "refcoco", "val", official={"precision@1": 0.5}, notes=notes, split_notes=["shared"])
    text = rendered(run)
    assert "| refcoco val <sup>1</sup><br>n=1,000 |" in text
    assert "| one | 50.00 ±1.0 <sup>2</sup> |" in text
    assert footnotes(text) == ["shared", "own"]


def test_paper_rows_stand_below_in_italics_and_escaped(run: Run):
    run.table("t", ["refcoco"], published=["OFA-L* (a | b)"])
    lines = rendered(run.cell("mine", "refcoco", "val", official={"precision@1": 0.5})).split("\n")
    below = lines[next(i for i, line in enumerate(lines) if line.startswith("| mine")) + 1]
    assert below == r"| *OFA-L\* (a \| b)* <sup>1</sup> | *79.9* |"


def test_surds_cells_without_a_source_stay_empty_and_say_so(run: Run):
    run.table("t", ["surds"], published=["GRPO"])
    for split in SURDS_TASKS:
        run.cell("mine", "surds", split, task="answers", n=925, official={"score": 0.5}, published="GRPO")
    text = rendered(run)
    assert "| *GRPO* <sup>2,3</sup> | *-* <sup>4</sup> | *-* <sup>4</sup> | *69.84* |" in text
    assert "50.00 ±1.0 (paper -) <sup>4</sup>" in text
    assert footnotes(text)[3] == "no published value with a source"


def test_an_empty_cell_of_a_custom_column_is_no_lack_of_a_source(run: Run):
    run.table("t", ["refcoco"], published=["Kosmos-2"]).cell("mine", "refcoco", "val", official={"precision@1": 0.5})
    text = rendered(
        run.cell("mine", "refcoco", "half", official={"precision@1": 0.5}, custom="not a split of the papers")
    )
    assert "| *Kosmos-2* <sup>2</sup> | *52.32* |  |" in text


def test_a_secondary_number_is_not_called_the_papers(run: Run):
    run.table("t", ["surds"]).cell("mine", "surds", "depth", task="answers", official={"score": 0.7}, published="GRPO")
    assert "70.00 ±1.0 (secondary 69.84, Δ +0.16, within)" in rendered(run)


def test_five_surds_tasks_say_what_is_missing(run: Run):
    run.table("t", ["surds"])
    for split in SURDS_TASKS[:5]:
        run.cell("mine", "surds", split, task="answers", official={"score": 0.5})
    assert "no overall: it is the mean of six tasks, and there is no front_behind" in footnotes(rendered(run))


def test_an_overall_without_a_value_names_the_split_that_lacks_one(run: Run):
    run.table("t", ["places"])
    for split, value in (("location", None), ("placement", 0.5)):
        status = {"ok": 1000} if value else {"unparsed": 1000}
        run.cell("mine", "places", split, task="points", official={"accuracy": value}, status=status)
    assert "no micro: location has no value" in footnotes(rendered(run))


def test_paired_questions_show_units_and_requests(run: Run):
    run.table("t", ["surds"]).cell(
        "mine", "surds", "yaw", task="answers", n=925, requests=1850, official={"score": 0.5}
    )
    assert "surds yaw <sup>1</sup><br>n=925 (1,850 requests)" in rendered(run)


def test_steps_have_a_small_table_of_their_own(run: Run):
    groups = {"step": {"1": {"n": 30, "official": {"accuracy": 0.6}, "robust": {"accuracy": 0.6}}}}
    run.table("t", ["places"])
    text = rendered(run.cell("mine", "places", "a", task="points", official={"accuracy": 0.5}, groups=groups))
    small = text.partition("### t, by parts of the splits")[2]
    assert "| model | places a/step1<br>n=30 |\n| --- | ---: |\n| mine | 60.00 |" in small


@pytest.mark.parametrize("sample", [True, False])
def test_sample_data_is_called_so(run: Run, sample: bool):
    run.sample = sample
    text = kosmos(run)
    page = (run.folder / "index.html").read_text(encoding="utf-8")
    assert (SAMPLE in text, SAMPLE in page) == (sample, sample)


def test_the_foot_names_selection_config_and_lineage(run: Run):
    foot = kosmos(run).partition("## What these tables are made of")[2]
    assert "- models: mine\n- benchmarks: refcoco\n- samples: all\n- config files: config/config.yaml" in foot
    assert "| mine on refcoco testA | c0de | c0f1 | 30de | 50ce |" in foot


def test_a_number_of_another_lineage_is_refused_and_nothing_is_written(run: Run):
    with pytest.raises(DataError) as raised:
        kosmos(run, lineage={**LINEAGE, "model": "01d0"})
    assert 'mine on refcoco testA was scored with another model (model is "01d0", expected "30de")' in str(raised.value)
    assert "snakemake --cores 1 --forcerun results/truth/refcoco/testA.jsonl infer_mine score --" in str(raised.value)
    assert not (run.folder / "tables.md").exists()


def test_a_damaged_metrics_file_is_refused(run: Run):
    run.table("t", ["refcoco"]).cell("mine", "refcoco", "val", official={"precision@1": 0.5})
    Path(run.cells[0]["metrics"]).write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"val\.json: not JSON"):
        rendered(run)


def test_a_metrics_file_without_a_field_is_refused(run: Run):
    run.table("t", ["refcoco"]).cell("mine", "refcoco", "val", official={"precision@1": 0.5})
    path = Path(run.cells[0]["metrics"])
    metrics = json.loads(path.read_text(encoding="utf-8"))
    del metrics["status"]
    path.write_text(json.dumps(metrics), encoding="utf-8")
    with pytest.raises(DataError, match=r"val\.json: no 'status'\. Remove the file and run again"):
        rendered(run)


def test_an_unknown_published_model_is_named_with_its_config_key(run: Run):
    run.table("t", ["refcoco"], published=["Kosmos-3"]).cell("mine", "refcoco", "val", official={"precision@1": 0.5})
    with pytest.raises(ConfigError, match=r"tables\.t\.published\[0\]: published\.csv has no model 'Kosmos-3'"):
        rendered(run)


def test_wide_csvs_of_other_tables_are_removed(run: Run):
    (run.folder / "tables").mkdir()
    (run.folder / "tables" / "old.csv").write_text("old", encoding="utf-8")
    kosmos(run)
    assert [path.name for path in (run.folder / "tables").iterdir()] == ["kosmos2.csv"]


def comparison(**fields: Any) -> Compared:
    defaults = {
        "metric": "precision@1",
        "first": "mine",
        "second": "yours",
        "first_scoring": Scoring.OFFICIAL,
        "second_scoring": Scoring.OFFICIAL,
        "n": 5657,
        "first_value": 0.5742,
        "second_value": 0.55,
        "difference": 0.0242,
        "low": 0.01,
        "high": 0.04,
        "wins": 400,
        "losses": 263,
        "p": 0.0000001,
    }
    return Compared(
        benchmark="refcoco",
        split="testA",
        lead=True,
        comparison=Comparison(**{**defaults, **fields}),
        wins=[(3, "a|b")],
    )


def with_comparisons(run: Run, *comparisons: Compared) -> str:
    analysis = run.folder / "analysis.json"
    run.table("t", ["refcoco"]).cell("mine", "refcoco", "testA", official={"precision@1": 0.5})
    analysis.write_text(Analysis(comparisons).as_json(run.expected), encoding="utf-8")
    render.main(["--expected", str(run.write()), "--analysis", str(analysis), "--results", str(run.folder)])
    return (run.folder / "tables.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("fields", "reads"),
    [
        pytest.param(
            {},
            "| mine - yours | refcoco testA | precision@1 | 5,657 | 57.42 | 55.00 | +2.42 | +1.00 to +4.00 | 400 | 263 "
            "| &lt; 0.001 |",
            id="models",
        ),
        pytest.param({"p": None}, "| 400 | 263 |  |", id="no p"),
        pytest.param({"p": 0.0426}, "| 0.043 |", id="p"),
        pytest.param({"low": None, "high": None}, "| +2.42 |  | 400 |", id="no interval"),
        pytest.param({"first_scoring": Scoring.ROBUST}, "| precision@1 (robust) |", id="robust"),
        pytest.param(
            {"second": "mine", "second_scoring": Scoring.ROBUST},
            "| mine | refcoco testA | precision@1 |",
            id="scorings",
        ),
    ],
)
def test_a_comparison_reads(run: Run, fields: dict[str, Any], reads: str):
    assert reads in with_comparisons(run, comparison(**fields))


def test_scorings_that_agree_are_no_comparison(run: Run):
    same = comparison(second="mine", second_scoring=Scoring.ROBUST, wins=0, losses=0)
    assert "## Official against robust" not in with_comparisons(run, same)


def test_comparisons_stand_in_the_page_and_in_latex(run: Run):
    with_comparisons(run, comparison())
    page = (run.folder / "index.html").read_text(encoding="utf-8")
    assert "mine - yours, refcoco testA: samples that differ most" in page
    assert "<code>3</code> a|b" in page
    latex = (run.folder / "tables.tex").read_text(encoding="utf-8")
    assert r"mine - yours & refcoco testA & precision@1 & 5,657 & 57.42 & 55.00 & +2.42 &" in latex


def test_the_same_run_gives_the_same_bytes(run: Run):
    kosmos(run)
    names = ["tables.md", "tables.csv", "tables.tex", "tables/kosmos2.csv", "index.html"]
    before = [(run.folder / name).read_bytes() for name in names]
    rendered(run)
    assert [(run.folder / name).read_bytes() for name in names] == before


def test_the_page_escapes_every_text_and_needs_no_network(run: Run):
    run.table("t", ["refcoco"], published=["OFA-L* (a | b)"])
    rendered(run.cell("mine", "refcoco", "val", official={"precision@1": 0.5}, notes=["<script>alert(1)</script>"]))
    page = (run.folder / "index.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;" in page
    assert "somebody&#39;s &lt;table&gt;" in page
    assert "<script>alert" not in page
    # Addresses stand in the libraries' own texts only; nothing is loaded, and the page forbids it.
    outside = re.sub(r"(<script[^>]*>).*?</script>", r"\1", page, flags=re.DOTALL)
    assert not re.search(r"\ssrc=|<link|<img|@import|url\(|https?://", outside)
    assert "default-src 'none'" in page


def test_footnote_links_of_the_page_lead_somewhere(run: Run):
    kosmos(run, robust={"precision@1": 0.6}, notes=["a note"])
    page = (run.folder / "index.html").read_text(encoding="utf-8")
    targets = set(re.findall(r'href="#([^"]+)"', page))
    assert targets
    assert targets <= set(re.findall(r'id="([^"]+)"', page))


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a|b", r"a\|b"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("two\nlines", "two lines"),
        ("mean_iou", "mean_iou"),
        ("_mean_", r"\_mean\_"),
        ("[x](y)", r"\[x\](y)"),
        ("back\\slash `code` *star*", r"back\\slash \`code\` \*star\*"),
    ],
)
def test_markdown_takes_texts_as_they_are(text: str, escaped: str):
    assert escape(text) == escaped


@pytest.mark.parametrize(("points", "text"), [(0.0, "0.00"), (-0.004, "0.00"), (0.13, "+0.13"), (-1.0, "-1.00")])
def test_a_difference_that_rounds_to_zero_has_no_sign(points: float, text: str):
    assert signed(points) == text
