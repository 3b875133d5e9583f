"""Plays recorded model replies through the real SDKs, from a server on 127.0.0.1.

A recorded stream becomes the bytes of an HTTP response (:func:`pieces`), the server sends them, and a reader drives
the SDK the way an app would (:meth:`Sdks.read`). What the app saw comes back as a :class:`Reading`: the events it
received and the exception that ended them, so that a run with and one without the package can be compared.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import anthropic
import openai

from tests.support.loopback import ModelServer, Reply

SHARED = Path(__file__).resolve().parents[3] / "shared" / "cases"

SSE = "text/event-stream"
EVENTSTREAM = "application/vnd.amazon.eventstream"

_SSE_EVENT = re.compile(rb".*?(?:\r\n\r\n|\n\n|\r\r|\Z)", re.DOTALL)


def load(name: str) -> list[dict[str, Any]]:
    """Reads one file of the shared cases; an empty list where the folder is absent."""
    path = SHARED / name
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


# ---- what is on the wire --------------------------------------------------------------------------------------------


def _sse_pieces(body: str) -> list[bytes]:
    return [piece for piece in _SSE_EVENT.findall(body.encode()) if piece]


def _data_line_pieces(body: str) -> list[bytes]:
    return [sse(json.loads(line)) for line in body.split("\n") if line.strip()]


def _eventstream_pieces(body: str) -> list[bytes]:
    raw, found, at = base64.b64decode(body), [], 0
    while at < len(raw):
        (length,) = struct.unpack_from(">I", raw, at)
        found.append(raw[at : at + length])
        at += length
    return found


_PIECES: Mapping[str, Callable[[str], list[bytes]]] = {
    "sse": _sse_pieces,
    "data-lines": _data_line_pieces,
    "eventstream": _eventstream_pieces,
}


def pieces(stream: Mapping[str, Any]) -> list[bytes]:
    """The response body of a recorded stream, one element per event; joined they are the recorded bytes."""
    return _PIECES[stream["framing"]](stream["body"])


def sse(payload: Any) -> bytes:
    """One server-sent event; named by its ``type`` where it has one, as Anthropic's and the Responses API's are."""
    named = isinstance(payload, dict) and isinstance(payload.get("type"), str)
    name = f"event: {payload['type']}\n" if named else ""
    return f"{name}data: {json.dumps(payload, ensure_ascii=False)}\n\n".encode()


DONE = b"data: [DONE]\n\n"


# ---- the server -----------------------------------------------------------------------------------------------------

_ONE_CHUNK = 1 << 30


@dataclass(frozen=True)
class Script:
    """One response: what is sent, in which pieces, and how it ends."""

    pieces: Sequence[bytes]
    content_type: str = SSE
    broken: bool = False
    """The connection is dropped instead of the chunked body being closed: a transport error for the client."""
    hold: threading.Event | None = None
    """Waited for after the first ``hold_after`` pieces: the reply stands still until the test says go."""
    hold_after: int = 0

    def reply(self) -> Reply:
        body = b"".join(self.pieces)
        held = {len(b"".join(self.pieces[: self.hold_after])): self.hold} if self.hold is not None else {}
        return Reply(
            body,
            self.content_type,
            headers={"request-id": "req_replay", "x-request-id": "req_replay"},
            cut=len(body) if self.broken else None,
            chunk=_ONE_CHUNK,
            hold=held,
        )


class ReplayServer:
    """A model server that answers each request with the script that its ``x-replay`` header names."""

    def __init__(self, server: ModelServer) -> None:
        self.url = server.url
        self.requests = server.requests
        self._scripts: dict[str, Script] = {}
        self._numbers = itertools.count()
        server.reply(lambda request: self._scripts[request.headers["x-replay"]].reply(), path="")

    def put(self, script: Script) -> dict[str, str]:
        """Keeps a script; the headers that fetch it."""
        key = str(next(self._numbers))
        self._scripts[key] = script
        return {"x-replay": key}

    def clear(self) -> None:
        self._scripts.clear()
        self.requests.clear()


# ---- the SDKs -------------------------------------------------------------------------------------------------------

FAMILY_OF_PROVIDER = {
    "anthropic": "anthropic",
    "openai_chat": "chat",
    "openai_responses": "responses",
    "bedrock_invoke": "bedrock",
}


def family(provider: str) -> str | None:
    """The client that plays a provider's streams; None where the SDK is not one of these."""
    return "chat" if provider.startswith("openai_compat:") else FAMILY_OF_PROVIDER.get(provider)


_TURN: list[dict[str, str]] = [{"role": "user", "content": "What is the weather?"}]

REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "anthropic": {"model": "requested-model", "max_tokens": 64, "messages": _TURN},
    "bedrock": {"model": "requested-model", "max_tokens": 64, "messages": _TURN},
    "chat": {"model": "requested-model", "messages": _TURN},
    "responses": {"model": "requested-model", "input": "What is the weather?"},
}


def endpoint(client: Any, family: str) -> Any:
    """The resource of a client that an app of this family calls ``create`` and ``stream`` on."""
    return {
        "anthropic": lambda: client.messages,
        "bedrock": lambda: client.messages,
        "chat": lambda: client.chat.completions,
        "responses": lambda: client.responses,
    }[family]()


