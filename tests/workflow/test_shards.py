"""A split in several shards: the same tables, and no answer paid twice whatever their number."""

import json
from collections import Counter

import pytest

from tests.server import Server
from tests.workflow.conftest import Workspace
from tests.workflow.material import WORDS, baseline, boxes_benchmark, server_model, write_annotations, write_images

TEXTS = [*WORDS, WORDS[0], "tall tree"]  # images take turns by three, so the seventh request is the first once more
DISTINCT = 7


@pytest.fixture
def asking(workspace: Workspace) -> Workspace:
    """A working directory with a model behind a server, and one whose answers cost nothing."""
    write_annotations(workspace.folder / "data", "val", 100, TEXTS)
    write_images(workspace.folder / "data" / "images")
    workspace.config = {
        "benchmarks": {"mine": boxes_benchmark(val=len(TEXTS))},
        "models": {"centre": baseline("center")},
        "run": {"models": ["served", "centre"], "benchmarks": ["mine"]},
    }
    return workspace


def in_shards(workspace: Workspace, server: Server, shards: int) -> None:
    workspace.config["models"]["served"] = server_model(server.url)
    for model in workspace.config["models"].values():
        model["exec"] = model.get("exec", {}) | {"shards": shards}


def test_shards_make_the_tables_of_the_whole_and_ask_everything_once(asking: Workspace) -> None:
    with Server() as server:
        in_shards(asking, server, 1)
        assert asking.run().jobs["gather"] == 0
        whole = asking.read("results/predictions/served/mine/val.jsonl"), asking.read("results/tables.csv")
        assert len(server.asked) == DISTINCT
    asking.folder.joinpath("results").rename(asking.folder / "whole")
    with Server() as server:
        in_shards(asking, server, 3)
        run = asking.run()
        assert len(server.asked) == DISTINCT
    assert (run.jobs["infer_served"], run.jobs["infer_centre"], run.jobs["gather"]) == (3, 1, 1)
    assert (asking.read("results/predictions/served/mine/val.jsonl"), asking.read("results/tables.csv")) == whole
    assert not list((asking.folder / "results" / "shards").rglob("*.jsonl"))


def test_another_number_of_shards_asks_nothing_and_changes_nothing(asking: Workspace) -> None:
    with Server() as server:
        in_shards(asking, server, 1)
        asking.run()
        before = asking.read("results/tables.csv"), asking.metrics("served", "mine", "val")
        for shards in (3, 2, 1):
            in_shards(asking, server, shards)
            assert asking.run().jobs["infer_centre"] == 0
            assert (asking.read("results/tables.csv"), asking.metrics("served", "mine", "val")) == before
            assert asking.stale() == Counter()
        assert len(server.asked) == DISTINCT


@pytest.mark.slow
def test_a_limit_in_shards_is_continued_by_the_full_run(asking: Workspace) -> None:
    with Server() as server:
        in_shards(asking, server, 2)
        asking.config["run"]["limit"] = 3
        asking.run()
        assert len(server.asked) == 3
        asking.config["run"]["limit"] = None
        asking.run()
        assert len(server.asked) == DISTINCT


def test_a_failed_shard_costs_its_missing_answers_only(asking: Workspace) -> None:
    with Server({"do": "status", "status": 400, "match": "old dog"}) as server:
        in_shards(asking, server, 2)
        failed = asking.run("--keep-going", check=False)
        assert failed.status == 1
        assert "requests failed" in failed.output
        assert not (asking.folder / "results/predictions/served/mine/val.jsonl").exists()
    with Server() as mended:
        in_shards(asking, mended, 2)
        asking.run()
        assert len(mended.asked) == 1


@pytest.mark.slow
def test_more_shards_than_images_leave_some_with_nothing_to_do(asking: Workspace) -> None:
    with Server() as server:
        in_shards(asking, server, 5)
        assert asking.run().jobs["infer_served"] == 5
        assert len(server.asked) == DISTINCT
    predictions = [json.loads(line) for line in asking.read("results/predictions/served/mine/val.jsonl").splitlines()]
    assert [prediction["id"] for prediction in predictions] == list(range(len(TEXTS)))
