"""The lease of GPUs: each to one process at a time, unless somebody else assigns them."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from reftables import lease
from reftables.errors import DataError
from reftables.lease import VISIBLE, find_devices, gpu_lease
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Notation, Prediction, Request, Status, Task
from reftables.stages.infer import predict_through_store


@pytest.fixture(autouse=True)
def _workstation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs and no scheduler."""
    for name in (VISIBLE, *lease.SCHEDULERS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(lease, "POLL_S", 0.01)
    fake_driver(tmp_path / "bin", ["GPU-a", "GPU-b"], monkeypatch)


def fake_driver(folder: Path, devices: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvidia-smi that lists `devices`; none of the machine's own can be found."""
    folder.mkdir(exist_ok=True)
    (folder / "nvidia-smi").write_text("#!/bin/sh\n" + "".join(f"echo {name}\n" for name in devices))
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_job_sees_only_what_it_leased_and_gives_it_back() -> None:
    with gpu_lease(1):
        assert os.environ[VISIBLE] == "GPU-a"
    assert VISIBLE not in os.environ


def test_a_job_can_lease_several() -> None:
    with gpu_lease(2):
        assert os.environ[VISIBLE] == "GPU-a,GPU-b"


class Leaser:
    """A process that leases one GPU, says which, and keeps it."""

    def __init__(self, folder: Path) -> None:
        script = "import time; from reftables.lease import gpu_lease\nwith gpu_lease(1): time.sleep(600)"
        environment = os.environ | {"PYTHONPATH": str(Path(lease.__file__).parents[1]), "TMPDIR": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )

    def says(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_each_process_gets_its_own_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    with Leaser(tmp_path) as first:
        assert first.says() == "CUDA_VISIBLE_DEVICES=GPU-a"
        with Leaser(tmp_path) as second:
            assert second.says() == "CUDA_VISIBLE_DEVICES=GPU-b"
            with Leaser(tmp_path) as third:
                assert third.says() == "waiting for 1 of the 2 GPUs of this machine"
                first.process.kill()
                assert third.says() == "CUDA_VISIBLE_DEVICES=GPU-a"


def test_two_jobs_that_want_both_do_not_wait_for_each_other() -> None:
    done: list[int] = []

    def job() -> None:
        with lease._taken(2, {"0": "GPU-a", "1": "GPU-b"}):
            time.sleep(0.02)
            done.append(1)

    threads = [threading.Thread(target=job) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(done) == 4


@pytest.mark.parametrize("name", [VISIBLE, "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"])
def test_what_a_scheduler_or_the_user_assigned_stands(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "7")
    with gpu_lease(1):
        assert os.environ.get(VISIBLE) == ("7" if name == VISIBLE else None)
    assert os.environ[name] == "7"


@pytest.mark.parametrize("scheduler", [None, "SLURM_JOB_ID"])
def test_jobs_that_share_an_allocation_of_several_lease_among_those(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: str | None
) -> None:
    if scheduler:
        monkeypatch.setenv(scheduler, "7")
    monkeypatch.setenv(VISIBLE, "1,0")
    with Leaser(tmp_path) as first, Leaser(tmp_path) as second:
        assert {first.says(), second.says()} == {"CUDA_VISIBLE_DEVICES=1", "CUDA_VISIBLE_DEVICES=0"}
    with gpu_lease(1):
        assert os.environ[VISIBLE] == "1"
    assert os.environ[VISIBLE] == "1,0"


def test_a_run_that_numbers_devices_and_one_that_does_not_share_their_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    with gpu_lease(1):
        monkeypatch.setenv(VISIBLE, "0,1")
        with gpu_lease(1):
            assert os.environ[VISIBLE] == "1"


def test_devices_that_the_driver_does_not_tell_are_leased_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "MIG-GPU-c/1/0, 5")
    with gpu_lease(1):
        assert os.environ[VISIBLE] == "MIG-GPU-c/1/0"


def test_a_stage_predicts_on_what_it_leased(tmp_path: Path) -> None:
    """And the model sees that one only, from the first import of its libraries on."""
    seen: list[str | None] = []

    class Backend:
        @staticmethod
        def decides(request: Request, job: Job, image_digest: str) -> dict[str, str]:
            return {"text": request.text}

        @staticmethod
        def predict(requests: Sequence[Request], job: Job) -> Iterator[Prediction]:
            seen.append(os.environ.get(VISIBLE))
            yield from (Prediction(id=request.id, status=Status.OK, text="yes") for request in requests)

    form = AnswerFormat(notation=Notation.KOSMOS, coordinates=None, order=None, prompt="kosmos", grid=32)
    names: dict[str, Any] = {"model": "m", "benchmark": "b", "split": "val", "task": Task.BOXES, "form": form}
    job = Job(**names, identity={"backend": "fake"}, execution={"gpu": 1})
    predict_through_store(Backend, [Request(0, "a.jpg", "cat")], job, {"a.jpg": "1"}, tmp_path)  # type: ignore[arg-type]
    assert seen == ["GPU-a"]
    assert VISIBLE not in os.environ


@pytest.mark.parametrize("kind", ["open", "a link", "a file", "another's"])
def test_a_folder_of_locks_that_others_could_reach_into_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder = tmp_path / f"reftables-gpus-{os.getuid()}"
    if kind == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    elif kind == "a file":
        folder.touch(mode=0o600)
    else:
        folder.mkdir(mode=0o700)
    if kind == "open":
        folder.chmod(0o770)
    if kind == "another's":
        other = os.getuid() + 1
        folder.rename(tmp_path / f"reftables-gpus-{other}")
        monkeypatch.setattr("os.getuid", lambda: other)
    with pytest.raises(DataError, match="not a folder that only you may write to"), gpu_lease(1):
        pass


def test_a_job_without_a_gpu_leases_none() -> None:
    with gpu_lease(0):
        assert VISIBLE not in os.environ


def test_more_than_the_machine_has_is_an_error_and_not_an_endless_wait() -> None:
    with pytest.raises(DataError, match=r"exec\.gpu: 3 GPUs are asked for, this machine has 2"), gpu_lease(3):
        pass


def test_a_machine_without_gpus_leaves_the_matter_to_the_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_devices() == []
    with gpu_lease(1):
        assert VISIBLE not in os.environ
