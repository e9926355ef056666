"""Where a model's server is, with which key and how hard it may be asked: the `exec` keys of server backends."""

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import SplitResult, urlsplit

from reftables.errors import ConfigError
from reftables.models.checks import check_number
from reftables.models.job import Job

EXECUTION = frozenset(
    {
        "url",  # of the server, without the path of the call
        "key_env",  # name of the environment variable that holds the key; absent: no key is sent
        "max_in_flight",  # requests under way at once
        "requests_per_minute",  # of all threads together, retries included; absent: as fast as it goes
        "retries",  # further tries of a request
        "connect_timeout",  # seconds
        # Seconds without a byte, and again for the whole content once it begins: servers send the first byte
        # when the answer is complete, and one that drips could go on for ever.
        "read_timeout",
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
        """`text` without the key, however JSON or a URL may have escaped it."""
        return _written(self.key).sub("[key]", text) if self.key else text

    def redact_answer(self, text: str) -> str:
        """The same for what is no error: a key of a few letters may be part of an answer, and guards nothing."""
        return self.redact(text) if self.key and len(self.key) >= _SECRET else text


_SECRET = 8  # letters


@cache
def _written(key: str) -> re.Pattern[str]:
    r"""A key in every spelling: `/` may also be `\/`, `\u002F` or `%2f`, and so each of its characters."""
    return re.compile("".join(_spellings(letter) for letter in key))


def _spellings(letter: str) -> str:
    code, plain = f"{ord(letter):02x}", re.escape(letter)
    return rf"(?:\\{{1,4}}(?i:u00{code})|(?i:%{code})|\\{{0,4}}{plain})"  # more backslashes: JSON inside JSON


def read_service(job: Job, *, url: str | None = None, max_in_flight: int = 4) -> Service:
    """The service that a model's `exec` describes; `url` and `max_in_flight` are the backend's defaults."""
    check_service(job, url=url)
    given = {name: value for name, value in job.execution.items() if value is not None}
    return Service(
        model=job.model,
        url=_checked_url(job, given.get("url", url)),
        key=_read_key(job, given.get("key_env")),
        max_in_flight=given.get("max_in_flight", max_in_flight),
        requests_per_minute=given.get("requests_per_minute"),
        retries=given.get("retries", 5),
        connect_timeout=given.get("connect_timeout", 10),
        read_timeout=given.get("read_timeout", 600),
        backoff=given.get("backoff", 1),
    )


def check_service(job: Job, *, url: str | None = None) -> None:
    """ConfigError where `exec` describes no service; the variable that holds the key need not be set yet."""
    given, key = job.execution, f"models.{job.model}.exec"
    _checked_url(job, url if given.get("url") is None else given["url"])
    for name, limits in _NUMBERS.items():
        check_number(f"{key}.{name}", given.get(name), **limits)
    variable = given.get("key_env")
    if variable is not None and not (isinstance(variable, str) and _VARIABLE.fullmatch(variable)):
        # Unseen: it may be the key itself.
        raise ConfigError(f"{key}.key_env: this is no name of an environment variable: letters, digits and _.")


_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_S = 1e6  # of a wait; the system's clocks take no more than some weeks
_NUMBERS: Mapping[str, Mapping[str, Any]] = {
    "max_in_flight": {"least": 1, "most": 1000, "whole": True},
    "requests_per_minute": {"least": 1e-3},
    "retries": {"least": 0, "most": 1000, "whole": True},
    "connect_timeout": {"least": 1e-3, "most": _LONGEST_S},
    "read_timeout": {"least": 1e-3, "most": _LONGEST_S},
    "backoff": {"least": 0, "most": _LONGEST_S},
}


def _checked_url(job: Job, url: object) -> str:
    """`url` without its last slash; what could hold a key (a user, a query) is refused unseen."""
    where = f"models.{job.model}.exec.url"
    parts = _split(url)
    if not isinstance(url, str) or parts is None:
        raise ConfigError(f"{where}: give the server's address, http://HOST:PORT or https://HOST, with its base path.")
    if parts.username is not None or "?" in url or "#" in url:
        raise ConfigError(f"{where}: an address holds no user, query or fragment. A key goes by exec.key_env.")
    return url.rstrip("/")


def _split(url: object) -> SplitResult | None:
    """The parts of an HTTP address; None where it is none."""
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port  # a ValueError where it is no number, or too large
        known = parts.scheme in {"http", "https"} and _is_host(parts.hostname or "")
    except ValueError:
        return None
    return parts if known else None


def _is_host(host: str) -> bool:
    """Whether `host` is an address or a name; a ValueError says no as well."""
    if ":" in host:
        return bool(ipaddress.IPv6Address(host))
    host.encode("idna")  # a ValueError where a part is empty or too long
    return _HOST.fullmatch(host) is not None


_HOST = re.compile(r"[\w-]+(\.[\w-]+)*\.?")


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
