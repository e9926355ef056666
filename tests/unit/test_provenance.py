"""What results/provenance.json tells of a run."""

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reftables.provenance import commit, jobs, source_digests
from reftables.stages import render
from tests.scored import LINEAGE, Run


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    run = Run(tmp_path / "results").table("boxes", ["refcoco"])
    for split in ("val", "testA"):
        run.cell("mine", "refcoco", split, official={"precision@1": 0.5}, tokens={"in": 100, "out": 7})
    Path("config.json").write_text('{"run": {"models": ["mine"]}}')
    render.main(["--expected", str(run.write()), "--config", "config.json", "--results", "results"])
    found: dict[str, Any] = json.loads(Path("results/provenance.json").read_text(encoding="utf-8"))
    return found


def test_the_configuration_and_the_versions_are_there(record: dict[str, Any]):
    assert record["config"] == {"run": {"models": ["mine"]}}
    assert record["python"] == platform.python_version()
    assert {"numpy", "pandas", "snakemake"} <= record["packages"].keys()


def test_every_number_has_its_lineage_and_every_file_its_digest(record: dict[str, Any]):
    assert record["lineage"]["mine on refcoco val"] == LINEAGE
    assert set(record["results"]) == {f"results/metrics/mine/refcoco/{split}.json" for split in ("val", "testA")}


def test_tokens_are_added_up_by_model(record: dict[str, Any]):
    assert record["tokens"] == {"mine": {"in": 200, "out": 14}}


def test_jobs_are_counted_by_rule(tmp_path: Path):
    for name, seconds in (("score/a/b/val", 1.5), ("score/a/b/test", 2.0), ("tables", 0.5)):
        path = tmp_path / f"{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"s\th:m:s\n{seconds}\t0:00:01\n", encoding="utf-8")
    assert jobs(tmp_path) == {"score": {"jobs": 2, "seconds": 3.5}, "tables": {"jobs": 1, "seconds": 0.5}}


@pytest.mark.parametrize("text", ["s\tx\nhalf\t1\n", "x\n1\n", "s\tx\n1\t2\nnan\t1\n", "\xff"])
def test_a_damaged_timing_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str):
    (tmp_path / "score.tsv").write_text("s\th:m:s\n2.0\t0:00:02\n", encoding="utf-8")
    (tmp_path / "tables.tsv").write_bytes(text.encode("latin-1"))
    assert jobs(tmp_path) == {"score": {"jobs": 1, "seconds": 2.0}}
    assert f"warning: {tmp_path}/tables.tsv: no timings of Snakemake's" in capsys.readouterr().err


def test_sources_inside_the_working_directory_are_named_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    memory = tmp_path / "digests.json"
    memory.write_text(json.dumps({f"{tmp_path}/data/a.json": [1, 2, "ab"], "/elsewhere/b.json": [1, 2, "cd"]}))
    assert source_digests(memory) == {"data/a.json": "ab", "/elsewhere/b.json": "cd"}


def test_a_commit_of_another_repository_is_not_taken_for_the_workflows(tmp_path: Path):
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "inside").mkdir()
    assert commit(tmp_path / "inside") is None
    assert commit(tmp_path) is not None
