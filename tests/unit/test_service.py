from typing import Any

import pytest

from reftables.errors import ConfigError
from reftables.models.service import EXECUTION, read_service
from tests.asking import KEY, make_job

URL = "http://127.0.0.1:8000/v1"


def test_defaults_are_the_documented_ones():
    job = make_job(URL, {"model": "m"})
    service = read_service(make_job(URL, {"model": "m"}), max_in_flight=1)
    assert (service.key, service.max_in_flight, service.requests_per_minute) == (None, 1, None)
    assert set(job.execution) <= EXECUTION


def test_a_backend_may_know_its_server():
    assert read_service(make_job(None, {"model": "m"}), url="https://known.example").url == "https://known.example"


def test_the_base_url_loses_its_last_slash():
    assert read_service(make_job(URL + "/", {"model": "m"})).url == URL


@pytest.mark.parametrize(
    ("execution", "message"),
    [
        pytest.param({"url": None}, r"models\.chat\.exec\.url: give the server's address", id="no url"),
        pytest.param({"url": "127.0.0.1:8000"}, "exec.url: give the server's address", id="no scheme"),
        pytest.param({"url": "http://"}, "exec.url: give the server's address", id="no host"),
        pytest.param({"url": "http://me:hidden@host"}, "A key goes by exec.key_env", id="password in the url"),
        pytest.param({"url": "https://host/v1?key=hidden"}, "A key goes by exec.key_env", id="key in the url"),
        pytest.param({"max_in_flight": 0}, "exec.max_in_flight: 0 is no number of 1 or more", id="no thread"),
        pytest.param({"retries": -1}, "exec.retries: -1 is no number of 0 or more", id="negative retries"),
        pytest.param({"read_timeout": "10"}, "exec.read_timeout: '10' is no number", id="text"),
        pytest.param({"backoff": True}, "exec.backoff: True is no number", id="boolean"),
        pytest.param({"read_timeout": float("inf")}, "exec.read_timeout: inf is no number", id="endless"),
        pytest.param({"requests_per_minute": 0}, "exec.requests_per_minute: 0 is no number", id="no rate"),
        pytest.param({"key_env": "NOT_SET_KEY"}, "variable NOT_SET_KEY is not set. Export the key", id="no key"),
        pytest.param({"key_env": "TWO_LINES_KEY"}, "variable TWO_LINES_KEY holds characters that no", id="broken key"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_its_key(
    execution: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("NOT_SET_KEY", raising=False)
    monkeypatch.setenv("TWO_LINES_KEY", "hidden\nhidden")
    with pytest.raises(ConfigError, match=message) as caught:
        read_service(make_job(URL, {"model": "m"}, **execution))
    assert "hidden" not in str(caught.value)


def test_blanks_around_a_key_are_not_part_of_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CHAT_KEY", f" {KEY}\n")
    assert read_service(make_job(URL, {"model": "m"}, key_env="CHAT_KEY")).key == KEY


def test_a_service_never_shows_its_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CHAT_KEY", KEY)
    assert KEY not in repr(read_service(make_job(URL, {"model": "m"}, key_env="CHAT_KEY")))


def test_a_key_is_cut_out_also_where_json_escaped_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CHAT_KEY", 'quo"ted')
    service = read_service(make_job(URL, {"model": "m"}, key_env="CHAT_KEY"))
    assert service.redact('{"echo": "quo\\"ted"} quo"ted') == '{"echo": "[key]"} [key]'
