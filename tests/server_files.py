"""A file server of our own that fails on command, for tests of the downloads.

It serves `files` (path to content) with Content-Length, a strong ETag and ranges, and remembers what it was
asked and what it sent. What it does otherwise is a list of rules; a request is met by the first rule that fits
its path and is not used up:

    {"do": "cut", "at": 1000, "match": ".zip", "times": 2}

`match` is a part of the path (absent: all), `times` how often the rule holds (absent: always), `together` the
number of requests that must be under way before it acts. `do` is one of

- cut: the connection ends after `at` bytes of the body; stall: nothing follows them until the server closes
- status: `status`, `headers`; redirect: to `to`; page: status 200 and a web page
- wrong: `content` instead of the file's, otherwise in order; empty: a body of no bytes; short: all but the
  last `less` bytes, with their length; endless: without a length
- whole: as if there were no ranges; blind: ranges are served whatever `If-Range` says; unversioned: no ETag
"""

import hashlib
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

PAGE = b"<!DOCTYPE html><html><body>Please sign in</body></html>"


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One request and what it got."""

    path: str
    range: str | None
    status: int
    bytes: int


class FileServer:
    """Serves on 127.0.0.1 from threads of its own; use it as a context manager."""

    def __init__(self, files: dict[str, bytes], *rules: dict[str, Any]) -> None:
        self.files = files
        self.sent: list[Sent] = []
        self.peak = 0  # most requests under way at once
        self.closing = threading.Event()
        self._rules = [dict(rule) for rule in rules]
        self._under_way = 0
        self._lock = threading.Condition()
        self._http = _HTTPServer(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def bytes_of(self, part: str = "") -> int:
        """The bytes sent for paths that hold `part`."""
        return sum(sent.bytes for sent in self.sent if part in sent.path)

    def rule(self, path: str) -> dict[str, Any]:
        with self._lock:
            for rule in self._rules:
                if rule.get("match", "") in path and rule.get("times", 1) > 0:
                    if "times" in rule:
                        rule["times"] -= 1
                    return rule
        return {"do": "serve"}

    def began(self, together: int) -> None:
        """Count a request in, and hold it until `together` of them are under way."""
        with self._lock:
            self._under_way += 1
            self.peak = max(self.peak, self._under_way)
            self._lock.notify_all()
            self._lock.wait_for(lambda: self._under_way >= together, timeout=10)

    def ended(self, sent: Sent) -> None:
        with self._lock:
            self._under_way -= 1
            self.sent.append(sent)

    def __enter__(self) -> "FileServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    owner: FileServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away in the middle are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _HTTPServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        """Not counted, and met by no rule."""
        content = self.server.owner.files.get(unquote(self.path))
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()

    def do_GET(self) -> None:
        owner = self.server.owner
        path = unquote(self.path)
        self._status, self._bytes = 0, 0
        rule = owner.rule(path)
        owner.began(rule.get("together", 0))
        try:
            self._act(path, rule)
        finally:
            owner.ended(
                Sent(path=path, range=self.headers.get("Range"), status=self._status, bytes=self._bytes),
            )

    def _act(self, path: str, rule: dict[str, Any]) -> None:
        content = rule.get("content", self.server.owner.files.get(path))
        match rule["do"]:
            case "status":
                self._send(rule["status"], rule.get("headers", {}), b"failed on command")
            case "redirect":
                self._send(302, {"Location": rule["to"]}, b"")
            case "page":
                self._send(200, {"Content-Type": "text/html; charset=utf-8"}, PAGE)
            case "empty":
                self._send(200, {}, b"")
            case _ if content is None:
                self._send(404, {}, b"no such file")
            case "short":
                self._send(200, {}, content[: len(content) - rule["less"]])
            case "endless":
                self._send(200, {"Connection": "close", "Content-Length": None}, content)
                self.close_connection = True
            case _:
                self._serve(content, rule)

    def _serve(self, content: bytes, rule: dict[str, Any]) -> None:
        """The file or the range of it that was asked for."""
        etag = f'"{hashlib.md5(content).hexdigest()}"'
        headers: dict[str, str | None] = {} if rule["do"] == "unversioned" else {"ETag": etag}
        start = self._start(etag, rule)
        if start is None:
            self._send(200, headers, content, rule)
        elif start >= len(content):
            self._send(416, headers | {"Content-Range": f"bytes */{len(content)}"}, b"")
        else:
            place = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self._send(206, headers | {"Content-Range": place}, content[start:], rule)

    def _start(self, etag: str, rule: dict[str, Any]) -> int | None:
        asked = self.headers.get("Range")
        if asked is None or rule["do"] in {"whole", "unversioned"}:
            return None
        if rule["do"] != "blind" and self.headers.get("If-Range", etag) != etag:
            return None
        return int(asked.removeprefix("bytes=").removesuffix("-"))

    def _send(
        self, status: int, headers: dict[str, str | None], body: bytes, rule: dict[str, Any] | None = None
    ) -> None:
        self._status = status
        self.send_response(status)
        standard = {"Content-Type": "application/octet-stream", "Content-Length": str(len(body))}
        for name, value in (standard | headers).items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        rule = rule or {"do": "serve"}
        part = body[: rule["at"]] if rule["do"] in {"cut", "stall"} else body
        for begin in range(0, len(part), 1 << 16):
            self.wfile.write(part[begin : begin + (1 << 16)])
            self._bytes += len(part[begin : begin + (1 << 16)])
        if rule["do"] == "stall":
            self.server.owner.closing.wait(60)
        if rule["do"] in {"cut", "stall"}:
            self.close_connection = True
