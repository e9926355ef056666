import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from reftables.errors import ConfigError
from reftables.models import gemini
from reftables.rows import Prediction, Request, Status
from tests.asking import KEY, image_bytes, make_job, make_requests
from tests.server import TEXT, TOKENS, Server


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.jpg"
    path.write_bytes(image_bytes("WEBP"))
    return path


def ask(server: Server, image: Path, execution: dict[str, Any] | None = None, **identity: Any) -> list[Prediction]:
    job = make_job(server.url, {"model": "gemini-2.5-pro"} | identity, **(execution or {}))
    return list(gemini.predict(make_requests(["the red mug"], image), job))


def test_an_answer_comes_with_its_tokens_and_finish_reason(image: Path):
    with Server() as server:
        predictions = ask(server, image)
    assert predictions == [
        Prediction(id=0, status=Status.OK, text=TEXT, finish_reason="STOP", tokens_in=TOKENS[0], tokens_out=TOKENS[1])
    ]


def test_the_request_is_one_turn_of_image_and_text(image: Path):
    with Server() as server:
        ask(server, image)
    (asked,) = server.asked
    body = json.loads(json.dumps(asked.body))
    body["contents"][0]["parts"][0]["inlineData"]["data"] = "..."
    assert asked.path == "/v1beta/models/gemini-2.5-pro:generateContent"
    assert asked.images == [hashlib.sha256(image.read_bytes()).hexdigest()]
    assert body == {
        "contents": [
            {
                "role": "user",
                "parts": [{"inlineData": {"mimeType": "image/webp", "data": "..."}}, {"text": "the red mug"}],
            }
        ],
        "generationConfig": {"temperature": 0},
    }


def test_the_identity_reaches_the_body(image: Path):
    with Server() as server:
        ask(
            server,
            image,
            system="Be brief.",
            max_tokens=64,
            top_p=0.9,
            seed=7,
            temperature=None,
            extra={"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}, "safetySettings": []},
        )
    body = server.asked[0].body
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert body["safetySettings"] == []
    assert body["generationConfig"] == {
        "maxOutputTokens": 64,
        "topP": 0.9,
        "seed": 7,
        "thinkingConfig": {"thinkingBudget": 0},
    }


def test_the_key_travels_in_googles_header_only(image: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GEMINI_KEY", KEY)
    with Server() as server:
        ask(server, image, {"key_env": "GEMINI_KEY"})
    (asked,) = server.asked
    assert asked.headers["x-goog-api-key"] == KEY
    assert "authorization" not in asked.headers
    assert "key=" not in asked.path


def candidate(*parts: Any, finish: Any = "STOP", **reply: Any) -> dict[str, Any]:
    return {"reply": {"candidates": [{"content": {"parts": list(parts)}, "finishReason": finish}]} | reply}


@pytest.mark.parametrize(
    ("rule", "status", "text", "finish"),
    [
        pytest.param({}, Status.OK, TEXT, "STOP", id="answer"),
        pytest.param(candidate({"text": "[1, "}, {"text": "2]"}), Status.OK, "[1, 2]", "STOP", id="two parts"),
        pytest.param(
            candidate({"text": "Hm, (3, 4)?", "thought": True}, {"text": "[1]"}),
            Status.OK,
            "[1]",
            "STOP",
            id="thoughts",
        ),
        pytest.param({"finish": "MAX_TOKENS"}, Status.TRUNCATED, TEXT, "MAX_TOKENS", id="cut"),
        pytest.param(
            {"reply": {"candidates": [{"finishReason": "MAX_TOKENS"}]}},
            Status.TRUNCATED,
            "",
            "MAX_TOKENS",
            id="all spent on thoughts",
        ),
        pytest.param({"text": None}, Status.EMPTY, "", "STOP", id="no part"),
        pytest.param({"text": " "}, Status.EMPTY, " ", "STOP", id="blank"),
        pytest.param({"text": None, "finish": "OTHER"}, Status.EMPTY, "", "OTHER", id="stopped for no known reason"),
        pytest.param({"text": None, "finish": "SAFETY"}, Status.REFUSED, "", "SAFETY", id="safety"),
        pytest.param({"finish": "RECITATION"}, Status.REFUSED, TEXT, "RECITATION", id="recitation"),
        pytest.param({"text": None, "finish": "IMAGE_SAFETY"}, Status.REFUSED, "", "IMAGE_SAFETY", id="image safety"),
        pytest.param(candidate({"text": "a"}, finish="S\ud800P"), Status.OK, "a", "S?P", id="reason half a pair"),
        pytest.param(candidate({"text": "a"}, finish=float("nan")), Status.OK, "a", None, id="reason is no number"),
        pytest.param(candidate({"text": "a"}, finish=["STOP"]), Status.OK, "a", None, id="reason is a list"),
        pytest.param(candidate({"text": "a"}, {"text": None}), Status.OK, "a", "STOP", id="a part is null"),
        pytest.param(
            {"reply": {"candidates": [{"content": None, "finishReason": "SAFETY"}]}},
            Status.REFUSED,
            "",
            "SAFETY",
            id="content null",
        ),
        pytest.param({"blocked": "X\udfffY"}, Status.REFUSED, "", "X?Y", id="blocked for half a pair"),
        pytest.param({"blocked": "PROHIBITED_CONTENT"}, Status.REFUSED, "", "PROHIBITED_CONTENT", id="prompt blocked"),
    ],
)
def test_status_text_and_finish_reason_of_a_reply(
    rule: dict[str, Any], status: Status, text: str, finish: str, image: Path
):
    with Server({"do": "answer"} | rule) as server:
        (prediction,) = ask(server, image)
    assert (prediction.status, prediction.text, prediction.finish_reason) == (status, text, finish)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param({}, id="empty object"),
        pytest.param({"candidates": []}, id="no candidate, not blocked"),
        pytest.param({"candidates": ["text"]}, id="candidate is text"),
        pytest.param({"candidates": [{"content": {"parts": ["a"]}}]}, id="part is text"),
        pytest.param({"candidates": [{"content": {"parts": [{"text": 1}]}}]}, id="text is a number"),
        pytest.param({"promptFeedback": None}, id="feedback null"),
        pytest.param({"promptFeedback": {"blockReason": None}}, id="block reason null"),
        pytest.param({"promptFeedback": {"blockReason": float("nan")}}, id="block reason is no number"),
    ],
)
def test_a_reply_without_an_answer_is_asked_for_again_and_never_an_answer(reply: dict[str, Any], image: Path):
    with Server({"do": "answer", "reply": reply}) as server:
        (prediction,) = ask(server, image)
    assert (prediction.status, prediction.text) == (Status.ERROR, None)
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        pytest.param(
            {"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 5}, (9, 7), id="thoughts"
        ),
        pytest.param({"promptTokenCount": 9, "thoughtsTokenCount": 5}, (9, 5), id="thoughts only"),
        pytest.param({"promptTokenCount": 9}, (9, None), id="prompt only"),
        pytest.param(None, (None, None), id="not counted"),
    ],
)
def test_thoughts_count_as_tokens_out(usage: Any, tokens: tuple[int | None, int | None], image: Path):
    with Server({"do": "answer"} | candidate({"text": "a"}, usageMetadata=usage)) as server:
        (prediction,) = ask(server, image)
    assert (prediction.tokens_in, prediction.tokens_out) == tokens


