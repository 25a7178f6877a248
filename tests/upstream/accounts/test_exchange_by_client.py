"""What a token is exchanged for is for its OAuth client and its scopes, not for every client of the same person."""

import asyncio
import json
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mcpbridge.core.identity import principal_of, with_rights, without_rights
from mcpbridge.upstream.accounts.exchange import ACCESS_TOKEN
from support.identity_providers import claims_in
from support.people import person
from support.team import team
from support.token_issuer import EVERYBODY, issuing
from support.upstreams.oauth_server import served

RESOURCE = "http://127.0.0.1:1/mcp"


class World:
    """A token endpoint that gives what the exchanged token allows, and a server that says what came."""

    def __init__(self) -> None:
        self.exchanges: list[str] = []
        self.revoked: list[str] = []

    def app(self, origin: str) -> Starlette:
        return Starlette(
            routes=[
                Route("/token", self.token, methods=["POST"]),
                Route("/revoke", self.revoke, methods=["POST"]),
                Route("/mcp", self.mcp, methods=["POST"]),
            ]
        )

    async def token(self, request: Request) -> Response:
        form = parse_qs((await request.body()).decode())
        claims = claims_in(form["subject_token"][0])
        self.exchanges.append(claims["scope"])
        token = f"up.{claims['client_id']}.{claims['scope'].replace(' ', '+')}"
        answer = {"access_token": token, "issued_token_type": ACCESS_TOKEN, "token_type": "Bearer", "expires_in": 3600}
        return JSONResponse(answer)

    async def revoke(self, request: Request) -> Response:
        self.revoked.append(parse_qs((await request.body()).decode())["token"][0])
        return Response(status_code=200)

    async def mcp(self, request: Request) -> Response:
        asked = await request.json()
        tool = {"name": "whoami", "inputSchema": {"type": "object"}}
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "up", "version": "1"},
            },
            "tools/list": {"tools": [tool]},
            "tools/call": {"content": [{"type": "text", "text": request.headers.get("authorization", "none")}]},
        }
        if "id" not in asked:
            return Response(status_code=202)
        if not request.headers.get("authorization", "").startswith("Bearer up."):
            return Response(status_code=401)
        if asked["method"] not in results:
            return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}})
        return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]})


async def test_a_client_with_fewer_scopes_gets_nothing_for_the_token_of_another_one() -> None:
    world = World()
    async with asyncio.timeout(120), issuing() as issuer, served(world.app) as origin:
        issuer.resource = RESOURCE
        issuer.metadata = {"token_endpoint": f"{origin}/token", "revocation_endpoint": f"{origin}/revoke"}
        auth = {"as": "exchange", "issuer": issuer.url, "token_endpoint": f"{origin}/token", "client_id": "bridge"}
        servers = {"up": {"url": f"{origin}/mcp", "auth": auth}}
        async with team(servers, "service", auth=issuer.settings(resource=RESOURCE), roles=EVERYBODY) as members:
            member = members["service"]

            async def comes(client_id: str, scope: str, **claims: str) -> str:
                """What the server sees of a call with such a token."""
                member.token = issuer.token(client_id=client_id, scope=scope, **claims)
                await member.ask("tools/list")  # the server lists with a token that somebody came with
                await members.bridge.settled(30)
                return json.dumps(await member.call("up__whoami"))

            assert "up.wide.read+write" in await comes("wide", "read write")
            assert "up.narrow.read" in await comes("narrow", "read")
            assert "up.narrow.write" in await comes("narrow", "write"), "nor does another token of the same client"
            assert "up.wide.read+write" in await comes("wide", "write read")
            assert world.exchanges.count("read") == 1
            alice = principal_of(issuer.url, "ann")
            accounts = members.bridge.user_accounts.all
            await members.bridge.user_accounts.left(alice)
            assert sorted(world.revoked) == ["up.narrow.read", "up.narrow.write", "up.wide.read+write"]
            assert not accounts.presented.is_of(alice)
            assert "up.narrow.read" in await comes("narrow", "read", jti="2"), "by a token that came after that"
            assert await accounts.revoke(alice) == ["up"]
            assert not accounts.presented.is_of(alice)
            assert members.bridge.pool.end_of_user(alice) == 0, "all of this user have ended"


def test_somebody_with_rights_is_found_by_principal_and_told_apart_by_rights() -> None:
    """The principal of somebody with rights is found again, whatever the subject is."""
    for subject in ("ann", "a#b", "ann\u00e4", "x" * 200):
        identity = person(subject, client_id="one", scopes=("b", "a"))
        assert without_rights(with_rights(identity.principal, identity)) == identity.principal
        same = person(subject, client_id="one", scopes=("a", "b"))
        assert with_rights(identity.principal, identity) == with_rights(same.principal, same)
        other = person(subject, client_id="one\0a", scopes=("b",))
        assert with_rights(identity.principal, identity) != with_rights(other.principal, other)
