"""Gemini models through their REST API: `POST {url}/v1beta/models/{model}:generateContent`.

One request is one user turn: the image, then the text, as the API's own guide advises for a single image.
Decoding is greedy (`temperature: 0`) unless the identity says otherwise. `extra` is merged into the body,
such as `{generationConfig: {thinkingConfig: {thinkingBudget: 0}}}`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reftables.errors import ConfigError
from reftables.models import service
from reftables.models.checks import check_decoding
from reftables.models.faults import NoAnswerError
from reftables.models.http import Api, answer_all
from reftables.models.job import Job
from reftables.models.payload import (
    Image,
    accepted_models,
    check_model,
    clean_text,
    finish_reason,
    merge_extra,
    read_image,
    read_model,
    token_count,
)
from reftables.rows import Prediction, Request, Status, Task

READS_TRUTH = False
LOOKS = True
STORED = True
WRITES_FORMAT = False
TASKS = frozenset({Task.BOXES, Task.POINTS, Task.ANSWERS})
REQUIRED = frozenset({"model"})
OPTIONAL = frozenset(
    {
        "accept_models",  # further names by which the server may call the model, say what `-latest` stands for
        "temperature",
        "max_tokens",  # thoughts count
        "top_p",
        "seed",
        "system",  # text of the system instruction
        "extra",  # mapping merged into the body
    }
)
EXECUTION = service.EXECUTION
URL = "https://generativelanguage.googleapis.com"

_NAME = re.compile("[A-Za-z0-9_-][A-Za-z0-9._-]*")  # it becomes part of the URL

_DECODING = {"max_tokens": "maxOutputTokens", "top_p": "topP", "seed": "seed"}
_REFUSED = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    }
)


def answer_files(identity: Mapping[str, Any], *, model: str, benchmark: str, split: str) -> list[str]:
    """None: the answers come from a server."""
    return []


def decides(request: Request, job: Job, image_digest: str) -> dict[str, Any]:
    """The request as it is sent, the image by its digest."""
    return {
        "model": read_model(job),
        "body": _body(job, request.text, Image("image", image_digest)),
    }


def check(job: Job) -> None:
    """ConfigError where the identity makes no request, or `exec` describes no server."""
    if not _NAME.fullmatch(model := read_model(job)):
        raise ConfigError(
            f"models.{job.model}.identity.model: {model!r} is no name of a Gemini model. Allowed are letters, digits, "
            "points, dashes and underscores, without `models/` before them."
        )
    check_decoding(job)
    accepted_models(job)
    decides(Request(0, "", ""), job, "")
    service.check_service(job, url=URL)


def predict(requests: Sequence[Request], job: Job) -> Iterator[Prediction]:
    """Answers in the order in which they come."""
    if not requests:
        return iter(())
    api = Api(
        path=f"/v1beta/models/{read_model(job)}:generateContent",
        body=lambda request: _body(job, request.text, read_image(request.image)),
        read=lambda request, reply: _read_reply(request, reply, job),
        key_header="x-goog-api-key",
        key_prefix="",
    )
    return answer_all(requests, job, api, service.read_service(job, url=URL))


def _body(job: Job, text: str, image: Image) -> dict[str, Any]:
    identity = job.identity
    parts = [{"inlineData": {"mimeType": image.media_type, "data": image.base64}}, {"text": text}]
    decoding = {"temperature": identity.get("temperature", 0)} | {
        theirs: identity[ours] for ours, theirs in _DECODING.items() if ours in identity
    }
    body: dict[str, Any] = {
        "contents": [{"role": "user", "parts": parts}],
        "generationConfig": {name: value for name, value in decoding.items() if value is not None},
    }
    if identity.get("system") is not None:
        body["systemInstruction"] = {"parts": [{"text": identity["system"]}]}
    return merge_extra(body, identity.get("extra", {}), key=f"models.{job.model}.identity.extra")


def _read_reply(request: Request, reply: dict[str, Any], job: Job) -> Prediction:
    """The first candidate; without one, why the prompt was blocked. Raises a NoAnswerError where there is neither."""
    check_model(_model_name(reply.get("modelVersion")), job)
    tokens_in, tokens_out = _tokens(reply.get("usageMetadata"))
    reason: str | None
    try:
        candidates = reply.get("candidates") or []
        if not candidates:
            reason, text, status = clean_text(reply["promptFeedback"]["blockReason"]), "", Status.REFUSED
        else:
            reason, text = finish_reason(candidates[0].get("finishReason")), _text(candidates[0])
            status = _status(text, reason)
    except (KeyError, IndexError, TypeError, AttributeError) as missing:
        raise NoAnswerError("no answer in the reply", str(list(reply)), again=True) from missing
    return Prediction(
        id=request.id,
        status=status,
        text=clean_text(text),
        finish_reason=reason,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
    )


def _model_name(version: object) -> object:
    return version.removeprefix("models/") if isinstance(version, str) else version


def _text(candidate: Mapping[str, Any]) -> str:
    """The text parts one after the other, without the model's thoughts; a cut answer may have no part at all."""
    parts = (candidate.get("content") or {}).get("parts") or []
    return "".join(part.get("text") or "" for part in parts if not part.get("thought"))


def _status(text: str, reason: str | None) -> Status:
    if reason in _REFUSED:
        return Status.REFUSED
    if reason == "MAX_TOKENS":
        return Status.TRUNCATED
    return Status.OK if text.strip() else Status.EMPTY


def _tokens(usage: object) -> tuple[int | None, int | None]:
    """Tokens in and out; thoughts are paid like the answer and counted with it."""
    if not isinstance(usage, dict):
        return None, None
    answer, thoughts = token_count(usage.get("candidatesTokenCount")), token_count(usage.get("thoughtsTokenCount"))
    out = None if answer is None and thoughts is None else (answer or 0) + (thoughts or 0)
    return token_count(usage.get("promptTokenCount")), out
