"""Servers write what they like: no reply is a traceback, and none carries the key anywhere."""

import json
import time
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reftables.errors import ConfigError, DataError, ReftablesError
from reftables.files import prediction_row
from reftables.models import gemini, openai, roborefer
from reftables.models.faults import NoAnswerError, error_object, fault_of, one_line
from reftables.models.payload import clean_text, parse_json
from reftables.retry_after import retry_after_s
from reftables.rows import Prediction, Request, Status
from reftables.store import Store
from tests.asking import KEY, image_bytes, make_job, make_requests
from tests.server import Server

BACKENDS = {"openai": openai, "gemini": gemini, "roborefer": roborefer}
EACH = pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)


@pytest.fixture
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("images") / "image.png"
    path.write_bytes(image_bytes("PNG"))
    return str(path)


def raw(content: bytes | str, status: int = 200, **rule: Any) -> dict[str, Any]:
    content = content if isinstance(content, bytes) else content.encode("utf-8")
    return {"do": "raw", "content": content, "status": status} | rule


def ask(backend: ModuleType, rule: dict[str, Any], image: str, **execution: Any) -> tuple[Prediction, int]:
    """The prediction of one request, and how often it was asked."""
    with Server(rule) as server:
        job = make_job(server.url, {"model": "m"}, **execution)
        (prediction,) = backend.predict(make_requests(["only"], image), job)
    return prediction, len(server.asked)


SPELLINGS = {
    "slash": KEY.replace("/", r"\/"),
    "plus": KEY.replace("+", r"\u002b"),
    "capitals": KEY.replace("+", r"\u002B"),
    "letter": rf"\u0073{KEY[1:]}",
}
SPELT = pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CHAT_KEY", KEY)
    return "CHAT_KEY"


def unescaped(text: str) -> str:
    return text.replace("\\/", "/").replace("\\u002b", "+").replace("\\u002B", "+").replace("\\u0073", "s")


ANSWERS = {
    "openai": '{"choices": [{"message": {"content": "my %s"}, "finish_reason": "%s"}]}',
    "openai in parts": '{"choices": [{"message": {"content": [{"type": "text", "text": "my "},'
    ' {"type": "text", "text": "%s"}]}, "finish_reason": "%s"}]}',
    "gemini": '{"candidates": [{"content": {"parts": [{"text": "my %s"}]}, "finishReason": "%s"}]}',
    "gemini, blocked": '{"promptFeedback": {"blockReason": "my %s, %s"}}',
    "roborefer": '{"answer": "my %s, %s"}',
}


@SPELT
@pytest.mark.parametrize("name", ANSWERS)
def test_a_key_that_a_reply_escapes_stands_in_no_prediction(name: str, spelling: str, key: str, image: str) -> None:
    reply = ANSWERS[name] % (spelling, spelling)
    prediction, _ = ask(BACKENDS[name.split(",")[0].split()[0]], raw(reply), image, key_env=key)
    assert "my [key]" in f"{prediction.text} {prediction.finish_reason}"
    assert KEY not in unescaped(repr(prediction))


def test_a_key_that_a_reply_cuts_in_two_stands_in_no_prediction(key: str, image: str) -> None:
    parts = [{"type": "text", "text": KEY[:9]}, {"type": "text", "text": KEY[9:]}]
    reply = json.dumps({"choices": [{"message": {"content": parts}, "finish_reason": "stop"}]})
    prediction, _ = ask(openai, raw(reply), image, key_env=key)
    assert prediction.text == "[key]"


@SPELT
@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(400, '{"error": {"message": "wrong: %s"}}', id="400"),
        pytest.param(401, '{"error": {"message": "wrong: %s"}}', id="401"),
        pytest.param(404, '{"detail": "wrong: %s"}', id="404"),
        pytest.param(422, '{"detail": [{"wrong: %s": 1}]}', id="a name in the details"),
        pytest.param(429, '{"error": {"message": "wrong: %s"}}', id="429"),
        pytest.param(500, "wrong: %s", id="no JSON"),
        pytest.param(403, '{"error": {"code": "content_filter", "message": "%s"}}', id="refusal"),
        pytest.param(200, '{"wrong: %s": 1}', id="name instead of an answer"),
        pytest.param(200, '{"error": {"message": "wrong: %s"}}', id="error with status 200"),
        pytest.param(200, '["wrong: %s"]', id="a list"),
        pytest.param(200, '{"wrong: %s', id="half a JSON"),
        pytest.param(200, '{"model": "wrong: %s", "choices": [{"message": {"content": "a"}}]}', id="another model"),
    ],
)
def test_a_key_that_an_error_escapes_stands_in_no_message_and_no_log(
    status: int, body: str, spelling: str, key: str, image: str, caplog: pytest.LogCaptureFixture
) -> None:
    rule = raw(body % spelling, status, headers={"Retry-After": "9999"} if status == 429 else {})
    try:
        said = repr(ask(openai, rule, image, key_env=key, retries=0)[0])
    except ReftablesError as error:
        said = str(error)
    said = unescaped(said + caplog.text)
    assert "wrong: [key]" in said or "content_filter" in said
    assert KEY not in said


