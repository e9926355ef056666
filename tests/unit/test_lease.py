"""The lease of GPUs: each to one process at a time, unless somebody else assigns them."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import pytest

from reftables import lease
from reftables.errors import DataError
from reftables.lease import VISIBLE, find_devices, gpu_lease


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
        script = "import time; from reftables.lease import gpu_lease\nwith gpu_lease(1): time.sleep(60)"
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
        with lease._taken(2, ["GPU-a", "GPU-b"]):
            time.sleep(0.02)
            done.append(1)

    threads = [threading.Thread(target=job) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert len(done) == 4


@pytest.mark.parametrize("name", [VISIBLE, "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"])
def test_what_a_scheduler_or_the_user_assigned_stands(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "7")
    with gpu_lease(1):
        assert os.environ.get(VISIBLE) == ("7" if name == VISIBLE else None)
    assert os.environ[name] == "7"


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
