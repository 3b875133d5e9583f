"""A model server on loopback: it answers each request with a prepared reply, streamed as HTTP/1.1 chunks.

It knows nothing of any provider. What it is told to send, it sends, byte for byte, in the pieces and with the cut that
the reply asks for; what it was asked, it records. The demo and the tests of this package both stand on it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

__all__ = ["Body", "ModelServer", "Reply", "Request"]

_HELD_POLL_SECONDS = 0.05
"""How soon a handler that waits at a hold sees that the server is stopping."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came: header names in lower case, the body undecoded."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body read as JSON, ``None`` where there is none."""
        return json.loads(self.body) if self.body else None


@dataclass(frozen=True, slots=True)
class Reply:
    """One response: what is sent, in which pieces, and where it is broken off.

    ``chunk`` is the number of bytes per HTTP chunk; without it, each server-sent event is one chunk. ``cut`` breaks
    the connection off after that many bytes of the body, without the closing chunk; with ``reset`` by a TCP reset
    instead of a close. ``hold`` maps offsets in the body to events: what comes from that offset on is sent when the
    event is set. ``pace`` is a pause in seconds before each chunk but the first.
    """

    body: bytes
    content_type: str = "text/event-stream"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    reset: bool = False
    chunk: int | None = None
    hold: Mapping[int, threading.Event] = field(default_factory=dict)
    pace: float = 0.0

    def pieces(self) -> Iterator[tuple[bytes, threading.Event | None]]:
        """Yield each chunk of the body up to the cut, with the event that must be set before it is sent."""
        end = len(self.body) if self.cut is None else min(self.cut, len(self.body))
        start = 0
        while start < end:
            stop = min([self._chunk_end(start), end, *(offset for offset in self.hold if offset > start)])
            yield self.body[start:stop], self.hold.get(start)
            start = stop
        if end in self.hold:
            yield b"", self.hold[end]

    def _chunk_end(self, start: int) -> int:
        if self.chunk is not None:
            return start + self.chunk
        event_end = self.body.find(b"\n\n", start)
        return len(self.body) if event_end < 0 else event_end + 2


Body: TypeAlias = bytes | str | dict[str, Any] | list[Any] | Reply | Callable[[Request], "Body"]
"""What a reply may be made of: bytes or text as they are, data as JSON, or a function of the request that gives one."""


class ModelServer:
    """A context manager that listens on a free port of 127.0.0.1 while it is open.

    Replies without a path wait in a queue and are used once each, in order, whatever the path; replies with a path
    stay, and answer every request whose path (without its query) ends with it, once the queue is empty. A request
    that finds no reply gets a 404 that says so.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._queue: deque[Callable[[Request], Reply]] = deque()
        self._mapped: dict[str, Callable[[Request], Reply]] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._http = _HTTPServer(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, name="model-server", daemon=True
        )

    @property
    def url(self) -> str:
        """The address without a path, such as ``http://127.0.0.1:40123``."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def reply(
        self,
        body: Body,
        *,
        path: str | None = None,
        content_type: str | None = None,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        cut: int | None = None,
        reset: bool = False,
        chunk: int | None = None,
        hold: Mapping[int, threading.Event] | None = None,
    ) -> None:
        """Queue a reply, or with ``path`` make it the standing one there; the fields are those of `Reply`.

        Without ``content_type``, data is sent as ``application/json`` and bytes or text as ``text/event-stream``.
        """

        def make(request: Request) -> Reply:
            made: Body = body
            while callable(made):
                made = made(request)
            if isinstance(made, Reply):
                return made
            is_data = isinstance(made, (dict, list))
            raw = json.dumps(made).encode() if is_data else made.encode() if isinstance(made, str) else made
            kind = content_type or ("application/json" if is_data else "text/event-stream")
            return Reply(raw, kind, status, headers or {}, cut, reset, chunk, hold or {})  # type: ignore[arg-type]

        with self._lock:
            if path is None:
                self._queue.append(make)
            else:
                self._mapped[path] = make

    def __enter__(self) -> ModelServer:  # noqa: PYI034  (Self came with Python 3.11)
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopping.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def answer(self, request: Request) -> Reply:
        """Record the request and give the reply that is due."""
        with self._lock:
            self.requests.append(request)
            route = request.path.partition("?")[0]
            standing = (make for path, make in self._mapped.items() if route.endswith(path))
            make = self._queue.popleft() if self._queue else next(standing, None)
        if make is None:
            message = {"error": {"type": "not_found_error", "message": f"no reply for {request.method} {route}"}}
            return Reply(json.dumps(message).encode(), "application/json", 404)
        return make(request)

    def wait(self, held: threading.Event) -> bool:
        """Wait until ``held`` is set; false when the server stops first."""
        while not held.wait(_HELD_POLL_SECONDS):
            if self._stopping.is_set():
                return False
        return True

    def pause(self, seconds: float) -> None:
        """Wait that long, or until the server stops."""
        self._stopping.wait(seconds)


class _HTTPServer(ThreadingHTTPServer):
    owner: ModelServer
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that goes away in the middle of a reply is what this server is for."""


class _Handler(BaseHTTPRequestHandler):
    server: _HTTPServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.server.owner.answer(Request(self.command, self.path, headers, body))
        self.send_response(reply.status)
        self.send_header("content-type", reply.content_type)
        self.send_header("transfer-encoding", "chunked")
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self._send(reply)

    def _send(self, reply: Reply) -> None:
        owner = self.server.owner
        for number, (piece, held) in enumerate(reply.pieces()):
            if reply.pace and number:
                owner.pause(reply.pace)
            if held is not None and not owner.wait(held):
                self.close_connection = True
                return
            if piece:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if reply.cut is None:
            self.wfile.write(b"0\r\n\r\n")
            return
        self.close_connection = True
        if reply.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
