import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from reftables.errors import ConfigError, DataError
from reftables.models.faults import NoAnswerError
from reftables.models.hope import HOPELESS
from reftables.models.http import MOST_BYTES, Api, Pacer, answer_all
from reftables.models.service import read_service
from reftables.retry_after import retry_after_s
from reftables.rows import Prediction, Request, Status
from tests.asking import KEY, closed_port, make_job, make_requests
from tests.server import TEXT, Server


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def read(request: Request, reply: dict[str, Any]) -> Prediction:
    if "answer" not in reply:
        raise NoAnswerError("no answer in the reply", str(reply), again=True)
    return Prediction(id=request.id, status=Status.OK, text=reply["answer"])


PLAIN = Api(path="/query", body=lambda request: {"image_url": [], "depth_url": [], "text": request.text}, read=read)


def ask(url: str, texts: list[str], *, api: Api = PLAIN, **execution: Any) -> list[Prediction]:
    job = make_job(url, {"model": "m"}, **execution)
    return sorted(answer_all(make_requests(texts), job, api, read_service(job)), key=lambda p: p.id)


def status(code: int, message: str = "no", **rule: Any) -> dict[str, Any]:
    return {"do": "status", "status": code, "body": {"error": {"message": message}}} | rule


@pytest.mark.parametrize(
    ("rule", "tries", "reason"),
    [
        pytest.param(status(400), 1, "HTTP 400", id="bad request"),
        pytest.param(status(413), 1, "HTTP 413", id="too large"),
        pytest.param(status(422), 1, "HTTP 422", id="unprocessable"),
        pytest.param(status(408), 3, "HTTP 408", id="server timed out"),
        pytest.param(status(409), 3, "HTTP 409", id="conflict"),
        pytest.param(status(429), 3, "HTTP 429", id="too many requests"),
        pytest.param(status(500), 3, "HTTP 500", id="server error"),
        pytest.param(status(503), 3, "HTTP 503", id="overloaded"),
        pytest.param({"do": "reset"}, 3, "connection failed", id="connection reset"),
        pytest.param({"do": "half"}, 3, "not JSON", id="half a JSON"),
        pytest.param({"do": "cut"}, 3, "connection failed", id="reply cut short"),
        pytest.param({"do": "html"}, 3, "not JSON", id="a web page with status 200"),
        pytest.param({"do": "answer", "reply": [1]}, 3, "no JSON object", id="a list"),
        pytest.param({"do": "answer", "reply": {}}, 3, "no answer in the reply", id="an empty object"),
    ],
)
def test_a_request_that_fails_for_good_is_an_error_and_the_others_are_answered(
    rule: dict[str, Any], tries: int, reason: str
):
    with Server(rule | {"match": "second"}) as server:
        predictions = ask(server.url, ["first", "second", "third"])
    assert [(p.status, p.text, p.finish_reason) for p in predictions] == [
        (Status.OK, TEXT, None),
        (Status.ERROR, None, reason),
        (Status.OK, TEXT, None),
    ]
    assert server.texts.count("second") == tries


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(status(429, headers={"Retry-After": "0"}), id="429"),
        pytest.param(status(500), id="500"),
        pytest.param({"do": "reset"}, id="reset"),
        pytest.param({"do": "half"}, id="half a JSON"),
        pytest.param({"do": "cut"}, id="cut"),
        pytest.param({"do": "html"}, id="web page"),
    ],
)
def test_a_fault_that_passes_costs_tries_only(rule: dict[str, Any]):
    with Server(rule | {"times": 2}) as server:
        predictions = ask(server.url, ["only"])
    assert [p.status for p in predictions] == [Status.OK]
    assert server.texts == ["only"] * 3


def test_a_server_that_hangs_is_a_time_out_and_is_asked_again():
    with Server({"do": "hang", "times": 1}) as server:
        predictions = ask(server.url, ["only"], read_timeout=1.5)
    assert [p.status for p in predictions] == [Status.OK]
    assert len(server.asked) == 2


