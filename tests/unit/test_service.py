from typing import Any
from urllib.parse import quote

import pytest

from reftables.errors import ConfigError
from reftables.models.service import EXECUTION, check_service, read_service
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
        pytest.param({"max_in_flight": 0}, "exec.max_in_flight: 0 is no whole number from 1 to 1,000", id="no thread"),
        pytest.param({"retries": -1}, "exec.retries: -1 is no whole number from 0 to 1,000", id="negative retries"),
        pytest.param({"read_timeout": "10"}, "exec.read_timeout: '10' is no number", id="text"),
        pytest.param({"backoff": True}, "exec.backoff: True is no number", id="boolean"),
        pytest.param({"read_timeout": float("inf")}, "exec.read_timeout: inf is no number", id="endless"),
        pytest.param({"requests_per_minute": 0}, "exec.requests_per_minute: 0 is no number", id="no rate"),
        pytest.param({"max_in_flight": 1.5}, "exec.max_in_flight: 1.5 is no whole number", id="half a thread"),
        pytest.param({"connect_timeout": 1e300}, "exec.connect_timeout: 1e.300 is no number from 0.001", id="ages"),
        pytest.param({"key_env": 5}, r"exec\.key_env: this is no name of an environment variable", id="key_env: 5"),
        pytest.param({"key_env": "sk-hidden/key"}, "key_env: this is no name of", id="the key for its variable"),
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


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:abc",
        "http://127.0.0.1:99999",
        "http://[::1",
        "http://[::zz]/",
        "http://a b/",
        "http://a/b c",
        "http://*",
        "http://.x.y",
        "http://a..b",
        f"http://{'a' * 300}",
        "http://\u2100.com",
        "http://\udc80.com",
        "http://127.0.0.1:1/\n",
        "http://user@",
        "ftp://host",
        ["http://host"],
        5,
    ],
    ids=lambda url: ascii(url)[:30],
)
def test_what_is_no_address_is_an_error_that_does_not_show_it(url: object):
    with pytest.raises(ConfigError, match=r"models\.chat\.exec\.url: give the server's address") as caught:
        check_service(make_job(url, {"model": "m"}))
    assert str(url) not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1]:8000/v1",
        "https://api.example.com",
        "http://my_gpu-1:80/a/b%20c",
        "http://münchen.example",
        "http://h.",
    ],
)
def test_what_is_an_address_is_taken_as_it_stands(url: str):
    assert read_service(make_job(url, {"model": "m"})).url == url


@pytest.mark.parametrize("url", ["https://host/v1?", "https://host/v1#"])
def test_an_address_ends_with_its_path(url: str):
    with pytest.raises(ConfigError, match="an address holds no user, query or fragment"):
        check_service(make_job(url, {"model": "m"}))


def test_a_service_can_be_checked_before_its_key_is_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NOT_SET_KEY", raising=False)
    check_service(make_job(URL, {"model": "m"}, key_env="NOT_SET_KEY"))


def test_a_setting_that_is_null_has_its_default():
    settings = {"url": None, "max_in_flight": None, "retries": None, "requests_per_minute": None, "key_env": None}
    service = read_service(make_job(URL, {"model": "m"}, **settings), url="https://known.example")
    assert (service.url, service.max_in_flight, service.retries) == ("https://known.example", 4, 5)


def test_blanks_around_a_key_are_not_part_of_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CHAT_KEY", f" {KEY}\n")
    assert read_service(make_job(URL, {"model": "m"}, key_env="CHAT_KEY")).key == KEY


def test_a_service_never_shows_its_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CHAT_KEY", KEY)
    assert KEY not in repr(read_service(make_job(URL, {"model": "m"}, key_env="CHAT_KEY")))


SPELLINGS = {
    "as it is": KEY,
    "slash escaped": KEY.replace("/", "\\/"),
    "plus escaped": KEY.replace("+", "\\u002b"),
    "in capitals": KEY.replace("+", "\\u002B"),
    "first letter escaped": f"\\u0073{KEY[1:]}",
    "every letter escaped": "".join(f"\\u{ord(letter):04x}" for letter in KEY),
    "JSON inside JSON": KEY.replace("/", "\\\\\\/").replace("+", "\\\\u002b"),
    "in a URL": quote(KEY, safe=""),
    "in a URL, small letters": quote(KEY, safe="").lower(),
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_a_key_is_cut_out_however_it_is_spelt(spelling: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CHAT_KEY", KEY)
    service = read_service(make_job(URL, {"model": "m"}, key_env="CHAT_KEY"))
    assert service.redact(f'{{"echo": "{spelling}!"}}') == '{"echo": "[key]!"}'


def test_a_key_with_quotes_and_backslashes_is_cut_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CHAT_KEY", r'quo"t\ed')
    service = read_service(make_job(URL, {"model": "m"}, key_env="CHAT_KEY"))
    assert service.redact(r'{"echo": "quo\"t\\ed"} quo"t\ed') == '{"echo": "[key]"} [key]'


def test_letters_of_another_case_are_no_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CHAT_KEY", KEY)
    assert read_service(make_job(URL, {"model": "m"}, key_env="CHAT_KEY")).redact(KEY.upper()) == KEY.upper()
