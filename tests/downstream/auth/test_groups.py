"""Which claim names the groups of somebody is said for each issuer (issue 23)."""

import asyncio
from typing import Any

import pytest

from support.harness import python_server
from support.team import Member, team
from support.token_issuer import issuing

RESOURCE = "http://127.0.0.1:1/mcp"
ROLES: list[dict[str, Any]] = [{"name": "engineering", "groups": "eng", "servers": "up"}]
OVERAGE = {"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://graph.example"}}}


async def sees_tools(member: Member) -> bool:
    tools = (await member.ask("tools/list"))["result"]["tools"]
    return any(tool["name"].startswith("up__") for tool in tools)


@pytest.mark.parametrize(
    ("claim", "claims", "has_role"),
    [
        (None, {"groups": ["eng"]}, True),
        ("roles", {"roles": ["eng"], "groups": ["sales"]}, True),
        ("roles", {"groups": ["eng"]}, False),
        ("realm_access.roles", {"realm_access": {"roles": ["eng"]}}, True),
        ("https://example.com/groups", {"https://example.com/groups": ["eng"]}, True),
        (None, OVERAGE, False),
    ],
)
async def test_the_claim_of_groups_is_a_setting_of_the_issuer(
    claim: str | None, claims: dict[str, Any], has_role: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {} if claim is None else {"groups_claim": claim}
    async with asyncio.timeout(120), issuing() as issuer:
        auth = issuer.settings(resource=RESOURCE, own=own)
        issuer.resource = RESOURCE
        async with team({"up": python_server("plain")}, "service", auth=auth, roles=ROLES) as members:
            await members.bridge.settled(30)
            member = members["service"]
            member.token = issuer.token(**claims)
            assert await sees_tools(member) is has_role
    logged = capsys.readouterr()
    assert ("cannot be read: roles by groups" in logged.out + logged.err) is (claims is OVERAGE)