def test_a_server_that_always_hangs_is_an_error():
    with Server({"do": "hang"}) as server:
        predictions = ask(server.url, ["only"], read_timeout=0.1, retries=1)
    assert [(p.status, p.finish_reason) for p in predictions] == [(Status.ERROR, "time-out")]


def test_a_server_that_is_not_there_is_an_error():
    predictions = ask(f"http://127.0.0.1:{closed_port()}", ["only"])
    assert [(p.status, p.finish_reason) for p in predictions] == [(Status.ERROR, "connection failed")]


def test_the_server_decides_how_long_to_wait():
    with Server(status(429, headers={"Retry-After": "0.3"}, times=1)) as server:
        ask(server.url, ["only"], backoff=0.4)
    assert server.asked[1].time - server.asked[0].time >= 0.3 + 0.4 / 2


def test_a_wait_that_the_server_asks_for_holds_the_other_threads_too():
    limited = status(429, headers={"Retry-After": "1"}, match="first", times=1)
    with Server(limited, {"do": "answer", "match": "second", "delay": 0.5}) as server:
        ask(server.url, ["first", "second", "third"], max_in_flight=2)
    times = {asked.text: asked.time for asked in reversed(server.asked)}  # of the first try
    assert times["third"] - times["first"] >= 1


def test_gemini_says_how_long_to_wait_in_the_body():
    body = {"error": {"message": "quota", "details": ["odd", {"retryDelay": "0.3s"}]}}
    with Server({"do": "status", "status": 429, "body": body, "times": 1}) as server:
        ask(server.url, ["only"])
    assert server.asked[1].time - server.asked[0].time >= 0.3


def test_a_wait_beyond_all_patience_ends_the_run():
    with (
        Server(status(429, "daily quota used up", headers={"Retry-After": "36000"})) as server,
        pytest.raises(DataError, match=r"answered 429 \(daily quota used up\) and asks to wait 36,000 s. Run again"),
    ):
        ask(server.url, ["only"])


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        pytest.param(None, None, id="absent"),
        pytest.param("7", 7, id="seconds"),
        pytest.param("1.5", 1.5, id="fraction"),
        pytest.param("-3", 0, id="negative"),
        pytest.param("Sun, 06 Nov 1994 08:49:47 GMT", 10, id="HTTP date"),
        pytest.param("Sun, 06 Nov 1994 08:49:30 GMT", 0, id="date that has passed"),
        pytest.param("soon", None, id="neither"),
        pytest.param("inf", None, id="endless"),
        pytest.param("nan", None, id="no number"),
        pytest.param("", None, id="empty"),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None):
    assert retry_after_s(value, now=784111777.0) == seconds  # 08:49:37 of that day


def test_backoff_doubles_with_each_retry():
    with Server(status(500)) as server:
        ask(server.url, ["only"], retries=3, backoff=0.05)
    gaps = [after.time - before.time for before, after in zip(server.asked, server.asked[1:], strict=False)]
    assert [gap >= 0.05 * 2**n / 2 for n, gap in enumerate(gaps)] == [True, True, True]


def test_no_more_requests_than_allowed_are_under_way():
    with Server({"do": "answer", "delay": 0.1, "together": 3}) as server:
        ask(server.url, [str(n) for n in range(6)], max_in_flight=3)
    assert server.peak == 3


def test_requests_a_minute_are_kept_by_all_threads_together():
    began = time.monotonic()
    with Server() as server:
        ask(server.url, [str(n) for n in range(6)], requests_per_minute=1200)
    assert time.monotonic() - began >= 5 * 60 / 1200


