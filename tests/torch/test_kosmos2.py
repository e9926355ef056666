"""The backend kosmos2, from requests and image files to predictions, on a tiny model from disk."""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from reftables.errors import ConfigError, DataError
from reftables.kosmos import decode_pairs, find_groundings
from reftables.models import kosmos2, kosmos2_model, local
from reftables.models.job import Job
from reftables.models.kosmos2_decoding import Decoder
from reftables.rows import Prediction, Request, Status, TruthRow
from reftables.scoring import boxes
from tests.torch.conftest import kosmos2_job
from tests.torch.tiny_kosmos2 import Single, generate_one_by_one

pytestmark = pytest.mark.torch


def predict(requests: Sequence[Request], job: Job) -> list[Prediction]:
    return sorted(kosmos2.predict(requests, job), key=lambda prediction: prediction.id)


@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_predictions_are_the_answers_of_batch_size_one(
    kosmos2_folder: Path, requests: list[Request], one_by_one: dict[int, Single], batch_size: int
) -> None:
    predictions = predict(requests, kosmos2_job(kosmos2_folder, execution={"batch_size": batch_size}))
    model = kosmos2_model.load(kosmos2_job(kosmos2_folder), 501)
    singles = [(request.text, one_by_one[request.id]) for request in requests]
    assert [p.text for p in predictions] == [model.write(text, s.prompt, s.tokens) for text, s in singles]
    assert [p.tokens_out for p in predictions] == [len(s.tokens) + s.stopped for s in one_by_one.values()]
    assert [p.tokens_in for p in predictions] == [len(s.prompt) for s in one_by_one.values()]


def test_a_prediction_is_the_whole_text_with_tags_and_says_which_weights_answered(
    kosmos2_folder: Path, requests: list[Request]
) -> None:
    (prediction,) = predict(requests[8:9], kosmos2_job(kosmos2_folder))
    assert prediction.text is not None
    assert prediction.text.startswith("<image></image><grounding><phrase> two red cars</phrase><object><patch_index_")
    assert prediction.text.endswith("></object>")
    assert [len(grounding.pairs) for grounding in find_groundings(prediction.text)] == [2]
    assert (prediction.status, prediction.finish_reason) == (Status.OK, "stop")
    assert prediction.weights == local.folder_digest(kosmos2_folder)


def test_an_answer_that_never_ends_is_truncated(restless_folder: Path, requests: list[Request]) -> None:
    (prediction,) = predict(requests[:1], kosmos2_job(restless_folder, max_length=180))
    assert (prediction.status, prediction.finish_reason) == (Status.TRUNCATED, "length")
    assert (prediction.tokens_in or 0) + (prediction.tokens_out or 0) == 180


def test_a_caption_of_200_words_is_answered_as_by_generate_alone(kosmos2_folder: Path, images: list[str]) -> None:
    caption = " ".join(["red mug left of a dog"] * 34).rsplit(" ", 4)[0]
    assert len(caption.split()) == 200
    phrases = (caption, "mug", "every dog")
    asked = [Request(n, images[0], f"<grounding><phrase>{phrase}</phrase>") for n, phrase in enumerate(phrases)]
    answered = predict(asked, kosmos2_job(kosmos2_folder, max_length=2000))
    singles = generate_one_by_one(kosmos2_folder, asked, max_length=2000)
    write = kosmos2_model.load(kosmos2_job(kosmos2_folder), 2000).write
    assert [p.text for p in answered] == [write(r.text, singles[r.id].prompt, singles[r.id].tokens) for r in asked]
    assert [p.status is Status.OK for p in answered] == [single.stopped for single in singles.values()]
    assert answered[0].text is not None
    assert answered[0].text.startswith(f"<image></image><grounding><phrase> {caption}</phrase>")


def test_a_caption_longer_than_the_length_is_truncated(kosmos2_folder: Path, images: list[str]) -> None:
    caption = " ".join(["mug"] * 200)
    (prediction,) = predict(
        [Request(0, images[0], f"<grounding><phrase>{caption}</phrase>")], kosmos2_job(kosmos2_folder)
    )
    assert (prediction.status, prediction.tokens_out) == (Status.TRUNCATED, 0)
    assert prediction.text == f"<image></image><grounding><phrase> {caption}</phrase>"


def test_other_prompts_are_grounded_as_a_phrase(kosmos2_folder: Path, images: list[str]) -> None:
    job = kosmos2_job(kosmos2_folder)
    bare = Job(**{field: getattr(job, field) for field in Job.__slots__} | {"form": plain(job)})
    asked = predict([Request(0, images[0], "<grounding><phrase>mug</phrase>")], job)
    assert predict([Request(0, images[0], "mug")], bare) == asked


