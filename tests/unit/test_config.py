"""The configuration: defaults, and one clear error that names the key."""

import copy
from typing import Any

import pytest
import yaml

from reftables.benchmarks.official import OFFICIAL, why_custom
from reftables.config import load
from reftables.errors import ConfigError
from reftables.expected import table_specs
from reftables.paths import fill
from reftables.rows import Coordinates, Notation, Order, Task
from tests.conftest import REPOSITORY

BASE: dict[str, Any] = {
    "benchmarks": {
        "mine": {
            "task": "boxes",
            "source": "mdetr",
            "splits": {"val": 10},
            "annotations": "a/{split}.json",
            "images": "images",
        },
        "places": {"task": "points", "source": "refspatial", "splits": {"location": None}, "root": "r/{split}"},
    },
    "models": {
        "theirs": {
            "identity": {"backend": "recorded", "format": "fairseq", "predictions": "{model}.{split}.out"},
            "formats": {"boxes": {"notation": "kosmos"}},
        },
        "center": {
            "identity": {"backend": "baselines", "strategy": "center"},
            "formats": {"boxes": {"notation": "kosmos"}, "points": {"notation": "molmo"}},
        },
    },
    "run": {"models": ["theirs", "center"], "benchmarks": ["mine", "places"]},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """BASE with the value at a slash-separated path replaced, or removed where it is `...`."""
    config = copy.deepcopy(BASE)
    *parents, last = path.split("/")
    place = config
    for parent in parents:
        place = place.setdefault(parent, {})
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return config


def test_whole_numbers_may_be_written_as_floats() -> None:
    config = load(changed("benchmarks/mine/splits", {"val": 3.0}))
    assert repr(config.benchmarks["mine"].splits) == "{'val': 3}"


def test_cells_are_models_on_the_benchmarks_whose_task_they_answer() -> None:
    cells = [(cell.model.name, cell.benchmark.name, cell.split) for cell in load(BASE).cells()]
    assert cells == [("theirs", "mine", "val"), ("center", "mine", "val"), ("center", "places", "location")]


def test_benchmarks_of_a_model_limit_its_cells() -> None:
    config = load(changed("models/center/benchmarks", ["places"]))
    assert ("center", "mine") not in {(cell.model.name, cell.benchmark.name) for cell in config.cells()}


def test_pairs_are_compared_as_far_as_both_models_are_selected() -> None:
    raw = changed("comparisons", [["center", "theirs"]])
    assert load(raw).compared_pairs == [("center", "theirs")]
    raw["run"]["models"] = ["center"]
    assert load(raw).compared_pairs == []


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("colour", 1, "config: Additional properties are not allowed ('colour' was unexpected)"),
        ("run/models", ["their"], "run.models: 'their' is not in the registry; it has center, theirs"),
        ("run/benchmarks", ["mine"], None),
        ("run/models", ["theirs"], "run.benchmarks: no selected model answers places (task points)"),
        ("models/theirs/benchmarks", ["places"], "run.models: theirs answers boxes, which no selected benchmark asks"),
        ("models/theirs/benchmarks", ["other"], "models.theirs.benchmarks: 'other' is not in the registry"),
        ("models/theirs/identity/format", ..., "models.theirs.identity.format: backend recorded needs this key"),
        ("models/theirs/identity/sed", 1, "models.theirs.identity.sed: backend recorded has no such key; its keys: "),
        ("models/theirs/identity/backend", "own", "models.theirs.identity.backend: 'own' is unknown; backends: "),
        ("models/theirs/exec", {"shard": 2}, "models.theirs.exec.shard: backend recorded has no such key"),
        ("benchmarks/mine/annotation", "x", "benchmarks.mine.annotation: source mdetr has no such key"),
        ("benchmarks/mine/images", ..., "benchmarks.mine.images: source mdetr needs this key"),
        ("benchmarks/mine/source", "coca", "benchmarks.mine.source: 'coca' is unknown; sources: "),
        ("benchmarks/mine/task", "answers", "benchmarks.mine.task: source mdetr serves boxes, masks"),
        ("benchmarks/mine/splits", {"overall": 1}, "benchmarks.mine.splits: 'overall' should not be valid under"),
        ("benchmarks/mine/splits", {"v.al": 1}, "benchmarks.mine.splits: 'v.al' does not match"),
        (
            "benchmarks/mine/scoring",
            {"strict": True},
            "benchmarks.mine.scoring.strict: the scorer of boxes has no such",
        ),
        ("benchmarks/mine/folders", {"test": "T"}, "benchmarks.mine.folders.test: no such split; splits: val"),
        ("benchmarks/mine/annotations", 5, "benchmarks.mine.annotations: 5 is no path or name"),
        ("benchmarks/mine/annotations", "", "benchmarks.mine.annotations: '' is no path or name; source mdetr needs"),
        ("benchmarks/mine/splits", {2014: 3}, "benchmarks.mine.splits: 2014 is not of type 'string'"),
        ("benchmarks/mine/scoring", {"strict": "no"}, "benchmarks.mine.scoring.strict: 'no' is not of type 'boolean'"),
        ("benchmarks/mine/scoring", {"eval_size": True}, "benchmarks.mine.scoring.eval_size: True is not of type"),
        ("benchmarks/mine/scoring", {"eval_size": 0}, "benchmarks.mine.scoring.eval_size: 0 is less than the minimum"),
        ("models/theirs/identity/predictions", 5, "models.theirs.identity.predictions: 5 is no path"),
        ("models/theirs/identity/format", "png", "models.theirs.identity.format is png, but formats.boxes"),
        ("models/center/identity/strategy", "centre", "models.center.identity.strategy: 'centre' is unknown"),
        ("run/limit", 0, "run.limit: 0 is less than the minimum of 1"),
        ("tables/t", {"benchmarks": ["mine"], "metrics": ["nope"]}, "tables.t.metrics: 'nope' is no metric of boxes"),
        ("tables/t", {"benchmarks": ["other"]}, "tables.t.benchmarks: 'other' is not in the registry"),
        ("comparisons", [["center", "other"]], "comparisons[0]: 'other' is not in the registry; it has center, theirs"),
        ("comparisons", [["center", "center"]], "comparisons.0: ['center', 'center'] has non-unique elements"),
        ("gallery/side", 20, "gallery.side: 20 is less than the minimum of 64"),
    ],
)
def test_faults_name_the_key(path: str, value: Any, message: str | None) -> None:
    config = changed(path, value)
    if message is None:
        load(config)
        return
    with pytest.raises(ConfigError) as caught:
        load(config)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"notation": "json"}, "models.theirs.formats.boxes.coordinates: notation json needs one of unit, percent"),
        ({"notation": "molmo"}, "models.theirs.formats.boxes.notation: molmo is no notation of boxes; choose from"),
        (
            {"notation": "kosmos", "coordinates": "unit"},
            "models.theirs.formats.boxes.coordinates: notation kosmos fixes",
        ),
        ({"notation": "gemini", "order": "xy"}, "models.theirs.formats.boxes.order: notation gemini fixes it to yx"),
        (
            {"notation": "json", "coordinates": "unit", "grid": 8},
            "models.theirs.formats.boxes.grid: only notation kosmos",
        ),
        (
            {"notation": "kosmos", "prompt": "surds"},
            "models.theirs.formats.boxes.prompt: source mdetr of benchmark mine",
        ),
    ],
)
def test_contrary_answer_formats_are_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(changed("models/theirs/formats", {"boxes": entry}))
    assert str(caught.value).startswith(message)