@dataclass
class Reading:
    """What an app saw of one reply."""

    events: list[Any] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def failure(self) -> tuple[type[BaseException], str] | None:
        """The exception in a form that can be compared."""
        return None if self.error is None else (type(self.error), str(self.error))


READERS = ("create", "create_async", "helper")


class Sdks:
    """The real clients, made once, all talking to one :class:`ReplayServer`."""

    def __init__(self, server: ReplayServer) -> None:
        self.server = server
        self.loop = asyncio.new_event_loop()

    @cached_property
    def _clients(self) -> dict[str, Any]:
        url = self.server.url
        aws = {"aws_access_key": "access", "aws_secret_key": "secret", "aws_region": "us-east-1"}
        common: dict[str, Any] = {"max_retries": 0, "timeout": 30.0}
        chat = openai.OpenAI(api_key="none", base_url=f"{url}/v1", **common)
        chat_async = openai.AsyncOpenAI(api_key="none", base_url=f"{url}/v1", **common)
        return {
            "anthropic": anthropic.Anthropic(api_key="none", base_url=url, **common),
            "anthropic_async": anthropic.AsyncAnthropic(api_key="none", base_url=url, **common),
            "bedrock": anthropic.AnthropicBedrock(base_url=url, **aws, **common),
            "bedrock_async": anthropic.AsyncAnthropicBedrock(base_url=url, **aws, **common),
            "chat": chat,
            "chat_async": chat_async,
            "responses": chat,
            "responses_async": chat_async,
        }

    def client(self, family: str) -> Any:
        return self._clients[family]

    def async_client(self, family: str) -> Any:
        return self._clients[f"{family}_async"]

    def run(self, coroutine: Any) -> Any:
        """Runs a coroutine on the one loop that the async clients live on."""
        return self.loop.run_until_complete(coroutine)

    def arguments(self, family: str, script: Script, **more: Any) -> dict[str, Any]:
        """Keyword arguments of a ``create`` or ``stream`` call that this script will answer."""
        return {**REQUESTS[family], "extra_headers": self.server.put(script), **more}

    def create(self, family: str, script: Script, **more: Any) -> Any:
        """The SDK's stream object for a script."""
        return endpoint(self.client(family), family).create(stream=True, **self.arguments(family, script, **more))

    def create_async(self, family: str, script: Script, **more: Any) -> Any:
        """The coroutine that gives the SDK's async stream object for a script."""
        create = endpoint(self.async_client(family), family).create
        return create(stream=True, **self.arguments(family, script, **more))

    def helper(self, family: str, script: Script, **more: Any) -> Any:
        """The SDK's ``.stream()`` context manager for a script."""
        return endpoint(self.client(family), family).stream(**self.arguments(family, script, **more))

    def read(self, family: str, script: Script, reader: str) -> Reading:
        """Reads one reply to its end, or to the exception that ends it."""
        reading = Reading()
        try:
            _READ[reader](self, family, script, reading.events)
        except Exception as error:  # noqa: BLE001 - whatever the app would see
            reading.error = error
        return reading

    def close(self) -> None:
        async def close_async() -> None:
            for name in ("anthropic_async", "bedrock_async", "chat_async"):
                await self._clients[name].close()

        if "_clients" in self.__dict__:
            for name in ("anthropic", "bedrock", "chat"):
                self._clients[name].close()
            self.run(close_async())
        self.run(self.loop.shutdown_asyncgens())
        self.loop.close()


def _read_create(sdks: Sdks, family: str, script: Script, events: list[Any]) -> None:
    with sdks.create(family, script) as stream:
        for event in stream:
            events.append(event)  # noqa: PERF402 - keeps what came before an exception


def _read_create_async(sdks: Sdks, family: str, script: Script, events: list[Any]) -> None:
    async def read() -> None:
        async with await sdks.create_async(family, script) as stream:
            async for event in stream:
                events.append(event)  # noqa: PERF401 - keeps what came before an exception

    sdks.run(read())


def _read_helper(sdks: Sdks, family: str, script: Script, events: list[Any]) -> None:
    with sdks.helper(family, script) as stream:
        for event in stream:
            events.append(event)  # noqa: PERF402 - keeps what came before an exception


_READ: Mapping[str, Callable[[Sdks, str, Script, list[Any]], None]] = {
    "create": _read_create,
    "create_async": _read_create_async,
    "helper": _read_helper,
}


def script_of(stream: Mapping[str, Any], **how: Any) -> Script:
    """The script that plays a recorded stream as it was."""
    content_type = EVENTSTREAM if stream["framing"] == "eventstream" else SSE
    return Script(pieces(stream), content_type, **how)


def walk(value: Any) -> Iterator[Any]:
    """Every leaf of a JSON value."""
    if isinstance(value, dict):
        yield from itertools.chain.from_iterable(map(walk, value.values()))
    elif isinstance(value, list):
        yield from itertools.chain.from_iterable(map(walk, value))
    else:
        yield value


def leaves(values: Iterable[Any]) -> Iterator[Any]:
    return itertools.chain.from_iterable(map(walk, values))
