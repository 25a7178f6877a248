"""Whoever sees nothing but their own in the console sees nothing else of a fleet, whatever they ask for (issue 24)."""

import re
from html import unescape
from pathlib import Path
from urllib.parse import quote

import anyio
import anyio.to_thread
import httpx2

from fleet.test_fleet_call_log import RECORDING
from support.identity_providers import MockProvider, mock_provider
from support.real_sign_in import Kept, local_server, session
from support.redis_server import Server
from support.replicas import Fleet, Replica, fleet, needs_fleet

pytestmark = needs_fleet


def settings(provider: MockProvider) -> str:
    return (
        f'{RECORDING}[accounts]\nkey = "the key of the accounts of the fleet"\n'
        f'[auth]\nresource = "http://BALANCER/mcp"\n[auth.sign_in]\nissuer = "{provider.issuer}"\n'
        'client_id = "bridge"\nclient_secret = "secret"\n'
        '[[roles]]\nname = "leads"\ngroups = "leads"\nservers = "*"\nconsole = "view"\n'
        '[[roles]]\nname = "everybody"\nprincipals = "*"\nservers = "*"\n'
    )


async def token_of(name: str, pair: Fleet) -> str:
    """What the bridge gives the client of somebody who signs in by it."""
    kept = Kept()
    async with session(pair.url, name, kept):
        assert kept.tokens is not None
        return kept.tokens.access_token


def make_call(replica: Replica, token: str, text: str, host: str) -> None:
    """Somebody calls a tool at this bridge."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    }
    headers = {
        "accept": "application/json, text/event-stream",
        "authorization": f"Bearer {token}",
        "host": host,
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "rich__echo",
    }
    params = {"name": "rich__echo", "arguments": {"text": text}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = httpx2.post(replica.url, json=body, headers=headers, trust_env=False, timeout=60)
    assert text in answer.text, answer.text


async def signed_in(provider: MockProvider, origin: str, http: httpx2.AsyncClient) -> None:
    """Carol signs in to the pages, by way of the balancer."""
    own = {"origin": origin, "sec-fetch-site": "same-origin"}
    await http.get(f"{origin}/console/enter")
    page = await http.post(f"{origin}/oauth/sign-in", data={"next": "/console/"}, headers=own)
    [url] = re.findall(r'<a href="([^"]+)">go on', unescape(page.text))
    back = await http.get(await provider.sign_in(url, "carol"))
    assert back.status_code == 200, back.text


async def test_with_view_alone_people_see_their_own_calls_of_all_bridges(tmp_path: Path) -> None:
    redis = Server(tmp_path / "redis").start()
    try:
        with (
            mock_provider() as provider,
            fleet(tmp_path, redis, size=2, servers=local_server("rich"), more=settings(provider)) as pair,
        ):
            for name in ("carol", "bob"):
                await provider.claims(name, groups=["leads"], email=f"{name}@example.com", email_verified=True)
                token = await token_of(name, pair)
                for replica in pair.replicas:
                    text, host = f"{name} at {replica.name}", f"127.0.0.1:{pair.port}"
                    await anyio.to_thread.run_sync(make_call, replica, token, text, host)
            async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
                origin = f"http://127.0.0.1:{pair.port}"
                await signed_in(provider, origin, http)
                await _look(http, f"{origin}/console", f"{provider.issuer}#bob", pair)
    finally:
        redis.kill()


async def _look(http: httpx2.AsyncClient, console: str, bob: str, pair: Fleet) -> None:
    async def get(path: str) -> str:
        answer = await http.get(f"{console}/{path}")
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        return answer.text

    with anyio.fail_after(90):
        while "2 calls" not in await get("calls"):
            await anyio.sleep(0.1)
    queries = ("", "?principal=*", f"?principal={quote(bob)}", "?at_bridge=r1&principal=*", "?at_bridge=r2&principal=*")
    for query in queries:
        page = await get(f"calls{query}")
        assert "#carol" in page
        assert "#bob" not in page.replace(f"principal={quote(bob)}", ""), page
        for kind in ("json", "csv"):
            assert "bob" not in await get(f"calls/export.{kind}{query}")
    for path in re.findall(r'href="/console/(calls/\w{16})"', await get("calls")):
        assert "carol at r" in await get(path)
    usage = await get("usage?by=user&user=*")
    assert "carol" in usage
    assert "bob" not in usage
    # Calls of others at any bridge have no page.
    for replica in pair.replicas:
        listed = replica.command("log", "--json", "--here", "--principal", bob, "--config", str(replica.config)).stdout
        [uid] = re.findall(r'"uid": "(\w{16})"', listed)
        assert (await http.get(f"{console}/calls/{uid}")).status_code == 404
