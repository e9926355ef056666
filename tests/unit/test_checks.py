"""Every key of a server model's identity is checked when the configuration is read."""

import datetime
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from reftables.errors import ConfigError
from reftables.models import gemini, openai
from reftables.models.checks import check_json, check_number, check_text
from tests.asking import make_job

CHAT = pytest.mark.parametrize("backend", [openai, gemini], ids=["openai", "gemini"])


def job(**identity: Any) -> Any:
    return make_job("http://a", {"model": "m"} | identity)


@CHAT
@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("temperature", "hot", "number of 0 or more"),
        ("temperature", float("nan"), "number of 0 or more"),
        ("temperature", float("inf"), "number of 0 or more"),
        ("temperature", -1, "number of 0 or more"),
        ("temperature", True, "number of 0 or more"),
        ("max_tokens", 0, "whole number of 1 or more"),
        ("max_tokens", 64.5, "whole number of 1 or more"),
        ("max_tokens", "64", "whole number of 1 or more"),
        ("top_p", 7, "number from 0 to 1"),
        ("seed", "x", "whole number"),
        ("seed", True, "whole number"),
        ("system", 5, "text"),
        ("system", ["a"], "text"),
        ("system", "half \ud800", "text"),
        ("model", 5, "name"),
        ("model", "", "name"),
        ("model", "\ud800", "name"),
        ("accept_models", "x", "list of names"),
        ("accept_models", [5], "list of names"),
        ("extra", [], "mapping"),
    ],
)
def test_a_value_that_a_key_cannot_hold_is_named_with_what_can(
    backend: ModuleType, key: str, value: object, allowed: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^models\.chat\.identity\.{key}: .* is no {allowed}"):
        backend.check(job(**{key: value}))


@CHAT
@pytest.mark.parametrize(
    "extra",
    [
        pytest.param({"a": float("nan")}, id="not a number"),
        pytest.param({"a": [float("inf")]}, id="infinite"),
        pytest.param({"a": datetime.date(2025, 8, 7)}, id="date"),
        pytest.param({5: "a"}, id="name is a number"),
        pytest.param({"a": {5: "a", "b": 1}}, id="names of two types"),
        pytest.param({"a": "\udfff"}, id="half a surrogate pair"),
        pytest.param({"a": {"b"}}, id="set"),
    ],
)
def test_extra_holds_what_json_can_carry(backend: ModuleType, extra: dict[Any, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^models\.chat\.identity\.extra: JSON cannot carry .* finite numbers"):
        backend.check(job(extra=extra))


def test_extra_that_holds_itself_is_refused() -> None:
    extra: dict[str, Any] = {}
    extra["again"] = extra
    with pytest.raises(ConfigError, match="JSON cannot carry"):
        check_json("extra", extra)


@CHAT
def test_good_values_pass(backend: ModuleType) -> None:
    backend.check(
        job(
            temperature=0.5,
            max_tokens=1,
            top_p=1,
            seed=-3,
            system="Be brief.\n",
            extra={"a": [1, 2.5, None, True, {"b": "é"}]},
            accept_models=["x"],
        )
    )


@pytest.mark.parametrize("check", [check_number, check_text, check_json], ids=["number", "text", "JSON"])
def test_null_and_an_absent_key_pass(check: Callable[[str, object], None]) -> None:
    check("key", None)


def test_a_number_of_any_length_is_compared() -> None:
    check_number("key", 10**400, least=0, most=float("inf"), whole=True)
    with pytest.raises(ConfigError, match="no number from 0 to 1"):
        check_number("key", 10**400, least=0, most=1)
