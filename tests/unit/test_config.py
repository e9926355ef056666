"""The configuration: defaults, and one clear error that names the key."""

import copy
import math
from datetime import date
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

BOXES = {"boxes": {"notation": "kosmos"}}
SECRET = "sk-live-0123456789abcdef"


def fetched(**changes: Any) -> dict[str, Any]:
    """An entry of `downloads`."""
    return {"url": "https://host/file?download=1", "to": "resources/file", "licence": "free", **changes}


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
        ("benchmarks/mine/splits", {2014: 3}, "benchmarks.mine.splits: the name 2014 is of type int to YAML. Quote"),
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
        ("models/theirs/identity/revision", date(2024, 1, 1), "models.theirs.identity.revision: 2024-01-01 is of type"),
        ("models/theirs/identity", {True: 1}, "models.theirs.identity: the name True is of type bool to YAML. Quote"),
        ("models/theirs/exec/threads", math.nan, "models.theirs.exec.threads: nan is not a number"),
        (
            "models/theirs/identity/a",
            [{"b": "\ud800"}],
            "models.theirs.identity.a.0.b: the text holds a NUL or half of",
        ),
        ("benchmarks/mine/images", "a\0b", "benchmarks.mine.images: the text holds a NUL or half of a surrogate pair"),
        ("benchmarks/mine/splits", {"a" * 101: 1}, f"benchmarks.mine.splits: '{'a' * 20}'… is longer than 100 letters"),
        ("benchmarks/mine/splits", {"b" + "ab" * 20: 1}, f"benchmarks.mine.splits.b{'ab' * 20}: Snakemake refuses"),
        ("models/" + "0" * 20, {"identity": {"backend": "recorded"}, "formats": BOXES}, f"models.{'0' * 20}: Snake"),
        ("models/center/exec", {"shards": 1001}, "models.center.exec.shards: 1001 is greater than the maximum of 1000"),
        ("downloads/d", fetched(to="resources/x/"), "downloads.d.to: resources/x/ is a folder; name the file"),
        ("downloads/d", fetched(to="resources/./digests.tsv"), "downloads.d: resources/./digests.tsv is where the"),
        ("downloads/d", fetched(to="resources/a\tb"), "downloads.d: 'resources/a\\tb' holds a control character"),
        ("downloads/d", fetched(unpack={"a\n": "resources/a"}), "downloads.d: 'a\\n' holds a control character"),
        ("downloads/d", fetched(url=["http://h/a\nb"]), "downloads.d: 'http://h/a\\nb' holds a control character"),
        ("images/i", {"folder": "resources/a\n", "licence": "free"}, "images.i: 'resources/a\\n' holds a control"),
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
    ("path", "value", "key"),
    [
        ("models/center/exec", {"key_env": SECRET}, "models.center.exec.key_env: the name of an environment variable"),
        ("models/center/exec", {"key_env": {"a": SECRET}}, "models.center.exec.key_env: the name of an environment"),
        ("models/center/exec", {"key_env": f"A{'b' * 32}"}, "models.center.exec.key_env: the name of an environment"),
        ("models/center/exec", SECRET, "models.center.exec: a mapping is expected"),
        ("models/center/exec", {"url": f"http://u:{SECRET}@host"}, "models.center.exec.url: an address holds no user"),
        ("downloads/d", fetched(url=f"http://{SECRET}@host/a"), "downloads.d.url: an address holds no user"),
        ("downloads/d", fetched(url=f"ftp://{SECRET}@host/a"), "downloads.d.url: an address is expected"),
        (
            "downloads/d",
            fetched(url=["http://h", f"http://h/?a=1&Api_Key={SECRET}"]),
            "downloads.d.url: its query seems",
        ),
        ("downloads/d", fetched(url=f"http://[{SECRET}]/"), "downloads.d.url: an address is expected"),
        (
            "images/i",
            {"folder": "resources/i", "licence": "free", "url": f"https://h/{{name}}?X-Amz-Signature={SECRET}"},
            "images.i.url: its query seems to hold a key",
        ),
    ],
)
def test_a_pasted_secret_is_refused_and_not_repeated(path: str, value: Any, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(changed(path, value))
    assert str(caught.value).startswith(key)
    assert "b" * 8 not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("query", ["download=1", "author=a&monkey=b&design=c&id=5", ""])
def test_a_query_that_holds_no_key_passes(query: str) -> None:
    url = f"https://host/file?{query}"
    assert load(changed("downloads/d", fetched(url=url))).downloads["d"].urls == (url,)


@pytest.mark.parametrize(
    "name", ["key", "api_key", "apikey", "AWSAccessKeyId", "access_token", "sig", "X-Goog-Signature"]
)
def test_a_query_that_names_a_key_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="its query seems to hold a key"):
        load(changed("downloads/d", fetched(url=f"https://host/file?id=5&{name}=abc")))


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
