"""The chapter's app: buffers keyed by tool name lose a call, keyed by index none.

The sync ones are the example apps as they stand. Nothing in the apps knows of this package.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_toolcalls.cli.model_server import ModelServer
from tests.support.account import Account
from tests.support.replies import Announced, anthropic_reply, chat_reply, responses_reply

EXAMPLES = Path(__file__).parents[2] / "examples"
REFUNDED = '{"status": "refunded", "from": "2025-03-01", "to": "2025-03-31"}'
OPEN = '{"status": "open", "from": "2025-03-01", "to": "2025-03-31"}'
CALLS = [Announced("call_refunded", "search_orders", REFUNDED), Announced("call_open", "search_orders", OPEN)]
PROTOCOLS = [
    ("ask_claude", anthropic_reply),
    ("ask_gpt", chat_reply),
    ("ask_gpt_responses", responses_reply),
]


@pytest.fixture
def app(
    monkeypatch: pytest.MonkeyPatch, model_server: ModelServer, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], Any]]:
    """Imports an example as it stands, with the SDKs pointed at the model server."""
    pytest.importorskip("anthropic")
    openai = pytest.importorskip("openai")
    if request.node.callspec.params["ask"] == "ask_gpt_responses" and not hasattr(openai, "responses"):
        pytest.skip("this openai has no responses")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name, value in {
        "ANTHROPIC_BASE_URL": model_server.url,
        "ANTHROPIC_API_KEY": "test",
        "OPENAI_BASE_URL": f"{model_server.url}/v1",
        "OPENAI_API_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    yield importlib.import_module
    for name in [name for name in sys.modules if name.startswith("support_")]:
        del sys.modules[name]


@pytest.mark.parametrize(("ask", "reply"), PROTOCOLS)
def test_a_call_that_a_name_keyed_buffer_swallowed_is_judged_lost(
    account: Account, model_server: ModelServer, app: Callable[[str], Any], ask: str, reply: Callable[..., str]
) -> None:
    model_server.reply(reply(CALLS))
    model_server.reply(reply([], "You have two open orders."))
    getattr(app("support_by_name"), ask)("Show me my refunded orders from March and my open ones.")
    account.wait_for(lambda: account.lost)
    assert account.lost == [("call_refunded", "siblings_answered")]


@pytest.mark.parametrize(("ask", "reply"), PROTOCOLS)
def test_the_same_app_with_the_right_key_raises_nothing(
    account: Account, model_server: ModelServer, app: Callable[[str], Any], ask: str, reply: Callable[..., str]
) -> None:
    model_server.reply(reply(CALLS))
    model_server.reply(reply([], "Here they are."))
    getattr(app("support_by_index"), ask)("Show me my refunded orders from March and my open ones.")
    assert account.total("otel_toolcalls.settled.calls", by="answer") == len(CALLS)
    assert account.lost == []


@pytest.mark.parametrize(("ask", "reply"), PROTOCOLS)
async def test_an_async_app_with_a_name_keyed_buffer_has_one_call_judged_lost(
    account: Account, model_server: ModelServer, app: Callable[[str], Any], ask: str, reply: Callable[..., str]
) -> None:
    model_server.reply(reply(CALLS))
    model_server.reply(reply([], "You have two open orders."))
    shop = app("tests.apps.async_shop")
    await getattr(shop, ask)(shop.by_name)
    account.wait_for(lambda: account.lost)
    assert account.lost == [("call_refunded", "siblings_answered")]


@pytest.mark.parametrize(("ask", "reply"), PROTOCOLS)
async def test_the_same_async_app_with_the_right_key_raises_nothing(
    account: Account, model_server: ModelServer, app: Callable[[str], Any], ask: str, reply: Callable[..., str]
) -> None:
    model_server.reply(reply(CALLS))
    model_server.reply(reply([], "Here they are."))
    shop = app("tests.apps.async_shop")
    await getattr(shop, ask)(shop.by_index)
    assert account.total("otel_toolcalls.settled.calls", by="answer") == len(CALLS)
    assert account.lost == []
