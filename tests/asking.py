"""Jobs, requests and images for the tests of the server backends."""

import io
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from reftables.models.job import Job
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Request, Task

KEY = "sk-very/secret+key-0123456789"
FAST = {"retries": 2, "backoff": 0.002, "connect_timeout": 2, "read_timeout": 2}


def make_job(
    url: object,
    identity: Mapping[str, Any],
    /,
    *,
    coordinates: Coordinates = Coordinates.PIXELS,
    **execution: Any,
) -> Job:
    """A job on the server at `url`, impatient unless `execution` says otherwise."""
    return Job(
        model="chat",
        benchmark="mine",
        split="val",
        task=Task.BOXES,
        form=AnswerFormat(notation=Notation.JSON, coordinates=coordinates, order=Order.XY, prompt="qwen", grid=None),
        identity=identity,
        execution=({"url": url} if url else {}) | FAST | execution,
    )


def make_requests(texts: Sequence[str], image: str | Path = "none.png") -> list[Request]:
    return [Request(number, str(image), text) for number, text in enumerate(texts)]


def image_bytes(kind: str, size_wh: tuple[int, int] = (64, 48)) -> bytes:
    """A plain image as `kind` (JPEG, PNG, WEBP, GIF, BMP) encodes it."""
    stored = io.BytesIO()
    Image.new("RGB", size_wh, "red").save(stored, kind)
    return stored.getvalue()


def closed_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
