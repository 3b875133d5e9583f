"""The three protocols through their real SDKs, each with the reply that the tests of the hooks play.

Every reply says a word and announces two calls of one tool: ``call_1`` and ``call_2``.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from tests.hooks.server import load

TOOL = "search_orders"
MODEL = "asked-model"
_TURN = [{"role": "user", "content": "Show my refunded and my open orders."}]
_SCHEMA = {
    "type": "object",
    "properties": {"status": {"type": "string"}},
    "required": ["status"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Api:
    """One protocol of one SDK."""

    name: str
    sdk: str
    provider: str
    resources: tuple[str, ...]
    """Where its methods are, newest place first: ``.stream()`` has moved."""
    request: dict[str, Any]
    ends_calls: bool
    """The wire has an end per call, so that the first call is complete before the second is."""
    base: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def events(self) -> list[dict[str, Any]]:
        return load(self.name)

    def until_open(self) -> int:
        """How many events bring the second call up to the middle of its arguments."""
        return {"anthropic": 11, "chat": 6, "responses": 8}[self.name]

    def client(self, url: str, **more: Any) -> Any:
        return self._client("", "DefaultHttpxClient", url, more)

    def async_client(self, url: str, **more: Any) -> Any:
        return self._client("Async", "DefaultAsyncHttpxClient", url, more)

    def _client(self, prefix: str, http: str, url: str, more: dict[str, Any]) -> Any:
        module = importlib.import_module(self.sdk)
        more.setdefault("http_client", getattr(module, http)(verify=False))
        kind = getattr(module, prefix + {"anthropic": "Anthropic", "openai": "OpenAI"}[self.sdk])
        return kind(api_key="none", base_url=url + self.base, max_retries=0, timeout=30.0, **more)

    def resource(self, client: Any, method: str) -> Any:
        for path in self.resources:
            try:
                found = attrgetter(path)(client)
            except AttributeError:
                continue
            if hasattr(found, method):
                return found
        raise AttributeError(f"{self.sdk} has no {method} of {self.name}")

    def create(self, client: Any, **more: Any) -> Any:
        """The SDK's stream, or a coroutine of it."""
        return self.resource(client, "create").create(**{**self.request, "stream": True, **more})

    def stream(self, client: Any, **more: Any) -> Any:
        """The SDK's helper."""
        return self.resource(client, "stream").stream(**{**self.request, **more})

    @property
    def present(self) -> bool:
        """The installed version of the SDK has it."""
        if importlib.util.find_spec(self.sdk) is None:
            return False
        return self.name != "responses" or importlib.util.find_spec("openai.resources.responses") is not None


ANTHROPIC = Api(
    "anthropic",
    "anthropic",
    "anthropic",
    ("messages",),
    {
        "model": MODEL,
        "max_tokens": 64,
        "messages": _TURN,
        "tools": [{"name": TOOL, "input_schema": _SCHEMA}],
    },
    ends_calls=True,
)
CHAT = Api(
    "chat",
    "openai",
    "openai",
    ("chat.completions", "beta.chat.completions"),
    {
        "model": MODEL,
        "messages": _TURN,
        "tools": [{"type": "function", "function": {"name": TOOL, "parameters": _SCHEMA, "strict": True}}],
    },
    ends_calls=False,
    base="/v1",
)
RESPONSES = Api(
    "responses",
    "openai",
    "openai",
    ("responses",),
    {
        "model": MODEL,
        "input": "Show my refunded and my open orders.",
        "tools": [{"type": "function", "name": TOOL, "parameters": _SCHEMA, "strict": True}],
    },
    ends_calls=True,
    base="/v1",
)
APIS = [api for api in (ANTHROPIC, CHAT, RESPONSES) if api.present]