@pytest.mark.parametrize("place", ["http://x/?key={}", "/{}"], ids=["query", "path"])
@pytest.mark.parametrize("spelling", [KEY, "sk-very%2Fsecret%2Bkey-0123456789"], ids=["plain", "percent"])
def test_a_key_in_the_place_that_a_server_sends_us_to_is_not_told(
    place: str, spelling: str, key: str, image: str
) -> None:
    rule = raw(b"", 302, headers={"Location": place.format(spelling)})
    with pytest.raises(ConfigError, match=r"answered 302 \(.*\[key\]\)"):
        ask(openai, rule, image, key_env=key)


@pytest.mark.parametrize(
    "location",
    ["http://[", "//[", "http://:80", "http://x:99999/", "\xff\xfe", "javascript:1", "\x1b[31m"],
    ids=ascii,
)
def test_an_odd_place_that_a_server_sends_us_to_is_an_error_of_the_setup(location: str, image: str) -> None:
    with pytest.raises(ConfigError, match=r"exec\.url: .* answered 302 \(") as caught:
        ask(openai, raw(b"", 302, headers={"Location": location}), image)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("reason", [["API_KEY_INVALID"], {"a": 1}, None, 5], ids=str)
def test_an_odd_reason_in_an_error_is_an_error_of_this_request(reason: object, image: str) -> None:
    body = json.dumps({"error": {"details": [{"reason": reason}], "code": {"a": 1}, "metadata": ["x"]}})
    prediction, _ = ask(gemini, raw(body, 400), image)
    assert (prediction.status, prediction.finish_reason) == (Status.ERROR, "HTTP 400")


def test_a_reply_with_a_byte_order_mark_is_read(image: str) -> None:
    prediction, asked = ask(roborefer, raw(b'\xef\xbb\xbf{"answer": "[1]"}'), image)
    assert (prediction.text, asked) == ("[1]", 1)


@pytest.mark.parametrize(
    "content",
    [b"[" * 200_000, b'{"answer": ' + b"[" * 400 + b"]" * 400 + b"}", b"\xff\xfe{", b"", b"9" * 5000],
    ids=["brackets", "an answer of brackets", "no UTF-8", "nothing", "a number without end"],
)
def test_an_odd_reply_is_an_error(content: bytes, image: str) -> None:
    prediction, _ = ask(roborefer, raw(content), image, retries=0)
    assert prediction.status is Status.ERROR


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_reply_that_is_not_packed_as_it_says_is_an_error(encoding: str, image: str) -> None:
    rule = raw(b'{"answer": "a"}', headers={"Content-Encoding": encoding})
    prediction, _ = ask(roborefer, rule, image, retries=0)
    assert (prediction.status, prediction.finish_reason) == (Status.ERROR, "connection failed")


def test_a_server_that_drips_is_a_time_out_and_is_asked_again(image: str) -> None:
    began = time.monotonic()
    rule = raw(b'{"answer": "' + b" " * 1000, gap=0.05)
    prediction, asked = ask(roborefer, rule, image, retries=1, read_timeout=0.3)
    assert (prediction.status, prediction.finish_reason, asked) == (Status.ERROR, "time-out", 2)
    assert time.monotonic() - began < 5


def test_a_slow_reply_within_its_time_is_an_answer(image: str) -> None:
    prediction, asked = ask(roborefer, raw(b'{"answer": "[1]"}', gap=0.01), image, read_timeout=5)
    assert (prediction.text, asked) == ("[1]", 1)


