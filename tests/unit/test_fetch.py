"""Fetching one file: what is continued, what is tried again, what is refused, and that nothing else gets its name."""

import contextlib
import hashlib
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reftables.errors import DataError
from reftables.fetch import CHUNK, Expected, Part, Patience, fetch, fetch_bytes, new_session, verify
from tests.conftest import REPOSITORY
from tests.server_files import FileServer
from tests.waiting import wait_for

CONTENT = bytes(range(256)) * 8192  # 2 MiB
CUT = 92 * CHUNK
HASTY = Patience(connect_s=5, read_s=0.5, retries=2, backoff_s=0.01)
PINNED = Expected(size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest(), origin="downloads.file")
NEWER = CONTENT[::-1]


def serve(*rules: dict[str, Any], content: bytes = CONTENT) -> FileServer:
    return FileServer({"/file": content}, *rules)


def get(server: FileServer, target: Path, expected: Expected = PINNED, patience: Patience = HASTY) -> bytes:
    fetch([f"{server.url}/file"], target, expected, remedy="Mend it.", patience=patience)
    return target.read_bytes()


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_comes_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    with serve() as server:
        url, found = fetch([f"{server.url}/file"], tmp_path / "deep" / "file", PINNED, remedy="")
    assert (url, found) == (f"{server.url}/file", (len(CONTENT), PINNED.sha256))
    assert (tmp_path / "deep" / "file").read_bytes() == CONTENT
    assert left_over(tmp_path / "deep") == ["file"]


