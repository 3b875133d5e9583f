"""The loopback server sends what it was told, breaks off where it was told, and records what it was asked."""

from __future__ import annotations

import http.client
import json
import threading
from urllib.parse import urlsplit

import pytest

from otel_toolcalls.cli.model_server import ModelServer, Reply, Request

anthropic = pytest.importorskip("anthropic")
httpx2 = pytest.importorskip("httpx2", reason="the SDKs of before 2026 speak through httpx")
openai = pytest.importorskip("openai")

EVENTS = b'event: a\ndata: {"n": 1}\n\nevent: b\ndata: {"n": 2}\n\n'


def connect(server: ModelServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)


def post(server: ModelServer, path: str = "/v1/messages", body: object = None) -> http.client.HTTPResponse:
    connection = connect(server)
    connection.request("POST", path, json.dumps(body or {}), {"X-Test": "yes"})
    return connection.getresponse()


def test_queued_replies_come_once_each_in_order(model_server: ModelServer) -> None:
    model_server.reply(b"one")
    model_server.reply("two")
    assert [post(model_server).read() for _ in range(2)] == [b"one", b"two"]
    assert post(model_server).status == 404


def test_a_reply_with_a_path_stays_and_matches_the_end_of_the_path(model_server: ModelServer) -> None:
    model_server.reply({"a": 1}, path="/chat/completions")
    for _ in range(2):
        response = post(model_server, "/v1/chat/completions?beta=true")
        assert response.getheader("content-type") == "application/json"
        assert json.load(response) == {"a": 1}
    assert post(model_server, "/v1/messages").status == 404


def test_a_function_sees_the_request_and_gives_the_reply(model_server: ModelServer) -> None:
    def echo(request: Request) -> Reply:
        return Reply(json.dumps(request.json["model"]).encode(), "application/json", 201, {"x-request-id": "req_1"})

    model_server.reply(echo)
    response = post(model_server, body={"model": "m"})
    assert (response.status, response.getheader("x-request-id"), response.read()) == (201, "req_1", b'"m"')


def test_requests_are_recorded(model_server: ModelServer) -> None:
    model_server.reply(b"")
    post(model_server, "/v1/responses", {"input": [1, 2]}).read()
    (request,) = model_server.requests
    assert (request.method, request.path) == ("POST", "/v1/responses")
    assert request.json == {"input": [1, 2]}
    assert request.headers["x-test"] == "yes"


def test_one_connection_serves_several_requests(model_server: ModelServer) -> None:
    connection = connect(model_server)
    for text in (b"one", b"two"):
        model_server.reply(text)
        connection.request("POST", "/", "{}")
        assert connection.getresponse().read() == text


def test_without_a_chunk_size_each_event_is_one_chunk() -> None:
    assert [piece for piece, _ in Reply(EVENTS).pieces()] == [EVENTS[:25], EVENTS[25:]]


def test_a_chunk_size_splits_anywhere_and_loses_nothing(model_server: ModelServer) -> None:
    assert {len(piece) for piece, _ in Reply(EVENTS[:49], chunk=7).pieces()} == {7}
    model_server.reply(EVENTS, chunk=3)
    assert post(model_server).read() == EVENTS


@pytest.mark.parametrize("reset", [False, True])
def test_a_cut_breaks_the_connection_after_exactly_that_many_bytes(model_server: ModelServer, reset: bool) -> None:
    model_server.reply(EVENTS, cut=30, reset=reset)
    response = post(model_server)
    assert response.read(30) == EVENTS[:30]
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        response.read(1)


def test_a_hold_keeps_the_rest_back_until_the_event_is_set(model_server: ModelServer) -> None:
    go_on = threading.Event()
    model_server.reply(EVENTS, hold={25: go_on})
    response = post(model_server)
    assert response.read(25) == EVENTS[:25]
    response.fp.raw._sock.settimeout(0.1)  # type: ignore[union-attr]
    with pytest.raises(TimeoutError):
        response.fp.raw._sock.recv(1)  # type: ignore[union-attr]
    go_on.set()
    response.fp.raw._sock.settimeout(10)  # type: ignore[union-attr]
    assert b'"n": 2' in response.fp.raw._sock.recv(100)  # type: ignore[union-attr]


def test_stopping_the_server_frees_what_is_held() -> None:
    with ModelServer() as server:
        server.reply(EVENTS, hold={0: threading.Event()})
        response = post(server)
    with pytest.raises(http.client.IncompleteRead):
        response.read()


def test_the_real_sdks_stream_from_it(model_server: ModelServer) -> None:
    model_server.reply(b'event: message_stop\ndata: {"type": "message_stop"}\n\n', path="/v1/messages")
    model_server.reply(b'data: {"id": "c1", "choices": []}\n\ndata: [DONE]\n\n', path="/v1/chat/completions")
    claude = anthropic.Anthropic(base_url=model_server.url, api_key="none")
    gpt = openai.OpenAI(base_url=model_server.url + "/v1", api_key="none")
    claude_events = list(claude.messages.create(model="m", max_tokens=1, messages=[], stream=True))
    gpt_events = list(gpt.chat.completions.create(model="m", messages=[], stream=True))
    assert [event.type for event in claude_events] == ["message_stop"]
    assert [event.id for event in gpt_events] == ["c1"]


def test_a_cut_reaches_the_sdk_as_a_broken_connection(model_server: ModelServer) -> None:
    model_server.reply(b'event: message_stop\ndata: {"type": "message_stop"}\n\nevent: mess', cut=58)
    claude = anthropic.Anthropic(base_url=model_server.url, api_key="none")
    with pytest.raises(httpx2.RemoteProtocolError):
        list(claude.messages.create(model="m", max_tokens=1, messages=[], stream=True))
