"""Which secrets people with a role may use without seeing them (issue 23: roles decide on secrets, too)."""

import json
import re
from typing import Any

import anyio
import pytest

from support.harness import python_server
from support.team import Member, team

pytestmark = pytest.mark.anyio

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
SERVERS: dict[str, Any] = {
    name: python_server("plain", redact=["secrets"], secrets_to=others)
    for name, others in (("vault", ["deploy"]), ("deploy", []))
}


async def text_of(member: Member, tool: str, text: str) -> str:
    return json.dumps(await member.call(tool, text=text), ensure_ascii=False)


CASES: list[tuple[list[dict[str, Any]], bool]] = [
    ([{"secrets": ["vault"]}], True),
    ([{"secrets": ["va*"]}], True),
    ([{"secrets": []}], False),
    ([{"secrets": "deploy"}], False),
    ([{}], True),
    ([{"secrets": []}, {"secrets": "vault"}], True),
    ([{"secrets": []}, {}], True),
]


@pytest.mark.parametrize(("roles", "is_turned_back"), CASES, ids=str)
async def test_a_placeholder_is_turned_back_for_those_whose_roles_open_it(
    roles: list[dict[str, Any]], is_turned_back: bool
) -> None:
    settings = [
        {"name": f"role-{number}", "principals": "*", "servers": "*", **role} for number, role in enumerate(roles)
    ]
    with anyio.fail_after(120):
        async with team(SERVERS, roles=settings) as people:
            assert await people.bridge.settled(60)
            alice = people["alice"]
            shown = await text_of(alice, "vault__echo", SECRET)
            assert SECRET not in shown
            [placeholder] = re.findall("‹[^›]+›", shown)
            echoed = await text_of(alice, "vault__echo", placeholder)
            assert SECRET not in echoed
            # What a server writes in the form of a placeholder is escaped: it got this one as it was.
            assert ("‹\\\\secret" in echoed) is not is_turned_back, echoed
            assert (placeholder in echoed) is is_turned_back, echoed
