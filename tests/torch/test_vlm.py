"""The backend vlm, from requests and image files to answers, on tiny chat models from disk."""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from reftables.errors import DataError
from reftables.models import local, openai, vlm_model
from reftables.rows import Prediction, Request, Status
from tests.torch import tiny_llava, tiny_qwen
from tests.torch.chats import MOST, SIZES, TEXTS, load, make_job, predict
from tests.torch.noise import draw_requests
from tests.workflow.conftest import Workspace

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> list[Request]:
    return draw_requests(tmp_path_factory.mktemp("noise"), SIZES, TEXTS)


@pytest.fixture(scope="module")
def predictions(qwen_folder: Path, requests: list[Request]) -> list[Prediction]:
    return predict(requests, make_job(qwen_folder))


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
    mixed = mixed_lengths(requests)[:: -1 if backwards else 1]
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


@pytest.mark.parametrize("batch_size", [1, 9])
def test_a_request_at_fault_costs_no_answer_but_its_own(
    qwen_folder: Path,
    requests: list[Request],
    predictions: list[Prediction],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    batch_size: int,
) -> None:
    (tmp_path / "half.jpg").write_bytes(b"\xff\xd8\xff\xe0half")
    Image.new("RGB", (2100, 10)).save(tmp_path / "strip.png")
    asked = list(requests)
    asked[1] = replace(asked[1], text="what is left of <|image_pad|>?")
    asked[4] = replace(asked[4], image=str(tmp_path / "half.jpg"))
    asked[7] = replace(asked[7], image=str(tmp_path / "strip.png"))
    found = predict(asked, replace(make_job(qwen_folder), execution={"batch_size": batch_size}))
    reasons = {
        1: f"{requests[1].image}: the text about it holds <|image_pad|>, by which the model is shown an image",
        4: f"{tmp_path}/half.jpg: not a readable image",
        7: f"{tmp_path}/strip.png: the model's processor takes no such image or text: absolute aspect ratio must be",
    }
    said = capsys.readouterr().err
    for number, reason in reasons.items():
        assert (found[number].status, found[number].text) == (Status.ERROR, None)
        assert (found[number].finish_reason or "").startswith(reason)
        assert f"request {number} can't be answered: {reason}" in said
    assert [p for p in found if p.id not in reasons] == [p for p in predictions if p.id not in reasons]


@pytest.mark.parametrize(
    ("family", "token"),
    [
        ("qwen_folder", "<|image_pad|>"),
        ("qwen_folder", "<|video_pad|>"),
        ("qwen3_folder", "<|vision_start|>"),
        ("llava_folder", "<image>"),
    ],
)
def test_a_text_cannot_become_an_image(
    family: str, token: str, requests: list[Request], request: pytest.FixtureRequest
) -> None:
    asked = replace(requests[0], text=f"{token} the mug")
    (prediction,) = predict([asked], make_job(request.getfixturevalue(family)))
    assert prediction.status is Status.ERROR
    assert f"the text about it holds {token}, by which the model" in (prediction.finish_reason or "")


def test_the_names_of_another_models_tokens_are_text(llava_folder: Path, requests: list[Request]) -> None:
    (prediction,) = predict([replace(requests[0], text="<|image_pad|>")], make_job(llava_folder))
    assert prediction.status in {Status.OK, Status.TRUNCATED}


def test_no_requests_load_nothing(tmp_path: Path) -> None:
    assert predict([], make_job(tmp_path)) == []  # where there is nothing to load


def without_stop_token(folder: Path, target: Path) -> Path:
    """A copy whose settings name none; its tokenizer does."""
    shutil.copytree(folder, target)
    (target / "generation_config.json").unlink()
    config = json.loads((target / "config.json").read_text())
    for settings in (config, config["text_config"]):
        settings["eos_token_id"] = None
    (target / "config.json").write_text(json.dumps(config))
    return target


def test_without_a_stop_token_of_its_own_a_model_ends_by_its_tokenizers(
    qwen_folder: Path, requests: list[Request], predictions: list[Prediction], tmp_path: Path
) -> None:
    found = predict(requests, make_job(without_stop_token(qwen_folder, tmp_path / "copy")))
    both = [(one, other) for one, other in zip(predictions, found, strict=True) if other.status is Status.OK]
    assert both
    # The model itself has another stop token as well, so it may end earlier.
    assert all((other.text or "").startswith(one.text or "-") for one, other in both)
    assert any(one.tokens_out == other.tokens_out for one, other in both)


def test_a_model_that_no_token_ends_is_refused(qwen_folder: Path, tmp_path: Path) -> None:
    copy = without_stop_token(qwen_folder, tmp_path / "copy")
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    (copy / "tokenizer_config.json").write_text(json.dumps({**settings, "eos_token": None}))
    with pytest.raises(DataError, match=rf"^{copy}: no token that ends an answer, so all would be cut off"):
        load(make_job(copy))


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


@pytest.mark.parametrize("family", ["qwen_folder", "qwen3_folder", "llava_folder"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_in_half_precision_nine_of_ten_answers_of_batches_are_those_of_one_by_one(
    family: str, dtype: str, requests: list[Request], request: pytest.FixtureRequest
) -> None:
    """Of its own precision, to the last token, on the processor, where all are equal; a GPU may round otherwise."""
    job = make_job(request.getfixturevalue(family), dtype=dtype, device="cpu")
    asked = mixed_lengths(requests)
    alone = predict(asked, job)
    batched = predict(asked, replace(job, execution={"batch_size": 6}))
    same = [one == other for one, other in zip(alone, batched, strict=True)]
    assert all(prediction.text for prediction in alone)
    assert sum(same) >= 0.9 * len(same)


def mixed_lengths(requests: Sequence[Request]) -> list[Request]:
    """The requests and twelve more, as long as others or longer than all."""
    return [
        *requests,
        *(replace(r, id=r.id + 9, text=r.text[::-1]) for r in requests),
        *(replace(r, id=r.id + 18, text=f"{r.text} " * 20) for r in requests[:3]),
    ]


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
