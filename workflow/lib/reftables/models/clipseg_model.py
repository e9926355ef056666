"""CLIPSeg as its files have it: the model, the pixels it is shown, the tokens it reads."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Resampling
from transformers import AutoTokenizer, CLIPSegForImageSegmentation, ViTImageProcessorPil
from transformers.image_utils import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from reftables.errors import DataError
from reftables.models.job import Job
from reftables.models.pretrained import find_place, load_model, loading, makes_pixels, square_pixels

if TYPE_CHECKING:
    from PIL.Image import Image

Tensor = Any  # of torch, which is checked without its types


class Sight(NamedTuple):
    """What the image tower makes of one image: the hidden states that the decoder reads, and the image's size."""

    states: Sequence[Tensor]  # of a layer each, (1, patches + 1, width)
    size_hw: tuple[int, int]


class ClipSeg:
    """A loaded model and its processor; `version` says which weights they are."""

    def __init__(self, model: Any, images: Any, tokenizer: Any, version: str) -> None:
        self.version = version
        self._model = model
        self._images = images
        self._tokenizer = tokenizer
        self._most = model.config.text_config.max_position_embeddings
        self._embeddings: dict[str, Tensor] = {}  # of the texts so far: the same words are asked of many images

    def look(self, image: "Image") -> Sight:
        """An RGB image through the image tower."""
        pixels = self._images(image, return_tensors="pt")["pixel_values"].to(self._model.device)
        with torch.inference_mode():
            states = self._model.clip.get_image_features(pixels, output_hidden_states=True).hidden_states
        # The first of the hidden states is the input of the first layer.
        return Sight([states[layer + 1] for layer in self._model.config.extract_layers], (image.height, image.width))

    def logits(self, sight: Sight, text: str) -> Tensor:
        """The model's answer as it comes: (side, side) of the pixels that it is shown, 352 of the published models."""
        with torch.inference_mode():
            found = self._model.decoder(sight.states, self._embed(text)).logits
        return found.view(found.shape[-2:])

    def segment(self, sight: Sight, text: str, threshold: float) -> NDArray[np.bool_]:
        """Which pixels of the image are what `text` says, (height, width)."""
        return segment(self.logits(sight, text), sight.size_hw, threshold)

    def _embed(self, text: str) -> Tensor:
        """The embedding of a text, (1, width); words beyond the longest text that the model can read are left out."""
        if text not in self._embeddings:
            if (length := len(self._tokenizer(text)["input_ids"])) > self._most:
                print(
                    f"cut from {length:,} to {self._most} tokens, the most that the model reads: {text!r}",
                    file=sys.stderr,
                )
            ids = self._tokenizer(text, truncation=True, max_length=self._most, return_tensors="pt")["input_ids"]
            self._embeddings[text] = self._model.clip.get_text_features(ids.to(self._model.device)).pooler_output
        return self._embeddings[text]


def segment(logits: Tensor, size_hw: tuple[int, int], threshold: float) -> NDArray[np.bool_]:
    """(side, side) logits to a mask of (height, width): sigmoid, then bilinear resizing, then the threshold."""
    probabilities = logits.float().sigmoid()[None, None]
    resized = torch.nn.functional.interpolate(probabilities, size=size_hw, mode="bilinear", align_corners=False)
    inside: NDArray[np.bool_] = (resized[0, 0] > threshold).cpu().numpy()
    return inside


def load(job: Job) -> ClipSeg:
    """The model of a job on its device; DataError where the folder holds no complete CLIPSeg."""
    place = find_place(job)
    images, tokenizer = load_processor(place.folder)
    model = load_model(CLIPSegForImageSegmentation, place, name="CLIPSeg", attn_implementation="sdpa")
    # Without its files a tokenizer is made all the same, an empty one.
    if len(tokenizer) != (words := model.config.text_config.vocab_size):
        raise DataError(
            f"{place.folder}: its tokenizer has {len(tokenizer):,} tokens, its model {words:,}. "
            "Get both from one place."
        )
    return ClipSeg(model, images, tokenizer, place.version)


def load_processor(folder: Path) -> tuple[Any, Any]:
    """Image processor and tokenizer; DataError where there are none, or those of another model."""
    with loading(folder, "no tokenizer and image processor of CLIPSeg here"):
        # By Pillow also where torchvision is there, whose pixels differ.
        images = ViTImageProcessorPil.from_pretrained(folder, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    _check_pixels(folder, images)
    return images, tokenizer


# What the authors show the model of an RGB image, at a side: normalised as ImageNet's.
official_pixels = partial(
    square_pixels, resampling=Resampling.BILINEAR, mean=IMAGENET_DEFAULT_MEAN, deviation=IMAGENET_DEFAULT_STD
)


def _check_pixels(folder: Path, images: Any) -> None:
    """DataError where the processor is another model's: its masks would be wrong without a word."""
    if not makes_pixels(folder, images, official_pixels):
        raise DataError(
            f"{folder}: its image processor makes other pixels than CLIPSeg was trained on, which are those of the "
            "whole image as a square, bilinear, normalised as ImageNet's. Get preprocessor_config.json anew."
        )
