"""Folders of weights that are broken or another model's: each is named, none gives a traceback."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from safetensors.torch import load_file, save_file

from reftables.errors import DataError
from reftables.models import clipseg_model, kosmos2_model, pretrained, vlm_model
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Task
from tests.torch import tiny_clipseg, tiny_qwen
from tests.torch.conftest import KOSMOS, kosmos2_job

pytestmark = pytest.mark.torch

BOXES = AnswerFormat(notation=Notation.JSON, coordinates=Coordinates.PIXELS, order=Order.XY, prompt="qwen", grid=None)
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1234\n"


def load_kosmos2(folder: Path) -> Any:
    return kosmos2_model.load(kosmos2_job(folder), 501)


def load_clipseg(folder: Path) -> Any:
    return clipseg_model.load(job_of("clipseg", folder, KOSMOS))


def load_vlm(folder: Path) -> Any:
    job = job_of("vlm", folder, BOXES)
    return vlm_model.load(job, max_new_tokens=8, system=None, pixels={}, trust_remote_code=False)


def job_of(backend: str, folder: Path, form: AnswerFormat) -> Job:
    identity = {"backend": backend, "weights": str(folder)}
    return Job(model="m", benchmark="mine", split="val", task=Task.BOXES, form=form, identity=identity, execution={})


class Backend(NamedTuple):
    folder: Path
    load: Callable[[Path], Any]


@pytest.fixture(scope="module")
def backends(kosmos2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Backend]:
    root = tmp_path_factory.mktemp("whole")
    return {
        "kosmos2": Backend(kosmos2_folder, load_kosmos2),
        "clipseg": Backend(tiny_clipseg.save(root / "clipseg"), load_clipseg),
        "vlm": Backend(tiny_qwen.save(root / "qwen"), load_vlm),
    }


Breakage = Callable[[Path], object]


def overwrite(name: str, content: bytes) -> Breakage:
    return lambda folder: (folder / name).write_bytes(content)


def cut(name: str) -> Breakage:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:5000])


def remove(name: str) -> Breakage:
    return lambda folder: (folder / name).unlink()


def change(name: str, *keys: str, value: Any) -> Breakage:
    """The setting under `keys` of a JSON file becomes `value`."""

    def apply(folder: Path) -> None:
        settings = json.loads((folder / name).read_text(encoding="utf-8"))
        *path, last = keys
        place = settings
        for key in path:
            place = place[key]
        place[last] = value
        (folder / name).write_text(json.dumps(settings), encoding="utf-8")

    return apply


EVERY: Mapping[str, Breakage] = {
    "weights are a pointer of LFS": overwrite("model.safetensors", POINTER),
    "weights are cut": cut("model.safetensors"),
    "weights are empty": overwrite("model.safetensors", b""),
    "tokenizer is a pointer of LFS": overwrite("tokenizer.json", POINTER),
    "tokenizer is an empty object": overwrite("tokenizer.json", b"{}"),
    "config is a list": overwrite("config.json", b"[]"),
    "config is cut": overwrite("config.json", b"{"),
    "no config": remove("config.json"),
}


@pytest.mark.parametrize("name", ["kosmos2", "clipseg", "vlm"])
@pytest.mark.parametrize("breakage", EVERY.values(), ids=EVERY.keys())
def test_a_broken_folder_is_named(
    name: str, breakage: Breakage, backends: Mapping[str, Backend], tmp_path: Path
) -> None:
    folder = shutil.copytree(backends[name].folder, tmp_path / "copy")
    breakage(folder)
    with pytest.raises(DataError, match=rf"^{folder}: "):
        backends[name].load(folder)


SETTINGS = {
    "a number that is a text": ("kosmos2", change("config.json", "text_config", "embed_dim", value="64")),
    "another width": ("kosmos2", change("config.json", "text_config", "embed_dim", value=32)),
    "fewer latent queries": ("kosmos2", change("config.json", "latent_query_num", value=32)),
    "config of another model": ("kosmos2", overwrite("config.json", b'{"model_type": "llava"}')),
    "no settings of the tokenizer": ("kosmos2", remove("tokenizer_config.json")),
    "size is a list": ("kosmos2", change("processor_config.json", "image_processor", "size", value=[1])),
    "size is negative": (
        "kosmos2",
        change("processor_config.json", "image_processor", "size", value={"height": -1, "width": 224}),
    ),
    "one mean": ("kosmos2", change("processor_config.json", "image_processor", "image_mean", value=[0.5])),
    "no such filter": ("kosmos2", change("processor_config.json", "image_processor", "resample", value=99)),
    "no such filter of CLIPSeg": ("clipseg", change("processor_config.json", "image_processor", "resample", value=99)),
    "more layers": ("vlm", change("config.json", "text_config", "num_hidden_layers", value=3)),
    "another width of a chat model": ("vlm", change("config.json", "text_config", "hidden_size", value=32)),
}


@pytest.mark.parametrize(("name", "breakage"), SETTINGS.values(), ids=SETTINGS.keys())
def test_a_folder_with_settings_that_cannot_be_is_named(
    name: str, breakage: Breakage, backends: Mapping[str, Backend], tmp_path: Path
) -> None:
    test_a_broken_folder_is_named(name, breakage, backends, tmp_path)


@pytest.mark.parametrize(
    ("name", "other"), [("kosmos2", "clipseg"), ("kosmos2", "vlm"), ("clipseg", "kosmos2"), ("vlm", "kosmos2")]
)
def test_the_folder_of_another_model_is_named(name: str, other: str, backends: Mapping[str, Backend]) -> None:
    folder = backends[other].folder
    with pytest.raises(DataError, match=rf"^{folder}: "):
        backends[name].load(folder)


def test_weights_that_the_config_has_no_place_for_are_counted_and_named(
    kosmos2_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only a warning: a hub's files may hold tables that today's classes compute."""
    load_kosmos2(kosmos2_folder)
    assert "warning" not in capsys.readouterr().err
    folder = shutil.copytree(kosmos2_folder, tmp_path / "copy")
    change("config.json", "text_config", "layers", value=1)(folder)
    load_kosmos2(folder)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert line.startswith(f"warning: {folder}: 20 of its weights have no place in the Kosmos-2 of its config.json")
    assert "text_model.model.layers.1.ffn.fc1.bias, " in line
    assert line.endswith(" and 15 more.")


def test_an_unused_table_beside_the_weights_changes_no_model(kosmos2_folder: Path, tmp_path: Path) -> None:
    import torch

    folder = shutil.copytree(kosmos2_folder, tmp_path / "copy")
    weights = load_file(folder / "model.safetensors")
    table = {"vision_model.model.embeddings.position_ids": torch.arange(17)}
    save_file(weights | table, folder / "model.safetensors", metadata={"format": "pt"})
    load_kosmos2(folder)


def test_a_model_too_large_for_the_device_is_named(kosmos2_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def exhaust(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(torch.nn.Module, "to", exhaust)
    with pytest.raises(DataError, match=rf"^{kosmos2_folder}: too large for the memory of cpu\. Choose another dev"):
        load_kosmos2(kosmos2_folder)


def test_an_error_of_the_code_is_no_fault_of_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), pretrained.loading(tmp_path, "nothing here"):
        _ = 1 // 0
