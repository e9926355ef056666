"""A tiny LLaVA of the real classes with random weights: a chat model that sees, and says nothing sensible.

It reads and writes single characters. Weights are drawn wide, so that its answers differ by image and by
text, and some of them end by themselves.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)

from reftables.rows import Request
from tests.torch.characters import UNKNOWN, character_tokenizer

SIDE, PATCH = 32, 16
SPECIALS = ("<pad>", "<s>", "</s>", UNKNOWN, "<image>")
# Every message as its images and texts, in their order.
CHAT_TEMPLATE = (
    "<s>{% for message in messages %}{{ message.role }}: "
    "{% for part in message.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %} {% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)


def tiny_processor() -> LlavaProcessor:
    return LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}),
        character_tokenizer(
            SPECIALS,
            " ",
            pad_token="<pad>",
            bos_token="<s>",
            eos_token="</s>",
            additional_special_tokens=["<image>"],
        ),
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,  # of the class, which "default" takes away again
        chat_template=CHAT_TEMPLATE,
    )


def random_model(processor: LlavaProcessor) -> LlavaForConditionalGeneration:
    tokenizer = processor.tokenizer
    torch.manual_seed(0)
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=SIDE,
            patch_size=PATCH,
        ),
        text_config=LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            initializer_range=0.5,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        ),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    return LlavaForConditionalGeneration(config).eval()


def save(folder: Path) -> Path:
    """The folder as a hub would hold it."""
    processor = tiny_processor()
    random_model(processor).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


class Reply(NamedTuple):
    """What `generate` makes of one request."""

    text: str
    tokens_in: int
    tokens_out: int  # with the stop token
    stopped: bool


def chat(folder: Path, requests: Sequence[Request], *, max_tokens: int) -> list[Reply]:
    """Each request by chat template and greedy `generate`, as a user of transformers does it."""
    processor = LlavaProcessor.from_pretrained(folder)
    model = LlavaForConditionalGeneration.from_pretrained(folder).eval()
    replies = []
    for request in requests:
        content = [{"type": "image"}, {"type": "text", "text": request.text}]
        prompt = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
        inputs = processor(text=prompt, images=Image.open(request.image), return_tensors="pt")
        length = inputs["input_ids"].shape[1]
        tokens = model.generate(**inputs, max_new_tokens=max_tokens, do_sample=False)[0, length:]
        stopped = tokens[-1].item() == processor.tokenizer.eos_token_id
        replies.append(Reply(processor.decode(tokens, skip_special_tokens=True), length, len(tokens), stopped))
    return replies
