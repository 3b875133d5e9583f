"""A workload over an SDK of the generated base: in-memory transport, and the replay of chunks parsed beforehand.

In *replay* the SDK's own generator (``Stream.__stream__``) yields chunks that it parsed once, before the measurement.
All else of the SDK runs as always, and so does whatever a contestant has put around it: what is left is the hook.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, ClassVar

from benchmarks.shapes import Shape

__all__ = ["Workload", "install_replay", "server_sent"]

_chunks: list[Any] | None = None


def server_sent(event: dict[str, Any]) -> bytes:
    """One event as it stands in a body: one piece, as a network brings it."""
    named = f"event: {event['type']}\n" if "type" in event else ""
    return f"{named}data: {json.dumps(event, separators=(',', ':'))}\n\n".encode()


class Workload:
    """One way to stream a reply. Subclasses say how it is asked for and what comes."""

    name: ClassVar[str]
    sdk: ClassVar[str]
    """The module of the SDK, and of its distribution."""
    asynchronous: ClassVar[bool] = True
    """It is measured as an async stream too."""
    longest: ClassVar[int] = 20_000
    """Chunks up to which the SDK itself is linear."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.pieces = self.body(shape)
        self.chunks: list[Any] = []
        http = _http(importlib.import_module(f"{self.sdk}._streaming"))
        sync, asynchronous = _transports(http, self.pieces)
        self.client, self.async_client = self.clients(
            http.Client(transport=sync), http.AsyncClient(transport=asynchronous)
        )

    def body(self, shape: Shape) -> list[bytes]:
        raise NotImplementedError

    def clients(self, http: Any, async_http: Any) -> tuple[Any, Any]:
        raise NotImplementedError

    def open(self) -> Iterable[Any]:
        """Ask for the reply; what is returned is read to its end."""
        raise NotImplementedError

    async def aopen(self) -> AsyncIterable[Any]:
        raise NotImplementedError

    def raw(self) -> Iterable[Any]:
        """The SDK's own stream, where ``open`` makes something else of it."""
        return self.open()

    def parse(self) -> None:
        """Have the chunks at hand for a replay. Before anything is instrumented.

        Equal pieces are parsed once: what the SDK has just made is in the processor's cache when a hook reads it, and so
        it is in a replay of few objects, not of thousands.
        """
        whole = self.pieces[:]
        self.pieces[:] = dict.fromkeys(whole)
        parsed = dict(zip(self.pieces[:], self.raw(), strict=False))  # the last piece may be [DONE]
        self.pieces[:] = whole
        self.chunks = [parsed[piece] for piece in whole if piece in parsed]


def replay(chunks: list[Any] | None) -> None:
    """From now on every stream yields these; None for what its body says."""
    global _chunks  # noqa: PLW0603 - one child measures one thing at a time
    _chunks = chunks


def install_replay(sdk: str) -> None:
    """Before anything is instrumented: contestants wrap what then is the SDK's own."""
    streaming = importlib.import_module(f"{sdk}._streaming")
    streaming.Stream.__stream__ = _replaying(streaming.Stream.__stream__)
    streaming.AsyncStream.__stream__ = _areplaying(streaming.AsyncStream.__stream__)


def _replaying(original: Any) -> Any:
    def __stream__(self: Any) -> Iterator[Any]:
        if _chunks is None:
            yield from original(self)
            return
        response = self.response
        try:
            for chunk in _chunks:
                yield chunk
        finally:
            response.close()

    return __stream__


def _areplaying(original: Any) -> Any:
    async def __stream__(self: Any) -> AsyncIterator[Any]:
        if _chunks is None:
            async for chunk in original(self):
                yield chunk
            return
        response = self.response
        try:
            for chunk in _chunks:
                yield chunk
        finally:
            await response.aclose()

    return __stream__


def _http(streaming: Any) -> Any:
    """The HTTP library that this version of the SDK is built on."""
    name = "httpx2" if hasattr(streaming, "httpx2") else "httpx"
    return importlib.import_module(name)


def _transports(http: Any, pieces: list[bytes]) -> tuple[Any, Any]:
    headers = {"content-type": "text/event-stream"}

    class Body(http.SyncByteStream, http.AsyncByteStream):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[bytes]:
            yield from pieces

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

    class Sync(http.BaseTransport):  # type: ignore[misc, name-defined]
        def handle_request(self, request: Any) -> Any:
            return http.Response(200, headers=headers, stream=Body(), request=request)

    class Async(http.AsyncBaseTransport):  # type: ignore[misc, name-defined]
        async def handle_async_request(self, request: Any) -> Any:
            return http.Response(200, headers=headers, stream=Body(), request=request)

    return Sync(), Async()