def test_a_wrong_key_as_gemini_says_it_ends_the_run(image: Path):
    body = {"error": {"code": 400, "message": "API key not valid.", "details": [{"reason": "API_KEY_INVALID"}]}}
    with (
        Server({"do": "status", "status": 400, "body": body}) as server,
        pytest.raises(ConfigError, match=r"exec\.key_env: .* answered 400 \(API key not valid\.\)"),
    ):
        ask(server, image)


def test_the_answer_of_another_model_ends_the_run(image: Path):
    with (
        Server({"do": "answer", "model": "gemini-2.5-flash"}) as server,
        pytest.raises(ConfigError, match=r"asked for 'gemini-2\.5-pro', but 'gemini-2\.5-flash' answered"),
    ):
        ask(server, image)


@pytest.mark.parametrize("name", ["models/gemini-2.5-pro", "gemini-2.5-pro-001", "gemini-3-pro"])
def test_a_name_that_stands_for_the_model_is_accepted(name: str, image: Path):
    with Server({"do": "answer", "model": name}) as server:
        assert [p.status for p in ask(server, image, accept_models=["gemini-3-pro"])] == [Status.OK]


def decided(text: str = "the red mug", digest: str = "d1", url: str = "http://a", **identity: Any) -> str:
    job = make_job(url, {"model": "gemini-2.5-pro"} | identity, max_in_flight=len(url))
    return json.dumps(gemini.decides(Request(len(url), f"{url}/image.png", text), job, digest))


@pytest.mark.parametrize(
    "change",
    [
        {"text": "the blue mug"},
        {"digest": "d2"},
        {"model": "gemini-2.5-flash"},
        {"temperature": 1},
        {"system": "Be brief."},
        {"extra": {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_changes_the_request_asks_anew(change: dict[str, Any]):
    assert decided(**change) != decided()


def test_the_server_the_path_and_accepted_names_do_not_ask_anew():
    assert decided(url="http://another.server", accept_models=["x"]) == decided()


def test_nothing_to_ask_needs_no_key():
    assert list(gemini.predict([], make_job(None, {"model": "m"}, key_env="NOT_SET_KEY"))) == []


@pytest.mark.parametrize("model", ["a/b?c#d", "../x", "models/gemini-2.5-pro", "mödel", "a b", 5, ""])
def test_what_is_no_name_of_a_model_reaches_no_url(model: object):
    with pytest.raises(ConfigError, match=r"models\.chat\.identity\.model: .* is no name"):
        gemini.check(make_job(None, {"model": model}))


def test_identity_and_server_are_checked_before_anything_runs():
    gemini.check(make_job(None, {"model": "gemini-2.5-pro", "temperature": None}, key_env="NOT_SET_KEY"))
    with pytest.raises(ConfigError, match=r"identity\.top_p: 7 is no number from 0 to 1"):
        gemini.check(make_job(None, {"model": "gemini-2.5-pro", "top_p": 7}))
    with pytest.raises(ConfigError, match=r"exec\.retries: '3' is no whole number"):
        gemini.check(make_job(None, {"model": "gemini-2.5-pro"}, retries="3"))
