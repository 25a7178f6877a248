"""Who may talk to the HTTP front, and what it does not even read."""

import asyncio
import hashlib
from typing import Any

import pytest

from mcpbridge.downstream.auth.bearer_tokens import Authenticator
from mcpbridge.downstream.http.app import HttpFront
from mcpbridge.downstream.settings import HttpSettings, TokenSettings
from support.http_front import (
    BOTH,
    JSON,
    Http,
    ScriptedBridge,
    ScriptedCore,
    modern_body,
    modern_headers,
    request,
    serving,
)

PING = request("ping")


async def status_with(http: Http, **headers: str) -> int:
    return (await http.post(request("initialize", protocolVersion="2025-06-18"), **headers)).status_code


async def test_elsewhere_than_on_loopback_any_host_is_accepted_until_some_are_listed() -> None:
    async with serving(host="0.0.0.0", no_auth=True) as http:
        assert await status_with(http, host="bridge.lan") == 200
    async with serving(HttpSettings(allowed_hosts=["bridge.lan"]), host="0.0.0.0", no_auth=True) as http:
        assert await status_with(http, host="evil.example") == 421


async def test_a_page_that_is_served_here_itself_may_call() -> None:
    async with serving() as http:
        assert await status_with(http, origin=http.root) == 200


async def test_an_allowed_origin_may_read_the_answer_and_the_session_id() -> None:
    async with serving(HttpSettings(allowed_origins=["https://app.example"])) as http:
        response = await http.post(request("initialize", protocolVersion="2025-06-18"), origin="https://app.example")
        assert response.headers["access-control-allow-origin"] == "https://app.example"
        assert "Mcp-Session-Id" in response.headers["access-control-expose-headers"]


async def test_a_browsers_question_before_the_request_is_answered_without_credentials() -> None:
    asked = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,mcp-session-id",
    }
    async with serving(HttpSettings(allowed_origins=["https://app.example"]), token="secret") as http:
        response = await http.client.request("OPTIONS", http.url, headers=asked)
        assert response.status_code == 204
        assert response.headers["access-control-allow-headers"] == "authorization,mcp-session-id"
        foreign = await http.client.request("OPTIONS", http.url, headers=asked | {"origin": "https://evil.example"})
        assert foreign.status_code == 403


async def test_a_loopback_origin_is_no_passport_on_other_addresses() -> None:
    async with serving(host="0.0.0.0", no_auth=True) as http:
        assert await status_with(http, origin="http://localhost:6274") == 403


@pytest.mark.parametrize("name", ["origin", "authorization", "mcp-session-id", "content-type"])
async def test_a_header_that_decides_something_must_not_come_twice(name: str) -> None:
    async with serving() as http:
        headers = [*JSON.items(), (name, "127.0.0.1"), (name, "evil.example")]
        response = await http.client.post(http.url, json=PING, headers=headers)
        assert response.status_code == 400


async def test_paths_and_methods_that_are_not_served_are_told_apart() -> None:
    async with serving() as http:
        assert (await http.client.post(http.root + "/elsewhere", json=PING)).status_code == 404
        response = await http.client.put(http.url, json=PING)
        assert response.status_code == 405
        assert response.headers["allow"] == "GET, POST, DELETE"


@pytest.mark.parametrize(
    ("given", "status"), [("text/plain", 415), ("application/json; charset=utf-8", 200), ("", 415)]
)
async def test_only_json_is_read(given: str, status: int) -> None:
    async with serving() as http:
        assert await status_with(http, content_type=given) == status


async def test_a_compressed_body_is_not_read() -> None:
    async with serving() as http:
        assert await status_with(http, content_encoding="gzip") == 415
        assert await status_with(http, content_encoding="identity") == 200


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("*/*", 200),
        (BOTH, 200),
        ("application/json", 200),
        ("text/event-stream", 200),
        ("text/html", 406),
        ("application/json;q=0, text/html", 406),
        ("application/*", 200),
    ],
)
async def test_a_client_that_can_read_neither_json_nor_events_is_refused(accept: str, status: int) -> None:
    async with serving() as http:
        assert await status_with(http, accept=accept) == status


