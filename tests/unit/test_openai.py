import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reftables.errors import ConfigError
from reftables.models import openai
from reftables.models.openai import RESIZES, Resize, seen_size
from reftables.rows import Coordinates, Prediction, Request, Status
from tests.asking import KEY, image_bytes, make_job, make_requests
from tests.server import TEXT, TOKENS, Server

QWEN = RESIZES["qwen2.5-vl"]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.png"
    path.write_bytes(image_bytes("JPEG", (640, 480)))
    return path


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def ask(
    server: Server,
    image: Path,
    texts: tuple[str, ...] = ("the red mug",),
    coordinates: Coordinates = Coordinates.PIXELS,
    execution: dict[str, Any] | None = None,
    **identity: Any,
) -> list[Prediction]:
    job = make_job(f"{server.url}/v1", {"model": "m"} | identity, coordinates=coordinates, **(execution or {}))
    return sorted(openai.predict(make_requests(texts, image), job), key=lambda p: p.id)


def test_an_answer_comes_with_its_tokens_and_finish_reason(server: Server, image: Path):
    assert ask(server, image) == [
        Prediction(
            id=0,
            status=Status.OK,
            text=TEXT,
            finish_reason="stop",
            tokens_in=TOKENS[0],
            tokens_out=TOKENS[1],
        )
    ]


def test_the_request_is_one_user_message_of_image_and_text(server: Server, image: Path):
    ask(server, image)
    (asked,) = server.asked
    body = json.loads(json.dumps(asked.body))
    body["messages"][0]["content"][0]["image_url"]["url"] = "..."
    assert asked.path == "/v1/chat/completions"
    assert body == {
        "model": "m",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "..."}},
                    {"type": "text", "text": "the red mug"},
                ],
            }
        ],
        "temperature": 0,
        "stream": False,
    }


def test_the_image_is_sent_byte_by_byte_with_its_true_media_type(server: Server, image: Path):
    ask(server, image)
    assert server.asked[0].images == [hashlib.sha256(image.read_bytes()).hexdigest()]
    assert server.asked[0].media_types == ["image/jpeg"]


