"""Batches of Kosmos-2 that share an image's prefix, against `generate` of transformers at batch size 1."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from reftables.models import kosmos2_model, local
from reftables.models.kosmos2_decoding import Decoded
from reftables.models.kosmos2_model import Kosmos2
from reftables.rows import Request
from tests.torch.conftest import kosmos2_job
from tests.torch.tiny_kosmos2 import Single, generate_one_by_one

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def model(kosmos2_folder: Path) -> Kosmos2:
    return kosmos2_model.load(kosmos2_job(kosmos2_folder), 501)


@pytest.fixture(scope="module")
def restless(restless_folder: Path) -> Kosmos2:
    return kosmos2_model.load(kosmos2_job(restless_folder), 501)


def look(model: Kosmos2, requests: Sequence[Request]) -> dict[str, Any]:
    """Each image to its pixels, in one batch of its own."""
    images = sorted({request.image for request in requests})
    return dict(zip(images, model.look([local.read_image(image) for image in images]).split(1), strict=True))


def decode(model: Kosmos2, requests: Sequence[Request], most: int = 501) -> list[tuple[list[int], bool]]:
    """All `requests` as one batch: (new tokens, whether it stopped) of each."""
    pixels = look(model, requests)
    prefixes = dict(zip(pixels, model.decoder.read_images(torch.cat(list(pixels.values()))), strict=True))
    prompts = model.encode([request.text for request in requests])
    found = model.decoder.decode(prompts, [prefixes[request.image] for request in requests], most)
    return [(decoded.tokens, decoded.stopped) for decoded in found]


def test_prompts_are_the_processors(model: Kosmos2, requests: list[Request], one_by_one: dict[int, Single]) -> None:
    assert model.encode([request.text for request in requests]) == [one_by_one[r.id].prompt for r in requests]


def test_answers_differ_in_length_and_by_image(one_by_one: dict[int, Single]) -> None:
    lengths = {len(single.tokens) for single in one_by_one.values()}
    assert min(lengths) < 10
    assert max(lengths) > 32
    assert len({tuple(single.tokens) for single in one_by_one.values()}) > 8


# Where the longest prompt of a batch stands, of requests from the shortest prompt to the longest.
ORDERS: dict[str, Callable[[list[Request]], list[Request]]] = {
    "first": lambda ascending: ascending[::-1],
    "last": lambda ascending: ascending,
    "middle": lambda ascending: ascending[::2] + ascending[1::2][::-1],
}


@pytest.mark.parametrize(
    ("size", "longest"),
    [
        (1, "first"),
        *[(size, longest) for size in (2, 5, 24) for longest in ("first", "last")],
        (5, "middle"),
        (24, "middle"),
    ],
)
def test_a_batch_of_any_size_and_order_gives_the_tokens_of_batch_size_one(
    model: Kosmos2, requests: list[Request], one_by_one: dict[int, Single], longest: str, size: int
) -> None:
    by_image = sorted(requests, key=lambda request: request.image)  # neighbours differ in length
    for start in range(0, len(requests), size):
        batch = sorted(by_image[start : start + size], key=lambda request: len(one_by_one[request.id].prompt))
        batch = ORDERS[longest](batch)
        lengths = [len(one_by_one[request.id].prompt) for request in batch]
        assert lengths[{"first": 0, "middle": len(batch) // 2, "last": -1}[longest]] == max(lengths)
        assert size == 1 or min(lengths[0], lengths[-1]) < max(lengths)
        assert longest != "middle" or max(lengths[0], lengths[-1]) < max(lengths)
        expected = [(one_by_one[request.id].tokens, one_by_one[request.id].stopped) for request in batch]
        assert decode(model, batch) == expected


def test_many_phrases_of_one_image_share_its_prefix(
    model: Kosmos2, requests: list[Request], one_by_one: dict[int, Single]
) -> None:
    batch = [request for request in requests if request.image == requests[0].image]
    assert len(batch) == 6
    assert decode(model, batch) == [(one_by_one[r.id].tokens, one_by_one[r.id].stopped) for r in batch]


def test_an_answer_alone_is_that_of_generate(
    model: Kosmos2, requests: list[Request], one_by_one: dict[int, Single]
) -> None:
    pixels = look(model, requests)
    for request in requests[::5]:
        single = one_by_one[request.id]
        alone = model.decoder.decode_alone(single.prompt, pixels[request.image])
        assert (alone.tokens, alone.stopped) == (single.tokens, single.stopped)


def test_answers_that_never_end_fill_the_length_and_repeat_no_three_tokens(
    restless: Kosmos2, restless_folder: Path, requests: list[Request]
) -> None:
    batch = requests[:3]
    singles = generate_one_by_one(restless_folder, batch)
    for (tokens, stopped), single in zip(decode(restless, batch), singles.values(), strict=True):
        assert (tokens, stopped) == (single.tokens, False)
        whole = [*single.prompt, *tokens]
        assert len(whole) == 501
        threes = list(zip(whole, whole[1:], whole[2:], strict=False))
        first_new = len(single.prompt) - 2
        assert not any(threes[place] in threes[:place] for place in range(first_new, len(threes)))


def test_the_first_tokens_are_those_of_the_whole_answer(
    model: Kosmos2, requests: list[Request], one_by_one: dict[int, Single]
) -> None:
    for request, (tokens, stopped) in zip(requests, decode(model, requests, most=6), strict=True):
        whole = one_by_one[request.id].tokens
        assert (tokens, stopped) == (whole[:6], len(whole) < 6)


def test_positions_are_those_that_the_model_counts_alone(model: Kosmos2, images: list[str]) -> None:
    texts = ["a <pad> red mug", "two cars", "<pad><pad>"]  # the word, not what fills a batch up
    requests = [Request(n, images[n], f"<grounding><phrase>{text}</phrase>") for n, text in enumerate(texts)]
    prompts = model.encode([request.text for request in requests])
    prefixes = model.decoder.read_images(torch.cat([*look(model, requests).values()]))
    embedding = model.decoder._text.model.embed_positions
    seen: list[list[list[int]]] = []
    hook = embedding.register_forward_pre_hook(
        lambda _, __, given: seen.append(given["position_ids"].tolist()), with_kwargs=True
    )
    model.decoder.decode(prompts, prefixes, 4)
    hook.remove()
    for row, prompt in enumerate(prompts):
        alone = embedding.create_position_ids_from_input_ids(torch.tensor([prompt]), embedding.padding_idx)[0].tolist()
        assert seen[0][row][67 - len(prompt) :] == alone[67:]
        assert [step[row][0] for step in seen[1:]] == [len(prompt) + 2 + step for step in range(3)]


def test_near_ties_are_told(model: Kosmos2, requests: list[Request], monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = model.encode([request.text for request in requests[:4]])
    prefixes = model.decoder.read_images(torch.cat([*look(model, requests[:4]).values()]))
    assert not any(decoded.near_tie for decoded in model.decoder.decode(prompts, prefixes, 501))
    monkeypatch.setattr(model.decoder, "_near", 1.0)
    assert all(decoded.near_tie for decoded in model.decoder.decode(prompts, prefixes, 501))


def test_a_prompt_that_fills_the_length_is_not_answered(kosmos2_folder: Path) -> None:
    short = kosmos2_model.load(kosmos2_job(kosmos2_folder), 80)
    prompts = short.encode(["<grounding><phrase>mug</phrase>", "<grounding><phrase>a mug that is red</phrase>"])
    assert [len(prompt) for prompt in prompts] == [73, 83]
    prefixes = short.decoder.read_images(torch.zeros(2, 3, 224, 224))
    first, second = short.decoder.decode(prompts, prefixes, 501)
    assert 0 < len(first.tokens) <= 7
    assert second == Decoded([], stopped=False, near_tie=False)
    assert short.decoder.decode(prompts[1:], prefixes[1:], 501) == [second]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_in_half_precision_nine_of_ten_answers_of_a_batch_are_those_of_one_by_one(
    kosmos2_folder: Path, requests: list[Request], dtype: torch.dtype
) -> None:
    """Of its own precision, to the last token. This tiny model has closer calls than a trained one."""
    name = str(dtype).removeprefix("torch.")
    model = kosmos2_model.load(kosmos2_job(kosmos2_folder, dtype=name, device="cpu"), 501)
    singles = generate_one_by_one(kosmos2_folder, requests, dtype=dtype)
    same = [
        found == (single.tokens, single.stopped)
        for found, single in zip(decode(model, requests), singles.values(), strict=True)
    ]
    assert sum(same) >= 0.9 * len(same)