@pytest.mark.parametrize(
    ("rules", "extra"),
    [
        pytest.param([{"do": "cut", "at": CUT, "times": 1}], 0, id="cut"),
        pytest.param([{"do": "cut", "at": CUT // 4, "times": 2}], 0, id="cut twice"),
        pytest.param([{"do": "stall", "at": CUT, "times": 1}], 0, id="stalled"),
        pytest.param([{"do": "cut", "at": CUT, "times": 1}, {"do": "whole"}], CUT, id="cut, no ranges"),
        pytest.param([{"do": "cut", "at": CUT, "times": 1}, {"do": "unversioned"}], CUT, id="cut, no ETag any more"),
        pytest.param([{"do": "cut", "at": 0, "times": 2}], 0, id="cut at once"),
        pytest.param([{"do": "status", "status": 500, "times": 2}], 0, id="500 twice"),
        pytest.param([{"do": "status", "status": 503, "times": 1}], 0, id="503"),
        pytest.param([{"do": "redirect", "to": "/file", "times": 3}], 0, id="redirects"),
        pytest.param([{"do": "endless"}], 0, id="no length"),
    ],
)
def test_what_passes_is_waited_for_and_costs_no_more_than_the_unfinished_part(
    tmp_path: Path, rules: list[dict[str, Any]], extra: int
) -> None:
    with serve(*rules) as server:
        assert get(server, tmp_path / "file") == CONTENT
    sent = sum(sent.bytes for sent in server.sent if sent.status in {200, 206})
    assert sent <= len(CONTENT) + extra


def test_an_interrupted_run_is_continued_by_the_next_one(tmp_path: Path) -> None:
    with (
        serve({"do": "cut", "at": CUT}) as server,
        pytest.raises(DataError, match=f"cut after {CUT:,} of 2,097,152 bytes"),
    ):
        get(server, tmp_path / "file", patience=Patience(retries=0))
    assert left_over(tmp_path) == [".file.part", ".file.part.json"]
    rest = continued(tmp_path, server.url, CONTENT)
    assert rest == len(CONTENT) - CUT


def continued(folder: Path, url: str, content: bytes, *rules: dict[str, Any]) -> int:
    """Run again with a server that has `content`; the bytes it sent. (Its port is another: the state is told.)"""
    with serve(*rules, content=content) as server:
        state = folder / ".file.part.json"
        state.write_text(state.read_text().replace(url, server.url))
        expected = Expected(sha256=hashlib.sha256(content).hexdigest())
        assert get(server, folder / "file", expected) == content
        return server.bytes_of()


@pytest.mark.parametrize("rules", [[], [{"do": "blind"}]], ids=["honours If-Range", "ignores If-Range"])
def test_a_file_that_changed_since_is_fetched_anew(tmp_path: Path, rules: list[dict[str, Any]]) -> None:
    with serve({"do": "cut", "at": CUT}) as server, pytest.raises(DataError):
        get(server, tmp_path / "file", patience=Patience(retries=0))
    assert continued(tmp_path, server.url, NEWER, *rules) >= len(NEWER)


def test_a_file_that_changes_in_the_middle_is_fetched_anew(tmp_path: Path) -> None:
    newer = Expected(sha256=hashlib.sha256(NEWER).hexdigest())
    with serve({"do": "cut", "at": CUT, "times": 1, "content": CONTENT}, content=NEWER) as server:
        assert get(server, tmp_path / "file", newer) == NEWER
    assert [(sent.range, sent.status) for sent in server.sent] == [(None, 200), (f"bytes={CUT}-", 200)]


def test_a_file_without_its_new_name_is_not_fetched_again(tmp_path: Path) -> None:
    with serve() as server:
        part = Part(tmp_path / "file")
        part.begin(f"{server.url}/file", f'"{hashlib.md5(CONTENT).hexdigest()}"')
        part.path.write_bytes(CONTENT)
        assert get(server, tmp_path / "file") == CONTENT
        assert server.bytes_of() == 0


def test_the_server_says_how_long_to_wait(tmp_path: Path) -> None:
    rule = {"do": "status", "status": 429, "headers": {"Retry-After": "1"}, "times": 1}
    with serve(rule) as server:
        began = time.monotonic()
        assert get(server, tmp_path / "file") == CONTENT
    assert time.monotonic() - began >= 1


def test_a_server_that_wants_hours_is_given_up(tmp_path: Path) -> None:
    with (
        serve({"do": "status", "status": 429, "headers": {"Retry-After": "7200"}}) as server,
        pytest.raises(DataError, match="the server asks to wait 7,200 s"),
    ):
        get(server, tmp_path / "file")
    assert len(server.sent) == 1


FLIPPED = CONTENT[:1000] + bytes([CONTENT[1000] ^ 1]) + CONTENT[1001:]
MD5 = Expected(md5=hashlib.md5(CONTENT).hexdigest(), origin="downloads.file")


@pytest.mark.parametrize(
    ("rule", "expected", "message"),
    [
        pytest.param({"do": "page"}, PINNED, "a web page (text/html), not the file", id="page"),
        pytest.param(
            {"do": "wrong", "content": b"\n <html><head>"},
            Expected(),
            "a web page, beginning with '<html'",
            id="mute page",
        ),
        pytest.param({"do": "status", "status": 403}, PINNED, "HTTP 403 Forbidden", id="403"),
        pytest.param({"do": "status", "status": 404}, PINNED, "HTTP 404 Not Found", id="404"),
        pytest.param({"do": "empty"}, Expected(), "no bytes at all", id="empty"),
        pytest.param({"do": "empty"}, PINNED, "0 bytes, expected 2,097,152 (downloads.file)", id="empty, pinned"),
        pytest.param(
            {"do": "short", "less": 1}, PINNED, "2,097,151 bytes, expected 2,097,152 (downloads.file)", id="short"
        ),
        pytest.param(
            {"do": "wrong", "content": FLIPPED},
            PINNED,
            f"sha256 {hashlib.sha256(FLIPPED).hexdigest()}, expected {PINNED.sha256} (downloads.file)",
            id="flipped",
        ),
        pytest.param(
            {"do": "wrong", "content": FLIPPED},
            MD5,
            f"md5 {hashlib.md5(FLIPPED).hexdigest()}, expected {MD5.md5} (downloads.file)",
            id="flipped, md5",
        ),
        pytest.param({"do": "redirect", "to": "/file"}, PINNED, "Exceeded 30 redirects", id="redirects for ever"),
        pytest.param({"do": "cut", "at": CHUNK}, PINNED, "cut after 32,768 of 2,097,152 bytes", id="always cut"),
        pytest.param({"do": "stall", "at": 0}, PINNED, "connection failed: ", id="silent"),
    ],
)
def test_what_is_not_the_file_is_refused_by_name_and_the_next_run_starts_clean(
    tmp_path: Path, rule: dict[str, Any], expected: Expected, message: str
) -> None:
    target = tmp_path / "file"
    with serve(rule) as server:
        with pytest.raises(DataError) as raised:
            get(server, target, expected, Patience(read_s=0.3, retries=1, backoff_s=0.01))
        assert f"{target} could not be fetched:\n  {server.url}/file: {message}" in str(raised.value)
        assert str(raised.value).endswith("\nMend it.")
        assert not target.exists()
    with serve() as mended:
        assert get(mended, target) == CONTENT
    assert left_over(tmp_path) == ["file"]


def test_mirrors_are_tried_in_order(tmp_path: Path) -> None:
    with serve({"do": "wrong", "content": FLIPPED}) as first, serve() as second, serve() as third:
        urls = [f"{server.url}/file" for server in (first, second, third)]
        url, _ = fetch(urls, tmp_path / "file", PINNED, remedy="", patience=HASTY)
        assert url == urls[1]
        assert third.sent == []


def test_every_mirror_is_named_when_none_has_the_file(tmp_path: Path) -> None:
    with serve({"do": "status", "status": 403}) as first, serve({"do": "empty"}) as second:
        urls = [f"{server.url}/file" for server in (first, second)]
        with pytest.raises(DataError) as raised:
            fetch(urls, tmp_path / "file", Expected(), remedy="Mend it.", patience=HASTY)
    lines = str(raised.value).split("\n")
    assert lines[1:] == [f"  {urls[0]}: HTTP 403 Forbidden", f"  {urls[1]}: no bytes at all", "Mend it."]


def test_a_server_that_is_down_is_tried_as_often_as_allowed(tmp_path: Path) -> None:
    with serve() as server:
        url = server.url
    with pytest.raises(DataError, match="connection failed: "):
        fetch([f"{url}/file"], tmp_path / "file", PINNED, remedy="", patience=HASTY)


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A disk that is full as soon as a file has `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_keeps_what_is_there_and_the_next_run_goes_on(tmp_path: Path) -> None:
    with serve() as server:
        with (
            files_of_at_most(CUT),
            pytest.raises(DataError, match=f"File too large after {CUT:,} bytes. Make room and run again"),
        ):
            get(server, tmp_path / "file")
        assert not (tmp_path / "file").exists()
        assert get(server, tmp_path / "file") == CONTENT
        assert server.sent[-1].bytes == len(CONTENT) - CUT


def test_too_small_a_disk_is_told_before_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with (
        serve() as server,
        pytest.raises(DataError, match="2,097,152 more bytes are needed, 1,000 are free"),
    ):
        get(server, tmp_path / "file")
    assert not (tmp_path / "file").exists()


FETCHING = """
import sys
from pathlib import Path
from reftables.fetch import CHUNK, Expected, fetch
fetch([sys.argv[1]], Path(sys.argv[2]), Expected(), remedy="")
"""


def test_a_killed_process_costs_the_unfinished_part(tmp_path: Path) -> None:
    part = tmp_path / ".file.part"
    with serve({"do": "stall", "at": CUT, "times": 1}) as server:
        child = subprocess.Popen(
            [sys.executable, "-c", FETCHING, f"{server.url}/file", str(tmp_path / "file")],
            env={"PYTHONPATH": str(REPOSITORY / "workflow" / "lib")},
            stderr=subprocess.DEVNULL,
        )
        wait_for(lambda: part.exists() and part.stat().st_size >= CUT - CHUNK, "the part", seconds=30)
        child.send_signal(signal.SIGKILL)
        child.wait()
        have = part.stat().st_size
        assert get(server, tmp_path / "file") == CONTENT
        assert (server.sent[-1].range, server.sent[-1].bytes) == (f"bytes={have}-", len(CONTENT) - have)
        assert have >= CUT - CHUNK


def test_a_small_file_is_fetched_without_a_place_on_disk() -> None:
    with serve({"do": "cut", "at": 10, "times": 1}) as server, new_session() as session:
        assert fetch_bytes(session, f"{server.url}/file", HASTY) == CONTENT


def test_a_proxy_of_the_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FileServer({"http://files.invalid/file": CONTENT}) as proxy:
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", proxy.url)
        fetch(["http://files.invalid/file"], tmp_path / "file", PINNED, remedy="", patience=HASTY)
    assert [sent.path for sent in proxy.sent] == ["http://files.invalid/file"]


def test_verifying_names_what_was_found_and_expected(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    assert verify(tmp_path / "file", PINNED) == (len(CONTENT), PINNED.sha256)


def test_threads_share_a_session() -> None:
    with serve() as server, new_session(4) as session:
        results: list[bytes] = []
        threads = [
            threading.Thread(target=lambda: results.append(fetch_bytes(session, f"{server.url}/file", HASTY)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [CONTENT] * 4
