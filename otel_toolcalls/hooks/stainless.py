"""The SDKs that share a generated base: anthropic, openai, groq, together, cerebras.

One choke point sees every decoded event of every streaming surface exactly once: ``Stream.__stream__`` and its async
twin. ``BaseClient._build_request`` sees each prepared request body, ``BaseAPIResponse._parse`` each whole reply.
Bodies that the app reads itself, byte by byte, pass none of them and are not observed.
"""

from __future__ import annotations

import contextvars
import copy
import json
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any, Final

from otel_toolcalls.guard import guarded
from otel_toolcalls.hooks import running
from otel_toolcalls.hooks.asking import asked_in, wrap_manager
from otel_toolcalls.hooks.observation import (
    Observation,
    Source,
    adrive,
    drive,
    observe_failure,
    observe_reply,
)
from otel_toolcalls.hooks.patching import Hook, Target, Wrapper
from otel_toolcalls.runtime import Runtime
from otel_toolcalls.turn import Request
from otel_toolcalls.wire import (
    ReadRequest,
    WireType,
    anthropic_messages,
    openai_assistants,
    openai_chat,
    openai_responses,
)
from otel_toolcalls.wire.reading import clean, field

__all__ = ["HOOKS"]

_EXTENSION: Final = "otel_toolcalls"
"""Where a request carries what we know of it: httpx keeps ``extensions`` to itself, through redirects too."""


@dataclass(frozen=True, slots=True)
class _Protocol:
    wire: WireType
    read: ReadRequest


_ANTHROPIC: Final = _Protocol(anthropic_messages.AnthropicMessages, anthropic_messages.read_request)
_CHAT: Final = _Protocol(openai_chat.OpenAIChat, openai_chat.read_request)
_RESPONSES: Final = _Protocol(openai_responses.OpenAIResponses, openai_responses.read_request)
_ASSISTANTS: Final = _Protocol(openai_assistants.OpenAIAssistants, openai_assistants.read_request)

_ANTHROPIC_ROUTES: Final = (("post", re.compile(r"/messages$"), _ANTHROPIC),)
_OPENAI_ROUTES: Final = (
    ("post", re.compile(r"/chat/completions$"), _CHAT),
    ("post", re.compile(r"/responses$"), _RESPONSES),
    ("get", re.compile(r"/responses/(?P<resumes>[^/]+)$"), _RESPONSES),
    ("post", re.compile(r"/threads(?:/[^/]+)?/runs$|/threads/[^/]+/runs/[^/]+/submit_tool_outputs$"), _ASSISTANTS),
    ("get", re.compile(r"/threads/[^/]+/runs/(?P<resumes>[^/]+)$"), _ASSISTANTS),
)
"""Method and last part of a request's path, before a cloud rewrites it → the protocol of its response."""

_PROVIDERS: Final[Mapping[str, str]] = {
    "AnthropicBedrock": "aws.bedrock",
    "AnthropicVertex": "gcp.vertex_ai",
    "AnthropicFoundry": "azure.ai.inference",
    "AzureOpenAI": "azure.ai.openai",
    "BedrockOpenAI": "aws.bedrock",
}
"""Client classes (by prefix, without ``Async``) whose provider is not the SDK's own.

Anthropic runs its API on AWS and Google Cloud itself too (``AnthropicAWS``, ``AnthropicGoogleCloud``): that stays its own.
"""