def test_notations_fix_their_coordinates_and_prompts_follow() -> None:
    center = load(BASE).models["center"].formats
    assert (center[Task.POINTS].coordinates, center[Task.POINTS].order) == (Coordinates.PERCENT, Order.XY)
    assert (center[Task.POINTS].prompt, center[Task.BOXES].prompt) == ("molmo", "kosmos")
    assert (center[Task.BOXES].notation, center[Task.BOXES].grid) == (Notation.KOSMOS, 32)


def test_templates_replace_only_the_names_given() -> None:
    assert fill("{benchmark}/{split}/{other}/{}", benchmark="b", split="s") == "b/s/{other}/{}"


def test_loading_leaves_the_given_configuration_alone() -> None:
    given = copy.deepcopy(BASE)
    load(given)
    assert given == BASE


def test_benchmarks_in_no_table_go_to_one_named_after_their_task() -> None:
    config = load(changed("tables/t", {"benchmarks": ["mine"], "published": ["Kosmos-2"]}))
    specs = table_specs(config)
    assert {name: spec["benchmarks"] for name, spec in specs.items()} == {"t": ["mine"], "points": ["places"]}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("refcoco", Task.BOXES, "mdetr", "val", 10_834), None),
        (("refcoco", Task.BOXES, "mdetr", "val", 8_811), "8,811 samples, the papers have 10,834"),
        (("refcoco", Task.BOXES, "mdetr", "val", None), "an unchecked number of samples, the papers have 10,834"),
        (("refcoco", Task.BOXES, "mdetr", "train", 5), "not a split of the papers"),
        (("refcoco", Task.BOXES, "coco", "val", 10_834), "task boxes from source coco, not the papers' own"),
        (("mine", Task.BOXES, "mdetr", "val", 10_834), "not a benchmark of the papers"),
        (("grefcoco", Task.MASKS, "grefer", "val", None), None),
    ],
)
def test_a_split_is_official_or_says_why_not(arguments: tuple[Any, ...], reason: str | None) -> None:
    assert why_custom(*arguments) == reason


def test_official_expressions_are_those_counted_in_the_papers_files() -> None:
    boxes = [OFFICIAL[name].counts for name in ("refcoco", "refcoco+", "refcocog")]
    assert sum(count or 0 for counts in boxes for count in counts.values()) == 57_457


@pytest.mark.parametrize("name", ["config.yaml"])
def test_shipped_configurations_load(name: str) -> None:
    load(yaml.safe_load((REPOSITORY / "config" / name).read_text(encoding="utf-8")))
