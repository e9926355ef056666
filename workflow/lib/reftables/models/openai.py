"""Chat models behind an OpenAI-compatible server: vLLM, SGLang, transformers serve, hosted ones.

One request is one user message: the image, then the request's text (and a system message before it, where
`system` is given). `POST {url}/chat/completions`, so `url` mostly ends in `/v1`. Decoding is greedy
(`temperature: 0`) unless the identity says otherwise; `temperature: null` leaves it to the server, as
models that refuse the parameter need. `extra` reaches the body as it stands (`max_completion_tokens`,
`chat_template_kwargs`, `mm_processor_kwargs`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from reftables.errors import ConfigError, DataError
from reftables.models import service
from reftables.models.checks import check_decoding, check_text
from reftables.models.faults import NoAnswerError
from reftables.models.http import Api, answer_all
from reftables.models.job import Job
from reftables.models.payload import (
    accepted_models,
    check_model,
    clean_text,
    finish_reason,
    merge_extra,
    read_image,
    read_model,
    token_count,
)
from reftables.pictures import PictureError, picture_size
from reftables.rows import Coordinates, Prediction, Request, Status, Task

READS_TRUTH = False
LOOKS = True
STORED = True
WRITES_FORMAT = False
TASKS = frozenset({Task.BOXES, Task.POINTS, Task.ANSWERS})
REQUIRED = frozenset({"model"})
OPTIONAL = frozenset(
    {
        "accept_models",  # further names by which the server may call the model
        "revision",  # what the server runs, where its model's name does not say so; never sent
        "temperature",
        "max_tokens",
        "top_p",
        "seed",
        "system",  # text of a system message
        "detail",  # of the image: low, high or auto, where the server knows it
        "extra",  # mapping merged into the body
        "resize",  # rule by which the server resizes images, where coordinates are `resized_pixels`
        "min_pixels",  # its limits, as the server was started; the model's own where absent
        "max_pixels",
    }
)
EXECUTION = service.EXECUTION

_CUT = frozenset({"length", "model_length"})
_ABORTED = frozenset({"error", "abort"})  # the server gave up in the middle, the model did not
# Codes of errors that are a filter's verdict: OpenAI and Azure, OpenRouter, Alibaba.
_FILTERS = frozenset({"content_filter", "content_policy_violation", "data_inspection_failed", "DataInspectionFailed"})


def answer_files(identity: Mapping[str, Any], *, model: str, benchmark: str, split: str) -> list[str]:
    """None: the answers come from a server."""
    return []


def decides(request: Request, job: Job, image_digest: str) -> dict[str, Any]:
    """The request as it is sent, the image by its digest, and what the server was declared to run and to see."""
    return {
        "revision": job.identity.get("revision"),
        "resize": _read_resize(job),
        "body": _body(job, request.text, image_digest),
    }


def check(job: Job) -> None:
    """ConfigError where the identity makes no request, or `exec` describes no server."""
    check_decoding(job)
    for name in ("detail", "revision"):
        check_text(f"models.{job.model}.identity.{name}", job.identity.get(name))
    accepted_models(job)
    decides(Request(0, "", ""), job, "")
    service.check_service(job)


def predict(requests: Sequence[Request], job: Job) -> Iterator[Prediction]:
    """Answers in the order in which they come."""
    resize = _read_resize(job)
    if not requests:
        return iter(())

    @cache
    def size_seen(image: str) -> tuple[int, int] | None:
        return None if resize is None else _seen_size(image, resize)

    def body(request: Request) -> dict[str, Any]:
        size_seen(request.image)  # fails before the request is sent, not when its answer is paid for
        return _body(job, request.text, read_image(request.image).data_url)

    api = Api(
        path="/chat/completions",
        body=body,
        read=lambda request, reply: _read_reply(request, reply, job, size_seen(request.image)),
        refusal=_refusal,
    )
    return answer_all(requests, job, api, service.read_service(job))


def _body(job: Job, text: str, image_url: str) -> dict[str, Any]:
    identity = job.identity
    image = {"url": image_url}
    if identity.get("detail") is not None:
        image["detail"] = identity["detail"]
    content = [{"type": "image_url", "image_url": image}, {"type": "text", "text": text}]
    messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
    if identity.get("system") is not None:
        messages.insert(0, {"role": "system", "content": identity["system"]})
    body: dict[str, Any] = {"model": read_model(job), "messages": messages}
    decoding = {"temperature": identity.get("temperature", 0)} | {
        name: identity[name] for name in ("max_tokens", "top_p", "seed") if name in identity
    }
    body |= {name: value for name, value in decoding.items() if value is not None}
    body["stream"] = False
    return merge_extra(body, identity.get("extra", {}), key=f"models.{job.model}.identity.extra")


def _read_reply(request: Request, reply: dict[str, Any], job: Job, image_size: tuple[int, int] | None) -> Prediction:
    """The first choice of a `chat.completion` object; raises a NoAnswerError where there is none."""
    error = reply.get("error")
    if isinstance(error, dict) and (why := _refusal(error)):
        return Prediction(id=request.id, status=Status.REFUSED, finish_reason=why)
    try:
        choice = reply["choices"][0]
        message, reason = choice["message"], finish_reason(choice.get("finish_reason"))
        text, refusal = _text(message.get("content")), _text(message.get("refusal"))
    except (KeyError, IndexError, TypeError, AttributeError) as missing:
        raise NoAnswerError("no answer in the reply", str(error or list(reply)), again=True) from missing
    if reason in _ABORTED:
        raise NoAnswerError(f"finish reason {reason}", str(error or ""), again=True)
    check_model(reply.get("model"), job)
    usage = reply.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return Prediction(
        id=request.id,
        status=_status(text, reason, refusal),
        text=clean_text(text or refusal),
        image_size=image_size,
        finish_reason=reason,
        tokens_in=token_count(usage.get("prompt_tokens")),
        tokens_out=token_count(usage.get("completion_tokens")),
    )


def _text(content: object) -> str:
    """The text of a message's content: null, a string, or a list of parts of which some are text."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    if content is None or isinstance(content, str):
        return content or ""
    raise TypeError(f"content is {type(content).__name__}")


