"""A model server of our own that fails on command, for tests of the server backends.

It speaks OpenAI's chat completions, Gemini's generateContent and RoboRefer's /query, and remembers what it
was asked. What it does is a list of rules; a request is met by the first rule that fits and is not used up,
and answered with `text` otherwise:

    {"text": "[1, 2, 3, 4]", "rules": [{"do": "status", "status": 429, "headers": {"Retry-After": "1"},
                                        "match": "red mug", "times": 2}]}

`match` is a part of the request's text (absent: all), `times` how often the rule holds (absent: always),
`after` how many requests it lets pass first, `together` how many must have been under way at once before it
acts (for at most a minute), `delay` the seconds before it acts, or until `release`. `do` is one of

- answer: `text`, `finish`, `model`, `refusal`, `blocked` (Gemini's promptFeedback), `reply` (the whole body)
- status: `status`, `headers`, `body` (JSON); `{authorization}` in it becomes what the key header held
- raw: `content` (bytes) as it stands, with `status` (200) and `headers`; `gap` sends a byte each so many seconds
- html: status 200 and a web page; half: half of the JSON, complete by its length; cut: the same, too short
- hang: `seconds` (60) without a byte; reset: the connection is torn down

From another process: `python tests/server.py --port 0 --behaviour FILE` prints its port; GET /asked gives
what it was asked, as JSON, without images and keys.
"""

