"""A chat model of transformers as its files have it: its messages, the image it is shown, the tokens it writes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from transformers import (
    PROCESSOR_MAPPING,
    AutoConfig,
    AutoImageProcessor,
    AutoModelForImageTextToText,
    AutoProcessor,
)

from reftables.errors import ConfigError, DataError, preview
from reftables.models import local
from reftables.models.job import Job
from reftables.models.pretrained import load_model
from reftables.rows import Coordinates

if TYPE_CHECKING:
    from PIL.Image import Image


class Answer(NamedTuple):
    """What the model wrote, without its special tokens, and whether it ended by itself."""

    text: str
    stopped: bool
    tokens_in: int
    tokens_out: int  # with the stop token
    seen_wh: tuple[int, int] | None  # the image as the model saw it; None where its processor does not say


class ChatModel:
    """A loaded model and its processor; `version` says which weights they are, where that is known."""

    def __init__(
        self, model: Any, processor: Any, version: str | None, *, max_new_tokens: int, system: str | None
    ) -> None:
        self.version = version
        self._model = model
        self._processor = processor
        self._most = max_new_tokens
        self._before = [] if system is None else [_message("system", {"type": "text", "text": system})]
        stops = model.generation_config.eos_token_id
        self._stops = set(stops if isinstance(stops, list) else [stops])

    def answer(self, asked: "Sequence[tuple[Image, str]]") -> list[Answer]:
        """The greedy answers to RGB images and texts, those of one length in tokens in one batch."""
        inputs = self._encode(asked)
        lengths = inputs["attention_mask"].sum(1).tolist()
        if len(set(lengths)) == 1:
            return self._generate(inputs)
        answers: dict[int, Answer] = {}
        for length in sorted(set(lengths)):
            places = [place for place, other in enumerate(lengths) if other == length]
            answers |= zip(places, self._generate(self._encode([asked[place] for place in places])), strict=True)
        return [answers[place] for place in range(len(asked))]

    def count_tokens(self, image: "Image", text: str) -> int:
        """The length of a whole message."""
        return int(self._encode([(image, text)])["input_ids"].shape[1])

    def count_words(self, text: str) -> int:
        """The length of a text by itself."""
        return len(self._processor.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _encode(self, asked: "Sequence[tuple[Image, str]]") -> Any:
        """What the model is given of images and texts, the shorter ones filled up."""
        messages = [_message("user", {"type": "image", "image": i}, {"type": "text", "text": t}) for i, t in asked]
        return self._processor.apply_chat_template(
            [[*self._before, message] for message in messages],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True} if len(asked) > 1 else {},
        )

    def _generate(self, inputs: Any) -> list[Answer]:
        """The answers to what `_encode` makes of messages of one length."""
        length = inputs["input_ids"].shape[1]
        seen = self._seen_wh(inputs)
        with torch.inference_mode():
            found = self._model.generate(
                **inputs.to(self._model.device, self._model.dtype),
                max_new_tokens=self._most,
                do_sample=False,
                num_beams=1,
            )
        return [self._read(row, length, wh) for row, wh in zip(found[:, length:].tolist(), seen, strict=True)]

    def _read(self, tokens: list[int], length: int, seen_wh: tuple[int, int] | None) -> Answer:
        """A row of new tokens, which after its stop token is filled up."""
        end = next((place for place, token in enumerate(tokens) if token in self._stops), None)
        tokens = tokens if end is None else tokens[: end + 1]
        return Answer(
            text=self._processor.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False),
            stopped=end is not None,
            tokens_in=length,
            tokens_out=len(tokens),
            seen_wh=seen_wh,
        )

    def _seen_wh(self, inputs: Mapping[str, Any]) -> list[tuple[int, int] | None]:
        """The size of each image as the model sees it, where the processor says it."""
        if "image_grid_thw" not in inputs:
            return [None] * len(inputs["input_ids"])
        patch = self._processor.image_processor.patch_size
        return [(columns * patch, rows * patch) for _, rows, columns in inputs["image_grid_thw"].tolist()]


def _message(role: str, *content: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(content)}


def load(
    job: Job, *, max_new_tokens: int, system: str | None, pixels: Mapping[str, int], trust_remote_code: bool
) -> ChatModel:
    """The model of a job on its device; DataError where the folder holds none that chats about images."""
    dtype, _ = local.read_precision(job)
    device = local.choose_device(job)
    weights = local.find_weights(job, code=trust_remote_code)
    print(f"weights: {weights.folder}, version {weights.version}; {dtype} on {device}", flush=True)
    if trust_remote_code:
        _announce_code(weights.folder)
    local.forbid_tf32()
    processor = _load_processor(job, weights.folder, pixels, trust_remote_code)
    model = load_model(
        AutoModelForImageTextToText,
        weights.folder,
        dtype,
        device,
        name="a model from image and text to text",
        trust_remote_code=trust_remote_code,
    )
    return ChatModel(model, processor, weights.version, max_new_tokens=max_new_tokens, system=system)


def _load_processor(job: Job, folder: Path, pixels: Mapping[str, int], trust_remote_code: bool) -> Any:
    options = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    try:
        config = AutoConfig.from_pretrained(folder, **options)
        processor = _processor_class(config).from_pretrained(folder, **options)
        # By Pillow also where torchvision is there, whose pixels differ.
        images = AutoImageProcessor.from_pretrained(folder, backend="pil", **options, **pixels)
    except (OSError, ValueError, ImportError) as error:  # an ImportError names the package that a processor needs
        raise DataError(f"{folder}: no chat model that sees, or none that transformers can load: {error}") from error
    if not getattr(processor, "chat_template", None):
        raise DataError(f"{folder}: no chat template here. Get chat_template.jinja or tokenizer_config.json anew.")
    _check_images(job, images, pixels)
    processor.image_processor = images
    if processor.tokenizer.pad_token is None:  # only to see that messages differ in length: no model reads it
        processor.tokenizer.pad_token = processor.tokenizer.eos_token
    return processor


def _processor_class(config: Any) -> Any:
    """The class that loads the processor; where it can be told apart, without the part for videos.

    That part needs torchvision, and no request has a video.
    """
    known = PROCESSOR_MAPPING.get(type(config), None)
    if known is None or known.get_attributes() != ["image_processor", "tokenizer", "video_processor"]:
        return AutoProcessor
    parts = ["image_processor", "tokenizer"]
    return type(known.__name__, (known,), {"get_attributes": classmethod(lambda _: parts)})


def _check_images(job: Job, images: Any, pixels: Mapping[str, int]) -> None:
    """ConfigError where the image processor has no limits to set, or does not say what the model sees."""
    known = getattr(images.valid_kwargs, "__annotations__", {})
    if unknown := [name for name in pixels if name not in known]:
        raise ConfigError(
            f"models.{job.model}.identity.{unknown[0]}: {type(images).__name__} has no such limit. Leave it out."
        )
    if job.form.coordinates is Coordinates.RESIZED_PIXELS and "image_grid_thw" not in images.model_input_names:
        raise ConfigError(
            f"models.{job.model}.formats.{job.task}.coordinates: {type(images).__name__} does not say in which size "
            "the model sees an image, so resized_pixels mean nothing."
        )


def _announce_code(folder: Path) -> None:
    """Say which code comes with the weights; DataError where they ask for code of another place, which nothing pins."""
    elsewhere = sorted({name for name in _code_names(folder) if "--" in name})
    if elsewhere:
        raise DataError(
            f"{folder}: it asks for code of other repositories, which no commit pins: {preview(elsewhere)}."
        )
    files = sorted(path.name for path in folder.glob("*.py"))
    print(
        f"remote code: {preview(files, most=20) or 'none'}, of {folder}, may run as trust_remote_code says", flush=True
    )


def _code_names(folder: Path) -> Iterator[str]:
    """Every class that the folder's settings name in `auto_map`."""
    for path in folder.glob("*.json"):
        try:
            settings = json.loads(path.read_bytes())
        except ValueError:  # no settings of transformers, whatever it is
            continue
        names = settings.get("auto_map", {}) if isinstance(settings, dict) else {}
        for value in names.values():
            yield from [name for name in (value if isinstance(value, list) else [value]) if name]
