"""Fixtures that more than one folder of tests uses."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real annotations and answers, named by REFTABLES_REAL_DATA."""
    folder = Path(os.environ.get("REFTABLES_REAL_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}: set REFTABLES_REAL_DATA")
    return folder


@pytest.fixture(scope="session")
def cases() -> Callable[[str], list[dict[str, Any]]]:
    """`cases("boxes")`: answers with their right values."""
    return read_cases


def read_cases(name: str) -> list[dict[str, Any]]:
    lines = (REPOSITORY / "tests" / "cases" / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]
