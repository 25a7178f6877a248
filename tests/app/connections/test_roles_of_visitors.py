"""The pages about accounts show what the roles of their visitor open (issue 23: what a role forbids is unknown)."""

import asyncio
from typing import Any

import pytest

from support.harness import python_server
from support.team import Member, Team, team
from support.token_issuer import issuing

OWN = {"as": "user", "variables": ["KEY"]}
ROLES: list[dict[str, Any]] = [
    {"name": "payroll", "principals": "alice", "servers": ["hr"]},
    {"name": "engineering", "groups": "eng", "servers": ["hr"]},
    {"name": "staff", "principals": "*", "servers": ["mail"]},
]
SERVERS = {name: {**python_server("plain"), "auth": OWN} for name in ("hr", "mail")}


async def statuses(member: Member, server: str) -> list[int]:
    """Of the pages of one server, and of what can be sent there."""
    pages = [await member.get(f"/connections/{server}/{page}") for page in ("start?ask=x", "variables")]
    sent = [await member.press(f"/connections/{server}/variables", **{"v.KEY": "x"})]
    return [answer.status_code for answer in (*pages, *sent)]


async def listed(member: Member) -> set[str]:
    page = (await member.get("/connections")).text
    return {name for name in SERVERS if f"/connections/{name}/" in page}


async def test_each_sees_the_servers_of_their_roles_and_others_are_unknown() -> None:
    async with asyncio.timeout(120), team(SERVERS, "alice", "bob", roles=ROLES) as members:
        for member in (members["alice"], members["bob"]):
            await member.enter()
        assert await listed(members["alice"]) == {"hr", "mail"}
        assert await listed(members["bob"]) == {"mail"}
        assert "hr" not in (await members["bob"].get("/connections")).text.split()
        assert await statuses(members["bob"], "hr") == await statuses(members["bob"], "no-such") == [404] * 3
        assert await statuses(members["alice"], "hr") == [404, 200, 303]


@pytest.mark.parametrize("is_connected", [False, True])
async def test_who_lost_a_role_sees_an_account_of_it_only_to_disconnect_it(is_connected: bool) -> None:
    async with issuing() as issuer:
        issuer.resource = "http://127.0.0.1:1/mcp"
        auth = issuer.settings(resource=issuer.resource)
        async with asyncio.timeout(120), team(SERVERS, "service", roles=ROLES, auth=auth) as members:
            member = members["service"]
            member.token = issuer.token(groups=["eng"])
            await member.enter()
            assert await listed(member) == {"hr", "mail"}
            if is_connected:
                assert (await member.press("/connections/hr/variables", **{"v.KEY": "x"})).status_code == 303
            await comes_with(members, member, issuer.token(groups=[], jti="2"))
            assert await listed(member) == ({"hr", "mail"} if is_connected else {"mail"})
            assert (await member.get("/connections/hr/variables")).status_code == 404
            if is_connected:
                assert (await member.press("/connections/hr/disconnect")).status_code == 303
                assert await listed(member) == {"mail"}


async def comes_with(members: Team, member: Member, token: str) -> None:
    """A client of this person comes with another token; the browser stays signed in."""
    answer = await member.http.get(f"{members.origin}/readyz", headers={"authorization": f"Bearer {token}"})
    assert answer.status_code in (200, 503)  # ready, or starting
