"""Asking an HTTP server many questions: bounded threads, pacing, retries, and its faults told apart.

A request ends as an answer, as a refusal, or, once its retries are used up, as `Status.ERROR` while the
others go on; so does one whose image cannot be sent. What every further request would meet as well ends the
run (`faults`), and so do failures in a row (`hope`). No answer is lost by that: those given are yielded first.

| what comes back | tries | outcome |
|---|---|---|
| 408, 409, 429, 5xx; connection refused, reset or cut; time-out; no JSON or half of it | 1 + `retries` | error |
| 400, 422 and other statuses | 1 | error |
| an error that names a content filter | 1 | refused |
| 401, 403, `API_KEY_INVALID`; 402, `insufficient_quota`; 404, a redirect; another model's answer | 1 | ConfigError |

The key is read from the environment and travels in one header. It is cut out of every string that comes back,
and out of what leaves here: answers, errors, the log.
"""

import logging
import math
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from reftables.errors import ConfigError, DataError, ReftablesError
from reftables.files import dump_json
from reftables.models.faults import NoAnswerError, UnsendableError, error_object, fault_of
from reftables.models.hope import Hope
from reftables.models.job import Job
from reftables.models.payload import clean_text, parse_json
from reftables.models.service import Service
from reftables.rows import Prediction, Request, Status

if TYPE_CHECKING:
    import requests

LONGEST_BACKOFF_S = 60.0
MOST_BYTES = 16 * 1024 * 1024  # of a reply, unpacked: answers have kilobytes
_CHUNK = 64 * 1024
_LOOK_UP_S = 0.5  # a signal that comes just before a wait is noticed only once that ends

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """What a backend knows of its server.

    `body` raises a DataError where a request cannot be sent, `read` a NoAnswerError where a reply holds no answer.
    What `read` needs of the request's image must be there before anything is sent: an answer is paid for.
    """

    path: str
    body: Callable[[Request], dict[str, Any]]
    read: Callable[[Request, dict[str, Any]], Prediction]
    refusal: Callable[[dict[str, Any]], str | None] = lambda error: None  # of an error: the filter it names
    key_header: str = "Authorization"
    key_prefix: str = "Bearer "


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
        """The answer; None where the run was stopped meanwhile. Raises the last NoAnswerError after all retries.

        The key stands neither in what this returns nor in what it raises.
        """
        try:
            prediction = self._ask(request, self._payload(request))
        except (NoAnswerError, ReftablesError) as error:
            error.args = (self._service.redact(str(error)),)
            raise
        # Every string of the reply is clean by now, but an answer may be joined from several.
        return None if prediction is None else _each_text(prediction, self._service.redact_answer)

    def _payload(self, request: Request) -> bytes:
        try:
            body = self._api.body(request)
        except DataError as error:
            raise UnsendableError(str(error)) from error
        return dump_json(body).encode("utf-8")

    def _ask(self, request: Request, payload: bytes) -> Prediction | None:
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
        longest_s = min(LONGEST_BACKOFF_S, self._service.backoff * 2.0 ** min(tries - 1, 100))
        backoff_s = longest_s * random.uniform(0.5, 1)
        if error.wait_s is None:
            return backoff_s
        self._pacer.pause(error.wait_s)
        if error.wait_s >= 10:
            why = self._service.redact(str(error))
            _log.warning("%s: %s; waiting %.0f s, as the server asks", self._service.model, why, error.wait_s)
        return error.wait_s + backoff_s

    def _try(self, request: Request, payload: bytes) -> Prediction:
        response, content = self._post(payload)
        text = content.decode("utf-8-sig", "replace")
        if not 200 <= response.status_code < 300:
            return self._read_error(request, response, text)
        try:
            reply = parse_json(text, lambda string: self._service.redact_answer(clean_text(string)))
        except ValueError as error:
            raise NoAnswerError("not JSON", self._service.redact(text), again=True) from error
        if not isinstance(reply, dict):
            raise NoAnswerError("no JSON object", self._service.redact(text), again=True)
        return self._api.read(request, reply)

    def _post(self, payload: bytes) -> tuple["requests.Response", bytes]:
        """The reply and its content."""
        import requests
        from requests.exceptions import InvalidSchema, InvalidURL
        from urllib3.exceptions import HTTPError, LocationValueError, ReadTimeoutError

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
                return response, _content(response, service.read_timeout)
        except (requests.Timeout, ReadTimeoutError) as error:
            raise NoAnswerError("time-out", service.redact(str(error)), again=True) from error
        except (InvalidURL, InvalidSchema, LocationValueError) as error:
            raise ConfigError(
                f"models.{service.model}.exec.url: {self._url} cannot be asked: {error}. Check it, and the proxies "
                "that the environment names."
            ) from error
        except (requests.RequestException, HTTPError) as error:
            raise NoAnswerError("connection failed", service.redact(str(error)), again=True) from error

    def _read_error(self, request: Request, response: "requests.Response", text: str) -> Prediction:
        """A refusal that came as an error; raises for everything else."""
        service, headers = self._service, response.headers
        error = error_object(text, lambda string: service.redact(clean_text(string)))
        if why := self._api.refusal(error):
            return Prediction(id=request.id, status=Status.REFUSED, finish_reason=why)
        raise fault_of(
            service.model,
            self._url,
            response.status_code,
            error,
            otherwise=service.redact(headers.get("Location") or text),
            retry_after=headers.get("Retry-After"),
        )


