"""Folders that the backend vlm takes, refuses, or runs code from."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import transformers.dynamic_module_utils
from safetensors.torch import save_file
from transformers import LlavaForConditionalGeneration

from reftables.errors import ConfigError, DataError
from reftables.models.job import Job
from reftables.rows import Coordinates, Request
from tests.torch import tiny_clipseg
from tests.torch.chats import BOXES, SIZES, TEXTS, load, make_job, predict
from tests.torch.noise import draw_requests
from tests.torch.tiny_kosmos2 import HUB_NAME, fill_hub_cache

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> list[Request]:
    return draw_requests(tmp_path_factory.mktemp("noise"), SIZES, TEXTS)


def test_pixels_of_the_resized_image_need_a_processor_that_says_its_size(qwen_folder: Path, llava_folder: Path) -> None:
    resized = replace(BOXES, coordinates=Coordinates.RESIZED_PIXELS)
    load(make_job(qwen_folder, resized))
    with pytest.raises(
        ConfigError, match=r"models\.chat\.formats\.boxes\.coordinates: CLIPImageProcessorPil does not say"
    ):
        load(make_job(llava_folder, resized))


def test_limits_that_the_image_processor_does_not_have_are_refused(llava_folder: Path, requests: list[Request]) -> None:
    with pytest.raises(ConfigError, match=r"identity\.max_pixels: CLIPImageProcessorPil has no such limit"):
        predict(requests[:1], make_job(llava_folder, max_pixels=50_000))


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    folder = tiny_clipseg.save(tmp_path / "clipseg")
    with pytest.raises(DataError, match="no chat template here"):
        load(make_job(folder))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("model.safetensors", "no weights of a model from image and text to text", id="weights"),
        pytest.param("config.json", "no chat model that sees, or none that transformers can load", id="config"),
        pytest.param("preprocessor_config.json", "no chat model that sees", id="image processor"),
        pytest.param("chat_template.jinja", "no chat template here", id="template"),
    ],
)
def test_a_missing_file_is_named(qwen_folder: Path, tmp_path: Path, name: str, message: str) -> None:
    copy = shutil.copytree(qwen_folder, tmp_path / "copy")
    (copy / name).unlink()
    with pytest.raises(DataError, match=message):
        load(make_job(copy))


@pytest.mark.skipif(find_spec("torchvision") is not None, reason="only without torchvision")
def test_a_processor_that_needs_torchvision_says_so(qwen_folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(qwen_folder, tmp_path / "copy")
    (copy / "preprocessor_config.json").write_text('{"image_processor_type": "Molmo2ImageProcessor"}')
    with pytest.raises(DataError, match=r"(?s)none that transformers can load: .*[Tt]orchvision"):
        load(make_job(copy))


REMOTE = """
from transformers import LlavaConfig, LlavaForConditionalGeneration

class RemoteConfig(LlavaConfig):
    model_type = "remote_llava"

class RemoteModel(LlavaForConditionalGeneration):
    config_class = RemoteConfig
"""


@pytest.fixture
def remote(llava_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    """A model in the hub's cache whose code comes with its weights; the job that asks it."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = shutil.copytree(llava_folder, tmp_path / "remote")
    (folder / "remote.py").write_text(REMOTE, encoding="utf-8")
    # Files of LLaVA have the weights under older names, which only LLaVA's own class knows.
    weights = LlavaForConditionalGeneration.from_pretrained(llava_folder).state_dict()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    def make(module: str = "remote", **identity: Any) -> Job:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config["model_type"] = "remote_llava"
        config["auto_map"] = {
            "AutoConfig": f"{module}.RemoteConfig",
            "AutoModelForImageTextToText": f"{module}.RemoteModel",
        }
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return make_job(HUB_NAME, revision=fill_hub_cache(tmp_path / "hub", folder), **identity)

    return make


def test_code_that_comes_with_the_weights_is_not_run(
    remote: Callable[..., Job], requests: list[Request], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="none that transformers can load"):
        predict(requests[:1], remote())
    assert not (tmp_path / "modules").exists()


def test_code_that_is_trusted_and_pinned_is_run_and_said_to_run(
    remote: Callable[..., Job], requests: list[Request], llava_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (prediction,) = predict(requests[:1], remote(trust_remote_code=True))
    (expected,) = predict(requests[:1], make_job(llava_folder))
    assert (prediction.text, prediction.weights) == (expected.text, "5eed" * 10)
    assert "remote code: remote.py, of " in capsys.readouterr().out


@pytest.mark.parametrize("auto_map", [["other/name--tokens.Tokenizer", None], "other/name--tokens.Tokenizer"], ids=type)
def test_code_of_another_repository_is_found_as_older_tokenizers_name_it(
    remote: Callable[..., Job], requests: list[Request], tmp_path: Path, auto_map: object
) -> None:
    job = remote(trust_remote_code=True)
    (settings,) = (tmp_path / "hub").glob("*/snapshots/*/tokenizer_config.json")
    content = json.loads(settings.read_text(encoding="utf-8")) | {"auto_map": auto_map}
    settings.unlink()  # a link to a file that others share
    settings.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(DataError, match=r"which no commit pins: other/name--tokens\.Tokenizer\."):
        predict(requests[:1], job)


def test_code_of_another_repository_is_not_run(remote: Callable[..., Job], requests: list[Request]) -> None:
    with pytest.raises(DataError, match=r"code of other repositories, which no commit pins: other/name--remote\."):
        predict(requests[:1], remote("other/name--remote", trust_remote_code=True))
