"""An app's conversation with a model: turns through the real SDKs, and results in the requests after them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from otel_toolcalls.cli.model_server import ModelServer
from tests.support.replies import Announced, anthropic_reply, chat_reply

__all__ = ["Claude", "Conversation", "Gpt"]


class Conversation(ABC):
    """The history so far, and the next request with it."""

    def __init__(self, server: ModelServer, **client_options: Any) -> None:
        self.server = server
        self.messages: list[Any] = [{"role": "user", "content": "Well?"}]
        self._options = {"api_key": "test", "max_retries": 0} | client_options

    def turn(self, *calls: Announced) -> None:
        """A reply that announces these calls, read to its end; the history goes on with it."""
        for _ in self.stream(*calls):
            pass
        self.said(*calls)

    def stream(self, *calls: Announced, **how: Any) -> Iterator[Any]:
        """The same reply, still to be read; ``how`` it is served as in :meth:`ModelServer.reply`."""
        self.server.reply(self.reply(calls), **how)
        return self.send()

    reply: Callable[..., str]

    @abstractmethod
    def send(self) -> Any:
        """The request, with the history as it is."""

    @abstractmethod
    def said(self, *calls: Announced) -> None:
        """The history has this reply."""

    @abstractmethod
    def answered(self, *call_ids: str) -> None:
        """The history has a result of each."""

    def answer(self, *call_ids: str) -> None:
        """The next request carries these results, and the model is content with them."""
        self.answered(*call_ids)
        self.turn()


class Claude(Conversation):
    """Anthropic messages."""

    reply = staticmethod(anthropic_reply)

    def send(self) -> Any:
        anthropic = pytest.importorskip("anthropic")
        client = anthropic.Anthropic(base_url=self.server.url, **self._options)
        return client.messages.create(model="claude", max_tokens=100, messages=self.messages, stream=True)

    def said(self, *calls: Announced) -> None:
        used = [{"type": "tool_use", "id": call.id, "name": call.name, "input": {}} for call in calls]
        self.messages.append({"role": "assistant", "content": [{"type": "text", "text": "Well."}, *used]})

    def answered(self, *call_ids: str) -> None:
        results = [{"type": "tool_result", "tool_use_id": call_id, "content": "done"} for call_id in call_ids]
        self.messages.append({"role": "user", "content": results})


class Gpt(Conversation):
    """OpenAI chat completions."""

    reply = staticmethod(chat_reply)

    def send(self) -> Any:
        openai = pytest.importorskip("openai")
        client = openai.OpenAI(base_url=f"{self.server.url}/v1", **self._options)
        return client.chat.completions.create(model="gpt", messages=self.messages, stream=True)

    def said(self, *calls: Announced) -> None:
        used = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": "{}"}} for call in calls
        ]
        self.messages.append({"role": "assistant", "content": "Well.", **({"tool_calls": used} if used else {})})

    def answered(self, *call_ids: str) -> None:
        self.messages += [{"role": "tool", "tool_call_id": call_id, "content": "done"} for call_id in call_ids]