def test_the_identity_reaches_the_body(server: Server, image: Path):
    ask(
        server,
        image,
        system="Be brief.",
        detail="high",
        max_tokens=64,
        top_p=0.9,
        seed=7,
        temperature=0.5,
        extra={"chat_template_kwargs": {"enable_thinking": False}},
    )
    body = server.asked[0].body
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert body["messages"][1]["content"][0]["image_url"]["detail"] == "high"
    decoding = {name: body[name] for name in ("max_tokens", "top_p", "seed", "temperature", "chat_template_kwargs")}
    assert decoding == {
        "max_tokens": 64,
        "top_p": 0.9,
        "seed": 7,
        "temperature": 0.5,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_the_temperature_can_be_left_to_the_server(server: Server, image: Path):
    ask(server, image, temperature=None, extra={"max_completion_tokens": 64})
    assert "temperature" not in server.asked[0].body


def test_streaming_cannot_be_asked_for(server: Server, image: Path):
    with pytest.raises(ConfigError, match=r"models\.chat\.identity\.extra\.stream: the request sets this already"):
        ask(server, image, extra={"stream": True})


def test_the_key_is_a_bearer_token(server: Server, image: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CHAT_KEY", KEY)
    ask(server, image, execution={"key_env": "CHAT_KEY"})
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


def choice(message: dict[str, Any], finish: Any = "stop", **reply: Any) -> dict[str, Any]:
    return {"do": "answer", "reply": {"choices": [{"message": message, "finish_reason": finish}]} | reply}


@pytest.mark.parametrize(
    ("rule", "status", "text", "finish"),
    [
        pytest.param({}, Status.OK, TEXT, "stop", id="answer"),
        pytest.param({"finish": None}, Status.OK, TEXT, None, id="no finish reason"),
        pytest.param({"finish": "length"}, Status.TRUNCATED, TEXT, "length", id="length"),
        pytest.param({"finish": "length", "text": None}, Status.TRUNCATED, "", "length", id="all spent on thoughts"),
        pytest.param({"finish": "model_length"}, Status.TRUNCATED, TEXT, "model_length", id="context full"),
        pytest.param({"text": None}, Status.EMPTY, "", "stop", id="content null"),
        pytest.param({"text": " \n"}, Status.EMPTY, " \n", "stop", id="blank"),
        pytest.param({"text": None, "finish": "tool_calls"}, Status.EMPTY, "", "tool_calls", id="tool call"),
        pytest.param({"finish": "content_filter"}, Status.REFUSED, TEXT, "content_filter", id="filtered"),
        pytest.param({"text": None, "refusal": "I can't."}, Status.REFUSED, "I can't.", "stop", id="refusal"),
        pytest.param(
            choice({"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "[1]"}]}),
            Status.OK,
            "[1]",
            "stop",
            id="content in parts",
        ),
        pytest.param(choice({"content": "a"}, "st\ud800p"), Status.OK, "a", "st?p", id="half a pair as the reason"),
        pytest.param(choice({"content": "a"}, float("nan")), Status.OK, "a", None, id="reason is no number"),
        pytest.param(choice({"content": "a"}, 5), Status.OK, "a", None, id="reason is a number"),
        pytest.param(choice({"content": "a"}, ["stop"]), Status.OK, "a", None, id="reason is a list"),
        pytest.param(choice({"content": "a"}, {"type": "stop"}), Status.OK, "a", None, id="reason is an object"),
        pytest.param(choice({"content": "cut \ud83d"}), Status.OK, "cut ?", "stop", id="half a surrogate pair"),
        pytest.param(choice({"reasoning_content": "hm"}), Status.EMPTY, "", "stop", id="thoughts only"),
        pytest.param(
            {"do": "status", "status": 400, "body": {"error": {"code": "content_filter", "message": "no"}}},
            Status.REFUSED,
            None,
            "content_filter",
            id="prompt filtered, as Azure says it",
        ),
        pytest.param(
            {"do": "status", "status": 403, "body": {"error": {"code": 403, "metadata": {"reasons": ["violence"]}}}},
            Status.REFUSED,
            None,
            "moderation",
            id="prompt filtered, as OpenRouter says it",
        ),
        pytest.param(
            {"do": "answer", "reply": {"error": {"code": "content_policy_violation"}}},
            Status.REFUSED,
            None,
            "content_policy_violation",
            id="filtered with status 200",
        ),
    ],
)
def test_status_text_and_finish_reason_of_a_reply(
    rule: dict[str, Any], status: Status, text: str | None, finish: str | None, image: Path
):
    with Server({"do": "answer"} | rule) as server:
        (prediction,) = ask(server, image)
    assert (prediction.status, prediction.text, prediction.finish_reason) == (status, text, finish)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param({}, id="empty object"),
        pytest.param({"choices": []}, id="no choice"),
        pytest.param({"choices": None, "error": {"message": "overloaded"}}, id="error with status 200"),
        pytest.param({"choices": ["text"]}, id="choice is text"),
        pytest.param({"choices": [{"text": "[1]"}]}, id="completion, not chat"),
        pytest.param({"choices": [{"message": None}]}, id="message null"),
        pytest.param({"choices": [{"message": {"content": 7}}]}, id="content is a number"),
        pytest.param({"choices": [{"message": {"content": [{"type": "text", "text": None}]}}]}, id="part is null"),
        pytest.param({"choices": [{"message": {"content": ["a"]}}]}, id="parts are text"),
        pytest.param({"choices": [{"message": {"content": "a"}, "finish_reason": "error"}]}, id="broken off"),
    ],
)
def test_a_reply_without_an_answer_is_asked_for_again_and_never_an_answer(reply: dict[str, Any], image: Path):
    with Server({"do": "answer", "reply": reply}) as server:
        (prediction,) = ask(server, image)
    assert (prediction.status, prediction.text) == (Status.ERROR, None)
    assert len(server.asked) == 3


@pytest.mark.parametrize("usage", [None, [], {}, {"prompt_tokens": None}], ids=str)
def test_a_reply_need_not_count_tokens(usage: Any, image: Path):
    with Server(choice({"content": "a"}, usage=usage)) as server:
        (prediction,) = ask(server, image)
    assert (prediction.status, prediction.tokens_in, prediction.tokens_out) == (Status.OK, None, None)


def test_the_answer_of_another_model_ends_the_run(image: Path):
    with (
        Server({"do": "answer", "model": "gpt-4o-mini"}) as server,
        pytest.raises(ConfigError, match="asked for 'gpt-4o', but 'gpt-4o-mini' answered"),
    ):
        ask(server, image, ("a", "b", "c"), model="gpt-4o", execution={"max_in_flight": 1})
    assert len(server.asked) == 1


def test_a_snapshot_of_the_model_asked_for_is_that_model(image: Path):
    with Server({"do": "answer", "model": "gpt-4o-2024-08-06"}) as server:
        assert [p.status for p in ask(server, image, model="gpt-4o")] == [Status.OK]


def test_nothing_to_ask_needs_neither_server_nor_key():
    assert list(openai.predict([], make_job(None, {"model": "m"}, key_env="NOT_SET_KEY"))) == []


DECIDING = {"model": "m", "temperature": 0, "max_tokens": 64, "extra": {"top_k": 1}, "revision": "a"}


def decided(text: str = "the red mug", digest: str = "d1", url: str = "http://a", **identity: Any) -> str:
    job = make_job(url, DECIDING | identity, max_in_flight=len(url))
    return json.dumps(openai.decides(Request(len(url), f"{url}/image.png", text), job, digest))


@pytest.mark.parametrize(
    "change",
    [
        {"text": "the blue mug"},
        {"digest": "d2"},
        {"model": "n"},
        {"temperature": 1},
        {"max_tokens": 65},
        {"extra": {"top_k": 2}},
        {"system": "Be brief."},
        {"revision": "b"},
        {"resize": "qwen2.5-vl"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_changes_the_request_asks_anew(change: dict[str, Any]):
    assert decided(**change) != decided()


def test_the_server_the_path_and_accepted_names_do_not_ask_anew():
    assert decided(url="http://another.server", accept_models=["x"]) == decided()


@pytest.mark.parametrize(
    ("size", "seen"),
    [
        pytest.param((640, 480), (644, 476), id="nearest multiples"),
        pytest.param((56, 56), (56, 56), id="exactly the fewest pixels"),
        pytest.param((1600, 900), (1596, 896), id="a SURDS image"),
        pytest.param((42, 140), (56, 140), id="half a multiple goes to the even one"),
        pytest.param((30, 30), (56, 56), id="stretched"),
        pytest.param((8000, 6000), (4116, 3080), id="shrunk"),
        pytest.param((10, 1990), (28, 812), id="a side that would vanish"),
    ],
)
def test_size_seen_after_resizing(size: tuple[int, int], seen: tuple[int, int]):
    assert seen_size(*size, QWEN) == seen


def test_limits_of_the_server_bound_the_size_seen():
    assert seen_size(640, 480, Resize(multiple=28, min_pixels=3136, max_pixels=256 * 28 * 28)) == (504, 364)


def test_an_endless_strip_has_no_size_seen():
    with pytest.raises(ValueError, match="10x2001 is longer than 200 to 1"):
        seen_size(10, 2001, QWEN)


@settings(max_examples=100, deadline=None)
@given(st.integers(14, 6000), st.integers(14, 6000), st.integers(4, 600), st.integers(1, 30))
def test_size_seen_keeps_limits_and_shape(width: int, height: int, fewest: int, spread: int):
    rule = Resize(multiple=28, min_pixels=fewest * 784, max_pixels=fewest * 784 * spread * 4)
    if max(width, height) > 200 * min(width, height):
        return
    seen_width, seen_height = seen_size(width, height, rule)
    assert seen_width % 28 == seen_height % 28 == 0
    assert seen_width * seen_height >= rule.min_pixels
    assert seen_width * seen_height <= rule.max_pixels or 28 in (seen_width, seen_height)
    assert seen_size(height, width, rule) == (seen_height, seen_width)


def test_predictions_hold_the_size_seen_where_the_server_resizes(server: Server, image: Path):
    predictions = ask(server, image, coordinates=Coordinates.RESIZED_PIXELS, resize="qwen2.5-vl", max_pixels=200704)
    assert [p.image_size for p in predictions] == [(504, 364)]


@pytest.fixture(params=["strip", "half", "gone", "TIFF"])
def unsendable(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An image that cannot be sent, or whose size after resizing cannot be told."""
    path = tmp_path / f"{request.param}.jpg"
    contents = {
        "strip": image_bytes("JPEG", (3000, 10)),
        "half": b"\xff\xd8\xff\xe0half",
        "gone": None,
        "TIFF": image_bytes("TIFF"),
    }
    if contents[request.param] is not None:
        path.write_bytes(contents[request.param])
    return path


def test_an_image_that_cannot_be_sent_stops_no_other_and_costs_nothing(server: Server, image: Path, unsendable: Path):
    job = make_job(
        f"{server.url}/v1",
        {"model": "m", "resize": "qwen2.5-vl"},
        coordinates=Coordinates.RESIZED_PIXELS,
        max_in_flight=1,
    )
    requests = [Request(0, str(image), "a"), Request(1, str(unsendable), "b"), Request(2, str(image), "c")]
    predictions = sorted(openai.predict(requests, job), key=lambda p: p.id)
    assert [p.status for p in predictions] == [Status.OK, Status.ERROR, Status.OK]
    assert str(predictions[1].finish_reason).startswith(f"{unsendable}: ")
    assert server.texts == ["a", "c"]


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        pytest.param({}, r"models\.chat\.identity\.resize: coordinates are resized_pixels; say by which", id="no rule"),
        pytest.param({"resize": "qwen9"}, "identity.resize: unknown rule 'qwen9'; known: qwen2.5-vl", id="unknown"),
        pytest.param({"resize": "qwen2.5-vl", "max_pixels": 1}, "max_pixels 1 are no limits", id="no room"),
        pytest.param({"resize": "qwen2.5-vl", "min_pixels": "1"}, "min_pixels '1' and", id="text"),
        pytest.param({"resize": "qwen2.5-vl", "min_pixels": True}, "min_pixels True and", id="boolean"),
        pytest.param({"resize": ["qwen2.5-vl"]}, r"identity.resize: unknown rule \['qwen2", id="a list"),
    ],
)
def test_resized_pixels_need_a_rule(identity: dict[str, Any], message: str):
    job = make_job("http://a", {"model": "m"} | identity, coordinates=Coordinates.RESIZED_PIXELS)
    with pytest.raises(ConfigError, match=message):
        openai.decides(Request(0, "image.png", "text"), job, "digest")


@pytest.mark.parametrize(("key", "value"), [("detail", 5), ("revision", 5), ("resize", 5), ("model", 5)])
def test_what_a_key_cannot_hold_is_found_before_anything_runs(key: str, value: object):
    with pytest.raises(ConfigError, match=rf"models\.chat\.identity\.{key}: .*5"):
        openai.check(make_job("http://a", {"model": "m"} | {key: value}))


def test_the_server_is_checked_before_anything_runs():
    with pytest.raises(ConfigError, match=r"models\.chat\.exec\.url: give the server's address"):
        openai.check(make_job(None, {"model": "m"}))
    openai.check(make_job("http://a", {"model": "m"}, key_env="NOT_SET_KEY"))
