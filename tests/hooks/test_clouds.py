"""Clients for clouds: other hosts, paths, signatures and framings, and the same spans under the cloud's own name."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from otel_toolcalls.turn import qualified_name
from tests.hooks import eventstream
from tests.hooks.apis import ANTHROPIC, APIS, MODEL, Api
from tests.hooks.observed import Observed
from tests.hooks.server import ModelServer, Reply
from tests.hooks.test_endings import COMPLETED
from tests.hooks.test_surfaces import FRAGMENTS, WHOLE, announced_once, read, read_async


@dataclass(frozen=True)
class Cloud:
    """One client class of the anthropic SDK."""

    kind: str
    provider: str
    needs: str | None
    """What must be installed for it."""
    given: dict[str, Any]
    path: str
    """What the path of a streaming request ends with, in the cloud's own spelling."""
    sdk: str = "anthropic"
    framing: Callable[[Any], bytes] | None = None
    api: Api = field(default=ANTHROPIC)

    def __str__(self) -> str:
        return self.kind

    def client(self, server: ModelServer, prefix: str = "") -> Any:
        module = pytest.importorskip(self.sdk)
        if not hasattr(module, self.kind):
            pytest.skip(f"this {self.sdk} has no {self.kind}")
        if self.needs is not None:
            pytest.importorskip(self.needs)
        where = {} if "azure_endpoint" in self.given else {"base_url": server.url}
        given = {name: server.url if value is URL else value for name, value in self.given.items()}
        return getattr(module, prefix + self.kind)(**where, max_retries=0, **given)

    def plays(self, server: ModelServer, events: list[Any] | None = None) -> None:
        """The next reply is this stream, as this cloud frames it."""
        events = self.api.events if events is None else events
        if self.framing is None:
            server.stream(events)
        else:
            framed = [event if isinstance(event, bytes) else self.framing(event) for event in events]
            server.replies.append(Reply(framed, content_type=eventstream.CONTENT_TYPE))

    def announced(self, on: Observed, server: ModelServer, fragments: list[int]) -> None:
        announced_once(on, fragments)
        assert {span.attributes["gen_ai.provider.name"] for span in on.account.ended} == {self.provider}
        assert on.turns[0].attributes["gen_ai.request.model"] == MODEL
        assert {call.parent.span_id for call in on.calls} == {on.turns[0].context.span_id}
        assert [call.attributes["gen_ai.tool.call.id"] for call in on.calls] == ["call_1", "call_2"]
        assert len(server.seen) == 1


URL = object()
"""Stands for the server's address."""
AWS_KEYS = {"aws_access_key": "a", "aws_secret_key": "s", "aws_region": "us-east-1"}
CLAUDES = [
    Cloud(
        "AnthropicBedrock",
        "aws.bedrock",
        "boto3",
        AWS_KEYS,
        f"/model/{MODEL}/invoke-with-response-stream",
        framing=eventstream.chunk,
    ),
    Cloud("AnthropicBedrockMantle", "aws.bedrock", "boto3", AWS_KEYS, "/v1/messages"),
    Cloud("AnthropicAWS", "anthropic", "boto3", {**AWS_KEYS, "workspace_id": "w"}, "/v1/messages"),
    Cloud(
        "AnthropicVertex",
        "gcp.vertex_ai",
        "google.auth",
        {"region": "us-east1", "project_id": "p", "access_token": "t"},
        f"/models/{MODEL}:streamRawPredict",
    ),
    Cloud("AnthropicGoogleCloud", "anthropic", None, {"project": "p", "skip_auth": True}, "/v1/messages"),
    Cloud("AnthropicFoundry", "azure.ai.inference", None, {"api_key": "k"}, "/v1/messages"),
]
BEDROCK = CLAUDES[0]
GPTS = [
    Cloud(kind, provider, needs, given, path, "openai", None, api)
    for api in APIS
    if api.sdk == "openai"
    for kind, provider, needs, given, path in (
        (
            "AzureOpenAI",
            "azure.ai.openai",
            None,
            {"api_key": "k", "api_version": "2025-01-01", "azure_endpoint": URL},
            {"chat": f"/deployments/{MODEL}/chat/completions", "responses": "/responses"}[api.name],
        ),
        ("BedrockOpenAI", "aws.bedrock", None, {"api_key": "k", "aws_region": "us-east-1"}, api.resources[0]),
    )
]
present = [cloud for cloud in [*CLAUDES, *GPTS] if importlib.util.find_spec(cloud.sdk) is not None]
every_cloud = pytest.mark.parametrize("cloud", present, ids=lambda cloud: f"{cloud.kind}-{cloud.api}")
every_claude = pytest.mark.parametrize("cloud", [cloud for cloud in present if cloud.sdk == "anthropic"], ids=str)


