"""A model server on 127.0.0.1 that sends exactly the pieces it is given, and stops where it is told."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("data")
HOLD_SECONDS = 20.0


def load(name: str) -> list[dict[str, Any]]:
    """The events of one recorded reply."""
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


def sse(event: Any) -> bytes:
    """One server-sent event, named as its provider names it."""
    if isinstance(event, bytes):
        return event
    name = event.get("event") or event.get("type")
    data = event["data"] if "event" in event else event
    return (f"event: {name}\n" if name else "").encode() + f"data: {json.dumps(data)}\n\n".encode()


@dataclass
class Reply:
    """``end``: ``whole``; ``cut`` drops the connection in the body; ``hold`` waits for the test after the events."""

    events: Sequence[Any]
    end: str = "whole"
    status: int = 200
    content_type: str = "text/event-stream"
    released: threading.Event | None = None

    def body(self) -> bytes:
        return b"".join(map(sse, self.events))


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ModelServer

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.seen.append(Seen(self.command, self.path, dict(self.headers), json.loads(raw) if raw else None))
        try:
            self._answer(self.server.replies.popleft())
        except OSError:
            self.close_connection = True

    do_GET = do_DELETE = do_POST  # noqa: N815  (its base gives the names)

    def _answer(self, reply: Reply) -> None:
        self.send_response(reply.status)
        self.send_header("content-type", reply.content_type)
        self.send_header("x-request-id", "req_1")
        self.send_header("request-id", "req_1")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        body = reply.body()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(body), body) if body else b"")
        self.wfile.flush()
        if reply.released is not None:
            reply.released.wait(HOLD_SECONDS)
        if reply.end == "cut":
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class ModelServer(ThreadingHTTPServer):
    """Answers each request with the next reply."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[Seen] = []
        self.replies: deque[Reply] = deque()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def stream(self, events: Sequence[Any], *, end: str = "whole") -> threading.Event:
        """The next reply is this stream. Returns what releases it where ``end`` is ``hold``."""
        released = threading.Event()
        self.replies.append(Reply(events, end, released=released if end == "hold" else None))
        return released

    def whole(self, message: Any, *, status: int = 200) -> None:
        """The next reply is this JSON document."""
        self.replies.append(Reply([json.dumps(message).encode()], status=status, content_type="application/json"))

    def reset(self) -> None:
        self.seen.clear()
        self.replies.clear()

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave in the middle of a reply are what the tests are about."""
