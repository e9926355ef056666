"""The models of config/paper.yaml: each can be selected, on all that it answers, and names rows that exist."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from reftables.config import load
from reftables.published import read_published
from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "config"
PAPER = yaml.safe_load((FOLDER / "paper.yaml").read_text(encoding="utf-8"))
MODELS = PAPER["models"]
ENVIRONMENTS = {path.stem for path in (REPOSITORY / "envs").glob("*.yaml")}


def merged(below: Any, above: Any) -> Any:
    """`above` laid over `below`, as Snakemake lays one config file over another."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return copy.deepcopy(above)
    return {**below, **{name: merged(below.get(name), value) for name, value in above.items()}}


def whole_config() -> dict[str, Any]:
    sample = yaml.safe_load((FOLDER / "config.yaml").read_text(encoding="utf-8"))
    config: dict[str, Any] = merged(sample, PAPER)
    return config


def pairs() -> Iterator[tuple[str, str, str]]:
    """Every model with each of its tasks, and the first benchmark that asks for it."""
    for name, model in MODELS.items():
        for task in model["formats"]:
            asked = model.get("benchmarks", PAPER["benchmarks"])
            yield name, task, next((b for b in asked if PAPER["benchmarks"][b]["task"] == task), "")


@pytest.mark.parametrize(
    ("model", "task", "benchmark"), [pytest.param(*pair, id="-".join(pair[:2])) for pair in pairs()]
)
def test_every_model_can_be_selected_alone_on_each_of_its_tasks(model: str, task: str, benchmark: str) -> None:
    config = load(whole_config() | {"run": {"models": [model], "benchmarks": [benchmark]}})
    cells = list(config.cells())
    assert {cell.split for cell in cells} == set(PAPER["benchmarks"][benchmark]["splits"])
    assert {(cell.model.name, cell.benchmark.task) for cell in cells} == {(model, task)}


@pytest.mark.parametrize("model", [name for name in MODELS if "published" in MODELS[name]])
def test_a_published_row_exists_for_a_benchmark_that_the_model_answers(model: str) -> None:
    config = load(whole_config() | {"run": {"models": [model], "benchmarks": asked_of(model)}})
    keys = read_published(FOLDER / "published.csv")
    rows = {key.benchmark for key in keys if key.model == MODELS[model]["published"]}
    assert rows & {cell.benchmark.name for cell in config.cells()}


def asked_of(model: str) -> list[str]:
    entry = MODELS[model]
    asked = entry.get("benchmarks", PAPER["benchmarks"])
    return [name for name in asked if PAPER["benchmarks"][name]["task"] in entry["formats"]]


@pytest.mark.parametrize("model", MODELS)
def test_every_model_runs_in_an_environment_that_exists(model: str) -> None:
    assert MODELS[model].get("exec", {}).get("env", "core") in ENVIRONMENTS


@pytest.mark.parametrize("model", [name for name in MODELS if "weights" in MODELS[name]["identity"]])
def test_weights_are_of_a_named_revision_and_run_no_code_of_the_hub_unpinned(model: str) -> None:
    identity = MODELS[model]["identity"]
    assert identity["revision"]
    assert not identity.get("trust_remote_code") or len(identity["revision"]) == 40


def test_nothing_is_selected_that_needs_a_server_a_gpu_or_a_key() -> None:
    needy = {name for name, entry in MODELS.items() if entry["identity"]["backend"] != "recorded"}
    assert not needy & set(PAPER["run"]["models"])


def test_the_readme_lists_every_model() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in MODELS if f"| `{name}` |" not in text] == []