def test_a_pause_holds_all_threads():
    pacer = Pacer(None)
    began = time.monotonic()
    pacer.pause(0.1)
    pacer.wait(threading.Event())
    assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        pytest.param(
            status(401, "Incorrect API key"),
            r"models\.chat\.exec\.key_env: http://127\.0\.0\.1:\d+/query answered 401 \(Incorrect API key\)\. "
            "Check that the key is right",
            id="401",
        ),
        pytest.param(status(403), "exec.key_env.* answered 403 .*key is right", id="403"),
        pytest.param(status(402), "exec.key_env.* answered 402 .*no credit", id="402"),
        pytest.param(status(404, "no such model"), r"exec\.url.* answered 404 \(no such model\)", id="404"),
        pytest.param(
            {"do": "status", "status": 429, "body": {"error": {"code": "insufficient_quota"}}},
            "exec.key_env.* answered 429 .*no credit",
            id="credit used up, as OpenAI says it",
        ),
        pytest.param(
            {"do": "status", "status": 400, "body": [{"error": {"details": [{"reason": "API_KEY_INVALID"}]}}]},
            "exec.key_env.* answered 400 .*key is right",
            id="wrong key, as Gemini says it",
        ),
    ],
)
def test_a_fault_of_the_setup_ends_the_run_at_once(rule: dict[str, Any], message: str):
    with Server(rule) as server, pytest.raises(ConfigError, match=message):
        ask(server.url, [str(n) for n in range(1000)], max_in_flight=4)
    assert len(server.asked) <= 4


def test_answers_given_before_a_fault_of_the_setup_are_yielded():
    with Server(status(401, after=3)) as server:
        job = make_job(server.url, {"model": "m"}, max_in_flight=1)
        answers = answer_all(make_requests(["a", "b", "c", "d", "e"]), job, PLAIN, read_service(job))
        assert [next(answers).id for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ConfigError, match="answered 401"):
            next(answers)
    assert len(server.asked) == 4


def test_what_is_under_way_when_the_run_ends_is_still_yielded():
    with Server(status(401, match="wrong"), {"do": "answer", "delay": 0.2}) as server:
        job = make_job(server.url, {"model": "m"}, max_in_flight=2)
        answers = answer_all(make_requests(["slow", "wrong"]), job, PLAIN, read_service(job))
        assert next(answers).text == TEXT
        with pytest.raises(ConfigError, match="answered 401"):
            next(answers)


def test_a_redirect_is_not_followed():
    with Server() as elsewhere:
        moved = status(302, headers={"Location": f"{elsewhere.url}/query"}, body=None)
        with Server(moved) as server, pytest.raises(ConfigError, match=rf"answered 302 \({elsewhere.url}/query\)"):
            ask(server.url, ["only"])
    assert elsewhere.asked == []


def test_a_server_that_fails_every_time_is_given_up():
    with Server(status(500, "out of memory")) as server:
        job = make_job(server.url, {"model": "m"}, max_in_flight=1, retries=0)
        answers = answer_all(make_requests([str(n) for n in range(1000)]), job, PLAIN, read_service(job))
        assert [next(answers).status for _ in range(HOPELESS)] == [Status.ERROR] * HOPELESS
        with pytest.raises(DataError, match=r"the last 20 requests to .* all failed, .* HTTP 500: out of memory\."):
            next(answers)
    assert len(server.asked) == HOPELESS


def test_a_server_that_only_turns_requests_down_is_given_up_if_it_never_answered():
    with Server(status(400, "unknown parameter")) as server, pytest.raises(DataError, match="unknown parameter"):
        ask(server.url, [str(n) for n in range(1000)], max_in_flight=1)
    assert len(server.asked) == HOPELESS


def test_a_server_that_has_answered_may_turn_down_any_number_of_requests():
    with Server(status(400, match="long")) as server:
        predictions = ask(server.url, ["short", *["long"] * 2 * HOPELESS], max_in_flight=1)
    assert [p.status for p in predictions] == [Status.OK] + [Status.ERROR] * 2 * HOPELESS


def test_only_failures_in_a_row_give_a_server_up():
    with Server(status(500, match="bad")) as server:
        predictions = ask(server.url, ["good", "bad"] * 2 * HOPELESS, max_in_flight=1, retries=0)
    assert [p.status for p in predictions] == [Status.OK, Status.ERROR] * 2 * HOPELESS


def test_a_bug_in_a_backend_is_no_wrong_answer():
    def broken(request: Request, reply: dict[str, Any]) -> Prediction:
        raise ZeroDivisionError("a bug")

    with Server() as server, pytest.raises(ZeroDivisionError, match="a bug"):
        ask(server.url, ["a", "b"], api=Api(path="/query", body=PLAIN.body, read=broken))