def plain(job: Job) -> Any:
    return type(job.form)(
        **{field: getattr(job.form, field) for field in type(job.form).__slots__} | {"prompt": "plain"}
    )


class Calls:
    """Counts what a decoder is asked, and answers as it does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fits: int = 1000) -> None:
        self.images = 0
        self.batches: list[tuple[int, int]] = []  # (requests, most new tokens)
        self.alone = 0
        read_images, decode, decode_alone = Decoder.read_images, Decoder.decode, Decoder.decode_alone

        def count_images(decoder: Decoder, pixels: Any) -> Any:
            self.images += len(pixels)
            return read_images(decoder, pixels)

        def count_batch(decoder: Decoder, prompts: Any, prefixes: Any, most: int) -> Any:
            self.batches.append((len(prompts), most))
            if len(prompts) > fits:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return decode(decoder, prompts, prefixes, most)

        def count_alone(decoder: Decoder, prompt: Any, pixels: Any) -> Any:
            self.alone += 1
            return decode_alone(decoder, prompt, pixels)

        monkeypatch.setattr(Decoder, "read_images", count_images)
        monkeypatch.setattr(Decoder, "decode", count_batch)
        monkeypatch.setattr(Decoder, "decode_alone", count_alone)


@pytest.mark.parametrize("batch_size", [2, 3, 5, 50])
def test_an_image_is_seen_once_and_at_most_once_more_where_answers_are_long(
    kosmos2_folder: Path,
    requests: list[Request],
    one_by_one: dict[int, Single],
    monkeypatch: pytest.MonkeyPatch,
    batch_size: int,
) -> None:
    """However its phrases fall into batches; the second time is for all its answers beyond the first tokens."""
    asked = [r for r in requests if "every" not in r.text or r.image in (requests[0].image, requests[1].image)]
    long = {r.image for r in asked if len(one_by_one[r.id].tokens) >= kosmos2.FIRST_TOKENS}
    seen: list[str] = []
    read = local.read_image
    monkeypatch.setattr(local, "read_image", lambda path: seen.append(path) or read(path))
    calls = Calls(monkeypatch)
    predict(asked, kosmos2_job(kosmos2_folder, execution={"batch_size": batch_size}))
    images = {request.image for request in requests}
    assert 0 < len(long) < len(images) == 4
    times = Counter(seen)
    assert {image: times[image] for image in images - long} == dict.fromkeys(images - long, 1)
    assert all(1 <= times[image] <= 2 for image in long)
    assert calls.images == len(seen)


def test_only_unfinished_answers_are_decoded_to_the_full_length(
    kosmos2_folder: Path, requests: list[Request], one_by_one: dict[int, Single], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    order = [p.id for p in kosmos2.predict(requests, kosmos2_job(kosmos2_folder, execution={"batch_size": 50}))]
    long = {id_ for id_, single in one_by_one.items() if len(single.tokens) >= kosmos2.FIRST_TOKENS}
    assert 0 < len(long) < 12
    assert calls.batches == [(24, kosmos2.FIRST_TOKENS), (len(long), 501)]
    assert set(order[-len(long) :]) == long


def test_a_near_tie_is_decided_alone(
    kosmos2_folder: Path, requests: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = predict(requests[:6], kosmos2_job(kosmos2_folder))
    monkeypatch.setattr("reftables.models.kosmos2_decoding.NEAR", 1.0)
    calls = Calls(monkeypatch)
    assert predict(requests[:6], kosmos2_job(kosmos2_folder)) == expected
    assert calls.alone == 6


def test_too_little_memory_halves_the_batch_and_changes_no_answer(
    kosmos2_folder: Path, requests: list[Request], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = [request for request in requests if "every" not in request.text]
    job = kosmos2_job(kosmos2_folder, execution={"batch_size": 12})
    expected = predict(short, job)
    calls = Calls(monkeypatch, fits=4)
    assert predict(short, job) == expected
    assert [size for size, _ in calls.batches] == [12, 6, 3, 3, 3, 3, 3, 1][: len(calls.batches)]
    assert "out of memory with 12 requests at once: going on with 6" in capsys.readouterr().err


def test_too_little_memory_for_one_request_ends_the_run(
    kosmos2_folder: Path, requests: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    Calls(monkeypatch, fits=0)
    one = requests[3]
    with pytest.raises(DataError, match=rf"{one.image}: out of memory with this request alone, id 3 \(CUDA out of mem"):
        predict([one], kosmos2_job(kosmos2_folder))


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "CMYK"])
@pytest.mark.parametrize("size_wh", [(640, 480), (300, 500), (224, 224), (31, 17)], ids=str)
def test_pixels_are_those_of_the_official_evaluation(
    kosmos2_folder: Path, tmp_path: Path, size_wh: tuple[int, int], mode: str
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (*size_wh[::-1], 3), dtype=np.uint8)
    path = tmp_path / ("image.jpg" if mode == "CMYK" else "image.png")
    Image.fromarray(noise).convert(mode).save(path)
    model = kosmos2_model.load(kosmos2_job(kosmos2_folder), 501)
    image = local.read_image(str(path))
    assert np.array_equal(model.look([image])[0].numpy(), kosmos2_model.official_pixels(image, 224))


def test_the_settings_that_older_versions_wrote_make_the_same_pixels(kosmos2_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(kosmos2_folder, tmp_path / "copy")
    (folder / "processor_config.json").unlink()
    older = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 224}, "use_square_size": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(older), encoding="utf-8")
    image = Image.effect_noise((90, 60), 100).convert("RGB")
    pixels = kosmos2_model.load(kosmos2_job(folder), 501).look([image])[0].numpy()
    assert np.array_equal(pixels, kosmos2_model.official_pixels(image, 224))


def changed_copy(folder: Path, target: Path, name: str, change: Any) -> Path:
    """A copy of a folder of weights in which `change` was made to the JSON file `name`."""
    shutil.copytree(folder, target)
    content = json.loads((target / name).read_text(encoding="utf-8"))
    change(content)
    (target / name).write_text(json.dumps(content), encoding="utf-8")
    return target


def crop_to_the_middle(processor: dict[str, Any]) -> None:
    processor["image_processor"]["size"] = {"shortest_edge": 224}


def use_imagenet_constants(processor: dict[str, Any]) -> None:
    processor["image_processor"]["image_mean"] = [0.485, 0.456, 0.406]


@pytest.mark.parametrize("change", [crop_to_the_middle, use_imagenet_constants], ids=lambda change: change.__name__)
def test_another_image_processor_is_refused(kosmos2_folder: Path, tmp_path: Path, change: Any) -> None:
    folder = changed_copy(kosmos2_folder, tmp_path / "copy", "processor_config.json", change)
    with pytest.raises(DataError, match="its image processor makes other pixels than Kosmos-2 was evaluated on"):
        kosmos2_model.load(kosmos2_job(folder), 501)


def test_a_tokenizer_of_another_model_is_refused(kosmos2_folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    def shrink(config: dict[str, Any]) -> None:
        config["text_config"]["vocab_size"] = 1200

    folder = changed_copy(kosmos2_folder, tmp_path / "copy", "config.json", shrink)
    weights = load_file(folder / "model.safetensors")
    cut = {name: tensor[:1200].clone() if tensor.shape[0] == 1293 else tensor for name, tensor in weights.items()}
    save_file(cut, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match="its tokenizer has 1,293 tokens, its model 1,200"):
        kosmos2_model.load(kosmos2_job(folder), 501)


def test_incomplete_weights_are_refused(kosmos2_folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(kosmos2_folder, tmp_path / "copy")
    weights = load_file(folder / "model.safetensors")
    del weights["image_to_text_projection.latent_query"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"1 weights of Kosmos-2 are missing: image_to_text_projection\.latent_query"):
        kosmos2_model.load(kosmos2_job(folder), 501)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("model.safetensors", "no weights of Kosmos-2 as safetensors here", id="weights"),
        pytest.param("tokenizer.json", "no tokenizer and image processor of Kosmos-2 here", id="tokenizer"),
        pytest.param("processor_config.json", "no tokenizer and image processor of Kosmos-2 here", id="processor"),
    ],
)
def test_a_missing_file_is_named(kosmos2_folder: Path, tmp_path: Path, name: str, message: str) -> None:
    folder = shutil.copytree(kosmos2_folder, tmp_path / "copy")
    (folder / name).unlink()
    with pytest.raises(DataError, match=message):
        kosmos2_model.load(kosmos2_job(folder), 501)


@pytest.mark.parametrize("batch_size", [1, 4, 32])
def test_an_image_that_cannot_be_read_costs_its_own_requests_only(
    kosmos2_folder: Path,
    requests: list[Request],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    batch_size: int,
) -> None:
    (tmp_path / "half.jpg").write_bytes(b"\xff\xd8\xff\xe0half")
    job = kosmos2_job(kosmos2_folder, execution={"batch_size": batch_size})
    expected = predict(requests, job)
    guilty = {5, 9}
    broken = [replace(r, image=str(tmp_path / "half.jpg")) if r.id in guilty else r for r in requests]
    found = predict(broken, job)
    assert [p for p in found if p.id not in guilty] == [p for p in expected if p.id not in guilty]
    for prediction in (found[5], found[9]):
        assert (prediction.status, prediction.text) == (Status.ERROR, None)
        assert "half.jpg: not a readable image" in (prediction.finish_reason or "")
    assert f"request 9 can't be answered: {tmp_path}/half.jpg: not a readable image" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "  \n"], ids=repr)
@pytest.mark.parametrize("others", [0, 3])
def test_a_request_without_text_is_not_answered(
    kosmos2_folder: Path, requests: list[Request], text: str, others: int
) -> None:
    """An answer to it would be made of what fills up the batch."""
    job = kosmos2_job(kosmos2_folder)
    empty = Request(100, requests[0].image, text)
    *answered, last = predict([*requests[:others], empty], job)
    assert (last.status, last.finish_reason) == (
        Status.ERROR,
        f"{empty.image}: its request has no text. Write what to find.",
    )
    assert answered == predict(requests[:others], job)


def test_no_requests_load_nothing(tmp_path: Path) -> None:
    assert predict([], kosmos2_job(tmp_path)) == []  # where there is nothing to load


@pytest.mark.parametrize(
    ("phrase", "echoed"),
    [
        pytest.param("red mug", " red mug", id="as the tokens say it"),
        pytest.param("red  mug", " red mug", id="the tokenizer normalises it"),
        pytest.param("日本語 dog", "日本語 dog", id="characters beyond the vocabulary"),
        pytest.param("½ 日", "1⁄2 日", id="normalised as the tokenizer would"),
        pytest.param("a </s> dog", "a </s> dog", id="the name of a special token"),
        pytest.param("<pad> dog", "<pad> dog", id="the name of the token that fills up"),
    ],
)
def test_the_phrase_asked_stands_in_the_answer_also_where_its_tokens_do_not_say_it(
    kosmos2_folder: Path, images: list[str], phrase: str, echoed: str
) -> None:
    text = f"<grounding><phrase>{phrase}</phrase>"
    (prediction,) = predict([Request(0, images[0], text)], kosmos2_job(kosmos2_folder))
    model = kosmos2_model.load(kosmos2_job(kosmos2_folder), 501)
    single = generate_one_by_one(kosmos2_folder, [Request(0, images[0], text)])[0]
    answer = model.write("", model.encode([""])[0], single.tokens).removeprefix("<image></image>")
    assert prediction.text == f"<image></image><grounding><phrase>{echoed}</phrase>{answer}"


def test_an_answer_to_characters_beyond_the_vocabulary_counts(kosmos2_folder: Path, images: list[str]) -> None:
    caption = "日本語 dog"
    (prediction,) = predict(
        [Request(0, images[0], f"<grounding><phrase>{caption}</phrase>")], kosmos2_job(kosmos2_folder)
    )
    ((phrase, pairs),) = find_groundings(prediction.text or "")
    corners = np.array([decode_pairs(np.array(pairs[:1]), 32)[0]]) * 100
    (box,) = corners.tolist()
    truth: TruthRow = {
        "id": 0,
        "width": 100,
        "height": 100,
        "expression": caption,
        "bbox_xywh": [box[0], box[1], box[2] - box[0], box[3] - box[1]],
    }
    scores = boxes.score([truth], [prediction], kosmos2_job(kosmos2_folder).form, {})
    assert phrase == caption
    assert scores.official is not None
    assert scores.official["precision@1"].value == scores.robust["precision@1"].value == 1


def test_float32_stays_float32(kosmos2_folder: Path) -> None:
    torch.backends.cudnn.allow_tf32 = True
    kosmos2_model.load(kosmos2_job(kosmos2_folder), 501)
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(
    ("identity", "execution", "message"),
    [
        pytest.param({}, {"device": "cuda"}, "torch finds no GPU here", id="no GPU"),
        pytest.param({"device": "cuda"}, {}, "torch finds no GPU here", id="no GPU for the identity"),
        pytest.param({}, {"device": "mps"}, "torch finds no mps here", id="no Mac"),
    ],
)
def test_a_device_that_is_not_there_is_refused(
    kosmos2_folder: Path,
    identity: dict[str, Any],
    execution: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=rf"models\.k2\.exec\.device: {message}"):
        local.choose_device(kosmos2_job(kosmos2_folder, execution=execution, **identity))


def test_a_gpu_beyond_the_last_is_refused(kosmos2_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert local.choose_device(kosmos2_job(kosmos2_folder, execution={"device": "cuda:1"})) == "cuda:1"
    with pytest.raises(ConfigError, match=r"exec\.device: there is no cuda:2; the last of the GPUs here is 1"):
        local.choose_device(kosmos2_job(kosmos2_folder, execution={"device": "cuda:2"}))
