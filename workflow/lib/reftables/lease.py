"""GPUs of a workstation, lent to one process at a time.

Snakemake counts the GPUs that its jobs ask for and never says which. A scheduler does, or the user with
CUDA_VISIBLE_DEVICES; where neither did, a job takes the lock of as many GPUs as it needs and shows itself
no others. Locks are files that the system lets go of when a process ends, however it ends, so none is ever
stale. They hold between all runs of one user on one machine.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from reftables.errors import DataError

VISIBLE = "CUDA_VISIBLE_DEVICES"
# Set in every job of SLURM, PBS and Torque, LSF, Grid Engine, HTCondor: the scheduler assigns devices itself.
SCHEDULERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "SGE_TASK_ID", "_CONDOR_JOB_AD")
POLL_S = 0.5


@contextlib.contextmanager
def gpu_lease(count: int) -> Iterator[None]:
    """Hold `count` GPUs, and name them to CUDA, while the block runs; wait for them where others hold them.

    Nothing happens where a scheduler or the user has named the devices, or the machine has none: then the
    backend says what it makes of that. DataError where the machine has some, but fewer.
    """
    if not count or assigned():
        yield
        return
    devices = find_devices()
    if not devices:
        yield
        return
    if count > len(devices):
        raise DataError(f"exec.gpu: {count} GPUs are asked for, this machine has {len(devices)}")
    with _taken(count, devices) as names:
        os.environ[VISIBLE] = ",".join(names)
        print(f"{VISIBLE}={os.environ[VISIBLE]}", flush=True)
        try:
            yield
        finally:
            del os.environ[VISIBLE]


def assigned() -> bool:
    """Whether a scheduler or the user has said which GPUs this process may use."""
    return VISIBLE in os.environ or any(name in os.environ for name in SCHEDULERS)


def find_devices() -> list[str]:
    """What CUDA calls the GPUs of this machine (their UUIDs), in order; empty where there are none."""
    try:
        command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        return []
    return listed.split()


@contextlib.contextmanager
def _taken(count: int, devices: Sequence[str]) -> Iterator[list[str]]:
    """Hold the locks of `count` devices: all at once or none, so that no two jobs wait for each other."""
    folder = Path(tempfile.gettempdir(), f"reftables-gpus-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    locks = {name: FileLock(folder / f"{name}.lock") for name in devices}
    waiting = False
    while True:
        with contextlib.ExitStack() as held:
            names: list[str] = []
            for name, lock in locks.items():
                with contextlib.suppress(Timeout):
                    held.enter_context(lock.acquire(timeout=0))
                    names.append(name)
                if len(names) == count:
                    yield names
                    return
        if not waiting:
            print(f"waiting for {count} of the {len(devices)} GPUs of this machine", file=sys.stderr)
            waiting = True
        time.sleep(POLL_S)
