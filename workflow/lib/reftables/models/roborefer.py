"""RoboRefer behind the server of its own repository, from RGB or from RGB and depth.

`POST {url}/query` with the image (and a depth image) in base64; the reply is `{"answer": text}`. With
`depth: true` and no `depth_images` the server estimates the depth itself. Decoding and weights are the
server's, which names neither: `model` and `revision` say what it runs.
Source: Zhoues/RoboRefer, API/.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reftables.errors import ConfigError
from reftables.models import service
from reftables.models.checks import check_text, read_name
from reftables.models.faults import NoAnswerError
from reftables.models.http import Api, answer_all
from reftables.models.job import Job
from reftables.models.payload import clean_text, read_image, read_model
from reftables.paths import fill
from reftables.rows import Prediction, Request, Status, Task

READS_TRUTH = False
LOOKS = True
STORED = True
WRITES_FORMAT = False
TASKS = frozenset({Task.BOXES, Task.POINTS, Task.ANSWERS})
REQUIRED = frozenset({"model"})
OPTIONAL = frozenset(
    {
        "revision",  # of the weights, where the model's name does not say so; never sent
        "depth",  # true: the model reads depth as well
        "depth_images",  # folder template; the depth of NAME.jpg is NAME.png
    }
)
EXECUTION = service.EXECUTION


def answer_files(identity: Mapping[str, Any], *, model: str, benchmark: str, split: str) -> list[str]:
    """None: the answers come from a server."""
    return []


def decides(request: Request, job: Job, image_digest: str) -> dict[str, Any]:
    """The request as it is sent, both images by their digests, and what the server was declared to run."""
    depth = _depth_path(request, job)
    digest = None if depth is None else _digest(depth)
    return {
        "model": read_model(job),
        "revision": job.identity.get("revision"),
        "body": _body(job, request.text, image_digest, digest),
    }


def check(job: Job) -> None:
    """ConfigError where the identity makes no request, or `exec` describes no server."""
    read_model(job)
    check_text(f"models.{job.model}.identity.revision", job.identity.get("revision"))
    _depth_path(Request(0, "", ""), job)
    service.check_service(job)


def predict(requests: Sequence[Request], job: Job) -> Iterator[Prediction]:
    """Answers in the order in which they come; one request at a time unless `max_in_flight` says more."""
    if not requests:
        return iter(())
    api = Api(path="/query", body=lambda request: _images_body(request, job), read=_read_reply)
    return answer_all(requests, job, api, service.read_service(job, max_in_flight=1))


def _images_body(request: Request, job: Job) -> dict[str, Any]:
    depth = _depth_path(request, job)
    return _body(
        job,
        request.text,
        read_image(request.image).base64,
        None if depth is None else read_image(depth).base64,
    )


def _body(job: Job, text: str, image: str, depth: str | None) -> dict[str, Any]:
    return {
        "image_url": [image],
        "depth_url": [] if depth is None else [depth],
        "enable_depth": int(_reads_depth(job)),
        "text": text,
    }


def _reads_depth(job: Job) -> bool:
    depth = job.identity.get("depth", False)
    if not isinstance(depth, bool):
        raise ConfigError(f"models.{job.model}.identity.depth: {depth!r} is neither true nor false.")
    return depth


def _depth_path(request: Request, job: Job) -> str | None:
    """The depth image that belongs to a request's image; None where no folder of them is named."""
    depth = _reads_depth(job)
    if job.identity.get("depth_images") is None:
        return None
    folder = read_name(job, "depth_images")
    if not depth:
        raise ConfigError(f"models.{job.model}.identity.depth_images: these are read with depth: true only.")
    folder = fill(folder, model=job.model, benchmark=job.benchmark, split=job.split)
    return str(Path(folder) / f"{Path(request.image).stem}.png")


def _digest(path: str) -> str:
    """sha256 of a depth image; one that cannot be read fails when it is sent, and stops no other request here."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return "unreadable"


def _read_reply(request: Request, reply: dict[str, Any]) -> Prediction:
    """The `answer`; raises a NoAnswerError where the reply has none."""
    answer = reply.get("answer")
    if not isinstance(answer, str | None) or "answer" not in reply:
        raise NoAnswerError("no answer in the reply", str(reply.get("error") or list(reply)), again=True)
    text = clean_text(answer or "")
    return Prediction(id=request.id, status=Status.OK if text.strip() else Status.EMPTY, text=text)
