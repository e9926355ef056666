"""Locks between processes, also on other machines: held by a file, let go of when their process ends, however it ends.

The system keeps them (flock). Where a file system cannot, filelock by itself would take the mere presence of a
file for a lock: one that a killed process left behind would then be waited for without end.
"""

import errno
from pathlib import Path

from filelock import FileLock, Timeout

from reftables.errors import DataError

_WITHOUT_FLOCK = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


def file_lock(path: Path) -> FileLock:
    """The lock that the file at `path` stands for, not yet held."""
    return FileLock(path, fallback_to_soft=False)


def acquire(lock: FileLock, *, wait: bool) -> bool:
    """Take the lock, if need be once another process has let it go; False where it is held and we do not wait.

    DataError where the file system has no locks.
    """
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        return False
    except OSError as error:
        if error.errno not in _WITHOUT_FLOCK:
            raise
        folder = Path(lock.lock_file).parent
        raise DataError(
            f"{folder}: this file system has no locks ({error.strerror}), which keep two jobs from doing one's work "
            "twice. Have it mounted with them (Lustre: -o flock), or work on another."
        ) from error
    return True