def _each_text(prediction: Prediction, clean: Callable[[str], str]) -> Prediction:
    """`prediction` with its texts passed through `clean`."""
    text, reason = prediction.text, prediction.finish_reason
    return replace(
        prediction,
        text=None if text is None else clean(text),
        finish_reason=None if reason is None else clean(reason),
    )


def _session(api: Api, service: Service) -> "requests.Session":
    import requests

    def sign(prepared: requests.PreparedRequest) -> requests.PreparedRequest:
        if service.key:
            prepared.headers[api.key_header] = api.key_prefix + service.key
        return prepared

    class Session(requests.Session):
        def get_redirect_target(self, resp: requests.Response) -> None:
            """None: requests would parse a Location that it does not follow, and fail at an odd one."""

    session = Session()
    session.auth = sign  # also keeps requests from sending a password of ~/.netrc
    session.headers["Content-Type"] = "application/json"
    session.headers["User-Agent"] = "reftables"
    return session


def _content(response: "requests.Response", longest_s: float) -> bytes:
    """What a reply holds; a server that sends without end, or packs gigabytes into kilobytes, is cut off.

    So is one that drips: `longest_s`, from here on, is for all of it, while the socket's time-out begins anew with
    every byte.
    """
    deadline = time.monotonic() + longest_s
    content = bytearray()
    while chunk := response.raw.read1(_CHUNK, decode_content=True):
        content += chunk
        if len(content) > MOST_BYTES:
            raise NoAnswerError("reply too large", f"more than {MOST_BYTES:,} bytes", again=False)
        if time.monotonic() > deadline:
            raise NoAnswerError("time-out", f"only {len(content):,} bytes within {longest_s:g} s", again=True)
    return bytes(content)


def answer_all(requests: Sequence[Request], job: Job, api: Api, service: Service) -> Iterator[Prediction]:
    """Ask everything, `max_in_flight` at once, and yield each answer as it comes.

    An interrupt is not waited out: the threads are daemons, so a server that hangs keeps no process alive.
    """
    from tqdm import tqdm

    run = _Run(requests, job, service)
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
            try:
                prediction = run.done.get(timeout=_LOOK_UP_S)
            except Empty:
                continue
            if prediction is None:
                threads -= 1
            else:
                progress.update()
                yield prediction
                run.room.release()  # whoever asked for more has stored it
        if run.fatal:
            raise run.fatal
    finally:
        run.stop.set()
        run.room.release(service.max_in_flight)
        progress.close()


class _Run:
    """What the threads of one run share. They judge failures themselves: the main thread may be busy storing."""

    def __init__(self, requests: Sequence[Request], job: Job, service: Service) -> None:
        self.done: SimpleQueue[Prediction | None] = SimpleQueue()  # None: one thread has ended
        self.stop = threading.Event()
        # Of requests under way or answered and not yet stored: what a crash costs.
        self.room = threading.Semaphore(service.max_in_flight)
        self.pacer = Pacer(service.requests_per_minute)
        self.fatal: Exception | None = None
        self._service = service
        self._todo = deque(requests)
        self._hope = Hope(job, service.max_in_flight)
        self._lock = threading.Lock()

    def work(self, client: _Client) -> None:
        """One thread: take requests until none is left or the run is stopped."""
        while not self.stop.is_set() and self.room.acquire() and (request := self._next()):
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

    def _next(self) -> Request | None:
        with self._lock:
            if not self._todo:
                return None
            place = self._hope.place(len(self._todo))
            request = self._todo[place]
            del self._todo[place]
            return request

    def _answer(self, prediction: Prediction) -> None:
        with self._lock:
            self._hope.answer()
        self.done.put(prediction)

    def _fail(self, request: Request, error: NoAnswerError) -> None:
        _log.warning("%s: request %d got no answer: %s", self._service.model, request.id, error)
        reason = self._service.redact(clean_text(error.reason))
        self.done.put(Prediction(id=request.id, status=Status.ERROR, finish_reason=reason))
        with self._lock:
            self._hope.fail(error)
            verdict = self._hope.given_up(self._service.url, error) if self._hope.lost else None
        if verdict:
            self._end(verdict)

    def _end(self, error: Exception) -> None:
        self.stop.set()
        with self._lock:
            self.fatal = self.fatal or error