def test_answers_come_one_by_one():
    with Server({"do": "hang", "match": "second"}) as server:
        job = make_job(server.url, {"model": "m"}, max_in_flight=1)
        answers = answer_all(make_requests(["first", "second"]), job, PLAIN, read_service(job))
        assert next(answers).text == TEXT


def test_nothing_more_is_sent_once_nobody_wants_it():
    with Server({"do": "answer", "delay": 0.05}) as server:
        job = make_job(server.url, {"model": "m"}, max_in_flight=2)
        answers = answer_all(make_requests([str(n) for n in range(100)]), job, PLAIN, read_service(job))
        next(answers)
        answers.close()
        asked = len(server.asked)
        time.sleep(0.2)
    assert len(server.asked) <= asked + 2


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CHAT_KEY", KEY)
    return KEY


def test_the_key_travels_in_the_header(key: str):
    with Server() as server:
        ask(server.url, ["only"], key_env="CHAT_KEY")
    assert server.asked[0].headers["authorization"] == f"Bearer {key}"


def test_no_key_is_sent_where_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    passwords = tmp_path / "netrc"
    passwords.write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(passwords))
    with Server() as server:
        ask(server.url, ["only"])
    assert "authorization" not in server.asked[0].headers


@pytest.mark.parametrize("code", [400, 401, 500])
def test_a_key_that_an_error_repeats_stands_nowhere(code: int, key: str, caplog: pytest.LogCaptureFixture):
    raised = ""
    predictions: list[Prediction] = []
    with Server(status(code, "you sent {authorization}, in a field of 300 letters" + "." * 300)) as server:
        try:
            predictions = ask(server.url, ["only"], key_env="CHAT_KEY")
        except ConfigError as error:
            raised = str(error)
    said = raised + caplog.text + repr(predictions)
    assert "you sent Bearer [key]" in said
    assert key not in said


def test_a_key_that_an_answer_repeats_stands_in_no_prediction(key: str):
    with Server({"do": "answer", "text": f"the key is {key}"}) as server:
        predictions = ask(server.url, ["only"], key_env="CHAT_KEY")
    assert [p.text for p in predictions] == ["the key is [key]"]


def test_a_key_of_a_few_letters_cuts_nothing_out_of_answers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CHAT_KEY", "1")
    with Server() as server:
        predictions = ask(server.url, ["only"], key_env="CHAT_KEY")
    assert [p.text for p in predictions] == [TEXT]


SCRIPT = """
import signal, sys
from reftables.models import roborefer
from tests.asking import make_job, make_requests

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background
job = make_job(sys.argv[1], {"model": "m"}, max_in_flight=3, read_timeout=60)
for prediction in roborefer.predict(make_requests(["quick", "slow", "slow", "slow"], sys.argv[2]), job):
    print(prediction.text, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_stopped_process_ends_at_once_with_its_answers_given(number: int, tmp_path: Path, repository: Path):
    image = tmp_path / "image.png"
    image.write_bytes(b"\x89PNG\r\n\x1a\n")
    behaviour = tmp_path / "behaviour.json"
    behaviour.write_text('{"rules": [{"do": "hang", "match": "slow"}]}')
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(repository / "workflow" / "lib"), str(repository)])}

    def start(*arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=repository,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    with start("tests/server.py", "--behaviour", str(behaviour)) as server:
        port = server.stdout.readline().strip()
        with start("-c", SCRIPT, f"http://127.0.0.1:{port}", str(image)) as client:
            try:
                assert client.stdout.readline() == f"{TEXT}\n"
                client.send_signal(number)
                client.wait(timeout=5)
            finally:
                client.kill()
                server.kill()


def test_a_reply_without_end_is_cut_off():
    rule = {"do": "answer", "match": "much", "reply": {"answer": "x" * (MOST_BYTES + 1)}}
    with Server(rule) as server:
        answers = ask(server.url, ["much", "red mug"])
    assert [answer.status for answer in answers] == [Status.ERROR, Status.OK]
    assert answers[0].finish_reason == "reply too large"
    assert len(server.asked) == 2
