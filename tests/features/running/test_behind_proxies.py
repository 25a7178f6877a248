"""The files of `deploy/`, each with its real proxy before a real bridge: only names, ports and certificates differ.

Each proxy is tried first before a server that records what comes to it, then before none, then before the bridge.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
import websockets
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from websockets.asyncio.client import connect

from support.proxies import Command, Front, proxy, recording, replaced
from support.real_sign_in import Bridge

TOKEN = "a-token-of-the-team-0123456789-0123456789"
SPOOFED = {
    "x-forwarded-for": "203.0.113.9",
    "x-forwarded-proto": "http",
    "x-forwarded-host": "evil.example",
    "forwarded": 'for=203.0.113.9;host="evil.example";proto=http',
}


def nginx(directory: Path, port: int, behind: int) -> list[str]:
    cert = {"/etc/ssl/mcpbridge": str(directory), "listen 443 ": f"listen 127.0.0.1:{port} "}
    site = replaced("nginx.conf", {"127.0.0.1:8808": f"127.0.0.1:{behind}", "bridge.example.com": "localhost", **cert})
    (directory / "site.conf").write_text(site)
    places = "".join(f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy"))
    (directory / "nginx.conf").write_text(
        f"daemon off;\nmaster_process off;\npid {directory}/nginx.pid;\nerror_log {directory}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{places}include {directory}/site.conf;\n}}\n"
    )
    return ["nginx", "-p", str(directory), "-e", f"{directory}/error.log", "-c", str(directory / "nginx.conf")]


def caddy(directory: Path, port: int, behind: int) -> list[str]:
    own = f"https://localhost:{port} {{\n\tbind 127.0.0.1\n\ttls {directory}/fullchain.pem {directory}/privkey.pem\n"
    site = replaced("Caddyfile", {"127.0.0.1:8808": f"127.0.0.1:{behind}", "bridge.example.com {\n": own})
    (directory / "Caddyfile").write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{site}")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(directory / "Caddyfile")]


def haproxy(directory: Path, port: int, behind: int) -> list[str]:
    (directory / "both.pem").write_bytes(
        (directory / "fullchain.pem").read_bytes() + (directory / "privkey.pem").read_bytes()
    )
    changes = {"127.0.0.1:8808": f"127.0.0.1:{behind}", "bridge.example.com": "localhost"}
    paths = {"/etc/ssl/mcpbridge": str(directory), "bind :443 ": f"bind 127.0.0.1:{port} "}
    (directory / "haproxy.cfg").write_text(replaced("haproxy.cfg", {**changes, **paths}))
    return ["haproxy", "-db", "-f", str(directory / "haproxy.cfg")]


PROXIES: dict[str, Command] = {"nginx": nginx, "caddy": caddy, "haproxy": haproxy}


@pytest.fixture(scope="module", params=list(PROXIES))
def front(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    name = str(request.param)
    with proxy(name, tmp_path_factory.mktemp(name), PROXIES[name]) as found:
        yield found


@pytest.fixture(scope="module")
def bridge(front: Front, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    auth = (
        f'[http]\ntrusted_proxies = ["127.0.0.1"]\n'
        f'[[http.tokens]]\nname = "team"\nsha256 = "{hashlib.sha256(TOKEN.encode()).hexdigest()}"\n'
        f'[auth]\nresource = "{front.origin}/mcp"\n'
        f'[auth.sign_in]\nissuer = "http://127.0.0.1:9"\nclient_id = "nobody"\n'
        '[[roles]]\nname = "everybody"\nprincipals = "*"\nservers = "*"\n'
    )
    with ExitStack() as stack:
        bridge = Bridge(tmp_path_factory.mktemp("bridge"), front.behind, auth)
        stack.callback(bridge.end)
        yield bridge


def test_what_a_client_writes_of_itself_does_not_reach_the_bridge(front: Front) -> None:
    with recording(front) as behind:
        assert front.ask("/mcp", "POST", json={}, headers=SPOOFED).status_code == 200
        [(method, path, headers)] = behind.heads
    assert (method, path, headers["host"]) == ("POST", "/mcp", f"localhost:{front.port}")
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert headers["x-forwarded-proto"] == "https"
    assert {"x-forwarded-host", "forwarded"} & headers.keys() == set()


def test_a_request_that_was_lost_on_the_way_is_not_sent_again(front: Front) -> None:
    """It may have been a call, and have had its effect."""
    with recording(front) as behind:
        assert front.ask("/warm", "POST", json={}).status_code == 200
        for _ in range(3):
            assert front.ask("/drop", "POST", json={}).status_code in (502, 503)
        assert [path for _, path, _ in behind.heads] == ["/warm", "/drop", "/drop", "/drop"]


def test_without_a_bridge_the_proxy_says_so(front: Front) -> None:
    assert front.ask("/mcp", "POST", json={}).status_code in (502, 503)


async def test_clients_use_every_transport_through_it(front: Front, bridge: Bridge) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}

    async def use(session: ClientSession) -> None:
        await session.initialize()
        assert "rich__echo" in {tool.name for tool in (await session.list_tools()).tools}
        answer = await session.call_tool("rich__echo", {"text": "hello"})
        assert "hello" in str(answer.content)

    def client(**more: Any) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(verify=front.tls, trust_env=False, **{"timeout": 60, **more})

    async with (
        asyncio.timeout(120),
        client(headers=headers) as http,
        streamable_http_client(f"{front.origin}/mcp", http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await use(session)

    def for_sse(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
        return client(headers=headers, timeout=timeout or 60, auth=auth)

    async with (
        asyncio.timeout(120),
        sse_client(f"{front.origin}/sse", headers=headers, httpx_client_factory=for_sse) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await use(session)
    opening = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
    }
    protocol = [websockets.Subprotocol("mcp")]
    url = f"wss://localhost:{front.port}/ws"
    async with (
        asyncio.timeout(120),
        connect(url, subprotocols=protocol, ssl=front.tls, additional_headers=headers, proxy=None) as socket,
    ):
        await socket.send(json.dumps(opening))
        assert json.loads(await socket.recv())["result"]["serverInfo"]


def test_who_signs_in_is_sent_to_the_public_address(front: Front, bridge: Bridge) -> None:
    """Whatever a client says of how it came."""
    refused = front.ask("/mcp", "POST", json={}, headers=SPOOFED)
    assert refused.status_code == 401
    metadata = f"{front.origin}/.well-known/oauth-protected-resource/mcp"
    assert f'resource_metadata="{metadata}"' in refused.headers["www-authenticate"]
    document = front.ask("/.well-known/oauth-protected-resource/mcp", headers=SPOOFED).json()
    assert (document["resource"], document["authorization_servers"]) == (f"{front.origin}/mcp", [front.origin])
    server = front.ask("/.well-known/oauth-authorization-server", headers=SPOOFED).json()
    assert (server["issuer"], server["token_endpoint"]) == (front.origin, f"{front.origin}/oauth/token")
    assert "evil.example" not in refused.text + json.dumps([document, server])


def test_another_host_is_not_served(front: Front, bridge: Bridge) -> None:
    """Against DNS rebinding: whichever name leads here, only that of the bridge counts."""
    answer = front.ask("/mcp", "POST", json={}, headers={"host": "evil.example", "authorization": f"Bearer {TOKEN}"})
    assert answer.status_code in (403, 421) or not answer.content, "Caddy says nothing of a host that it does not have"


def test_the_bridge_behind_it_may_end(front: Front, bridge: Bridge) -> None:
    """Last: it ends the bridge that the others use."""
    assert front.ask("/healthz").status_code == 200
    bridge.end()
    assert front.ask("/healthz").status_code in (502, 503)