_HOSTS: Final = (
    ("openai.azure.com", "azure.ai.openai"),
    ("services.ai.azure.com", "azure.ai.inference"),
    ("groq.com", "groq"),
    ("x.ai", "x_ai"),
    ("deepseek.com", "deepseek"),
    ("mistral.ai", "mistral_ai"),
    ("perplexity.ai", "perplexity"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("amazonaws.com", "aws.bedrock"),
)
"""Endpoints that speak OpenAI's protocols but are others, by the end of their host name."""


class _Known:
    """What is known of one request."""

    __slots__ = ("_runtime", "done", "exists", "protocol", "request")

    def __init__(self, protocol: _Protocol, request: Request, runtime: Runtime, *, exists: bool = False) -> None:
        self.protocol = protocol
        self.request = request
        self._runtime = runtime
        self.exists = exists
        """It asks for a response that exists already, which may not be over."""
        self.done = False
        """Its response is being observed: a second parse of the same reply is not a second reply."""

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        # Who copies or pickles the extensions of a request gets None for this: it belongs to the one request.
        return type(None), ()

    def __del__(self) -> None:
        guarded("unread", self._unread)

    def _unread(self) -> None:
        # Nobody read the response. Where the request answered calls, the traces must say so all the same.
        if not self.done and self.request.results:
            self._runtime.unread(self.request)


class _Attempt:
    """One call of the SDK's ``request``: what the app asked for, before clouds rewrite it, and what was sent last."""

    __slots__ = ("asked_in", "known", "model", "path")

    def __init__(self, runtime: Runtime, options: Any) -> None:
        helper = asked_in()
        self.asked_in = (runtime.here(),) if helper is None else (runtime.here(), helper)
        body = field(options, "json_data")
        self.model = clean(field(body, "model")) if isinstance(body, Mapping) else None
        self.path = str(field(options, "url") or "")
        self.known: _Known | None = None


_attempt: contextvars.ContextVar[_Attempt | None] = contextvars.ContextVar("otel_toolcalls_attempt", default=None)


# ---- requests -------------------------------------------------------------------------------------------------------


def _wrap_request(runtime: Runtime) -> Wrapper:
    """``SyncAPIClient.request``: what was asked for, and a request that gets no response."""

    def request(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        attempt = guarded("request", _begin_attempt, runtime, args, kwargs)
        before = _attempt.get()
        _attempt.set(attempt)
        try:
            return wrapped(*args, **kwargs)
        except BaseException as error:
            guarded("request", _failed, runtime, attempt, error)
            raise
        finally:
            _attempt.set(before)  # not reset(): a coroutine may be closed in another context, where that raises

    return request


def _wrap_async_request(runtime: Runtime) -> Wrapper:
    """``AsyncAPIClient.request``, the same."""

    def request(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _request_async(runtime, wrapped, args, kwargs)

    return request


async def _request_async(runtime: Runtime, wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    attempt = guarded("request", _begin_attempt, runtime, args, kwargs)
    before = _attempt.get()
    _attempt.set(attempt)
    try:
        return await wrapped(*args, **kwargs)
    except BaseException as error:
        guarded("request", _failed, runtime, attempt, error)
        raise
    finally:
        _attempt.set(before)  # not reset(): a coroutine may be closed in another context, where that raises


def _begin_attempt(runtime: Runtime, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Attempt:
    return _Attempt(runtime, kwargs["options"] if "options" in kwargs else args[1])


def _failed(runtime: Runtime, attempt: _Attempt | None, error: BaseException) -> None:
    if attempt is None or attempt.known is None:
        return
    known, attempt.known = attempt.known, None  # the error's traceback keeps the attempt
    if not known.done:
        known.done = True
        observe_failure(runtime, known.request, error)
    guarded("forget", _forget, error)


def _wrap_build_request(provider: str) -> Callable[[Runtime], Wrapper]:
    """``BaseClient._build_request``: the body as it is sent. Called again for each retry."""

    def wrap(runtime: Runtime) -> Wrapper:
        def build_request(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            request = wrapped(*args, **kwargs)
            options = kwargs["options"] if "options" in kwargs else args[0]
            guarded("build_request", _note_request, runtime, provider, instance, options, request)
            return request

        return build_request

    return wrap


def _note_request(runtime: Runtime, provider: str, client: Any, options: Any, sent: Any) -> None:
    attempt = _attempt.get()
    path = (attempt.path if attempt is not None else "") or str(field(options, "url") or "")
    method = str(field(options, "method") or "").lower()
    found = _protocol(provider, method, path) or _protocol(provider, method, str(field(options, "url") or ""))
    if found is None:
        return
    protocol, resumes = found
    if attempt is not None and attempt.known is not None:
        known = attempt.known  # a retry: the same request, and the same results in it
    else:
        given = (field(options, "json_data"), field(options, "extra_json"), _raw_body(field(options, "content")))
        body = [part for part in given if isinstance(part, Mapping)]
        read = protocol.read({name: value for part in body for name, value in part.items()})
        known = _Known(
            protocol,
            Request(
                _provider(provider, client),
                read.model or (attempt.model if attempt is not None else None),
                read.tools,
                read.results,
                read.carried,
                read.continues,
                resumes,
                asked_in=attempt.asked_in if attempt is not None else (),
            ),
            runtime,
            exists=method == "get",
        )
        runtime.request(known.request)
        if attempt is not None:
            attempt.known = known
    sent.extensions[_EXTENSION] = known


_LONGEST_RAW_BODY: Final = 1024 * 1024
"""In bytes, which take some 5 ms to read; the app waits for it."""


def _raw_body(content: Any) -> Any:
    """A body that the app gave as bytes; None for what is no JSON, too long, or read only once."""
    if not isinstance(content, (bytes, bytearray, str)) or len(content) > _LONGEST_RAW_BODY:
        return None
    try:
        return json.loads(content)
    except ValueError:
        return None


def _protocol(sdk: str, method: str, path: str) -> tuple[_Protocol, str | None] | None:
    bare = path.partition("?")[0].rstrip("/")
    for verb, pattern, protocol in _ANTHROPIC_ROUTES if sdk == "anthropic" else _OPENAI_ROUTES:
        match = pattern.search(bare) if verb == method else None
        if match is not None:
            return protocol, match.groupdict().get("resumes")
    return None


def _provider(sdk: str, client: Any) -> str:
    for kind in type(client).__mro__:  # an app's own client may be a subclass
        name = kind.__name__.removeprefix("Async")
        for prefix, provider in _PROVIDERS.items():
            if name.startswith(prefix):
                return provider
    if sdk == "openai":
        host = str(getattr(getattr(client, "base_url", None), "host", ""))
        for suffix, provider in _HOSTS:
            if host == suffix or host.endswith("." + suffix):
                return provider
    return sdk


# ---- streams --------------------------------------------------------------------------------------------------------


def _wrap_stream(provider: str) -> Callable[[Runtime], Wrapper]:
    """``Stream.__stream__``."""
    return lambda runtime: _stream_wrapper(runtime, provider, drive)


def _wrap_async_stream(provider: str) -> Callable[[Runtime], Wrapper]:
    """``AsyncStream.__stream__``."""
    return lambda runtime: _stream_wrapper(runtime, provider, adrive)


def _stream_wrapper(runtime: Runtime, provider: str, drive_it: Callable[[Source], Any]) -> Wrapper:
    def stream(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known = guarded("stream", _stream_known, runtime, provider, instance)
        if known is None:
            return wrapped(*args, **kwargs)
        reader: list[Callable[[], Any]] = []

        def source() -> tuple[Any, Observation | None]:
            held = guarded("detach", _detached, instance, wrapped) or instance
            observation = guarded("begin", _begin, runtime, known, held, reader[0]())
            return wrapped() if held is instance else wrapped.__func__(held), observation

        generator = drive_it(source)
        reader.append(weakref.ref(generator))
        return generator

    return stream


def _detached(stream: Any, method: Any) -> Any:
    """A copy of the stream that does not hold its own iterator.

    The SDK's generator holds the stream it reads, and most versions' streams hold that generator. Of such a cycle only
    the collector would ever tell us that the app has left. Where somebody else has wrapped the method before us, it
    must get the stream itself.
    """
    if "_iterator" not in vars(stream) or type(method) is not MethodType:  # wrapt claims to be what it wraps
        return stream
    detached = copy.copy(stream)
    del detached.__dict__["_iterator"]
    return detached


def _stream_known(runtime: Runtime, provider: str, stream: Any) -> _Known | None:
    known = _known(field(stream, "response"))
    if known is None:
        protocol = _by_event_type(field(stream, "_cast_to"))
        if protocol is not None:
            known = _Known(protocol, Request(_provider(provider, field(stream, "_client"))), runtime)
    return known


def _begin(runtime: Runtime, known: _Known, stream: Any, reader: Any) -> Observation:
    known.done = True
    observation = Observation(runtime, known.request, known.protocol.wire)
    observation.read_by(reader)
    guarded("close_hook", _watch_close, field(stream, "response"), observation)
    return observation


def _known(response: Any) -> _Known | None:
    try:
        known = response.request.extensions.get(_EXTENSION)
    except (AttributeError, RuntimeError):  # a response that was made without a request
        return None
    return known if isinstance(known, _Known) else None


def _by_event_type(cast_to: object) -> _Protocol | None:
    """By the type of a stream's events, where nothing is known of its request."""
    described = repr(cast_to)
    return next((protocol for mark, protocol in _EVENT_TYPES if mark in described), None)


_EVENT_TYPES: Final = (
    ("RawMessage", _ANTHROPIC),
    ("ChatCompletionChunk", _CHAT),
    ("ResponseCreatedEvent", _RESPONSES),
    ("ThreadRunStepDelta", _ASSISTANTS),
)


def _watch_close(response: Any, observation: Observation) -> None:
    """Learn at once when the app closes the response: every way of leaving a stream or a helper early ends there.

    The SDK closes it too, at the end of the body: then the generator is running, and knows better how it ended.
    Set on this one object, and taken off when the stream has ended. The cycle that this makes of the response lasts no
    longer than the generator; a weak reference would be cleared before the collector lets the SDK close what it lost.
    """
    own = vars(response)
    watched = {}
    for name in ("close", "aclose"):
        original = getattr(response, name, None)
        if original is not None:
            watched[name] = own.get(name), _watching(original, observation)

    def unwatch() -> None:
        for name, (before, watcher) in watched.items():
            if own.get(name) is not watcher:
                continue  # somebody else's now
            if before is None:
                del own[name]
            else:
                own[name] = before
        guarded("forget", _forget, response)

    own.update((name, watcher) for name, (_, watcher) in watched.items())
    observation.at_end(unwatch)


def _watching(original: Callable[..., Any], observation: Observation) -> Callable[..., Any]:
    def close(*args: Any, **kwargs: Any) -> Any:
        guarded("close", _closed, observation)
        return original(*args, **kwargs)

    return close


def _closed(observation: Observation) -> None:
    if not observation.reading:
        observation.closed()


def _forget(owner: Any) -> None:
    """Take off what we put on the request of a response, or of an error, that has been observed."""
    try:
        owner.request.extensions.pop(_EXTENSION, None)
    except (AttributeError, RuntimeError):  # it knows of no request
        return


# ---- whole replies --------------------------------------------------------------------------------------------------


_PENDING: Final = frozenset({"queued", "in_progress", "cancelling"})
"""What a response says of itself that is polled before it is over: that is no reply yet."""


def _wrap_parse(runtime: Runtime) -> Wrapper:
    """``BaseAPIResponse._parse``: a reply that is not streamed, however the app asked for it."""

    def parse(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        reply = wrapped(*args, **kwargs)
        known = guarded("parse", _known_of_reply, instance, reply)
        if known is not None:
            observe_reply(runtime, known.request, known.protocol.wire, reply)
        return reply

    return parse


def _known_of_reply(response: Any, reply: Any) -> _Known | None:
    """What is known of the request, where this is its whole reply and nobody has observed it yet."""
    http_response = field(response, "http_response")
    known = _known(http_response)
    if known is None or known.done or hasattr(reply, "__stream__"):
        return None
    if not isinstance(reply, Mapping) and not hasattr(reply, "model_dump"):
        return None  # its text, or the response itself: the app may parse it again
    known.done = True
    known.request.streaming = False
    _forget(http_response)
    return None if known.exists and field(reply, "status") in _PENDING else known


def _hook(
    sdk: str, distribution: str, provider: str, *, legacy_response: bool = False, more: Sequence[Target] = ()
) -> Hook:
    targets = [
        Target(f"{sdk}._streaming", "Stream.__stream__", _wrap_stream(provider)),
        Target(f"{sdk}._streaming", "AsyncStream.__stream__", _wrap_async_stream(provider)),
        Target(f"{sdk}._base_client", "BaseClient._build_request", _wrap_build_request(provider)),
        Target(f"{sdk}._base_client", "SyncAPIClient.request", _wrap_request),
        Target(f"{sdk}._base_client", "AsyncAPIClient.request", _wrap_async_request),
        Target(f"{sdk}._response", "BaseAPIResponse._parse", _wrap_parse),
    ]
    if legacy_response:
        targets.append(Target(f"{sdk}._legacy_response", "LegacyAPIResponse._parse", _wrap_parse, optional=True))
    return Hook(sdk, distribution, [*targets, *more])


_MANAGERS: Final = [
    Target(f"anthropic.lib.streaming.{module}", f"{kind}.__init__", wrap_manager, optional=True)
    for module, kinds in (
        ("_messages", ("MessageStreamManager", "AsyncMessageStreamManager")),
        ("_beta_messages", ("BetaMessageStreamManager", "BetaAsyncMessageStreamManager")),
    )
    for kind in kinds
]
"""They send their request later than they are asked for it."""


HOOKS: Final = (
    _hook("anthropic", "anthropic", "anthropic", legacy_response=True, more=_MANAGERS),
    _hook("openai", "openai", "openai", legacy_response=True, more=running.TARGETS),
    _hook("groq", "groq", "groq"),
    _hook("together", "together", "together_ai"),
    _hook("cerebras.cloud.sdk", "cerebras-cloud-sdk", "cerebras"),
)
