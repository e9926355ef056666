"""GPUs of a machine, lent to one process at a time.

Snakemake counts the GPUs that its jobs ask for and never says which. A scheduler does for jobs of its own; where
several of Snakemake's jobs share a machine, or an allocation of several GPUs, each takes the lock of as many as it
needs and shows itself no others. The system lets go of a lock when its process ends, however it ends, so none is
ever stale. They hold between all runs of one user on one machine.
"""

import contextlib
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from reftables.errors import DataError
from reftables.locks import acquire, file_lock

VISIBLE = "CUDA_VISIBLE_DEVICES"
# Set in every job of SLURM, PBS and Torque, LSF, Grid Engine, HTCondor: the scheduler assigns devices itself.
SCHEDULERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "SGE_TASK_ID", "_CONDOR_JOB_AD")
POLL_S = 0.5


@contextlib.contextmanager
def gpu_lease(count: int) -> Iterator[None]:
    """Hold `count` GPUs, and name them to CUDA, while the block runs; wait for them where others hold them.

    Nothing happens where a scheduler or the user has named no more devices than that, or the machine has none:
    then the backend says what it makes of it. DataError where the machine has some, but fewer.
    """
    devices = lendable(count) if count else {}
    if not devices:
        yield
        return
    if count > len(devices):
        raise DataError(f"exec.gpu: {count} GPUs are asked for, this machine has {len(devices)}")
    before = os.environ.get(VISIBLE)
    with _taken(count, devices) as names:
        os.environ[VISIBLE] = ",".join(names)
        print(f"{VISIBLE}={os.environ[VISIBLE]}", flush=True)
        try:
            yield
        finally:
            del os.environ[VISIBLE]
            if before is not None:
                os.environ[VISIBLE] = before


def lendable(count: int) -> dict[str, str]:
    """The GPUs to lease `count` of: what CUDA calls each, and its UUID as far as the driver tells it."""
    if VISIBLE not in os.environ:
        scheduled = any(name in os.environ for name in SCHEDULERS)
        return {} if scheduled else {name: name for name in find_devices()}
    visible = [name.strip() for name in os.environ[VISIBLE].split(",") if name.strip()]
    if len(visible) <= count:
        return {}  # all of them are this job's
    # By UUID, so that a run that names them by number and one that does not see the same lock.
    uuids = dict(enumerate(find_devices()))
    return {name: uuids.get(int(name), name) if name.isdecimal() else name for name in visible}


def find_devices() -> list[str]:
    """What CUDA calls the GPUs of this machine (their UUIDs), in order; empty where there are none."""
    try:
        command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        return []
    return listed.split()


@contextlib.contextmanager
def _taken(count: int, devices: Mapping[str, str]) -> Iterator[list[str]]:
    """Hold the locks of `count` devices: all at once or none, so that no two jobs wait for each other."""
    folder = _lock_folder()
    locks = {name: file_lock(folder / f"{uuid.replace(os.sep, '-')}.lock") for name, uuid in devices.items()}
    waiting = False
    while True:
        with contextlib.ExitStack() as held:
            names: list[str] = []
            for name, lock in locks.items():
                if acquire(lock, wait=False):
                    held.callback(lock.release)
                    names.append(name)
                if len(names) == count:
                    yield names
                    return
        if not waiting:
            print(f"waiting for {count} of the {len(devices)} GPUs of this machine", file=sys.stderr)
            waiting = True
        time.sleep(POLL_S)


def _lock_folder() -> Path:
    """The folder of the locks, in one that everybody may write to; DataError where another user could reach in."""
    folder = Path(tempfile.gettempdir(), f"reftables-gpus-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()  # not where a link leads
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise DataError(
            f"{folder}: not a folder that only you may write to, so another user made it or could change it. "
            "Remove it, or name another place by TMPDIR."
        )
    return folder
