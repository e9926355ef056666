"""Kosmos-2 as its files have it: the model, the pixels it is shown, the tokens it reads and writes."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL.Image import Resampling
from transformers import AutoTokenizer, CLIPImageProcessorPil, Kosmos2ForConditionalGeneration, Kosmos2Processor
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from reftables.errors import DataError
from reftables.kosmos import normalise_caption
from reftables.models.job import Job
from reftables.models.kosmos2_decoding import Decoder, Tensor
from reftables.models.pretrained import find_place, load_model, loading, makes_pixels, square_pixels

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE, IMAGE_END = "<image>", "</image>"


class Kosmos2:
    """A loaded model and its processor; `version` says which weights they are."""

    def __init__(self, model: Any, processor: Any, version: str, max_length: int) -> None:
        self.version = version
        self.max_length = max_length
        self._processor = processor
        self._tokenizer = processor.tokenizer
        begin, end = self._tokenizer.convert_tokens_to_ids([IMAGE, IMAGE_END])
        first = self._tokenizer.unk_token_id + 1
        slots = range(first, first + model.config.latent_query_num)
        self._prefix = [self._tokenizer.bos_token_id, begin, *slots, end]
        self._unwritten = frozenset(self._tokenizer.all_special_ids)
        self.decoder = Decoder(model, self._prefix, max_length)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each prompt: beginning, image, text; as the processor makes them of an image and a text."""
        tokens = self._tokenizer([text.strip() for text in texts], add_special_tokens=False)["input_ids"]
        return [self._prefix + ids for ids in tokens]

    def is_empty(self, prompt: Sequence[int]) -> bool:
        """Whether nothing follows the image."""
        return len(prompt) == len(self._prefix)

    def look(self, images: Sequence["Image"]) -> Tensor:
        """The pixels of RGB images as the model wants them, (n, 3, side, side)."""
        return self._processor.image_processor(images, return_tensors="pt")["pixel_values"]

    def write(self, text: str, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """Prompt and answer as text, the image as its empty tags: what a fairseq log has of them but `</s>`.

        `prompt` is what `encode` made of `text`, and is read back from its tokens as a log has it. Characters
        that the vocabulary lacks are lost on that way: all are one token, which is not written. The phrase
        would be another than the one asked, and even a right box would not count. Then the prompt is `text`,
        normalised as the tokenizer would have, so that no other difference to the caption is hidden.
        """
        asked = prompt[len(self._prefix) :]
        written = self._decode([*asked, *tokens])
        if not self._unwritten.isdisjoint(asked):
            written = normalise_caption(text) + written.removeprefix(self._decode(asked))
        return f"{IMAGE}{IMAGE_END}{written}"

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return text


def load(job: Job, max_length: int) -> Kosmos2:
    """The model of a job on its device; DataError where the folder holds no complete Kosmos-2."""
    place = find_place(job)
    processor = _load_processor(place.folder)
    model = load_model(Kosmos2ForConditionalGeneration, place, name="Kosmos-2")
    _check(place.folder, model, processor)
    return Kosmos2(model, processor, place.version, max_length)


def _load_processor(folder: Path) -> Any:
    with loading(folder, "no tokenizer and image processor of Kosmos-2 here"):
        # By Pillow also where torchvision is there, whose pixels differ.
        images = CLIPImageProcessorPil.from_pretrained(folder, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return Kosmos2Processor(images, tokenizer)


# What the authors show the model of an RGB image, at a side: normalised as CLIP's.
official_pixels = partial(
    square_pixels, resampling=Resampling.BICUBIC, mean=OPENAI_CLIP_MEAN, deviation=OPENAI_CLIP_STD
)


def _check(folder: Path, model: Any, processor: Any) -> None:
    """DataError where the processor is another model's: its pixels or its tokens would be wrong without a word."""
    side = model.config.vision_config.image_size
    if not makes_pixels(folder, processor.image_processor, official_pixels, side):
        raise DataError(
            f"{folder}: its image processor makes other pixels than Kosmos-2 was evaluated on, which are those of "
            f"the whole image at {side} x {side}, bicubic, normalised as CLIP's. Get preprocessor_config.json anew, "
            "or set its size to that height and width."
        )
    tokenizer, words = processor.tokenizer, model.config.text_config.vocab_size
    if None in (tokenizer.bos_token_id, tokenizer.unk_token_id):
        raise DataError(f"{folder}: its tokenizer does not know <s> or <unk>. Get tokenizer_config.json anew.")
    ids = tokenizer.convert_tokens_to_ids([*processor.tag_tokens, "<patch_index_0000>", "<patch_index_1023>"])
    if tokenizer.unk_token_id in ids or len(tokenizer) > words:
        raise DataError(
            f"{folder}: its tokenizer has {len(tokenizer):,} tokens, its model {words:,}. Get both from one place."
        )
