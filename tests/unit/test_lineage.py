"""Lineages: what a target depends on, and what files are known by."""

import os
from pathlib import Path
from typing import Any

import pytest

from reftables.config import load
from reftables.errors import ConfigError
from reftables.expected import write_when_different
from reftables.lineage import Digests, Lineages
from tests.unit.test_config import changed


@pytest.fixture
def digests(tmp_path: Path) -> Digests:
    return Digests(tmp_path / "digests.json")


def write(path: Path, text: str, *, age_s: float = 60) -> str:
    """A file that is long settled, so that its digest is remembered."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    seconds = path.stat().st_mtime - age_s
    os.utime(path, (seconds, seconds))
    return str(path)


def test_a_digest_is_of_the_content(digests: Digests, tmp_path: Path) -> None:
    first, second, other = (write(tmp_path / name, text) for name, text in (("a", "x"), ("b", "x"), ("c", "y")))
    assert digests.of(first) == digests.of(second) != digests.of(other)


def test_other_content_of_the_same_size_and_time_is_noticed(digests: Digests, tmp_path: Path) -> None:
    path = write(tmp_path / "a", "x")
    before, times = digests.of(path), Path(path).stat()
    replacement = write(tmp_path / "b", "y")
    os.utime(replacement, ns=(times.st_atime_ns, times.st_mtime_ns))
    Path(replacement).rename(path)
    assert digests.of(path) != before


def test_a_settled_file_is_read_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "x")
    first = Digests(tmp_path / "digests.json")
    first.of(path)
    first.save()
    again = Digests(tmp_path / "digests.json")
    again._known[str(Path(path).absolute())][-1] = "remembered"
    assert again.of(path) == "remembered"


def test_a_damaged_memory_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "digests.json").write_text("{cut")
    assert len(Digests(tmp_path / "digests.json").of(write(tmp_path / "a", "x"))) == 64


def test_a_folder_is_known_by_names_sizes_and_times(digests: Digests, tmp_path: Path) -> None:
    path = write(tmp_path / "folder" / "a", "x")
    before = digests.of(str(tmp_path / "folder"))
    write(Path(path), "y", age_s=30)
    assert digests.of(str(tmp_path / "folder")) != before


def lineages_of(config: dict[str, Any], digests: Digests, made: dict[str, str] | None = None) -> Lineages:
    return Lineages(load(config), made or {"a/": "made", "r/": "made"}, digests)


def test_absent_annotations_are_named_with_their_key(digests: Digests) -> None:
    lineages = lineages_of(changed("run/limit", None), digests, {"other/": "made"})
    cell = next(lineages._config.cells())
    with pytest.raises(ConfigError, match=r"^benchmarks\.mine: a/val\.json does not exist, and no rule makes it$"):
        lineages.truth(cell.benchmark, cell.split)


def test_answers_may_be_absent_until_they_are_needed(digests: Digests, tmp_path: Path) -> None:
    answers = tmp_path / "{model}.out"
    config = changed("models/theirs/identity/predictions", str(answers))
    cell = next(load(config).cells())
    before = lineages_of(config, digests).predictions(cell)
    write(tmp_path / "theirs.out", "H-0")
    after = lineages_of(config, digests).predictions(cell)
    assert [part for part in before if before[part] != after[part]] == ["source"]


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        ("models/theirs/identity/format", "jsonl", ["model"]),
        ("models/theirs/exec", {"threads": 4}, []),
        ("benchmarks/mine/splits", {"val": 11}, ["config"]),
        ("run/limit", 3, ["config"]),
        ("models/theirs/partial", "allow", ["config"]),
    ],
)
def test_a_change_shows_in_its_part(digests: Digests, path: str, value: Any, parts: list[str]) -> None:
    before, after = (
        lineages_of(config, digests).metrics(next(load(config).cells()))
        for config in (changed("run/limit", None), changed(path, value))
    )
    assert [part for part in before if before[part] != after[part]] == parts


def test_expected_is_written_only_when_it_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_when_different({"a": 1}, "expected.json", dry=True)  # the first time also by a dry run
    os.utime("expected.json", (1, 1))
    write_when_different({"a": 1}, "expected.json", dry=False)
    assert Path("expected.json").stat().st_mtime == 1
    write_when_different({"a": 2}, "expected.json", dry=True)
    assert Path("expected.json").stat().st_mtime == 1
    write_when_different({"a": 2}, "expected.json", dry=False)
    assert '"a": 2' in Path("expected.json").read_text()


def test_expected_of_a_run_that_goes_on_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_when_different({"a": 1}, "expected.json", dry=False)
    write(tmp_path / ".snakemake" / "locks" / "0.input.lock", "")
    write_when_different({"a": 2}, "expected.json", dry=False)
    assert '"a": 1' in Path("expected.json").read_text()