async def test_a_body_over_the_limit_is_refused_with_and_without_a_declared_length() -> None:
    async def in_chunks() -> Any:
        for _ in range(30):
            yield b" " * 1000

    async with serving(HttpSettings(max_body=20_000)) as http:
        declared = await http.client.post(http.url, content=b" " * 20_001, headers=JSON)
        chunked = await http.client.post(http.url, content=in_chunks(), headers=JSON)
        assert (declared.status_code, chunked.status_code) == (413, 413)
        assert "http.max_body" in declared.json()["error"]["message"]
        assert await status_with(http) == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"hello", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"} x', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\xff"}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}', -32700),
        (b"1", -32600),
        (b'"ping"', -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}", -32600),
    ],
)
async def test_a_body_that_is_no_message_is_refused_with_the_reason(body: bytes, code: int) -> None:
    async with serving() as http:
        response = await http.post(body)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == code
        assert response.json()["id"] == (1 if body.startswith(b'{"jsonrpc":"2.0","id":1') and code == -32600 else None)
        assert await status_with(http) == 200


async def test_a_pretty_printed_message_reaches_the_core_on_one_line() -> None:
    """Its parts may travel on to a server that reads line by line."""
    async with serving() as http:
        session = await http.session()
        response = await http.post(
            b'\n{"jsonrpc":"2.0","id":1,\r\n"method":"echo","params":{\n"a":\r\n1}}\n', **session
        )
        assert b"\n" not in response.content
        assert response.json()["result"] == {"a": 1}


async def test_a_body_that_does_not_come_is_given_up() -> None:
    async def receive() -> Any:
        await asyncio.Event().wait()

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    core = ScriptedCore()
    settings = HttpSettings()
    front = HttpFront(ScriptedBridge(core), settings, Authenticator([]), body_seconds=0.01)
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    async with asyncio.timeout(30):
        await front({"type": "http", "method": "POST", "path": "/mcp", "headers": headers}, receive, send)
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]


async def test_a_token_is_needed_everywhere_but_for_health() -> None:
    async with serving(token="open sesame") as http:
        refused = await http.post(PING)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        wrong = await http.post(PING, authorization="Bearer open sesamf")
        assert wrong.status_code == 401
        assert wrong.headers["www-authenticate"] == 'Bearer error="invalid_token"'
        assert (await http.client.get(http.root + "/readyz")).status_code == 401
        assert (await http.client.get(http.root + "/nowhere")).status_code == 401
        assert (await http.client.get(http.url + "?token=open+sesame")).status_code == 401
        assert (await http.post(PING, authorization="Basic open sesame")).status_code == 401
        assert (await http.client.get(http.root + "/healthz")).status_code == 200
        assert await status_with(http, authorization="bearer open sesame") == 200
        assert http.core.asked[0][0].principal == "token"


async def test_tokens_of_the_configuration_are_known_by_their_digest_and_name_their_holder() -> None:
    tokens = [
        TokenSettings(name=name, sha256=hashlib.sha256(f"{name}'s".encode()).hexdigest()) for name in ("ann", "bob")
    ]
    async with serving(HttpSettings(tokens=tokens)) as http:
        await http.session(authorization="Bearer bob's")
        response = await http.post(modern_body("echo"), authorization="Bearer ann's", **modern_headers("echo", {}))
        assert response.status_code == 200
        assert [client.principal for client, _ in http.core.asked] == ["bob", "ann"]


async def test_ready_means_that_the_bridge_serves_and_shows_its_servers_without_details() -> None:
    async with serving() as http:
        assert (await http.client.get(http.root + "/healthz")).json() == {"status": "ok"}
        ready = await http.client.get(http.root + "/readyz")
        servers = [{"name": "a", "state": "ready"}, {"name": "b", "state": "failed"}]
        assert ready.json() == {"status": "ready", "servers": servers}
        assert "hunter2" not in ready.text
        assert (await http.client.post(http.root + "/readyz")).status_code == 405


async def test_before_its_servers_had_their_time_the_bridge_is_not_ready() -> None:
    async with serving() as http:
        http.bridge.has_settled = False
        starting = await http.client.get(http.root + "/readyz")
        assert (starting.status_code, starting.json()["status"]) == (503, "starting")
        assert starting.headers["retry-after"] == "1"
        assert (await http.client.get(http.root + "/healthz")).status_code == 200
        http.bridge.has_settled = True
        assert (await http.client.get(http.root + "/readyz")).status_code == 200
