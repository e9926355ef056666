"""Real runs of the workflow in a folder of their own."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, *arguments: str, targets: tuple[str, ...] = ("results/tables.md",), check: bool = True) -> Run:
        """Call snakemake on `targets`; with `check`, a failed run fails the test and shows its output."""
        (self.folder / "overlay.yaml").write_text(yaml.safe_dump(self.config, sort_keys=False), encoding="utf-8")
        command = [
            *(sys.executable, "-m", "snakemake", "--snakefile", str(self.snakefile), "--directory", str(self.folder)),
            # --configfile takes every word up to the next option, so it never stands last before the targets
            *("--configfile", str(self.folder / "overlay.yaml"), *arguments, "--nocolor", "--cores", "2"),
            *targets,
        ]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"HOME": str(self.folder)})
        run = Run.of(done.returncode, done.stdout + done.stderr)
        if check and run.status:
            pytest.fail(f"snakemake ended with {run.status}:\n{run.output[-6000:]}")
        return run

    def stale(self) -> Counter[str]:
        """The jobs a run would do now."""
        return self.run("--dry-run", "--quiet", "progress").jobs

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def metrics(self, model: str, benchmark: str, split: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.read(f"results/metrics/{model}/{benchmark}/{split}.json"))
        return loaded


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "work")
