"""Why a request got no answer: what an error reply says, and whom it concerns.

An error of this request, or of the moment, is a `NoAnswerError`. What every further request would meet as
well (a wrong key, no credit, a wrong address or model, a wait beyond `LONGEST_WAIT_S`) is a ConfigError or a
DataError, which ends the run. Servers write what they like, so no field is taken to have its usual type.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from reftables.errors import ConfigError, DataError
from reftables.models.payload import parse_json
from reftables.retry_after import retry_after_s

RETRIED = frozenset({408, 409, 429})  # and every 5xx
LONGEST_WAIT_S = 600.0  # a server that asks for more (a used-up daily quota) is not waited for
_LONGEST_DETAIL = 300


class NoAnswerError(Exception):
    """Why a request got no answer; `again` where another try may help, `wait_s` the wait the server asked for."""

    def __init__(self, reason: str, detail: str = "", *, again: bool, wait_s: float | None = None) -> None:
        super().__init__(f"{reason}: {one_line(detail)}" if detail else reason)
        self.reason = reason
        self.again = again
        self.wait_s = wait_s


class UnsendableError(NoAnswerError):
    """Why a request could not even be sent: the fault is its own image's, and says nothing about the server."""

    def __init__(self, why: str) -> None:
        super().__init__(one_line(why), again=False)


class _Cause(NamedTuple):
    key: str
    advice: str


_WRONG_KEY = _Cause("exec.key_env", "Check that the key is right for this server and model.")
_NO_CREDIT = _Cause("exec.key_env", "The account of this key has no credit left.")
_WRONG_PLACE = _Cause("exec.url", "Check it, and identity.model.")


def one_line(text: str) -> str:
    """`text` for a message or the log: on one line, not too long, and without what steers a terminal."""
    line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return line if len(line) <= _LONGEST_DETAIL else f"{line[:_LONGEST_DETAIL]}..."


def error_object(text: str, clean: Callable[[str], str]) -> dict[str, Any]:
    """The error in the body of an error reply, under `error` or bare, its strings passed through `clean`."""
    try:
        value = parse_json(text, clean)
    except ValueError:
        return {}
    if isinstance(value, list) and value:  # Google's API wraps some errors in a list
        value = value[0]
    error = value.get("error", value) if isinstance(value, dict) else value
    return error if isinstance(error, dict) else {"message": error}


def fault_of(
    model: str, url: str, status: int, error: Mapping[str, Any], *, otherwise: str, retry_after: str | None
) -> NoAnswerError | ConfigError | DataError:
    """The exception that an error reply stands for; `otherwise` is the detail where `error` has none."""
    detail = one_line(str(error.get("message") or error.get("detail") or otherwise))
    answered = f"{url} answered {status}" + (f" ({detail})" if detail else "")
    if cause := _common_cause(status, error):
        return ConfigError(f"models.{model}.{cause.key}: {answered}. {cause.advice}")
    wait_s = retry_after_s(retry_after, now=time.time())
    wait_s = _retry_info_s(error) if wait_s is None else wait_s
    if wait_s is not None and wait_s > LONGEST_WAIT_S:
        return DataError(
            f"models.{model}: {answered} and asks to wait {wait_s:,.0f} s. Run again then: what is answered is kept."
        )
    return NoAnswerError(f"HTTP {status}", detail, again=status in RETRIED or status >= 500, wait_s=wait_s)


def _common_cause(status: int, error: Mapping[str, Any]) -> _Cause | None:
    """What every further request would fail by; None where the error may be of this request only."""
    if status in {401, 403} or any(detail.get("reason") == "API_KEY_INVALID" for detail in _details(error)):
        return _WRONG_KEY
    if status == 402 or error.get("code") == "insufficient_quota":
        return _NO_CREDIT
    if status == 404 or 300 <= status < 400:
        return _WRONG_PLACE
    return None


def _details(error: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The typed details (google.rpc) that Google's errors carry."""
    details = error.get("details")
    return [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []


def _retry_info_s(error: Mapping[str, Any]) -> float | None:
    """The wait of a RetryInfo (`"retryDelay": "46s"`), which Gemini sends instead of a Retry-After header."""
    for detail in _details(error):
        if match := re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s", str(detail.get("retryDelay"))):
            return float(match[1])
    return None
