"""Asking an HTTP server many questions: bounded threads, pacing, retries, and its faults told apart.

A request ends as an answer, as a refusal, or, once its retries are used up, as `Status.ERROR` while the
others go on. What every further request would meet as well ends the run: a wrong key, no credit, a wrong
address or model, a wait beyond `LONGEST_WAIT_S`, or `HOPELESS` failures in a row. No answer is lost by that:
those given are yielded first.

| what comes back | tries | outcome |
|---|---|---|
| 408, 409, 429, 5xx; connection refused, reset or cut; time-out; no JSON or half of it | 1 + `retries` | error |
| 400, 422 and other statuses | 1 | error |
| an error that names a content filter | 1 | refused |
| 401, 403, `API_KEY_INVALID`; 402, `insufficient_quota`; 404, a redirect; another model's answer | 1 | ConfigError |

The key is read from the environment, travels in one header and is cut out of everything that comes back.
"""

import json
import logging
import math
import random
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from reftables.errors import ConfigError, DataError
from reftables.files import dump_json
from reftables.models.job import Job
from reftables.models.service import Service
from reftables.retry_after import retry_after_s
from reftables.rows import Prediction, Request, Status

if TYPE_CHECKING:
    import requests

RETRIED = frozenset({408, 409, 429})  # and every 5xx
HOPELESS = 20  # failures in a row after which nothing more is sent
LONGEST_BACKOFF_S = 60.0
MOST_BYTES = 16 * 1024 * 1024  # of a reply, unpacked: answers have kilobytes
LONGEST_WAIT_S = 600.0  # a server that asks for more (a used-up daily quota) is not waited for
_LONGEST_DETAIL = 300

_log = logging.getLogger(__name__)


class NoAnswerError(Exception):
    """Why a request got no answer; `again` where another try may help, `wait_s` the wait the server asked for."""

    def __init__(self, reason: str, detail: str = "", *, again: bool, wait_s: float | None = None) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.again = again
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """What a backend knows of its server. `read` raises a NoAnswerError where a reply holds no answer."""

    path: str
    body: Callable[[Request], dict[str, Any]]
    read: Callable[[Request, dict[str, Any]], Prediction]
    refusal: Callable[[dict[str, Any]], str | None] = lambda error: None  # of an error: the filter it names
    key_header: str = "Authorization"
    key_prefix: str = "Bearer "