import argparse
import base64
import contextlib
import hashlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TEXT = "[1, 2, 3, 4]"
TOKENS = (100, 7)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as it arrived."""

    path: str
    model: str | None
    text: str
    images: list[str]  # sha256 of each image's bytes
    media_types: list[str]
    time: float  # time.monotonic()
    headers: dict[str, str] = field(repr=False)
    body: dict[str, Any] = field(repr=False)


class Server:
    """Serves on 127.0.0.1 from a thread of its own; use it as a context manager."""

    def __init__(self, *rules: dict[str, Any], text: str = TEXT, port: int = 0) -> None:
        self.text = text
        self.asked: list[Asked] = []
        self.peak = 0  # most requests under way at once
        self._rules = [dict(rule) for rule in rules]
        self._under_way = 0
        self._lock = threading.Condition()
        self.released = threading.Event()
        self._http = _HTTPServer(("127.0.0.1", port), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def texts(self) -> list[str]:
        """The texts of all requests, in the order in which they came."""
        return [asked.text for asked in self.asked]

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def release(self) -> None:
        """End every delay and hang, now and from now on."""
        self.released.set()

    def __exit__(self, *_: object) -> None:
        self.release()
        self._http.shutdown()
        self._http.server_close()

    @contextlib.contextmanager
    def counted(self, asked: Asked) -> Iterator[dict[str, Any]]:
        """The rule for a request, which is under way until the block ends."""
        with self._lock:
            self.asked.append(asked)
            self._under_way += 1
            self.peak = max(self.peak, self._under_way)
            rule = self._rule(asked.text)
            self._lock.notify_all()
            self._lock.wait_for(lambda: self.peak >= rule.get("together", 0), timeout=60)
        try:
            yield rule
        finally:
            with self._lock:
                self._under_way -= 1

    def _rule(self, text: str) -> dict[str, Any]:
        for rule in self._rules:
            if rule.get("match", "") not in text or rule.get("times", 1) <= 0:
                continue
            if rule.get("after", 0) > 0:
                rule["after"] -= 1
                continue
            if "times" in rule:
                rule["times"] -= 1
            return rule
        return {"do": "answer"}


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    owner: Server

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away in the middle are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _HTTPServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        shown = [asdict(asked) | {"headers": None, "body": None} for asked in self.server.owner.asked]
        self._send(200, json.dumps(shown).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.server.owner.counted(read_asked(self.path, headers, body)) as rule:
            self._act(rule, body)

    def _act(self, rule: dict[str, Any], body: dict[str, Any]) -> None:
        reply = json.dumps(reply_of(self.path, body, {"text": self.server.owner.text} | rule)).encode()
        self.server.owner.released.wait(rule.get("delay", 0))
        match rule["do"]:
            case "answer":
                self._send(200, reply)
            case "status":
                held = self.headers.get("Authorization") or self.headers.get("x-goog-api-key") or ""
                error = json.dumps(rule.get("body", {"error": {"message": "failed on command"}}))
                self._send(rule["status"], error.replace("{authorization}", held).encode(), rule.get("headers"))
            case "raw":
                self._send_raw(rule)
            case "html":
                self._send(200, b"<html><body>Please sign in</body></html>", {"Content-Type": "text/html"})
            case "half":
                self._send(200, reply[: len(reply) // 2])
            case "cut":
                self._send(200, reply[: len(reply) // 2], {"Content-Length": str(len(reply))})
                self.close_connection = True
            case "hang":
                self.server.owner.released.wait(rule.get("seconds", 60))
                self.close_connection = True
            case "reset":
                # Linger for 0 seconds: closing sends RST instead of FIN.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True
            case unknown:
                raise ValueError(f"no such behaviour: {unknown}")

    def _send_raw(self, rule: dict[str, Any]) -> None:
        content: bytes = rule["content"]
        if "gap" not in rule:
            self._send(rule.get("status", 200), content, rule.get("headers"))
            return
        self._send(200, b"", {"Content-Length": str(len(content))})
        for byte in content:
            if self.server.owner.released.wait(rule["gap"]):
                break
            self.wfile.write(bytes([byte]))

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        sent = {"Content-Type": "application/json", "Content-Length": str(len(content))} | (headers or {})
        self.send_response(status)
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def read_asked(path: str, headers: dict[str, str], body: dict[str, Any]) -> Asked:
    """What a request of any of the three interfaces asks."""
    media_types: list[str] = []
    images: list[str] = []
    if path.endswith("/chat/completions"):
        model, parts = body["model"], body["messages"][-1]["content"]
        text = "".join(part["text"] for part in parts if part["type"] == "text")
        for part in parts:
            if part["type"] == "image_url":
                head, _, data = part["image_url"]["url"].partition(";base64,")
                media_types.append(head.removeprefix("data:"))
                images.append(data)
    elif path.endswith(":generateContent"):
        model, parts = path.rpartition("/")[2].partition(":")[0], body["contents"][-1]["parts"]
        text = "".join(part.get("text", "") for part in parts)
        media_types = [part["inlineData"]["mimeType"] for part in parts if "inlineData" in part]
        images = [part["inlineData"]["data"] for part in parts if "inlineData" in part]
    else:
        model, text, images = None, body["text"], [*body["image_url"], *body["depth_url"]]
    digests = [hashlib.sha256(base64.b64decode(image, validate=True)).hexdigest() for image in images]
    return Asked(
        path=path,
        model=model,
        text=text,
        images=digests,
        media_types=media_types,
        time=time.monotonic(),
        headers=headers,
        body=body,
    )


def reply_of(path: str, body: dict[str, Any], rule: dict[str, Any]) -> Any:
    """The body of a good reply, in the words of the interface asked."""
    if "reply" in rule:
        return rule["reply"]
    if path.endswith("/chat/completions"):
        message = {"role": "assistant", "content": rule["text"], "refusal": rule.get("refusal")}
        return {
            "object": "chat.completion",
            "model": rule.get("model", body["model"]),
            "choices": [{"index": 0, "message": message, "finish_reason": rule.get("finish", "stop")}],
            "usage": {"prompt_tokens": TOKENS[0], "completion_tokens": TOKENS[1]},
        }
    if path.endswith(":generateContent"):
        model = path.rpartition("/")[2].partition(":")[0]
        common = {
            "modelVersion": rule.get("model", model),
            "usageMetadata": {"promptTokenCount": TOKENS[0], "candidatesTokenCount": TOKENS[1]},
        }
        if "blocked" in rule:
            return common | {"promptFeedback": {"blockReason": rule["blocked"]}}
        parts = [] if rule["text"] is None else [{"text": rule["text"]}]
        content = {"role": "model", "parts": parts}
        return common | {"candidates": [{"content": content, "finishReason": rule.get("finish", "STOP")}]}
    return {"answer": rule["text"]}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0 = any free one")
    parser.add_argument("--behaviour", type=Path, help="JSON file: text and rules")
    args = parser.parse_args(argv)
    behaviour = json.loads(args.behaviour.read_text(encoding="utf-8")) if args.behaviour else {}
    rules = behaviour.get("rules", [])
    with Server(*rules, text=behaviour.get("text", TEXT), port=args.port) as server:
        print(server.url.rpartition(":")[2], flush=True)
        server.released.wait()  # until the process is ended


if __name__ == "__main__":
    main()
