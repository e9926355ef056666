"""Configurations far larger than any paper's: nothing grows longer than a command line may be."""

from tests.workflow.conftest import Workspace
from tests.workflow.material import WORDS, baseline, boxes_benchmark, server_model, write_annotations, write_images


def test_a_configuration_of_four_hundred_models_is_planned_and_rendered(workspace: Workspace) -> None:
    write_annotations(workspace.folder / "data", "val", 100, WORDS)
    others = {f"model-{n}": baseline("random", seed=n) | {"published": "P" * 250} for n in range(400)}
    workspace.config = {
        "benchmarks": {"mine": boxes_benchmark(val=len(WORDS))},
        "models": {"centre": baseline("center"), **others},
        "run": {"models": ["centre"], "benchmarks": ["mine"]},
    }
    workspace.run(targets=("results/tables.md", "plan"))
    assert len(workspace.read("results/config.json")) > 150_000
    assert "1 models, 1 benchmarks, 1 cells" in workspace.read("results/logs/plan.log")


def test_the_shards_of_a_split_may_be_a_thousand(workspace: Workspace) -> None:
    """Their names alone would fill a command line."""
    write_annotations(workspace.folder / "data", "val", 100, WORDS)
    write_images(workspace.folder / "data" / "images")
    model, benchmark = "model" * 10, "benchmark" * 5
    served = server_model("http://127.0.0.1:9")
    served["exec"]["shards"] = 1000
    workspace.config = {
        "benchmarks": {benchmark: boxes_benchmark(val=len(WORDS))},
        "models": {model: served},
        "run": {"models": [model], "benchmarks": [benchmark]},
    }
    target = f"results/predictions/{model}/{benchmark}/val.jsonl"
    printed = workspace.run("--dry-run", "--printshellcmds", "--quiet", "progress", targets=(target,)).output
    (command,) = [line for line in printed.split("\n") if "reftables.stages.gather" in line]
    assert "val.{shard}-of-{shards}.jsonl' --shards 1000" in command
    assert len(command) < 2000