def _status(text: str, reason: str | None, refusal: str) -> Status:
    if refusal or reason == "content_filter":
        return Status.REFUSED
    if reason in _CUT:
        return Status.TRUNCATED
    return Status.OK if text.strip() else Status.EMPTY


def _refusal(error: Mapping[str, Any]) -> str | None:
    """The code of the filter that turned a request down; None where an error has another cause."""
    code = error.get("code")
    if isinstance(code, str) and code in _FILTERS:
        return code
    # OpenRouter answers 403 with the moderator's reasons.
    metadata = error.get("metadata")
    return "moderation" if isinstance(metadata, dict) and metadata.get("reasons") else None


class Resize(NamedTuple):
    """How a server resizes an image before the model sees it: sides in multiples of `multiple` pixels."""

    multiple: int
    min_pixels: int
    max_pixels: int


# 14-pixel patches, merged two by two; 4 to 16,384 of them unless the server is started otherwise.
RESIZES = {"qwen2.5-vl": Resize(multiple=28, min_pixels=4 * 28 * 28, max_pixels=16384 * 28 * 28)}


def seen_size(width: int, height: int, rule: Resize) -> tuple[int, int]:
    """(width, height) of the image the model sees of one of `width` by `height` pixels.

    Both sides go to the nearest multiple (halves to the even one). Where that is too many or too few
    pixels, the original is scaled by one factor to the limit, then rounded down or up, so the result
    stays within the limits unless a side would vanish. Sides more than 200 to 1 are a ValueError.
    Source: the image processor of Qwen2-VL and Qwen2.5-VL.
    """
    if max(width, height) > 200 * min(width, height):
        raise ValueError(f"{width}x{height} is longer than 200 to 1")
    unit = rule.multiple
    columns, rows = round(width / unit), round(height / unit)
    if columns * rows * unit * unit > rule.max_pixels:
        shrink = math.sqrt(width * height / rule.max_pixels)
        columns, rows = (max(1, math.floor(side / shrink / unit)) for side in (width, height))
    elif columns * rows * unit * unit < rule.min_pixels:
        stretch = math.sqrt(rule.min_pixels / (width * height))
        columns, rows = (math.ceil(side * stretch / unit) for side in (width, height))
    return columns * unit, rows * unit


def _read_resize(job: Job) -> Resize | None:
    """The identity's resizing rule; a must where the coordinates are those of the resized image."""
    where = f"models.{job.model}.identity.resize"
    name = job.identity.get("resize")
    if name is None:
        if job.form.coordinates is Coordinates.RESIZED_PIXELS:
            raise ConfigError(f"{where}: coordinates are resized_pixels; say by which rule: {', '.join(RESIZES)}.")
        return None
    if not isinstance(name, str) or name not in RESIZES:
        raise ConfigError(f"{where}: unknown rule {name!r}; known: {', '.join(RESIZES)}.")
    limits = {key: job.identity[key] for key in ("min_pixels", "max_pixels") if job.identity.get(key) is not None}
    rule = RESIZES[name]._replace(**limits)
    if not all(type(limit) is int for limit in rule) or not 0 < rule.min_pixels <= rule.max_pixels:
        raise ConfigError(f"{where}: min_pixels {rule.min_pixels!r} and max_pixels {rule.max_pixels!r} are no limits.")
    return rule


def _seen_size(path: str, rule: Resize) -> tuple[int, int]:
    try:
        return seen_size(*picture_size(path), rule)
    except (PictureError, ValueError) as error:
        raise DataError(f"{path}: its size cannot be told: {error}") from error
