"""Kosmos-2 with its real tokenizer: real generations, every caption of the official splits, a tiny random model."""

import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reftables.files import read_requests
from reftables.kosmos import IMAGE_END, Grounding, decode_pairs, find_groundings
from reftables.rows import Request, Status
from tests.real.pieces import real_tokenizer
from tests.torch.conftest import kosmos2_job

pytestmark = [pytest.mark.real, pytest.mark.torch]


@pytest.fixture(scope="module")
def processor(real_data: Path) -> Any:
    torch = pytest.importorskip("torch", reason="needs torch and transformers: make test EXTRAS=torch")
    torch.set_num_threads(1)
    from transformers import CLIPImageProcessorPil, Kosmos2Processor

    return Kosmos2Processor(CLIPImageProcessorPil(use_square_size=True), real_tokenizer(real_data / "kosmos2"))


@pytest.fixture(scope="module")
def folder(processor: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model with the real vocabulary, on disk."""
    from tests.torch.tiny_kosmos2 import random_model, save

    return save(tmp_path_factory.mktemp("weights"), random_model(65_037), processor)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    from reftables.models.kosmos2_model import load

    return load(kosmos2_job(folder), 501)


@pytest.fixture(scope="module")
def known(real_data: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((real_data / "kosmos2" / "transformers_test_cases.json").read_text("utf-8"))
    return content


def test_tags_have_their_ids(processor: Any, known: dict[str, Any]) -> None:
    names = {name: id_ for name, id_ in known["special_ids"].items() if name.startswith("<")}
    assert processor.tokenizer.convert_tokens_to_ids(list(names)) == list(names.values())


def with_boxes(text: str, boxes_of_phrases: Sequence[Any] | None) -> str:
    """The text with the boxes of its phrases behind them; a phrase has none, one pair of cells, or a list of pairs."""
    written = []
    for boxes in boxes_of_phrases or []:
        pairs = boxes if boxes and isinstance(boxes[0], list) else [boxes] if boxes else []
        tokens = ["".join(f"<patch_index_{cell:04d}>" for cell in pair) for pair in pairs]
        written.append(f"<object>{'</delimiter_of_multi_objects/>'.join(tokens)}</object>" if tokens else "")
    phrases = text.split("</phrase>")
    return "</phrase>".join([phrases[0], *map("".join, zip_longest(written, phrases[1:], fillvalue=""))])


@pytest.mark.parametrize("number", range(7))
def test_texts_have_their_tokens_and_come_back_from_them(model: Any, known: dict[str, Any], number: int) -> None:
    assert len(known["encode"]) == 7
    case = known["encode"][number]
    beginning, *tokens, end = case["ids"]
    prompt = [beginning, 64003, *range(4, 68), 64004, *tokens]
    text = with_boxes(case["text"], case["bboxes"])
    assert (model.encode([text]), end) == ([prompt], 2)
    read = model.write(text, prompt, [])
    assert model.encode([read.removeprefix(f"<image>{IMAGE_END}")]) == [prompt]


@pytest.mark.parametrize("number", [0, 1])
def test_a_real_generation_reads_as_it_did(model: Any, known: dict[str, Any], number: int) -> None:
    case = known["generation"][number]
    *tokens, stop = case["generated_ids"]
    prompt = model.encode([case["prompt"]])[0]
    assert (tokens[: len(prompt)], stop) == (prompt, 2)
    text = model.write(case["prompt"], prompt, tokens[len(prompt) :])
    assert text == f"<image>{IMAGE_END}{case['processed_text']}"
    found = find_groundings(text)
    boxes = [decode_pairs(np.array(grounding.pairs), 32).tolist() for grounding in found]
    assert [(grounding.phrase.strip(), box) for grounding, box in zip(found, boxes, strict=True)] == [
        (phrase, box) for phrase, _, box in case["entities"]
    ]


def test_all_captions_but_one_come_back_from_the_tokens(model: Any, real_data: Path) -> None:
    files = sorted((real_data / "mdetr").glob("finetune_*.json"))
    captions = [image["caption"] for file in files for image in json.loads(file.read_text("utf-8"))["images"]]
    texts = [f"<grounding><phrase>{caption}</phrase>" for caption in captions]
    changed = [
        caption
        for caption, text, prompt in zip(captions, texts, model.encode(texts), strict=True)
        if model.write(text, prompt, []) != f"<image>{IMAGE_END}<grounding><phrase> {caption}</phrase>"
    ]
    assert len(captions) == 57_457
    assert changed == ["baseball player ` gibson ´."]


@pytest.mark.parametrize("caption", ["日本語 dog", "sign saying 停"])
def test_a_caption_with_characters_beyond_the_vocabulary_is_the_phrase_of_its_answer(model: Any, caption: str) -> None:
    text = f"<grounding><phrase>{caption}</phrase>"
    (prompt,) = model.encode([text])
    answer = [64009, 64013 + 1, 64013 + 70, 64010]
    assert 3 in prompt  # the one token of all characters that the vocabulary lacks
    assert find_groundings(model.write(text, prompt, answer)) == [Grounding(caption, [(1, 70)])]


def test_real_requests_are_answered_as_one_by_one(folder: Path, real_data: Path, tmp_path: Path) -> None:
    from reftables.models import kosmos2
    from reftables.models.kosmos2_model import load
    from tests.torch.tiny_kosmos2 import generate_one_by_one, plain_image

    asked = read_requests(real_data / "kosmos2" / "finetune_refcoco_val500.json.locout", prompt="kosmos")[:16]
    images = [tmp_path / f"{colour}.png" for colour in ("red", "green", "blue")]
    for path in images:
        plain_image(path.stem).save(path)
    requests = [Request(r.id, str(images[r.id % 3]), r.text) for r in asked]
    predictions = list(kosmos2.predict(requests, kosmos2_job(folder, max_length=100, execution={"batch_size": 10})))
    singles = generate_one_by_one(folder, requests, max_length=100)
    model = load(kosmos2_job(folder), 100)
    assert {p.id: p.text for p in predictions} == {
        request.id: model.write(request.text, singles[request.id].prompt, singles[request.id].tokens)
        for request in requests
    }
    assert {p.status for p in predictions} == {Status.TRUNCATED}
