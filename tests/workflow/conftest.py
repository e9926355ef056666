"""Real runs of the workflow in a folder of their own."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.conftest import REPOSITORY


@dataclass
class Run:
    """What one call of snakemake did."""

    status: int
    output: str
    jobs: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, status: int, output: str) -> "Run":
        started = re.findall(r"^(?:local)?rule (\S+):$", output, re.MULTILINE)
        return cls(status, output, Counter(started))


class Workspace:
    """A working directory with a config of its own, and the workflow run in it by a real snakemake."""

    def __init__(self, folder: Path, snakefile: Path = REPOSITORY / "Snakefile") -> None:
        self.folder = folder
        self.snakefile = snakefile
        self.config: dict[str, Any] = {}
        self.where: tuple[str, ...] = ("--cores", "2")  # how snakemake is told where its jobs run
        # Where SLURM is installed but does not run, its plugin waits ten seconds for it at each start of snakemake.
        self.cluster = {"SLURM_CONF": os.devnull}
        self.more_environment: dict[str, str] = {}
        self.started: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True, exist_ok=True)

    def command(self, *arguments: str, targets: tuple[str, ...] = ("results/tables.md",)) -> list[str]:
        """The call of snakemake on `targets`, its config written."""
        (self.folder / "overlay.yaml").write_text(yaml.safe_dump(self.config, sort_keys=False), encoding="utf-8")
        return [
            *(sys.executable, "-m", "snakemake", "--snakefile", str(self.snakefile), "--directory", str(self.folder)),
            # --configfile takes every word up to the next option, so it never stands last before the targets
            *("--configfile", str(self.folder / "overlay.yaml"), *arguments, "--nocolor", *self.where),
            *targets,
        ]

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | self.cluster | {"HOME": str(self.folder)} | self.more_environment

    def run(self, *arguments: str, targets: tuple[str, ...] = ("results/tables.md",), check: bool = True) -> Run:
        """Call snakemake on `targets`; with `check`, a failed run fails the test and shows its output."""
        command = self.command(*arguments, targets=targets)
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment)
        run = Run.of(done.returncode, done.stdout + done.stderr)
        if check and run.status:
            pytest.fail(f"snakemake ended with {run.status}:\n{run.output[-6000:]}")
        return run

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Call snakemake and go on at once; what it prints goes to `run.log`. It leads a process group of its own."""
        with (self.folder / "run.log").open("wb") as log:
            master = subprocess.Popen(
                self.command(*arguments),
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
                # Ignored, and so inherited, in what a shell runs in the background.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        self.started.append(master)
        return master

    def end(self) -> None:
        """End what a failed test left running."""
        for master in self.started:
            if master.poll() is None:
                os.killpg(master.pid, signal.SIGKILL)
                master.wait()
        for worker in self.workers():
            worker.kill()

    def workers(self, stage: str = "infer") -> list[psutil.Process]:
        """The running processes of a stage in this folder."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if f"reftables.stages.{stage}" in process.cmdline() and process.cwd() == str(self.folder):
                    found.append(process)
        return found

    def stale(self) -> Counter[str]:
        """The jobs a run would do now."""
        return self.run("--dry-run", "--quiet", "progress").jobs

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def metrics(self, model: str, benchmark: str, split: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.read(f"results/metrics/{model}/{benchmark}/{split}.json"))
        return loaded


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    workspace = Workspace(tmp_path / "work")
    yield workspace
    workspace.end()
