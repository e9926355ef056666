"""A tiny CLIPSeg of the real classes with random weights: its masks mean nothing, and differ by image and by text.

It reads single letters. Weights are drawn wide, so that some of its probabilities are above any threshold.
"""

import string
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from transformers import (
    CLIPSegConfig,
    CLIPSegForImageSegmentation,
    CLIPSegProcessor,
    CLIPTokenizer,
    ViTImageProcessorPil,
)
from transformers.image_utils import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from reftables.rows import Request

SIDE = 352
LONGEST = 24  # tokens of a text, with both ends
BEGIN, END = "<|startoftext|>", "<|endoftext|>"


def tiny_processor() -> CLIPSegProcessor:
    signs = string.ascii_lowercase + string.digits
    pieces = [*signs, *(f"{sign}</w>" for sign in signs), BEGIN, END]
    return CLIPSegProcessor(
        ViTImageProcessorPil(size=SIDE, image_mean=IMAGENET_DEFAULT_MEAN, image_std=IMAGENET_DEFAULT_STD),
        CLIPTokenizer(vocab={piece: number for number, piece in enumerate(pieces)}, merges=[]),
    )


def random_model(processor: CLIPSegProcessor) -> CLIPSegForImageSegmentation:
    """As the published models are built: 16-pixel patches, positions of another size, the finer last layers."""
    tokenizer = processor.tokenizer
    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2}
    config = CLIPSegConfig(
        text_config={
            **small,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": LONGEST,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={**small, "image_size": 224, "patch_size": 16},
        projection_dim=16,
        extract_layers=[0, 1, 2],
        reduce_dim=16,
        decoder_intermediate_size=32,
        use_complex_transposed_convolution=True,
    )
    torch.manual_seed(0)
    model = CLIPSegForImageSegmentation(config).eval()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.copy_(torch.randn_like(weights) / weights[0].numel() ** 0.5)
        model.decoder.film_mul.weight.mul_(4)
        model.decoder.transposed_convolution[-1].weight.mul_(30)
    return model


def save(folder: Path) -> Path:
    """The folder as a hub would hold it."""
    processor = tiny_processor()
    random_model(processor).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def logits_one_by_one(folder: Path, requests: Sequence[Request]) -> dict[int, torch.Tensor]:
    """The logits of each request by processor and model, as the model's documentation has it: (side, side) each."""
    processor = CLIPSegProcessor.from_pretrained(folder)
    model = CLIPSegForImageSegmentation.from_pretrained(folder).eval()
    found = {}
    for request in requests:
        image = Image.open(request.image)
        inputs = processor(
            text=[request.text], images=[image], return_tensors="pt", truncation=True, max_length=LONGEST
        )
        with torch.inference_mode():
            found[request.id] = model(**inputs).logits.view(SIDE, SIDE)
    return found
