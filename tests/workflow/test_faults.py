"""What a failure costs, and that it never leaves old numbers behind."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.asking import KEY
from tests.server import Server
from tests.workflow.conftest import Workspace
from tests.workflow.material import (
    WORDS,
    baseline,
    boxes_benchmark,
    server_model,
    write_annotations,
    write_fairseq,
    write_images,
)


@pytest.fixture
def asking(workspace: Workspace) -> Workspace:
    """A working directory whose one model is a server."""
    write_annotations(workspace.folder / "data", "val", 100, WORDS)
    write_images(workspace.folder / "data" / "images")
    workspace.config = {
        "benchmarks": {"mine": boxes_benchmark(val=6)},
        "models": {},
        "run": {"models": ["served"], "benchmarks": ["mine"]},
    }
    return workspace


def test_a_crash_in_the_middle_costs_the_missing_samples_only(asking: Workspace) -> None:
    with Server({"do": "status", "status": 400, "match": WORDS[4]}) as server:
        asking.config["models"]["served"] = server_model(server.url)
        failed = asking.run(check=False)
        assert failed.status == 1
        assert "1 of 6 requests failed" in failed.output
        assert not (asking.folder / "results/predictions/served/mine/val.jsonl").exists()
    with Server() as mended:
        asking.config["models"]["served"] = server_model(mended.url)
        asking.run()
        assert len(mended.asked) == 1
        assert WORDS[4] in mended.texts[0]


def test_an_image_that_cannot_be_sent_costs_its_own_samples_only(asking: Workspace) -> None:
    name = "COCO_train2014_000000000000.jpg"
    image = asking.folder / "data/images/train2014" / name
    whole = image.read_bytes()
    image.write_bytes(b"II*\0 a TIFF")
    with Server() as server:
        asking.config["models"]["served"] = server_model(server.url)
        failed = asking.run(check=False)
        asked = len(server.asked)
        assert failed.status == 1
        assert f"{name}: neither JPEG, PNG, WebP nor GIF" in failed.output
        assert 0 < asked < len(WORDS)
        image.write_bytes(whole)
        asking.run("--forcerun", "manifest")
        assert len(server.asked) == len(WORDS)


@pytest.mark.parametrize("status", [200, 400])
def test_a_key_that_a_server_escapes_stands_in_no_file_and_no_output(asking: Workspace, status: int) -> None:
    spelt = KEY.replace("/", "\\/").replace("+", "\\u002b").replace("sk", "\\u0073k")
    bodies = {
        200: '{"choices": [{"message": {"content": "it is %s"}, "finish_reason": "%s"}]}',
        400: '{"error": {"message": "it is %s", "code": "%s"}}',
    }
    content = (bodies[status] % (spelt, spelt)).encode()
    with Server({"do": "raw", "status": status, "content": content}) as server:
        asking.config["models"]["served"] = server_model(server.url) | {"partial": "allow"}
        asking.config["models"]["served"]["exec"]["key_env"] = "SERVED_KEY"
        asking.more_environment = {"SERVED_KEY": KEY}
        output = asking.run().output
    written = [path.read_bytes().decode("utf-8", "replace") for path in asking.folder.rglob("*") if path.is_file()]
    assert any("it is [key]" in text for text in written)
    for text in [output, *written]:
        assert KEY not in text.replace("\\/", "/").replace("\\u002b", "+").replace("\\u0073", "s")


def test_a_limited_run_is_continued_by_the_full_one(asking: Workspace) -> None:
    with Server() as server:
        asking.config["models"]["served"] = server_model(server.url)
        asking.config["run"]["limit"] = 2
        asking.run()
        assert len(server.asked) == 2
        assert "first 2" in asking.read("results/tables.md")
        asking.config["run"]["limit"] = None
        asking.run()
        assert len(server.asked) == len(WORDS)
        assert asking.metrics("served", "mine", "val")["n"] == len(WORDS)


def test_lost_predictions_are_assembled_from_the_store(asking: Workspace) -> None:
    with Server() as server:
        asking.config["models"]["served"] = server_model(server.url)
        asking.run()
        before = asking.read("results/tables.csv")
        for folder in ("results/predictions", "results/metrics", "results/samples", ".snakemake"):
            shutil.rmtree(asking.folder / folder)
        asking.run()
        assert len(server.asked) == len(WORDS)
        assert asking.read("results/tables.csv") == before


def test_another_place_of_the_server_asks_nothing_again(asking: Workspace) -> None:
    with Server() as first:
        asking.config["models"]["served"] = server_model(first.url)
        asking.run()
    with Server() as second:
        asking.config["models"]["served"] = server_model(second.url)
        assert asking.run().jobs == Counter()
        assert second.asked == []


def test_a_changed_image_is_asked_about_again(asking: Workspace) -> None:
    with Server() as server:
        asking.config["models"]["served"] = server_model(server.url)
        asking.run()
        shutil.copy(
            asking.folder / "data/images/train2014/COCO_train2014_000000000001.jpg",
            asking.folder / "data/images/train2014/COCO_train2014_000000000000.jpg",
        )
        asking.run("--forcerun", "manifest")
        assert len(server.asked) == len(WORDS) + 2


def test_the_plan_counts_what_is_in_the_store(asking: Workspace) -> None:
    with Server() as server:
        asking.config["models"]["served"] = server_model(server.url)
        before = asking.run(targets=("plan",)).output
        asking.run()
        after = asking.run(targets=("plan",)).output
    assert row_of(before, "served")[2:] == ["val", "6", "unknown", "to", "make"]
    assert row_of(after, "served")[2:] == ["val", "6", "6", "there"]


def row_of(output: str, model: str) -> list[str]:
    return next(line.split() for line in output.split("\n") if line.startswith(f"{model} "))


@pytest.fixture
def scored(workspace: Workspace) -> Workspace:
    """A working directory with a finished run of recorded answers and a baseline."""
    write_annotations(workspace.folder / "data", "val", 100, WORDS)
    write_fairseq(workspace.folder / "data" / "old.val.out", WORDS)
    workspace.config = {
        "benchmarks": {"mine": boxes_benchmark(val=6)},
        "models": {
            "theirs": {
                "identity": {"backend": "recorded", "format": "fairseq", "predictions": "data/old.{split}.out"},
                "formats": {"boxes": {"notation": "kosmos"}},
            },
            "centre": baseline("center"),
        },
        "run": {"models": ["theirs", "centre"], "benchmarks": ["mine"]},
    }
    workspace.run()
    return workspace


def break_truth(folder: Path) -> Callable[[], None]:
    path = folder / "data" / "finetune_val.json"
    whole = path.read_text()
    path.write_text(whole[:-40])
    return lambda: write_annotations(folder / "data", "val", 500, list(reversed(WORDS))) and None


def break_answers(folder: Path) -> Callable[[], None]:
    path = folder / "data" / "old.val.out"
    path.write_text("\n".join(path.read_text().split("\n")[:6]) + "\n")
    return lambda: path.write_text(write_fairseq(path, WORDS).read_text().replace("0495", "1023")) and None


@pytest.mark.parametrize(
    "keep_going", [[], pytest.param(["--keep-going"], marks=pytest.mark.slow)], ids=["stops", "keeps going"]
)
@pytest.mark.parametrize(
    "damage", [pytest.param(break_truth, marks=pytest.mark.slow), break_answers], ids=["truth", "answers"]
)
def test_a_failed_rerun_never_leaves_old_numbers(
    scored: Workspace, damage: Callable[[Path], Callable[[], None]], keep_going: list[str]
) -> None:
    old = scored.read("results/tables.csv")
    mend = damage(scored.folder)
    for attempt in ("first", "again", "without metadata"):
        if attempt == "without metadata":
            shutil.rmtree(scored.folder / ".snakemake")
        failed = scored.run(*keep_going, check=False)
        assert failed.status == 1, attempt
        assert "DataError: data/" in failed.output, attempt
    mend()
    scored.run()
    assert scored.read("results/tables.csv") != old


SLOW_STAGES = [pytest.param(stage, marks=pytest.mark.slow) for stage in ("truth", "requests", "score")]


@pytest.mark.parametrize("stage", ["infer", "render", *SLOW_STAGES])
def test_a_crashing_stage_never_leaves_old_numbers(scored: Workspace, tmp_path: Path, stage: str) -> None:
    source = copy_of_workflow(scored.snakefile.parent, tmp_path / "source")
    scored.snakefile = source / "Snakefile"
    module = source / "workflow" / "lib" / "reftables" / "stages" / f"{stage}.py"
    whole = module.read_text()
    module.write_text(whole.replace("    args = parser()", "    raise RuntimeError('broken')\n    args = parser()"))
    for _ in range(2):
        failed = scored.run(check=False)
        assert failed.status == 1
        assert "RuntimeError: broken" in failed.output
    module.write_text(whole)
    scored.run()
    assert scored.stale() == Counter()


def copy_of_workflow(source: Path, target: Path) -> Path:
    for name in ("workflow", "config", "profiles", "envs"):
        shutil.copytree(source / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(source / "Snakefile", target / "Snakefile")
    return target


def test_half_a_prediction_file_is_caught(scored: Workspace) -> None:
    path = scored.folder / "results/predictions/theirs/mine/val.jsonl"
    path.write_text("".join(f"{line}\n" for line in path.read_text().split("\n")[:3]))
    failed = scored.run(check=False)
    assert failed.status == 1
    assert "3 of 6 samples are there, missing ids 3, 4, 5. Remove the file and run again." in failed.output


def test_numbers_of_another_configuration_are_never_shown(scored: Workspace) -> None:
    path = scored.folder / "results/metrics/theirs/mine/val.json"
    metrics = json.loads(path.read_text())
    metrics["lineage"]["model"] = "another"
    path.write_text(json.dumps(metrics))
    failed = scored.run(check=False)
    assert failed.status == 1
    assert "DataError" in failed.output
    assert "theirs" in failed.output
    assert "model" in failed.output


def test_requests_can_be_made_before_there_are_answers(workspace: Workspace) -> None:
    folder = workspace.folder / "a {folder} with 'marks'"
    write_annotations(folder, "val", 100, WORDS)
    answers = {"backend": "recorded", "format": "fairseq", "predictions": f"{folder.name}/{{model}}.{{split}}.out"}
    workspace.config = {
        "benchmarks": {"mine": boxes_benchmark(val=6) | {"annotations": f"{folder.name}/finetune_{{split}}.json"}},
        "models": {"theirs": {"identity": answers, "formats": {"boxes": {"notation": "kosmos"}}}},
        "run": {"models": ["theirs"], "benchmarks": ["mine"]},
    }
    workspace.run(targets=("results/requests/mine/val.kosmos.locout",))
    assert workspace.read("results/requests/mine/val.kosmos.locout").count("\n") == len(WORDS)
    failed = workspace.run(check=False)
    assert failed.status == 1
    assert "a {folder} with 'marks'/theirs.val.out" in failed.output
    write_fairseq(folder / "theirs.val.out", WORDS)
    workspace.run()
    assert workspace.metrics("theirs", "mine", "val")["status"] == {"ok": len(WORDS)}


def test_the_plan_knows_stale_numbers(scored: Workspace) -> None:
    assert row_of(scored.run(targets=("plan",)).output, "centre")[-1] == "there"
    scored.config["models"]["centre"]["identity"] = {"backend": "baselines", "strategy": "random", "seed": 3}
    assert row_of(scored.run(targets=("plan",)).output, "centre")[-2:] == ["to", "make"]
