"""What a role does not open is unknown by every path (issue 23)."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from support.harness import python_server
from support.team import Team, team, token_of
from support.token_issuer import issuing

ROLES: list[dict[str, Any]] = [
    {"name": "payroll", "principals": "alice", "servers": "*"},
    {"name": "staff", "principals": "*", "servers": ["mail"]},
    {"name": "none-of-it", "principals": "*", "tools": ["denied/*"], "deny": ["denied/*"]},
]
SERVERS = {name: python_server("plain") for name in ("hr", "mail", "denied")}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}


@asynccontextmanager
async def place(kind: str) -> AsyncGenerator[tuple[Team, str]]:
    """A bridge, and the token of somebody who sees `mail` alone: a service account, or a person."""
    async with asyncio.timeout(120), issuing() as issuer:
        issuer.resource = "http://127.0.0.1:1/mcp"
        more = {"auth": issuer.settings(resource=issuer.resource)} if kind == "person" else {}
        async with team(SERVERS, "alice", "bob", roles=ROLES, **more) as members:
            await members.bridge.settled(30)
            yield members, issuer.token() if kind == "person" else token_of("bob")


async def answers(members: Team, token: str, server: str) -> list[tuple[int, str]]:
    """What each way to an endpoint of this server answers, without its name."""
    headers = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {token}"}
    found: list[tuple[int, str]] = []
    async with httpx2.AsyncClient(timeout=60, trust_env=False) as http:
        for method, way, body in (("POST", "mcp", INITIALIZE), ("GET", "sse", None), ("POST", "nothing", {})):
            url = f"{members.origin}/servers/{server}/{way}"
            async with http.stream(method, url, headers=headers, json=body) as answer:
                text = "" if answer.status_code == 200 else (await answer.aread()).decode()
                found.append((answer.status_code, text.replace(server, "NAME")))
    url = f"{members.origin.replace('http', 'ws')}/servers/{server}/ws"
    try:
        async with connect(url, additional_headers={"authorization": f"Bearer {token}"}, proxy=None):
            found.append((101, ""))
    except InvalidStatus as refused:
        found.append((refused.response.status_code, (refused.response.body or b"").decode().replace(server, "NAME")))
    return found


@pytest.mark.parametrize("kind", ["service account", "person"])
async def test_a_forbidden_server_answers_as_one_that_does_not_exist(kind: str) -> None:
    async with place(kind) as (members, token):
        unknown = await answers(members, token, "no-such")
        assert [status for status, _ in unknown] == [404] * 4
        assert not any(name in text for name in SERVERS for _, text in unknown)
        assert await answers(members, token, "hr") == unknown
        assert await answers(members, token, "denied") == unknown
        assert [status for status, _ in await answers(members, token, "mail")] == [200, 200, 404, 101]


async def test_readiness_shows_service_accounts_the_servers_of_their_roles() -> None:
    admin = {"name": "root", "sha256": hashlib.sha256(b"of root").hexdigest(), "admin": True}
    tokens = [{"name": "bob", "sha256": hashlib.sha256(token_of("bob").encode()).hexdigest()}, admin]
    async with asyncio.timeout(120), team(SERVERS, "bob", roles=ROLES, http={"tokens": tokens}) as members:
        await members.bridge.settled(30)
        for token, names in ((token_of("bob"), {"mail"}), ("of root", set(SERVERS))):
            answer = await members["bob"].http.get(
                f"{members.origin}/readyz", headers={"authorization": f"Bearer {token}"}
            )
            assert {server["name"] for server in answer.json()["servers"]} == names