def _error_object(text: str) -> dict[str, Any]:
    """The error in the body of an error reply, under `error` or bare; empty where it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, list) and value:  # Google's API wraps some errors in a list
        value = value[0]
    error = value.get("error", value) if isinstance(value, dict) else value
    return error if isinstance(error, dict) else {"message": error}


def _details(error: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The typed details (google.rpc) that Google's errors carry."""
    details = error.get("details")
    return [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []


def _retry_info_s(error: Mapping[str, Any]) -> float | None:
    """The wait of a RetryInfo (`"retryDelay": "46s"`), which Gemini sends instead of a Retry-After header."""
    for detail in _details(error):
        if match := re.fullmatch(r"(\d+(?:\.\d+)?)s", str(detail.get("retryDelay"))):
            return float(match[1])
    return None


class _Cause(NamedTuple):
    key: str
    advice: str


_WRONG_KEY = _Cause("exec.key_env", "Check that the key is right for this server and model.")
_NO_CREDIT = _Cause("exec.key_env", "The account of this key has no credit left.")
_WRONG_PLACE = _Cause("exec.url", "Check it, and identity.model.")


def _common_cause(status: int, error: Mapping[str, Any]) -> _Cause | None:
    """What every further request would fail by; None where the error may be of this request only."""
    if status in {401, 403} or "API_KEY_INVALID" in {detail.get("reason") for detail in _details(error)}:
        return _WRONG_KEY
    if status == 402 or error.get("code") == "insufficient_quota":
        return _NO_CREDIT
    if status == 404 or 300 <= status < 400:
        return _WRONG_PLACE
    return None


class Pacer:
    """Spaces the requests of all threads evenly, and holds all of them while the server asks for a pause."""

    def __init__(self, requests_per_minute: float | None) -> None:
        self._gap_s = 60 / requests_per_minute if requests_per_minute else 0.0
        self._next = self._resume = -math.inf
        self._lock = threading.Lock()

    def wait(self, stop: threading.Event) -> None:
        """Return when it is this thread's turn, or at once when `stop` is set."""
        with self._lock:
            turn = max(time.monotonic(), self._next)
            self._next = turn + self._gap_s
        while (delay_s := max(turn, self._resume) - time.monotonic()) > 0:
            if stop.wait(delay_s):
                return

    def pause(self, seconds: float) -> None:
        with self._lock:
            self._resume = max(self._resume, time.monotonic() + seconds)


class _Client:
    """One thread's line to the server."""

    def __init__(self, api: Api, service: Service, pacer: Pacer, stop: threading.Event) -> None:
        self._api = api
        self._service = service
        self._url = service.url + api.path
        self._pacer = pacer
        self._stop = stop
        self._session = _session(api, service)

    def ask(self, request: Request) -> Prediction | None:
        """The answer; None where the run was stopped meanwhile. Raises the last NoAnswerError after all retries."""
        payload = dump_json(self._api.body(request)).encode("utf-8")
        tries = 0
        while True:
            self._pacer.wait(self._stop)
            if self._stop.is_set():
                return None
            tries += 1
            try:
                return self._try(request, payload)
            except NoAnswerError as error:
                if not error.again or tries > self._service.retries:
                    raise
                delay_s = self._delay_s(error, tries)
            if self._stop.wait(delay_s):
                return None

    def _delay_s(self, error: NoAnswerError, tries: int) -> float:
        """Exponential back-off, half of it random; never less than the server asked for."""
        longest_s = min(LONGEST_BACKOFF_S, self._service.backoff * 2.0 ** (tries - 1))
        backoff_s = longest_s * random.uniform(0.5, 1)
        if error.wait_s is None:
            return backoff_s
        self._pacer.pause(error.wait_s)
        if error.wait_s >= 10:
            _log.warning("%s: %s; waiting %.0f s, as the server asks", self._service.model, error, error.wait_s)
        return error.wait_s + backoff_s

    def _try(self, request: Request, payload: bytes) -> Prediction:
        response, content = self._post(payload)
        text = content.decode("utf-8", "replace")
        if not 200 <= response.status_code < 300:
            return self._read_error(request, response, self._service.redact(text))
        # A key of a few letters may well be part of an answer; it guards nothing.
        if self._service.key and len(self._service.key) >= 8:
            text = self._service.redact(text)
        try:
            reply = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise NoAnswerError("not JSON", _one_line(text), again=True) from error
        if not isinstance(reply, dict):
            raise NoAnswerError("no JSON object", _one_line(text), again=True)
        return self._api.read(request, reply)

    def _post(self, payload: bytes) -> tuple["requests.Response", bytes]:
        """The reply and its content."""
        import requests

        service = self._service
        try:
            # Redirects are not followed: they would carry the key elsewhere and turn POST into GET.
            with self._session.post(
                self._url,
                data=payload,
                timeout=(service.connect_timeout, service.read_timeout),
                allow_redirects=False,
                stream=True,
            ) as response:
                return response, _content(response)
        except requests.Timeout as error:
            raise NoAnswerError("time-out", _one_line(service.redact(str(error))), again=True) from error
        except (
            requests.ConnectionError,
            requests.exceptions.ChunkedEncodingError,
            requests.exceptions.ContentDecodingError,
        ) as error:
            raise NoAnswerError("connection failed", _one_line(service.redact(str(error))), again=True) from error

    def _read_error(self, request: Request, response: "requests.Response", text: str) -> Prediction:
        """A refusal that came as an error; raises for everything else."""
        status, model = response.status_code, self._service.model
        error = _error_object(text)
        if why := self._api.refusal(error):
            return Prediction(id=request.id, status=Status.REFUSED, finish_reason=why)
        moved_to = self._service.redact(response.headers.get("Location", ""))
        detail = _one_line(str(error.get("message") or error.get("detail") or moved_to or text))
        answered = f"{self._url} answered {status}" + (f" ({detail})" if detail else "")
        if cause := _common_cause(status, error):
            raise ConfigError(f"models.{model}.{cause.key}: {answered}. {cause.advice}")
        wait_s = retry_after_s(response.headers.get("Retry-After"), now=time.time())
        wait_s = _retry_info_s(error) if wait_s is None else wait_s
        if wait_s is not None and wait_s > LONGEST_WAIT_S:
            raise DataError(
                f"models.{model}: {answered} and asks to wait {wait_s:,.0f} s. "
                "Run again then: what is answered is kept."
            )
        raise NoAnswerError(f"HTTP {status}", detail, again=status in RETRIED or status >= 500, wait_s=wait_s)


def _session(api: Api, service: Service) -> "requests.Session":
    import requests

    def sign(prepared: requests.PreparedRequest) -> requests.PreparedRequest:
        if service.key:
            prepared.headers[api.key_header] = api.key_prefix + service.key
        return prepared

    session = requests.Session()
    session.auth = sign  # also keeps requests from sending a password of ~/.netrc
    session.headers["Content-Type"] = "application/json"
    session.headers["User-Agent"] = "reftables"
    return session


def _content(response: "requests.Response") -> bytes:
    """What a reply holds; a server that sends without end, or packs gigabytes into kilobytes, is cut off."""
    content = bytearray()
    for chunk in response.iter_content(64 * 1024):
        content += chunk
        if len(content) > MOST_BYTES:
            raise NoAnswerError("reply too large", f"more than {MOST_BYTES:,} bytes", again=False)
    return bytes(content)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_DETAIL else f"{line[:_LONGEST_DETAIL]}..."


def answer_all(requests: Sequence[Request], job: Job, api: Api, service: Service) -> Iterator[Prediction]:
    """Ask everything, `max_in_flight` at once, and yield each answer as it comes.

    An interrupt is not waited out: the threads are daemons, so a server that hangs keeps no process alive.
    """
    from tqdm import tqdm

    run = _Run(requests, service)
    threads = min(service.max_in_flight, len(requests))
    for _ in range(threads):
        client = _Client(api, service, run.pacer, run.stop)
        threading.Thread(target=run.work, args=(client,), daemon=True).start()
    progress = tqdm(
        total=len(requests),
        desc=f"{job.model} {job.benchmark} {job.split}",
        unit="request",
        mininterval=0.5 if sys.stderr.isatty() else 15,
    )
    try:
        while threads:
            prediction = run.done.get()
            if prediction is None:
                threads -= 1
            else:
                progress.update()
                yield prediction
        if run.fatal:
            raise run.fatal
    finally:
        run.stop.set()
        progress.close()


class _Run:
    """What the threads of one run share. They judge failures themselves: the main thread may be busy storing."""

    def __init__(self, requests: Sequence[Request], service: Service) -> None:
        self.done: SimpleQueue[Prediction | None] = SimpleQueue()  # None: one thread has ended
        self.stop = threading.Event()
        self.pacer = Pacer(service.requests_per_minute)
        self.fatal: Exception | None = None
        self._service = service
        self._todo = deque(requests)
        self._lock = threading.Lock()
        self._answered = False
        self._failed_in_a_row = 0

    def work(self, client: _Client) -> None:
        """One thread: take requests until none is left or the run is stopped."""
        while not self.stop.is_set():
            try:
                request = self._todo.popleft()
            except IndexError:
                break
            try:
                prediction = client.ask(request)
            except NoAnswerError as error:
                self._fail(request, error)
            except Exception as error:  # a bug, too, is raised where the answers are awaited
                self._end(error)
            else:
                if prediction is not None:
                    self._answer(prediction)
        self.done.put(None)

    def _answer(self, prediction: Prediction) -> None:
        with self._lock:
            self._answered, self._failed_in_a_row = True, 0
        self.done.put(prediction)

    def _fail(self, request: Request, error: NoAnswerError) -> None:
        why = self._service.redact(str(error))
        _log.warning("%s: request %d got no answer: %s", self._service.model, request.id, why)
        self.done.put(Prediction(id=request.id, status=Status.ERROR, finish_reason=error.reason))
        with self._lock:
            # A server that answers others and turns this one down for good is up.
            self._failed_in_a_row = self._failed_in_a_row + 1 if error.again or not self._answered else 0
            hopeless = self._failed_in_a_row >= HOPELESS
        if hopeless:
            self._end(
                DataError(
                    f"models.{self._service.model}: the last {HOPELESS} requests to {self._service.url} all failed, "
                    f"the last one with {why}. Mend that and run again: what is answered is kept."
                )
            )

    def _end(self, error: Exception) -> None:
        self.stop.set()
        with self._lock:
            self.fatal = self.fatal or error
