"""What the server backends share: images and options that go into a request, and what a reply must hold."""

import base64
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reftables.errors import ConfigError, DataError
from reftables.models.checks import read_name
from reftables.models.job import Job


class Image(NamedTuple):
    """An image as a server wants it: its bytes as they are stored, in base64."""

    media_type: str
    base64: str

    @property
    def data_url(self) -> str:
        return f"data:{self.media_type};base64,{self.base64}"


def read_image(path: str) -> Image:
    """The file at `path`; its media type is that of its first bytes, whatever its name says."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path}: this image cannot be read ({error.strerror}).") from error
    return Image(_media_type(path, data), base64.b64encode(data).decode("ascii"))


def _media_type(path: str, data: bytes) -> str:
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    raise DataError(f"{path}: neither JPEG, PNG, WebP nor GIF (it begins with {data[:8]!r}).")


def merge_extra(body: dict[str, Any], extra: Mapping[str, Any], *, key: str) -> dict[str, Any]:
    """`body` and, below it, what `extra` adds; mappings merge, and a value that `body` has is never replaced."""
    if not isinstance(extra, Mapping):
        raise ConfigError(f"{key}: {extra!r} is no mapping of names of the request to their values.")
    merged = dict(body)
    for name, value in extra.items():
        if name not in merged:
            merged[name] = value
        elif isinstance(value, Mapping) and isinstance(merged[name], dict):
            merged[name] = merge_extra(merged[name], value, key=f"{key}.{name}")
        else:
            raise ConfigError(f"{key}.{name}: the request sets this already. Use the identity's own key for it.")
    return merged


# What a reply may add to the name asked for: a dated or numbered snapshot, or a revision.
_SNAPSHOT = re.compile(r"-(\d{3,8}|(\d{4}-)?\d\d-\d\d)|@.+")


def read_model(job: Job) -> str:
    """`identity.model`, the name that the server knows the model by."""
    return read_name(job, "model")


def accepted_models(job: Job) -> list[str]:
    """`identity.accept_models`, further names by which the server may call the model."""
    names = job.identity.get("accept_models", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"models.{job.model}.identity.accept_models: {names!r} is no list of names.")
    return names


def check_model(replied: object, job: Job) -> None:
    """Refuse a reply of another model than `identity.model`; a reply that names none is taken at its word.

    `name-2025-08-07`, `name-0613`, `name-001` and `name@revision` are snapshots of `name`; any other name
    (`gpt-4o-mini` for `gpt-4o`) has to stand in `identity.accept_models`.
    """
    asked = read_model(job)
    if not isinstance(replied, str) or replied in {"", asked, *accepted_models(job)}:
        return
    if replied.startswith(asked) and _SNAPSHOT.fullmatch(replied.removeprefix(asked)):
        return
    raise ConfigError(
        f"models.{job.model}.identity.model: asked for {asked!r}, but {replied!r} answered. Ask for that one, "
        "or list it under identity.accept_models if it is the same model by another name."
    )


def parse_json(text: str, clean: Callable[[str], str]) -> Any:
    """The value of a JSON text, every string of it passed through `clean`; ValueError where it is none.

    Half a million brackets, which exhaust the recursion, are no JSON either.
    """
    try:
        return _cleaned(json.loads(text), clean)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item, clean) for item in value]
    if isinstance(value, dict):
        return {clean(name): _cleaned(item, clean) for name, item in value.items()}
    return value


def clean_text(text: str) -> str:
    """`text` without halves of surrogate pairs, which JSON can carry and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def finish_reason(value: object) -> str | None:
    """Why a model stopped, by its reply; None where that says it in no words."""
    return clean_text(value) if isinstance(value, str) else None


def token_count(value: object) -> int | None:
    """A count of a reply's usage block; None where it has none, or one that no file of numbers can hold."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None
