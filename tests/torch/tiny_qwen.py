"""A tiny Qwen2.5-VL or Qwen3-VL of the real classes with random weights: it sees an image in its own proportions.

It reads and writes single characters. Weights are drawn wide, so that its answers differ by image and by
text, and some of them end by themselves.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from transformers import (
    AutoModelForImageTextToText,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from reftables.rows import Request
from tests.torch.characters import UNKNOWN, character_tokenizer

PAD, BEGIN, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VISION_BEGIN, VISION_END, IMAGE, VIDEO = "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"
SPECIALS = (PAD, BEGIN, END, VISION_BEGIN, VISION_END, IMAGE, VIDEO, UNKNOWN)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    return character_tokenizer(
        SPECIALS,
        " \n",
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[BEGIN, VISION_BEGIN, VISION_END, IMAGE, VIDEO],
        chat_template=CHAT_TEMPLATE,
    )


class Family(NamedTuple):
    """What differs between the two."""

    config: type
    model: type
    vision: dict[str, Any]
    patch: int  # pixels a side


QWEN25 = Family(Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, {"fullatt_block_indexes": [1]}, 14)
QWEN3 = Family(Qwen3VLConfig, Qwen3VLForConditionalGeneration, {"deepstack_visual_indexes": [0]}, 16)


def random_model(
    tokenizer: PreTrainedTokenizerFast, family: Family, text: Mapping[str, Any], vision: Mapping[str, Any]
) -> Any:
    ids = dict(zip(SPECIALS, tokenizer.convert_tokens_to_ids(list(SPECIALS)), strict=True))
    config = family.config(
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 64,
            **family.vision,
            **vision,
        },
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "initializer_range": 0.5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
            "eos_token_id": ids[END],
            "pad_token_id": ids[PAD],
            **text,
        },
        image_token_id=ids[IMAGE],
        video_token_id=ids[VIDEO],
        vision_start_token_id=ids[VISION_BEGIN],
        vision_end_token_id=ids[VISION_END],
    )
    torch.manual_seed(0)
    model = family.model(config).eval()
    model.generation_config.eos_token_id = [ids[END], ids[PAD]]
    model.generation_config.pad_token_id = ids[PAD]
    return model


def save(
    folder: Path, family: Family = QWEN25, *, text: Mapping[str, Any] = {}, vision: Mapping[str, Any] = {}
) -> Path:
    """The folder as a hub would hold it; `text` and `vision` are settings of its parts, say to make it larger."""
    tokenizer = tiny_tokenizer()
    random_model(tokenizer, family, text, vision).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    Qwen2VLImageProcessorPil(patch_size=family.patch).save_pretrained(folder)
    return folder


class Reply(NamedTuple):
    """What `generate` makes of one request."""

    tokens: list[int]
    tokens_in: int
    stopped: bool


def chat(folder: Path, requests: Sequence[Request], *, max_new_tokens: int) -> list[Reply]:
    """Each request by tokenizer, image processor and greedy `generate`, the placeholders written by hand."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    images = Qwen2VLImageProcessorPil.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    replies = []
    for request in requests:
        seen = images(Image.open(request.image), return_tensors="pt")
        places = IMAGE * (int(seen["image_grid_thw"].prod()) // 4)
        content = f"{VISION_BEGIN}{places}{VISION_END}{request.text}"
        prompt = tokenizer(f"{BEGIN}user\n{content}{END}\n{BEGIN}assistant\n", return_tensors="pt")
        ids = prompt["input_ids"]
        kinds = (ids == model.config.image_token_id).int()
        found = model.generate(
            input_ids=ids,
            attention_mask=prompt["attention_mask"],
            mm_token_type_ids=kinds,
            **seen,
            max_new_tokens=max_new_tokens,
            do_sample=False,
        )
        tokens = found[0, ids.shape[1] :].tolist()
        replies.append(Reply(tokens, ids.shape[1], tokens[-1] in model.generation_config.eos_token_id))
    return replies