@every_cloud
def test_a_stream_is_observed_under_the_clouds_own_provider(cloud: Cloud, server: ModelServer, on: Observed) -> None:
    cloud.plays(server)
    with cloud.client(server) as client:
        read(cloud.api.create(client))
    cloud.announced(on, server, FRAGMENTS[cloud.api.name])
    path = server.seen[0].path.partition("?")[0]
    assert path.endswith(cloud.path.replace(".", "/")), "the client sent the request its own way"


@every_cloud
async def test_an_async_stream_is_observed_under_the_clouds_own_provider(
    cloud: Cloud, server: ModelServer, on: Observed
) -> None:
    cloud.plays(server)
    async with cloud.client(server, "Async") as client:
        await read_async(await cloud.api.create(client))
    cloud.announced(on, server, FRAGMENTS[cloud.api.name])


@every_cloud
def test_a_helper_on_a_cloud_sees_each_event_once(cloud: Cloud, server: ModelServer, on: Observed) -> None:
    cloud.plays(server)
    with cloud.client(server) as client:
        if not hasattr(cloud.api.resource(client, "create"), "stream"):
            pytest.skip(f"{cloud.kind} of this {cloud.sdk} has no helper")
        with cloud.api.stream(client) as stream:
            stream.until_done()
    cloud.announced(on, server, FRAGMENTS[cloud.api.name])


@every_cloud
async def test_an_async_helper_on_a_cloud_sees_each_event_once(cloud: Cloud, server: ModelServer, on: Observed) -> None:
    cloud.plays(server)
    async with cloud.client(server, "Async") as client:
        if not hasattr(cloud.api.resource(client, "create"), "stream"):
            pytest.skip(f"{cloud.kind} of this {cloud.sdk} has no helper")
        async with cloud.api.stream(client) as stream:
            await stream.until_done()
    cloud.announced(on, server, FRAGMENTS[cloud.api.name])


@every_claude
def test_beta_on_a_cloud_is_observed(cloud: Cloud, server: ModelServer, on: Observed) -> None:
    cloud.plays(server)
    with cloud.client(server) as client:
        read(client.beta.messages.create(**ANTHROPIC.request, stream=True))
    cloud.announced(on, server, FRAGMENTS["anthropic"])


@every_cloud
def test_a_whole_reply_of_a_cloud_is_observed(cloud: Cloud, server: ModelServer, on: Observed) -> None:
    server.whole(WHOLE[cloud.api.name])
    with cloud.client(server) as client:
        cloud.api.create(client, stream=False)
    cloud.announced(on, server, [0, 0])


@every_cloud
def test_leaving_a_clouds_helper_early_gives_up_what_is_open(cloud: Cloud, server: ModelServer, on: Observed) -> None:
    cloud.plays(server)
    with cloud.client(server) as client:
        if not hasattr(cloud.api.resource(client, "create"), "stream"):
            pytest.skip(f"{cloud.kind} of this {cloud.sdk} has no helper")
        with cloud.api.stream(client) as stream:
            for _ in stream:
                if len(on.started()) == 2:
                    break
    first, second = on.outcomes
    assert second == ("abandoned", "closed_early")
    assert first == (COMPLETED if cloud.api.ends_calls else ("abandoned", "closed_early"))


def test_an_exception_frame_of_bedrock_is_named_by_what_the_sdk_makes_of_it(server: ModelServer, on: Observed) -> None:
    until_open = ANTHROPIC.events[: ANTHROPIC.until_open()]
    BEDROCK.plays(server, [*until_open, eventstream.refusal("throttlingException", "slow down")])
    with BEDROCK.client(server) as client, pytest.raises(Exception) as raised:
        read(ANTHROPIC.create(client))
    assert on.outcomes == [COMPLETED, ("abandoned", qualified_name(raised.value))]


def test_a_subclass_of_a_clouds_client_keeps_its_provider(server: ModelServer, on: Observed) -> None:
    client = BEDROCK.client(server)
    client.__class__ = type("OurOwnClient", (type(client),), {})
    BEDROCK.plays(server)
    with client:
        read(ANTHROPIC.create(client))
    BEDROCK.announced(on, server, FRAGMENTS["anthropic"])
