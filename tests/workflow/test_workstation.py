"""One machine: how many jobs run at once, and on which of its GPUs."""

from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.server import Server
from tests.workflow.conftest import Workspace
from tests.workflow.material import WORDS, boxes_benchmark, server_model, write_annotations, write_images
from tests.workflow.schedulers import write_command

MODELS = ("first", "second", "third")
ANSWER_S = 0.7  # so long that a job which may not run beside the others is seen


@pytest.fixture
def three(workspace: Workspace) -> Workspace:
    """A working directory, for three models behind one server; each asks one request at a time."""
    write_annotations(workspace.folder / "data", "val", 100, WORDS)
    write_images(workspace.folder / "data" / "images")
    return workspace


def configure(workspace: Workspace, server: Server, **execution: int) -> None:
    models = {name: server_model(server.url, name) for name in MODELS}
    for model in models.values():
        model["exec"] |= {"max_in_flight": 1} | execution
    workspace.config = {
        "benchmarks": {"mine": boxes_benchmark(val=len(WORDS))},
        "models": models,
        "run": {"models": list(MODELS), "benchmarks": ["mine"]},
    }


@pytest.mark.parametrize(
    ("slots", "at_once"),
    [(2, 2), pytest.param(1, 3, marks=pytest.mark.slow), pytest.param(3, 1, marks=pytest.mark.slow)],
)
def test_no_more_jobs_ask_servers_at_once_than_slots_allow(three: Workspace, slots: int, at_once: int) -> None:
    """Of the four slots that every profile has."""
    three.where = ("--cores", "3")
    with Server({"do": "answer", "delay": ANSWER_S, "together": at_once}) as server:
        configure(three, server, api_slots=slots)
        three.run()
        assert server.peak == at_once


@pytest.mark.parametrize(
    ("environment", "devices"),
    [
        pytest.param({}, {"GPU-a", "GPU-b"}, marks=pytest.mark.slow),
        ({"CUDA_VISIBLE_DEVICES": "1,0", "SLURM_JOB_ID": "7"}, {"0", "1"}),
    ],
    ids=["the machine", "an allocation"],
)
def test_jobs_of_the_workstation_profile_share_its_gpus_one_each(
    three: Workspace, tmp_path: Path, environment: dict[str, str], devices: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_command(tmp_path / "bin" / "nvidia-smi", "#!/bin/sh\necho GPU-a\necho GPU-b\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    three.more_environment = {"TMPDIR": str(tmp_path), **environment}
    three.where = ("--workflow-profile", str(REPOSITORY / "profiles" / "workstation"), "--cores", "3")
    with Server({"do": "answer", "delay": ANSWER_S, "together": 2}) as server:
        configure(three, server, gpu=1)
        three.run()
        assert server.peak == 2
    logs = [three.read(f"results/logs/infer_{model}/mine/val.log") for model in MODELS]
    leased = [line for log in logs for line in log.splitlines() if line.startswith("CUDA_VISIBLE_DEVICES=")]
    assert len(leased) == len(MODELS)
    assert set(leased) == {f"CUDA_VISIBLE_DEVICES={device}" for device in devices}
