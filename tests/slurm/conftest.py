"""A real SLURM on this machine, and the workflow run through it by the profile that ships."""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests import waiting
from tests.conftest import REPOSITORY
from tests.server import Server
from tests.workflow.conftest import Workspace
from tests.workflow.material import boxes_benchmark, server_model, write_annotations, write_images

# Twelve requests, each image with four of them.
TEXTS = [f"{colour} {thing}" for thing in ("mug", "plate", "chair", "dog") for colour in ("red", "blue", "green")]
ANSWER_S = 1.0  # so long that there is time for an accident in the middle

wait_for = partial(waiting.wait_for, every_s=0.1)  # what is waited for are mostly commands of the cluster


class Slurm:
    """The commands of the cluster."""

    def jobs(self, state: str = "running") -> list[dict[str, str]]:
        """Jobs in `state` (or `all`), oldest first: number, name of the run, rule and wildcards, node."""
        columns = {"number": "%i", "run": "%j", "comment": "%k", "node": "%N", "state": "%T"}
        listed = call("squeue", "--noheader", f"--states={state}", "--sort=i", "--format", "|".join(columns.values()))
        return [dict(zip(columns, line.split("|"), strict=True)) for line in listed.splitlines()]

    def cancel_all(self) -> None:
        for job in self.jobs("pending,running,completing"):
            call("scancel", "--signal=KILL", "--full", job["number"], check=False)
            call("scancel", job["number"], check=False)
        wait_for(lambda: not self.jobs("pending,running,completing"), "jobs to end")

    def processes(self, number: str) -> list[psutil.Process]:
        """Everything that belongs to a job: its steps' daemons and what they started."""
        found = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                if any(f"[{number}." in word for word in words) or process.environ().get("SLURM_JOB_ID") == number:
                    found.append(process)
            except psutil.Error:
                continue
        return found


def call(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode:
        pytest.fail(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """The test cluster of three nodes, started unless it runs, and stopped if it was started."""
    scripts = Path(os.environ.get("REFTABLES_SLURM", REPOSITORY.parent / "shared" / "slurm"))
    if importlib.util.find_spec("snakemake_executor_plugin_slurm") is None:
        pytest.skip("the plugin for SLURM is not installed: make test-slurm")
    if not (scripts / "slurm_up.sh").is_file():
        pytest.skip(f"no scripts that start a SLURM at {scripts}: set REFTABLES_SLURM")
    started = subprocess.run([scripts / "slurm_up.sh"], capture_output=True, text=True)
    if started.returncode:
        pytest.skip(f"SLURM cannot be started here: {started.stderr.strip()[-500:]}")
    yield Slurm()
    if "already up" not in started.stderr:
        subprocess.run([scripts / "slurm_down.sh"], check=True, capture_output=True)


class SlurmWorkspace(Workspace):
    """Runs jobs through SLURM, by the shipped profile; only its patience is that of a test."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.cluster = {}
        self.where = (
            *("--workflow-profile", str(REPOSITORY / "profiles" / "slurm")),
            *("--jobs", "4", "--latency-wait", "20", "--max-status-checks-per-second", "0.5"),
            *("--slurm-init-seconds-before-status-checks", "3"),
        )


@pytest.fixture
def workspace(slurm: Slurm, tmp_path: Path) -> Iterator[SlurmWorkspace]:
    workspace = SlurmWorkspace(tmp_path / "work")
    yield workspace
    workspace.end()
    slurm.cancel_all()


def prepare(workspace: Workspace, server: Server, **execution: int) -> None:
    """One model behind a server, which asks one request at a time."""
    write_annotations(workspace.folder / "data", "val", 100, TEXTS)
    write_images(workspace.folder / "data" / "images")
    model = server_model(server.url)
    model["exec"] |= {"max_in_flight": 1, "mem_mb": 500, "runtime": 5} | execution
    workspace.config = {
        "benchmarks": {"mine": boxes_benchmark(val=len(TEXTS))},
        "models": {"served": model},
        "run": {"models": ["served"], "benchmarks": ["mine"]},
    }


@pytest.fixture
def server() -> Iterator[Server]:
    with Server({"do": "answer", "delay": ANSWER_S}) as server:
        yield server


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The tables of a run on this machine without SLURM."""
    workspace = Workspace(tmp_path_factory.mktemp("undisturbed") / "work")
    with Server() as server:
        prepare(workspace, server)
        workspace.run()
    return tables(workspace)


def tables(workspace: Workspace) -> dict[str, str]:
    return {name: workspace.read(f"results/{name}") for name in ("tables.md", "tables.csv", "index.html")}


def python_that_wastes_memory(folder: Path) -> dict[str, str]:
    """An environment in which the next worker takes 800 MB before it begins, once."""
    (folder / "waste").mkdir()
    (folder / "once").touch()
    (folder / "waste" / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        f"if 'reftables.stages.infer' in sys.orig_argv and os.path.exists({str(folder / 'once')!r}):\n"
        f"    os.unlink({str(folder / 'once')!r})\n"
        "    held = b'x' * (800 << 20)\n"
        "    time.sleep(60)\n"
    )
    return {"PYTHONPATH": str(folder / "waste")}


def node_state(node: str) -> str:
    """Its state in each partition."""
    return call("sinfo", "-hN", "-n", node, "-o", "%T")


def restart_node(node: str) -> None:
    """Bring a node back whose daemon was killed."""
    call(shutil.which("slurmd", path="/usr/sbin:/sbin:" + os.environ["PATH"]) or "slurmd", "-N", node)
    wait_for(lambda: node_state(node).split()[:1] == ["idle"], f"{node} to be back")
