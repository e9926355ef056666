"""A tiny Kosmos-2 of the real classes, with a tokenizer of its own, taught in seconds to answer in boxes.

It knows single letters. Its answers obey the grammar, the boxes mean nothing: one for most phrases, two
where the phrase begins with `two`, eleven (more tokens than are decoded at first) where it begins with
`every`.
"""

import random
import shutil
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from transformers import (
    CLIPImageProcessorPil,
    Kosmos2Config,
    Kosmos2ForConditionalGeneration,
    Kosmos2Processor,
    XLMRobertaTokenizer,
)

from reftables.rows import Request

SLOTS = 64
COLOURS = ("red", "green", "blue", "white")
BOXES = {"two": 2, "every": 11}
WORDS = ["red", "blue", "mug", "dog", "left", "car", "plate", "old", "green", "boat", "chair", "small"]


def tiny_processor() -> Kosmos2Processor:
    """Pieces for the 64 places of the image, and for every letter, digit and mark, after a blank and within words."""
    places = [f"▁place{number}" for number in range(SLOTS)]
    signs = [sign for sign in string.printable if not sign.isspace()]
    pieces = ["▁", *places, *signs, *(f"▁{sign}" for sign in signs)]
    specials = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    vocabulary = [*specials, *((piece, -5.0) for piece in pieces[1:]), ("▁", -9.0), ("<mask>", 0.0)]
    return Kosmos2Processor(CLIPImageProcessorPil(use_square_size=True), XLMRobertaTokenizer(vocab=vocabulary))


def tiny_config(words: int) -> Kosmos2Config:
    return Kosmos2Config(
        text_config={
            "vocab_size": words,
            "embed_dim": 64,
            "layers": 2,
            "ffn_dim": 128,
            "attention_heads": 4,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "patch_size": 56,
        },
        latent_query_num=SLOTS,
    )


def random_model(words: int) -> Kosmos2ForConditionalGeneration:
    torch.manual_seed(0)
    return Kosmos2ForConditionalGeneration(tiny_config(words)).eval()


def taught_model(processor: Kosmos2Processor, steps: int = 180) -> Kosmos2ForConditionalGeneration:
    """A model whose answers end, after one box or many."""
    model = random_model(len(processor.tokenizer))
    draw = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    pixels = processor.image_processor([plain_image(colour) for colour in COLOURS], return_tensors="pt").pixel_values
    model.train()
    for _ in range(steps):
        shown = [draw.randrange(len(COLOURS)) for _ in range(12)]
        ids, labels, places = lesson(processor, draw, shown)
        loss = model(
            image_embeds=model.get_image_features(pixels).pooler_output[shown],
            image_embeds_position_mask=places,
            input_ids=ids,
            labels=labels,
        ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def plain_image(colour: str, size_wh: tuple[int, int] = (64, 48)) -> Image.Image:
    return Image.new("RGB", size_wh, colour)


def lesson(
    processor: Kosmos2Processor, draw: random.Random, shown: list[int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, labels and places of the image of a few phrases with their answers, filled up at the end."""
    tokenizer = processor.tokenizer
    rows, labels = [], []
    for image in shown:
        first = draw.choice([*BOXES, "", ""])
        phrase = " ".join([first, *draw.choices(WORDS, k=draw.randint(1, 3))]).strip()
        boxes = BOXES.get(first, 1)
        # Few to choose from, so that a few steps teach what may follow what.
        cells = [f"<patch_index_{100 * image + 10 * place:04d}>" for place in range(2 * boxes)]
        pairs = "</delimiter_of_multi_objects/>".join("".join(cells[i : i + 2]) for i in range(0, 2 * boxes, 2))
        prompt = tokenizer(f"<grounding><phrase>{phrase}</phrase>", add_special_tokens=False)["input_ids"]
        answer = tokenizer(f"<object>{pairs}</object></s>", add_special_tokens=False)["input_ids"]
        rows.append(prompt + answer)
        labels.append([-100] * len(prompt) + answer)
    longest = max(map(len, rows))
    begin, end = tokenizer.convert_tokens_to_ids(["<image>", "</image>"])
    prefix = [0, begin, *range(4, 4 + SLOTS), end]
    ids = torch.tensor([prefix + row + [1] * (longest - len(row)) for row in rows])
    wanted = torch.tensor([[-100] * len(prefix) + row + [-100] * (longest - len(row)) for row in labels])
    places = torch.zeros_like(ids)
    places[:, 2 : 2 + SLOTS] = 1
    return ids, wanted, places


def save(folder: Path, model: Any, processor: Kosmos2Processor) -> Path:
    """The folder as a hub would hold it."""
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


class Single(NamedTuple):
    """What `generate` makes of one request alone."""

    prompt: list[int]
    tokens: list[int]  # new ones, without the stop token
    stopped: bool


def generate_one_by_one(
    folder: Path, requests: Sequence[Request], *, max_length: int = 501, dtype: torch.dtype = torch.float32
) -> dict[int, Single]:
    """Each request by processor and `generate`, as the model's documentation shows it, under the official settings."""
    processor = Kosmos2Processor.from_pretrained(folder)
    model = Kosmos2ForConditionalGeneration.from_pretrained(folder, dtype=dtype).eval()
    answers = {}
    for request in requests:
        inputs = processor(text=request.text, images=Image.open(request.image), return_tensors="pt")
        length = inputs["input_ids"].shape[1]
        found = model.generate(**inputs, max_length=max_length, do_sample=False, num_beams=1, no_repeat_ngram_size=3)
        tokens = found[0, length:].tolist()
        stopped = tokens[-1] == processor.tokenizer.eos_token_id
        answers[request.id] = Single(inputs["input_ids"][0].tolist(), tokens[:-1] if stopped else tokens, stopped)
    return answers


HUB_NAME = "tiny/kosmos-2"


def fill_hub_cache(cache: Path, folder: Path) -> str:
    """Put a folder of weights into a cache of the hub, under `HUB_NAME`; the commit that its `main` then is."""
    commit = "5eed" * 10
    model = cache / f"models--{HUB_NAME.replace('/', '--')}"
    shutil.copytree(folder, model / "snapshots" / commit)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    return commit
