"""The backend vlm, from requests and image files to answers, on tiny chat models from disk."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pytest
import torch
import transformers.dynamic_module_utils
from PIL import Image
from safetensors.torch import save_file
from transformers import LlavaForConditionalGeneration

from reftables.errors import ConfigError, DataError
from reftables.models import local, openai, vlm, vlm_model
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Prediction, Request, Status, Task
from tests.torch import tiny_clipseg, tiny_llava, tiny_qwen
from tests.torch.tiny_kosmos2 import HUB_NAME, fill_hub_cache
from tests.workflow.conftest import Workspace

pytestmark = pytest.mark.torch

BOXES = AnswerFormat(notation=Notation.JSON, coordinates=Coordinates.PIXELS, order=Order.XY, prompt="qwen", grid=None)
SIZES = [(90, 60), (64, 100), (350, 200)]
TEXTS = ["the red mug", "left one?", "Where is <it>?"]
MOST = 48  # new tokens; some answers end before, some don't


@pytest.fixture(scope="module")
def qwen_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen.save(tmp_path_factory.mktemp("weights") / "qwen")


@pytest.fixture(scope="module")
def qwen3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen.save(tmp_path_factory.mktemp("weights") / "qwen3", tiny_qwen.QWEN3)


@pytest.fixture(scope="module")
def llava_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llava.save(tmp_path_factory.mktemp("weights") / "llava")


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> list[Request]:
    """Every text of every image, images in turn; the images are noise."""
    at, draw = tmp_path_factory.mktemp("noise"), np.random.default_rng(0)
    for number, (width, height) in enumerate(SIZES):
        noise = draw.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(noise).save(at / f"{number}.png")
    pairs = [(number, text) for text in TEXTS for number in range(len(SIZES))]
    return [Request(id_, str(at / f"{number}.png"), text) for id_, (number, text) in enumerate(pairs)]


def make_job(folder: Path | str, form: AnswerFormat = BOXES, **identity: Any) -> Job:
    return Job(
        model="chat",
        benchmark="mine",
        split="val",
        task=Task.BOXES,
        form=form,
        identity={"backend": "vlm", "weights": str(folder), "max_new_tokens": MOST, **identity},
        execution={},
    )


def predict(requests: Sequence[Request], job: Job) -> list[Prediction]:
    return sorted(vlm.predict(requests, job), key=lambda prediction: prediction.id)


@pytest.fixture(scope="module")
def predictions(qwen_folder: Path, requests: list[Request]) -> list[Prediction]:
    return predict(requests, make_job(qwen_folder))


def load(job: Job) -> vlm_model.ChatModel:
    return vlm_model.load(job, max_new_tokens=MOST, system=None, pixels={}, trust_remote_code=False)


def test_answers_are_those_of_generate(
    qwen_folder: Path, requests: list[Request], predictions: list[Prediction]
) -> None:
    expected = tiny_qwen.chat(qwen_folder, requests, max_new_tokens=MOST)
    tokenizer = tiny_qwen.tiny_tokenizer()
    assert [p.text for p in predictions] == [tokenizer.decode(r.tokens, skip_special_tokens=True) for r in expected]
    assert [(p.tokens_in, p.tokens_out) for p in predictions] == [(r.tokens_in, len(r.tokens)) for r in expected]
    assert [p.status is Status.OK for p in predictions] == [reply.stopped for reply in expected]
    assert {p.status: p.finish_reason for p in predictions} == {Status.OK: "stop", Status.TRUNCATED: "length"}


def test_another_class_of_model_answers_as_by_generate(llava_folder: Path, requests: list[Request]) -> None:
    expected = tiny_llava.chat(llava_folder, requests, max_tokens=MOST)
    found = predict(requests, make_job(llava_folder))
    assert [(p.text, p.tokens_in, p.tokens_out, p.status is Status.OK) for p in found] == expected
    assert {prediction.image_size for prediction in found} == {None}


def test_qwen3_answers_as_by_generate_and_sees_images_in_patches_of_its_own_size(
    qwen3_folder: Path, requests: list[Request]
) -> None:
    expected = tiny_qwen.chat(qwen3_folder, requests, max_new_tokens=MOST)
    found = predict(requests, make_job(qwen3_folder))
    tokenizer = tiny_qwen.tiny_tokenizer()
    assert [p.text for p in found] == [tokenizer.decode(r.tokens, skip_special_tokens=True) for r in expected]
    assert [(p.tokens_in, p.status is Status.OK) for p in found] == [(r.tokens_in, r.stopped) for r in expected]
    assert len({prediction.text for prediction in found}) == len(found)
    assert [prediction.image_size for prediction in found[:3]] == [(96, 64), (64, 96), (352, 192)]


def test_answers_differ_by_image_and_by_text_and_say_which_weights_answered(
    qwen_folder: Path, predictions: list[Prediction]
) -> None:
    assert len({prediction.text for prediction in predictions}) == len(predictions)
    assert {prediction.weights for prediction in predictions} == {local.folder_digest(qwen_folder)}


def test_answers_do_not_depend_on_the_order_of_the_requests(
    qwen_folder: Path, requests: list[Request], predictions: list[Prediction]
) -> None:
    assert predict(requests[::-1], make_job(qwen_folder)) == predictions
    assert predict(requests[4:5], make_job(qwen_folder)) == predictions[4:5]


def batch_sizes(monkeypatch: pytest.MonkeyPatch, *, fits: int = 100) -> list[int]:
    """Filled with the size of every batch to come; none has a filled-up place, and more than `fits` is too many."""
    sizes = []
    whole = vlm_model.ChatModel._generate

    def generate(model: vlm_model.ChatModel, inputs: Any) -> list[vlm_model.Answer]:
        assert inputs["attention_mask"].all()
        sizes.append(len(inputs["input_ids"]))
        if sizes[-1] > fits:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return whole(model, inputs)

    monkeypatch.setattr(vlm_model.ChatModel, "_generate", generate)
    return sizes


@pytest.mark.parametrize("family", ["qwen_folder", "qwen3_folder", "llava_folder"])
@pytest.mark.parametrize("backwards", [False, True])
def test_answers_of_batches_are_those_of_one_by_one(
    family: str,
    backwards: bool,
    requests: list[Request],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = make_job(request.getfixturevalue(family))
    # Twelve more, as long as others or longer than all.
    more = [replace(r, id=r.id + 9, text=r.text[::-1]) for r in requests] + [
        replace(r, id=r.id + 18, text=f"{r.text} " * 20) for r in requests[:3]
    ]
    mixed = [*requests, *more][:: -1 if backwards else 1]
    expected = predict(mixed, job)
    sizes = batch_sizes(monkeypatch)
    assert predict(mixed, replace(job, execution={"batch_size": 6})) == expected
    assert sum(sizes) == len(mixed) == 21
    assert len(sizes) < 12


def test_too_little_memory_halves_the_batch_and_changes_no_answer(
    qwen_folder: Path,
    requests: list[Request],
    predictions: list[Prediction],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sizes = batch_sizes(monkeypatch, fits=1)
    same = [replace(requests[0], id=number) for number in range(4)]
    found = predict(same, replace(make_job(qwen_folder), execution={"batch_size": 4}))
    assert [prediction.text for prediction in found] == [predictions[0].text] * 4
    assert sizes == [4, 2, 1, 1, 1, 1]
    assert "out of memory with 2 requests at once: going on with 1" in capsys.readouterr().err


def test_a_tokenizer_without_padding_can_do_batches(
    llava_folder: Path, requests: list[Request], tmp_path: Path
) -> None:
    copy = shutil.copytree(llava_folder, tmp_path / "copy")
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    (copy / "tokenizer_config.json").write_text(json.dumps({**settings, "pad_token": None}))
    job = make_job(copy)
    assert load(job)
    assert predict(requests, replace(job, execution={"batch_size": 9})) == predict(requests, job)


def test_the_size_that_the_model_saw_is_recorded(predictions: list[Prediction]) -> None:
    rule = openai.RESIZES["qwen2.5-vl"]
    expected = [openai.seen_size(*size_wh, rule) for size_wh in SIZES]
    assert [prediction.image_size for prediction in predictions[:3]] == expected == [(84, 56), (56, 112), (336, 196)]


@pytest.mark.parametrize(
    "limits",
    [{"max_pixels": 40_000}, {"min_pixels": 90_000}, {"min_pixels": 20_000, "max_pixels": 30_000}],
    ids=str,
)
def test_limits_of_the_image_change_what_the_model_sees(
    qwen_folder: Path, requests: list[Request], limits: dict[str, int]
) -> None:
    rule = openai.RESIZES["qwen2.5-vl"]._replace(**limits)
    found = predict(requests[:3], make_job(qwen_folder, **limits))
    assert [prediction.image_size for prediction in found] == [openai.seen_size(*size, rule) for size in SIZES]


def test_a_system_message_is_read_before_the_question(
    qwen_folder: Path, requests: list[Request], predictions: list[Prediction]
) -> None:
    (prediction,) = predict(requests[:1], make_job(qwen_folder, system="Be brief."))
    more = len("system\nBe brief.\n") + 2  # a token a character, and two that begin and end the message
    assert prediction.tokens_in == (predictions[0].tokens_in or 0) + more
    assert prediction.text != predictions[0].text


def test_special_tokens_are_left_out_and_tags_that_are_text_stay(
    qwen_folder: Path, requests: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = tiny_qwen.tiny_tokenizer()('<point x="1.5" y="2">a  mug</point> .<|im_end|>')["input_ids"]

    def generate(_: Any, input_ids: torch.Tensor, **__: Any) -> torch.Tensor:
        return torch.cat([input_ids, torch.tensor([written])], dim=1)

    monkeypatch.setattr("transformers.Qwen2_5_VLForConditionalGeneration.generate", generate)
    (prediction,) = predict(requests[:1], make_job(qwen_folder))
    assert (prediction.text, prediction.status) == ('<point x="1.5" y="2">a  mug</point> .', Status.OK)


@pytest.mark.parametrize(
    ("text", "stopped", "status"),
    [
        ("[1, 2]", True, Status.OK),
        ("[1, 2", False, Status.TRUNCATED),
        (" \n", True, Status.EMPTY),
        ("", False, Status.TRUNCATED),
    ],
)
def test_an_answer_is_complete_cut_or_empty(
    qwen_folder: Path,
    requests: list[Request],
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    stopped: bool,
    status: Status,
) -> None:
    answer = vlm_model.Answer(text, stopped, 7, 3, (28, 28))
    monkeypatch.setattr(vlm_model.ChatModel, "answer", lambda *_: [answer])
    (prediction,) = predict(requests[:1], make_job(qwen_folder))
    assert (prediction.status, prediction.text, prediction.tokens_in, prediction.tokens_out) == (status, text, 7, 3)


def test_half_precision_answers(qwen_folder: Path, requests: list[Request]) -> None:
    (prediction,) = predict(requests[:1], make_job(qwen_folder, dtype="bfloat16", device="cpu"))
    assert prediction.text


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


def test_code_of_another_repository_is_not_run(remote: Callable[..., Job], requests: list[Request]) -> None:
    with pytest.raises(DataError, match=r"code of other repositories, which no commit pins: other/name--remote\."):
        predict(requests[:1], remote("other/name--remote", trust_remote_code=True))


def test_the_sample_is_answered_scored_and_never_asked_again(qwen_folder: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    workspace.config = {
        "models": {
            "tiny": {
                "identity": {"backend": "vlm", "weights": str(qwen_folder), "max_new_tokens": 12},
                "exec": {"env": "torch"},
                "formats": {"boxes": {"notation": "json", "coordinates": "resized_pixels", "prompt": "qwen"}},
            }
        },
        "run": {"models": ["tiny"], "benchmarks": ["sample-boxes"], "limit": 4},
    }
    workspace.run()
    lines = workspace.read("results/predictions/tiny/sample-boxes/val.jsonl").split("\n")[:-1]
    predictions = [json.loads(line) for line in lines]
    assert sum(Counter(row["status"] for row in predictions).values()) == 4
    assert all(side % 28 == 0 for row in predictions for side in row["image_size"])
    metrics = workspace.metrics("tiny", "sample-boxes", "val")
    assert (metrics["n"], metrics["weights"]) == (4, [local.folder_digest(qwen_folder)])
    assert workspace.run().jobs == Counter()
    workspace.run("--forcerun", "infer_tiny")
    log = workspace.read("results/logs/infer_tiny/sample-boxes/val.log")
    assert "4 requests, 0 to ask" in log
    assert "weights:" not in log  # the model is not even loaded
