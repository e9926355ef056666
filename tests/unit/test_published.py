"""The papers' cells: the bundled file, and what is refused in any such file."""

from pathlib import Path

import pytest

from reftables.errors import ConfigError, DataError
from reftables.overalls import RESERVED_SPLITS, SURDS_TASKS
from reftables.published import Grade, Key, Published, read_published, require_models

HEADER = "benchmark,split,metric,model,value,grade,source"
GOOD = "refcoco,val,precision@1,Kosmos-2,52.32,publisher,a README"
SPLITS = {
    "refcoco": {"val", "testA", "testB"},
    "refcoco+": {"val", "testA", "testB"},
    "refcocog": {"val", "test"},
    "masks-refcoco": {"val", "testA", "testB"},
    "masks-refcoco+": {"val", "testA", "testB"},
    "masks-refcocog": {"val", "test"},
    "masks-refcocog-google": {"val"},
    "grefcoco": {"val", "testA", "testB"},
    "refspatial": {"location", "placement", "unseen"},
    "refspatial-expand": {"location", "placement"},
    "surds": set(SURDS_TASKS),
}
METRICS = {
    "refcoco": {"precision@1"},
    "masks": {"mean_iou", "overall_iou", *(f"precision@0.{digit}" for digit in range(5, 10))},
    "grefcoco": {"gres_giou", "gres_ciou", "n_acc", "t_acc"},
    "refspatial": {"accuracy"},
    "surds": {"score"},
}


@pytest.fixture(scope="module")
def bundled(repository: Path) -> Published:
    return read_published(repository / "config" / "published.csv")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "published.csv"


@pytest.mark.parametrize(
    ("benchmark", "split", "value"),
    [
        ("refcoco", "val", 52.32),
        ("refcoco", "testA", 57.42),
        ("refcoco", "testB", 47.26),
        ("refcoco+", "val", 45.48),
        ("refcoco+", "testA", 50.73),
        ("refcoco+", "testB", 42.24),
        ("refcocog", "val", 60.57),
        ("refcocog", "test", 61.65),
    ],
)
def test_kosmos2_cells_are_those_of_the_paper(bundled: Published, benchmark: str, split: str, value: float):
    cell = bundled[Key(benchmark, split, "precision@1", "Kosmos-2")]
    assert (cell.value, cell.grade) == (value, Grade.PUBLISHER)


@pytest.mark.parametrize(
    ("model", "values"),
    [
        ("Gemini-2.5-Pro", (46.96, 24.21, 27.14)),
        ("SpaceLLaVA", (5.82, 4.31, 4.02)),
        ("RoboPoint", (22.87, 9.27, 8.40)),
        ("Molmo-7B", (21.91, 12.85, 12.23)),
        ("Molmo-72B", (45.77, 14.74, 21.24)),
        ("RoboRefer-2B-SFT", (47.00, 48.00, 33.77)),
        ("RoboRefer-8B-SFT", (52.00, 53.00, 37.66)),
        ("RoboRefer-2B-RFT", (52.00, 54.00, 41.56)),
    ],
)
def test_refspatial_cells_are_those_of_the_paper(bundled: Published, model: str, values: tuple[float, ...]):
    cells = [bundled[Key("refspatial", split, "accuracy", model)] for split in ("location", "placement", "unseen")]
    assert tuple(cell.value for cell in cells) == values


@pytest.mark.parametrize(
    ("model", "value"),
    [("SURDS-GRPO (Qwen2.5-VL-3B based)", 40.80), ("Gemini-2.0-flash", 35.71), ("GPT-4o", 13.30)],
)
def test_surds_overalls_are_those_of_the_paper(bundled: Published, model: str, value: float):
    cell = bundled[Key("surds", "overall", "score", model)]
    assert (cell.value, cell.grade) == (value, Grade.PUBLISHER)


def test_bundled_cells_use_our_names_of_benchmark_split_and_metric(bundled: Published):
    strange = [key for key in bundled if not _is_known(key)]
    assert strange == []


def _is_known(key: Key) -> bool:
    family = key.benchmark.split("-")[0].removesuffix("+")
    metrics = METRICS.get(family, METRICS["refcoco"])
    split = key.split.split("/")[0]
    return key.metric in metrics and split in {*SPLITS[key.benchmark], *RESERVED_SPLITS}


def test_pooled_refspatial_of_a_paper_agrees_with_its_splits(bundled: Published):
    sizes = {"location": 100, "placement": 100, "unseen": 77}
    of = {split: bundled[Key("refspatial", split, "accuracy", "RoboRefer-8B-SFT")].value for split in sizes}
    pooled = sum(of[split] * n for split, n in sizes.items()) / 277
    assert pooled == pytest.approx(bundled[Key("refspatial", "micro", "accuracy", "RoboRefer-8B-SFT")].value, abs=0.006)


def test_the_number_keeps_the_digits_it_was_printed_with(table: Path):
    table.write_text(f"{HEADER}\n{GOOD.replace('52.32', '67.10')}\n", encoding="utf-8")
    assert next(iter(read_published(table).values())).text == "67.10"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(GOOD.replace("publisher", "rumour"), "line 3: unknown grade 'rumour'", id="unknown grade"),
        pytest.param(GOOD.replace("52.32", "high"), "line 3: value 'high' is not a number", id="word"),
        pytest.param(GOOD.replace("52.32", "nan"), "line 3: value 'nan' is not a number", id="nan"),
        pytest.param(
            GOOD.replace("52.32", "100.01"), "line 3: value '100.01' is not a number from 0 to 100", id="more"
        ),
        pytest.param(GOOD.replace("52.32", "-1"), "line 3: value '-1' is not a number from 0 to 100", id="negative"),
        pytest.param(GOOD.replace("a README", " "), "line 3 has no source", id="no source"),
        pytest.param(GOOD.replace("val", "test"), "line 3 repeats line 2", id="duplicate"),
        pytest.param(GOOD + ", and more", "line 3 has 8 fields, expected 7", id="unquoted comma"),
        pytest.param('"' + GOOD, "is not CSV", id="open quote"),
    ],
)
def test_a_cell_that_cannot_be_trusted_is_refused_with_its_line(table: Path, line: str, message: str):
    table.write_text(f"{HEADER}\n{GOOD.replace('val', 'test')}\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_published(table)


def test_another_header_is_refused(table: Path):
    table.write_text("benchmark,split,value\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 1 reads 'benchmark,split,value', expected 'benchmark,split,metric"):
        read_published(table)


def test_a_misspelt_model_is_named_with_its_config_key_and_the_nearest_name(bundled: Published):
    with pytest.raises(
        ConfigError, match=r"models\.mine\.published: p\.csv has no model 'Kosmos2'\. Did you mean Kosmos"
    ):
        require_models(bundled, {"models.mine.published": "Kosmos2"}, "p.csv")
