"""The stage infer with Kosmos-2, killed in the middle as by a batch system or a lack of memory, and run again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from reftables.files import format_request
from reftables.manifest import make_manifest, write_manifest
from reftables.rows import Request
from reftables.stages import infer
from tests.conftest import REPOSITORY
from tests.waiting import wait_for

pytestmark = pytest.mark.torch

ENOUGH = 3  # answers stored before the kill


class Stage:
    """Calls of the stage on one request file; each name has a store and a prediction file of its own."""

    def __init__(self, folder: Path, weights: Path, requests: Sequence[Request]) -> None:
        self._folder = folder
        self._weights = weights
        root = Path(requests[0].image).parent
        lines = [format_request(request.image, request.text, prompt="kosmos") for request in requests]
        (folder / "val.locout").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        write_manifest(folder / "manifest.tsv", make_manifest(root, {Path(r.image).name for r in requests}))
        self._root = root

    def arguments(self, name: str) -> list[str]:
        notation = {"notation": "kosmos", "coordinates": None, "order": None, "prompt": "kosmos", "grid": 32}
        options = {
            "model": "k2",
            "benchmark": "mine",
            "split": "val",
            "task": "boxes",
            "identity": json.dumps({"backend": "kosmos2", "weights": str(self._weights), "max_length": 180}),
            "execution": json.dumps({"batch_size": 2}),
            "format": json.dumps(notation),
            "requests": self._folder / "val.locout",
            "manifest": self._folder / "manifest.tsv",
            "manifest-root": self._root,
            "store": self._folder / f"{name}-store",
            "predictions": self._folder / f"{name}.jsonl",
        }
        return [text for key, value in options.items() for text in (f"--{key}", str(value))]

    def start(self, name: str) -> "subprocess.Popen[bytes]":
        """A call in a process of its own, on one thread as the tests."""
        library = str(REPOSITORY / "workflow" / "lib")
        return subprocess.Popen(
            [sys.executable, "-m", "reftables.stages.infer", *self.arguments(name)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": library, "OMP_NUM_THREADS": "1"},
        )

    def stored(self, name: str) -> list[str]:
        """The keys in the store, of whole lines only."""
        text = "".join(path.read_text("utf-8") for path in (self._folder / f"{name}-store").glob("*.jsonl"))
        return [json.loads(line)["key"] for line in text.split("\n")[:-1]]

    def predictions(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"


def test_a_killed_worker_costs_no_stored_answer_and_changes_none(
    restless_folder: Path, requests: list[Request], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = requests[:12]
    stage = Stage(tmp_path, restless_folder, asked)  # its answers are long, which leaves time for the kill
    process = stage.start("killed")
    wait_for(lambda: len(stage.stored("killed")) >= ENOUGH or process.poll() is not None, "answers", seconds=60)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = stage.stored("killed")
    assert ENOUGH <= len(before) < len(asked)
    assert not stage.predictions("killed").exists()

    infer.main(stage.arguments("killed"))
    assert f"12 requests, {12 - len(before)} to ask" in capsys.readouterr().out
    after = stage.stored("killed")
    assert after[: len(before)] == before
    assert len(set(after)) == len(after) == len(asked)
    infer.main(stage.arguments("undisturbed"))
    assert stage.predictions("killed").read_bytes() == stage.predictions("undisturbed").read_bytes()
