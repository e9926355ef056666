"""A chat model of transformers as its files have it: its messages, the image it is shown, the tokens it writes."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from reftables.models.pretrained import find_place, load_model, loading
from reftables.rows import Coordinates

if TYPE_CHECKING:
    from PIL.Image import Image

# The settings that name a token by which a model is shown something, or where that begins or ends.
_SHOWN = re.compile(r"(image|vision|video|audio|boi|eoi).*_(id|index)")


class Question(NamedTuple):
    """An RGB image and what is asked about it; `path` is where the image comes from, for errors."""

    path: str
    image: "Image"
    text: str


class Answer(NamedTuple):
    """What the model wrote, without its special tokens, and whether it ended by itself."""

    text: str
    stopped: bool
    tokens_in: int
    tokens_out: int  # with the stop token
    seen_wh: tuple[int, int] | None  # the image as the model saw it; None where its processor does not say


class ChatModel:
    """A loaded model and its processor; `version` says which weights they are, `stops` are the tokens that end it."""

    def __init__(
        self,
        model: Any,
        processor: Any,
        version: str,
        *,
        stops: Collection[int],
        max_new_tokens: int,
        system: str | None,
    ) -> None:
        self.version = version
        self._model = model
        self._processor = processor
        self._most = max_new_tokens
        self._before = [] if system is None else [_message("system", {"type": "text", "text": system})]
        self._stops = frozenset(stops)
        self._placeholders = _placeholders(model.config, processor)

    def answer(self, asked: Sequence[Question]) -> list[Answer]:
        """The greedy answers to questions, those of one length in tokens in one batch.

        SampleError where the model can't be asked one of them.
        """
        inputs = self._encode(asked)
        lengths = inputs["attention_mask"].sum(1).tolist()
        if len(set(lengths)) == 1:
            return self._generate(inputs)
        answers: dict[int, Answer] = {}
        for length in sorted(set(lengths)):
            places = [place for place, other in enumerate(lengths) if other == length]
            answers |= zip(places, self._generate(self._encode([asked[place] for place in places])), strict=True)
        return [answers[place] for place in range(len(asked))]

    def count_tokens(self, path: str, image: "Image") -> int:
        """The length of a message with an image and no text."""
        return int(self._encode([Question(path, image, "")])["input_ids"].shape[1])

    def count_words(self, text: str) -> int:
        """The length of a text by itself."""
        return len(self._processor.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _encode(self, asked: Sequence[Question]) -> Any:
        """What the model is given of images and texts, the shorter ones filled up."""
        for question in asked:
            self._refuse_placeholders(question)
        messages = [
            _message("user", {"type": "image", "image": question.image}, {"type": "text", "text": question.text})
            for question in asked
        ]
        try:
            return self._processor.apply_chat_template(
                [[*self._before, message] for message in messages],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
                processor_kwargs={"padding": True} if len(asked) > 1 else {},
            )
        except ValueError as error:  # say a strip of an image, for which the model has no grid of patches
            paths = preview(dict.fromkeys(question.path for question in asked))
            raise local.SampleError(f"{paths}: the model's processor takes no such image or text: {error}") from error

    def _refuse_placeholders(self, question: Question) -> None:
        """SampleError where a text would be read as an image, or as the beginning or the end of one."""
        if found := [token for token in self._placeholders if token in question.text]:
            raise local.SampleError(
                f"{question.path}: the text about it holds {preview(found)}, by which the model is shown an image. "
                "Word it otherwise."
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
    place = find_place(job, code=trust_remote_code)
    if trust_remote_code:
        _announce_code(place.folder)
    processor = _load_processor(job, place.folder, pixels, trust_remote_code)
    model = load_model(
        AutoModelForImageTextToText,
        place,
        name="a model from image and text to text",
        trust_remote_code=trust_remote_code,
    )
    stops = _stop_tokens(place.folder, model, processor.tokenizer)
    return ChatModel(model, processor, place.version, stops=stops, max_new_tokens=max_new_tokens, system=system)


def _stop_tokens(folder: Path, model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end an answer; where the model has none set, it is given its tokenizer's."""
    settings = model.generation_config
    if settings.eos_token_id is None:
        settings.eos_token_id = tokenizer.eos_token_id
    if settings.eos_token_id is None:
        raise DataError(
            f"{folder}: no token that ends an answer, so all would be cut off. Get generation_config.json and "
            "tokenizer_config.json anew."
        )
    return settings.eos_token_id if isinstance(settings.eos_token_id, list) else [settings.eos_token_id]


def _placeholders(config: Any, processor: Any) -> list[str]:
    """The tokens by which the model is shown an image or the like: those of its processor, and of its config."""
    tokens = [value for name, value in vars(processor).items() if name.endswith("_token") and isinstance(value, str)]
    ids = [value for name, value in config.to_dict().items() if _SHOWN.fullmatch(name) and isinstance(value, int)]
    known = [number for number in ids if 0 <= number < len(processor.tokenizer)]
    tokens += processor.tokenizer.convert_ids_to_tokens(known)
    return sorted({token for token in tokens if token})


def _load_processor(job: Job, folder: Path, pixels: Mapping[str, int], trust_remote_code: bool) -> Any:
    options = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    with loading(folder, "no chat model that sees, or none that transformers can load"):
        config = AutoConfig.from_pretrained(folder, **options)
        processor = _processor_class(config).from_pretrained(folder, **options)
        # By Pillow also where torchvision is there, whose pixels differ.
        images = AutoImageProcessor.from_pretrained(folder, backend="pil", **options, **pixels)
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
        if isinstance(settings, dict):
            yield from _texts(settings.get("auto_map"))


def _texts(value: object) -> Iterator[str]:
    """Every text in a JSON value: classes stand alone or in lists, as they are or by what they are for."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
