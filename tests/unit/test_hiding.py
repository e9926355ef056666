"""Keys in logs: none, in whatever part of a record they stand."""

import logging
from typing import Any

import pytest

from reftables.hiding import hide_keys

KEY = "sk-'quoted'-0123456789"


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Logs a message, and returns the record that a handler got."""
    monkeypatch.setenv("SERVED_KEY", f" {KEY}\n")
    monkeypatch.setenv("SHORT_KEY", "a")
    logger = logging.Logger("hidden")  # of its own: a filter is never taken away
    logger.addHandler(caplog.handler)
    hide_keys(logger, {"a": {"exec": {"key_env": "SERVED_KEY"}}, "b": {"exec": {"key_env": "SHORT_KEY"}}, "c": {}})

    def log(message: object, *arguments: object, **extra: object) -> logging.LogRecord:
        logger.warning(message, *arguments, extra=extra)
        return caplog.records[-1]

    return log


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (f"environment: {KEY}", ()),
        (f"environment: {[KEY]!r}", ()),
        ("environment: %s", (KEY,)),
        ("environment: %(a)s", ({"a": KEY},)),
        (ValueError(KEY), ()),
    ],
    ids=["message", "repr", "argument", "named argument", "exception"],
)
def test_a_key_is_cut_out_of_a_message(logged: Any, message: object, arguments: tuple[object, ...]) -> None:
    told = logged(message, *arguments).getMessage()
    assert "quoted" not in told
    assert "[key]" in told


def test_a_key_is_cut_out_of_what_a_message_carries(logged: Any) -> None:
    record = logged("failed", shellcmd=f"curl {KEY}", aux=[{"log": (KEY,)}])
    assert (record.shellcmd, record.aux) == ("curl [key]", [{"log": ("[key]",)}])


def test_all_else_stays_as_it_is(logged: Any) -> None:
    assert logged("a word with an a").getMessage() == "a word with an a"
