"""Fingerprints change with what the code does and with nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from reftables import fingerprint as module

BASE = '''"""Docs."""
import os
def f(x: int) -> str:
    """More docs."""
    return f"{x!r:>{x}} {os.sep}" "tail"
class A:
    value = b"x", 1.5, ..., None
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(module, "ROOT", tmp_path)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    for cached in (module._tree, module.module_hash, module.imported_modules):
        cached.cache_clear()


def print_of(package: Path, **files: str) -> str:
    for name, text in files.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    forget()
    return module.fingerprint(["reftables.main"])


@pytest.mark.parametrize(
    "changed",
    [
        BASE.replace('"""Docs."""', '"""Other docs."""  # and a comment'),
        BASE.replace('    """More docs."""\n', ""),
        BASE.replace("def f(x: int)", "\n\ndef f(\n    x: int,\n)"),
        BASE.replace('"tail"', "'tail'"),
    ],
    ids=["docstring and comment", "docstring gone", "formatting", "quotes"],
)
def test_comments_docstrings_and_formatting_change_nothing(package: Path, changed: str) -> None:
    assert print_of(package, main=BASE) == print_of(package, main=changed)


@pytest.mark.parametrize(
    "changed",
    [
        BASE.replace("1.5", "1.25"),
        BASE.replace("!r", "!s"),
        BASE.replace("import os", "import os, re"),
        BASE + "f(1)\n",
    ],
    ids=["number", "conversion", "import", "statement"],
)
def test_code_changes_it(package: Path, changed: str) -> None:
    assert print_of(package, main=BASE) != print_of(package, main=changed)


def test_it_is_the_same_on_every_python(package: Path) -> None:
    # Seen on 3.11, 3.12 and 3.13; another value on a new Python means that every result would be made anew there.
    expected = "66b01e26034fe4dd5a1d314df0ab2203a897ab0c4c459ae1b5db111135eee7a3"
    assert print_of(package, main=BASE) == expected


def test_imported_modules_count_also_inside_functions(package: Path) -> None:
    main = "def f():\n    from reftables import helper\n    return helper.x\n"
    before = print_of(package, main=main, helper="x = 1\n")
    assert before != print_of(package, main=main, helper="x = 2\n")


def test_modules_that_are_not_imported_do_not_count(package: Path) -> None:
    before = print_of(package, main="import json\n", other="x = 1\n")
    assert before == print_of(package, main="import json\n", other="x = 2\n")


def test_modules_that_import_each_other_end(package: Path) -> None:
    assert print_of(package, main="import reftables.other\n", other="import reftables.main\n")