@pytest.mark.parametrize("proxy", ["http://[", "foo://127.0.0.1:1", "http://127.0.0.1:abc"])
def test_a_proxy_that_is_no_address_is_told(proxy: str, image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(ConfigError, match=r"exec\.url: http://mine\.example/query cannot be asked: .*proxies"):
        list(roborefer.predict(make_requests(["a"], image), make_job("http://mine.example", {"model": "m"})))


def test_a_message_is_one_printable_line() -> None:
    assert one_line("a\n\tb\x1b[31m\x00\ud800" + "c" * 400) == "a b?[31m??" + "c" * 290 + "..."


# fmt: off
WORDS = st.sampled_from(
    ["a", "", "stop", "length", "STOP", "SAFETY", "text", "m", "\ud800", "5s", "error", "API_KEY_INVALID"]
)
NAMES = st.sampled_from([
    "choices", "message", "content", "refusal", "finish_reason", "model", "usage", "prompt_tokens", "type", "text",
    "error", "code", "metadata", "reasons", "detail", "details", "reason", "retryDelay", "candidates", "parts",
    "thought", "finishReason", "promptFeedback", "blockReason", "modelVersion", "usageMetadata", "answer", "0",
])
# fmt: on
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**20) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)


def likely(**fields: Any) -> Any:
    """An object whose fields mostly are as they should be."""
    return st.fixed_dictionaries({}, optional={name: VALUES | field for name, field in fields.items()})


MESSAGES = likely(content=WORDS | st.lists(likely(type=WORDS, text=WORDS), max_size=2), refusal=WORDS)
USAGE = likely(prompt_tokens=st.integers(), completion_tokens=st.integers())
PARTS = likely(parts=st.lists(likely(text=WORDS, thought=st.booleans()), max_size=2))
ERRORS = likely(
    message=WORDS,
    code=WORDS,
    metadata=likely(reasons=VALUES),
    details=st.lists(likely(reason=WORDS, retryDelay=WORDS), max_size=2),
)
REPLIES = {
    "openai": likely(
        choices=st.lists(likely(message=MESSAGES, finish_reason=WORDS), max_size=2),
        model=WORDS,
        usage=USAGE,
        error=ERRORS,
    ),
    "gemini": likely(
        candidates=st.lists(likely(content=PARTS, finishReason=WORDS), max_size=2),
        promptFeedback=likely(blockReason=WORDS),
        modelVersion=WORDS,
        usageMetadata=likely(promptTokenCount=st.integers(), thoughtsTokenCount=st.integers()),
    ),
    "roborefer": likely(answer=WORDS, error=VALUES),
}
JOB = make_job("http://a", {"model": "m"})
REQUEST = Request(0, "image.png", "text")


def read(name: str, reply: dict[str, Any]) -> Prediction:
    if name == "openai":
        return openai._read_reply(REQUEST, reply, JOB, (640, 480))
    if name == "gemini":
        return gemini._read_reply(REQUEST, reply, JOB)
    return roborefer._read_reply(REQUEST, reply)


@pytest.mark.parametrize("name", BACKENDS)
def test_whatever_a_reply_holds_is_an_answer_that_can_be_kept_or_none(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kept = 0
    with Store(tmp_path_factory.mktemp("store"), "val") as store:

        @settings(max_examples=300, deadline=None)
        @given(REPLIES[name])
        def check(reply: dict[str, Any]) -> None:
            nonlocal kept
            try:
                prediction = read(name, reply)
            except (NoAnswerError, ConfigError):
                return
            kept += 1
            store.append(str(kept), prediction)
            assert store.get(str(kept), 0) == prediction
            types = {type(prediction_row(prediction).get(field)) for field in ("text", "finish_reason")}
            assert types <= {str, type(None)}

        check()
    assert kept > 0


@settings(max_examples=300, deadline=None)
@given(st.integers(300, 599), ERRORS | VALUES, st.none() | st.text(max_size=9))
@example(429, {"details": [{"retryDelay": "9" * 400 + "s"}]}, None)
def test_whatever_an_error_holds_it_is_told_apart(status: int, body: object, retry_after: str | None) -> None:
    error = error_object(json.dumps({"error": body}), clean_text)
    openai._refusal(error)
    fault = fault_of("chat", "http://a", status, error, otherwise="", retry_after=retry_after)
    assert isinstance(fault, NoAnswerError | ConfigError | DataError)
    assert str(fault).isprintable()


DATES = st.lists(
    st.sampled_from(
        ["Mon,", "01", "31", "Jan", "0001", "99999", "00:00:00", "24:61", "-0000", "+9999999999", "9", "²"]
    ),
    max_size=9,
).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(DATES | st.text(max_size=20))
@example("Mon, 01 Jan 2030 00:00:00 +9999999999")
@example("1e400")
def test_whatever_retry_after_holds_is_a_wait_or_none(value: str) -> None:
    wait_s = retry_after_s(value, now=0.0)
    assert wait_s is None or 0 <= wait_s < float("inf")


def test_every_string_of_a_json_text_is_cleaned_names_too() -> None:
    assert parse_json('{"a": ["a", {"a": 1}], "b": null}', str.upper) == {"A": ["A", {"A": 1}], "B": None}
