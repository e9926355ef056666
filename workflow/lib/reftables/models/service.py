"""Where a model's server is, with which key and how hard it may be asked: the `exec` keys of server backends."""

import json
import math
import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from reftables.errors import ConfigError
from reftables.models.job import Job

EXECUTION = frozenset(
    {
        "url",  # of the server, without the path of the call
        "key_env",  # name of the environment variable that holds the key; absent: no key is sent
        "max_in_flight",  # requests under way at once
        "requests_per_minute",  # of all threads together, retries included; absent: as fast as it goes
        "retries",  # further tries of a request
        "connect_timeout",  # seconds
        "read_timeout",  # seconds without a byte; servers send none before the answer is complete
        "backoff",  # seconds before the first retry, doubled with each one
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Where the server is and how it may be asked: the `exec` keys of a model."""

    model: str  # its name in the config, for messages
    url: str
    key: str | None = field(repr=False)
    max_in_flight: int
    requests_per_minute: float | None
    retries: int
    connect_timeout: float
    read_timeout: float
    backoff: float

    def redact(self, text: str) -> str:
        """`text` without the key, also where JSON has escaped it."""
        if self.key:
            text = text.replace(self.key, "[key]").replace(json.dumps(self.key)[1:-1], "[key]")
        return text


def read_service(job: Job, *, url: str | None = None, max_in_flight: int = 4) -> Service:
    """The service that a model's `exec` describes; `url` and `max_in_flight` are the backend's defaults."""
    given = job.execution
    rate = given.get("requests_per_minute")
    return Service(
        model=job.model,
        url=_checked_url(job, given.get("url", url)),
        key=_read_key(job, given.get("key_env")),
        max_in_flight=int(_number(job, "max_in_flight", max_in_flight, least=1)),
        requests_per_minute=None if rate is None else _number(job, "requests_per_minute", rate, least=1e-6),
        retries=int(_number(job, "retries", 5, least=0)),
        connect_timeout=_number(job, "connect_timeout", 10, least=1e-3),
        read_timeout=_number(job, "read_timeout", 600, least=1e-3),
        backoff=_number(job, "backoff", 1, least=0),
    )


def _number(job: Job, name: str, default: float, *, least: float) -> float:
    value = job.execution.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
        raise ConfigError(f"models.{job.model}.exec.{name}: {value!r} is no number of {least:g} or more.")
    return value


def _checked_url(job: Job, url: object) -> str:
    """`url` without its last slash; what could hold a key (a user, a query) is refused unseen."""
    where = f"models.{job.model}.exec.url"
    parts = urlsplit(url) if isinstance(url, str) else None
    if not isinstance(url, str) or parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"{where}: give the server's address, http://HOST:PORT or https://HOST, with its base path.")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(f"{where}: an address holds no user, query or fragment. A key goes by exec.key_env.")
    return url.rstrip("/")


def _read_key(job: Job, name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    where = f"models.{job.model}.exec.key_env: the environment variable {name}"
    if not key:
        raise ConfigError(f"{where} is not set. Export the key under that name, or leave key_env out.")
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"{where} holds characters that no HTTP header can carry. Copy the key again.")
    return key
