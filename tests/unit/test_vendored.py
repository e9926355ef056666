"""The libraries inside the pages are the files their table names, each with its licence."""

import hashlib
import re
from pathlib import Path

import pytest

from reftables.page import TEMPLATES

VENDOR = TEMPLATES / "vendor"
ROWS = re.findall(r"(?m)^\| `([^`]+)` .* `([0-9a-f]{64})` \|$", (VENDOR / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "digest"), ROWS)
def test_a_library_is_the_file_its_row_names(name: str, digest: str):
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest


def test_every_library_has_a_row_and_a_licence():
    files = {path.name for path in VENDOR.iterdir() if path.suffix in {".js", ".css"}}
    assert {name for name, _ in ROWS} == files
    assert {Path(name).stem.removesuffix(".min") for name in files} == {p.stem for p in VENDOR.glob("*.LICENSE")}


@pytest.mark.parametrize("path", sorted(VENDOR.glob("*.js")), ids=lambda path: path.name)
def test_a_script_cannot_end_the_element_it_stands_in(path: Path):
    assert "</script" not in path.read_text(encoding="utf-8").lower()
