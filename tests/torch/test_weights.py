"""Weights from the hub, here always from its cache: no test has a network."""

import shutil
from pathlib import Path

import huggingface_hub.constants
import pytest

from reftables.errors import DataError
from reftables.models import kosmos2, local
from reftables.models.job import Job
from reftables.rows import Request
from tests.torch.conftest import kosmos2_job
from tests.torch.tiny_kosmos2 import HUB_NAME, fill_hub_cache

pytestmark = pytest.mark.torch


@pytest.fixture
def commit(kosmos2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The commit that the branch `main` of the tiny model stands at, in the only cache there is."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return fill_hub_cache(tmp_path / "hub", kosmos2_folder)


def hub_job(revision: str, name: str = HUB_NAME) -> Job:
    return kosmos2_job(Path(name), revision=revision)


def test_the_commit_behind_a_branch_is_recorded(commit: str) -> None:
    weights = local.find_weights(hub_job("main"))
    assert weights.version == commit
    assert (weights.folder / "model.safetensors").is_file()


def test_every_prediction_names_the_commit(commit: str, images: list[str]) -> None:
    request = Request(0, images[0], "<grounding><phrase>mug</phrase>")
    assert [prediction.weights for prediction in kosmos2.predict([request], hub_job(commit))] == [commit]


@pytest.mark.parametrize(
    ("name", "revision"),
    [
        pytest.param(HUB_NAME, "another-branch", id="revision"),
        pytest.param("tiny/another", "main", id="name"),
        pytest.param("no/such/name", "main", id="not a name"),
    ],
)
def test_weights_that_cannot_be_had_are_named(commit: str, name: str, revision: str) -> None:
    with pytest.raises(DataError, match=rf"models\.k2\.identity\.weights: {name} at {revision} can't be had"):
        local.find_weights(hub_job(revision, name))


def test_every_prediction_of_a_copy_names_what_is_in_it(
    commit: str, kosmos2_folder: Path, images: list[str], tmp_path: Path
) -> None:
    request = Request(0, images[0], "<grounding><phrase>mug</phrase>")
    other = shutil.copytree(kosmos2_folder, tmp_path / "other")
    (other / "README.md").write_text("not quite what the hub has", encoding="utf-8")
    snapshot = tmp_path / "hub" / f"models--{HUB_NAME.replace('/', '--')}" / "snapshots" / commit
    for folder, version in ((snapshot, commit), (other, local.folder_digest(other))):
        job = kosmos2_job(Path(HUB_NAME), revision=commit, execution={"weights_folder": str(folder)})
        assert [prediction.weights for prediction in kosmos2.predict([request], job)] == [version]
