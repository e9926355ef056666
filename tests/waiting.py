"""Tests wait for what happens, never for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, *, seconds: float = 120, every_s: float = 0.01) -> T:
    """What `condition` returns once that is true; fails the test, which lacked `what`, after `seconds`."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            pytest.fail(f"waited {seconds:.0f} s for {what}")
        time.sleep(every_s)
    return found
