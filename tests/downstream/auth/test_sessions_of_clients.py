"""A session is its OAuth client's, and a call keeps the token that it came with (issue 23)."""

import asyncio
from typing import Any

import httpx2
import pytest

from mcpbridge.downstream.client import Client
from mcpbridge.downstream.sessions import Sessions
from support.harness import eventually, python_server
from support.people import person
from support.team import team
from support.token_issuer import EVERYBODY, issuing

RESOURCE = "http://127.0.0.1:1/mcp"


def message(method: str, id_: int, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


INITIALIZE = message(
    "initialize", 1, protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "probe", "version": "1"}
)


async def test_another_client_of_the_same_person_has_no_use_of_a_session_and_calls_keep_their_rights() -> None:
    async with (
        asyncio.timeout(120),
        issuing() as issuer,
        team(
            {"up": python_server("plain")}, "service", auth=issuer.settings(resource=RESOURCE), roles=EVERYBODY
        ) as members,
    ):
        issuer.resource = RESOURCE
        http, url = members["service"].http, f"{members.origin}/mcp"

        async def post(token: str, body: dict[str, Any], session: str = "") -> httpx2.Response:
            headers = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {token}"}
            if session:
                headers["mcp-session-id"] = session
            return await http.post(url, json=body, headers=headers)

        narrow, wide = (issuer.token(client_id="one", scope=scope, jti=scope) for scope in ("narrow", "wide"))
        other = issuer.token(client_id="two", scope="wide")
        session = (await post(narrow, INITIALIZE)).headers["mcp-session-id"]
        waiting = asyncio.ensure_future(post(narrow, message("tools/call", 2, name="up__hold", arguments={}), session))

        async def rights() -> list[set[str]]:
            calls = list(members.bridge.server.running_calls)
            return [set(call.caller.identity.scopes) for call in calls if call.caller.identity is not None]

        assert await eventually(rights, bool) == [{"narrow"}]
        assert (await post(wide, message("ping", 3), session)).status_code == 200, "the same client steps up"
        assert await rights() == [{"narrow"}]
        for body in (message("ping", 4), message("tools/call", 5, name="up__release", arguments={})):
            assert (await post(other, body, session)).status_code == 404
        headers = {"accept": "text/event-stream", "authorization": f"Bearer {other}", "mcp-session-id": session}
        assert (await http.get(url, headers=headers)).status_code == 404
        assert (await http.delete(url, headers=headers)).status_code == 404
        await post(wide, message("tools/call", 6, name="up__release", arguments={}), session)
        assert (await waiting).status_code == 200


@pytest.mark.parametrize(("client_id", "is_same"), [("one", True), ("two", False)])
def test_what_lasts_for_a_modern_client_is_no_other_clients(client_id: str, is_same: bool) -> None:
    sessions = Sessions()

    def client(application: str) -> Client:
        identity = person("ann", client_id=application)
        return Client(identity.principal, modern=True, name="agent", sessions=sessions, identity=identity)

    assert (client("one").session is client(client_id).session) is is_same
