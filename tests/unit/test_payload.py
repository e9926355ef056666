import base64
from pathlib import Path
from typing import Any

import pytest

from reftables.errors import ConfigError, DataError
from reftables.models.payload import check_model, clean_text, merge_extra, read_image, read_model, token_count
from tests.asking import image_bytes, make_job


@pytest.mark.parametrize(
    ("kind", "media_type"),
    [("JPEG", "image/jpeg"), ("PNG", "image/png"), ("WEBP", "image/webp"), ("GIF", "image/gif")],
)
def test_an_image_is_sent_as_it_is_stored_whatever_its_name(kind: str, media_type: str, tmp_path: Path):
    path = tmp_path / "image.jpg"
    path.write_bytes(image_bytes(kind))
    image = read_image(str(path))
    assert image.data_url == f"data:{media_type};base64,{image.base64}"
    assert base64.b64decode(image.base64) == path.read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"<html>", id="web page"),
        pytest.param(image_bytes("BMP"), id="BMP"),
        pytest.param(b"RIFF\0\0\0\0WAVE", id="sound"),
    ],
)
def test_a_file_that_is_no_image_is_an_error_that_names_it(content: bytes, tmp_path: Path):
    path = tmp_path / "image.jpg"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"image\.jpg: neither JPEG, PNG, WebP nor GIF \(it begins with b'"):
        read_image(str(path))


def test_a_missing_image_is_an_error_that_names_it(tmp_path: Path):
    with pytest.raises(DataError, match=r"gone\.jpg: this image cannot be read \(No such file"):
        read_image(str(tmp_path / "gone.jpg"))


def test_extra_adds_to_a_body_at_any_depth():
    body = {"model": "m", "config": {"temperature": 0}}
    merged = merge_extra(body, {"top_k": 1, "config": {"thinking": {"budget": 0}}}, key="models.chat.identity.extra")
    assert merged == {"model": "m", "top_k": 1, "config": {"temperature": 0, "thinking": {"budget": 0}}}
    assert body == {"model": "m", "config": {"temperature": 0}}


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        pytest.param({"model": "other"}, r"models\.chat\.identity\.extra\.model: the request sets this", id="set"),
        pytest.param({"config": {"temperature": 1}}, r"extra\.config\.temperature: the request sets this", id="below"),
        pytest.param({"config": 1}, r"extra\.config: the request sets this", id="a value for a mapping"),
        pytest.param("top_k", "extra: 'top_k' is no mapping", id="no mapping"),
    ],
)
def test_extra_never_replaces_what_the_request_sets(extra: Any, message: str):
    with pytest.raises(ConfigError, match=message):
        merge_extra({"model": "m", "config": {"temperature": 0}}, extra, key="models.chat.identity.extra")


@pytest.mark.parametrize(
    "replied",
    [
        pytest.param("gpt-4o", id="the same"),
        pytest.param("gpt-4o-2024-08-06", id="dated"),
        pytest.param("gpt-4o-20240806", id="dated without dashes"),
        pytest.param("gpt-4o-0806", id="month and day"),
        pytest.param("gpt-4o-08-06", id="month and day with a dash"),
        pytest.param("gpt-4o-001", id="numbered"),
        pytest.param("gpt-4o@main", id="revision"),
        pytest.param("alias", id="listed"),
        pytest.param("", id="empty"),
        pytest.param(None, id="not named"),
    ],
)
def test_a_reply_of_the_model_asked_for_is_accepted(replied: str | None):
    check_model(replied, make_job(None, {"model": "gpt-4o", "accept_models": ["alias"]}))


@pytest.mark.parametrize(
    "replied", ["gpt-4o-mini", "gpt-4o-mini-2024-07-18", "gpt-4", "gpt-4o-32k", "gpt-4o1", "gpt-4o-0806-mini"]
)
def test_a_reply_of_another_model_is_an_error_that_names_both(replied: str):
    with pytest.raises(ConfigError, match=rf"identity\.model: asked for 'gpt-4o', but '{replied}' answered"):
        check_model(replied, make_job(None, {"model": "gpt-4o", "accept_models": ["alias"]}))


def test_accepted_names_are_a_list():
    with pytest.raises(ConfigError, match="accept_models: 'alias' is no list"):
        check_model("a", make_job(None, {"model": "gpt-4o", "accept_models": "alias"}))


@pytest.mark.parametrize("model", [4, "", None])
def test_a_model_has_a_name(model: Any):
    with pytest.raises(ConfigError, match=r"identity\.model: .* is no name"):
        read_model(make_job(None, {"model": model}))


def test_half_a_surrogate_pair_becomes_a_question_mark():
    assert clean_text("a\ud83d, b\U0001f600") == "a?, b\U0001f600"


@pytest.mark.parametrize(("value", "count"), [(7, 7), (0, 0), (None, None), ("7", None), (True, None), (1.5, None)])
def test_tokens_are_counted_where_the_reply_counts_them(value: object, count: int | None):
    assert token_count(value) == count
