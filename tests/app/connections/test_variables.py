"""Programs that run for each user with the user's own variables (issue 23)."""

import sys
from collections.abc import Mapping
from pathlib import Path

import anyio

from support.harness import eventually
from support.team import Team, link_in, team

WHOAMI = Path(__file__).parents[2] / "servers" / "whoami.py"
SERVERS = {
    "me": {"command": sys.executable, "args": [str(WHOAMI)], "auth": {"as": "user", "variables": ["USER_TOKEN"]}}
}


class Noted:
    """What the audit log gets."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, object]]] = []

    def append_event(self, kind: str, facts: Mapping[str, object]) -> None:
        self.events.append((kind, facts))


async def listed(people: Team) -> None:
    async def names() -> list[str]:
        return [tool["name"] for tool in (await people["alice"].ask("tools/list"))["result"]["tools"]]

    await eventually(names, lambda found: "me__whoami" in found)


async def whoami(people: Team, name: str) -> tuple[str, str]:
    result = await people[name].call("me__whoami")
    text = result["content"][0]["text"]
    assert not result.get("isError"), text
    token, _, pid = text.partition(" ")
    return token, pid


async def test_each_user_has_a_process_with_the_variables_they_set() -> None:
    with anyio.fail_after(90):
        async with team(SERVERS) as people:
            alice, bob = people["alice"], people["bob"]
            await alice.enter()
            await bob.enter()
            done = await alice.press("/connections/me/variables", **{"v.USER_TOKEN": "token-a"})
            assert done.status_code == 303
            await listed(people)
            token, pid = await whoami(people, "alice")
            assert token == "token-a"
            assert (await whoami(people, "alice")) == (token, pid)
            refused = (await bob.call("me__whoami"))["content"][0]["text"]
            form = await bob.get(link_in(refused))
            assert form.headers["location"] == "/connections/me/variables"
            assert "USER_TOKEN" in (await bob.get(form.headers["location"])).text
            await bob.press("/connections/me/variables", **{"v.USER_TOKEN": "token-b"})
            assert (await whoami(people, "bob"))[0] == "token-b"
            assert (await whoami(people, "alice")) == (token, pid)
            await alice.press("/connections/me/variables", **{"v.USER_TOKEN": "token-c"})
            changed, other = await whoami(people, "alice")
            assert changed == "token-c"
            assert other != pid
            pages = (await alice.get("/connections")).text + (await alice.get("/connections/me/variables")).text
            assert "token-" not in pages
            await alice.press("/connections/me/disconnect")
            assert "account of your own" in (await alice.call("me__whoami"))["content"][0]["text"]


async def test_the_audit_log_has_what_became_of_accounts() -> None:
    with anyio.fail_after(90):
        async with team(SERVERS) as people:
            trail, alice, noted = people.bridge.trail, people["alice"], Noted()
            trail.log = noted  # type: ignore[assignment] - it has what is asked of a log here
            await alice.enter()
            await alice.press("/connections/me/variables", **{"v.USER_TOKEN": "token-a"})
            await listed(people)
            assert (await whoami(people, "alice"))[0] == "token-a"
            store = people.bridge.user_accounts.all.vault
            row = next(row for row in store.rows() if row.principal == "alice")
            await store.save(row, b'{"USER_TOKEN":"token-b"}')  # as `mcpbridge connections set` does, in its process
            assert (await whoami(people, "alice"))[0] == "token-b"
            await alice.press("/connections/me/disconnect")
            trail.log = None
    kinds = [kind.removeprefix("account.") for kind, facts in noted.events if facts.get("server") == "me"]
    assert [kind for kind in kinds if kind in ("connected", "disconnected")] == [
        *("connected",),
        *("disconnected", "connected"),  # one process ends, and the next one has the other value
        *("disconnected",),
    ]
    assert "token-" not in str(noted.events)


async def test_what_is_no_variable_of_the_server_is_not_set() -> None:
    with anyio.fail_after(60):
        async with team(SERVERS) as people:
            await people["alice"].enter()
            await people["alice"].press("/connections/me/variables", **{"v.PATH": "/evil"})
            found = await people.bridge.user_accounts.all.connections("alice")
            assert [one.is_connected for one in found] == [False]


async def test_what_one_user_has_is_not_the_other_ones() -> None:
    """Issue 23: results from the cache, processes, and what the page shows."""
    servers = {"me": {**SERVERS["me"], "cache": "1h", "tool": {"whoami": {"read_only": True}}}}
    with anyio.fail_after(90):
        async with team(servers) as people:
            alice, bob = people["alice"], people["bob"]
            for name, member in people.members.items():
                await member.enter()
                await member.press("/connections/me/variables", **{"v.USER_TOKEN": f"token-{name}"})
            await listed(people)
            for _ in range(2):
                assert (await whoami(people, "alice"))[0] == "token-alice"
                assert (await whoami(people, "bob"))[0] == "token-bob"
            homes = {one.home for one in people.bridge.pool.everyone() if one.name == "me"}
            assert homes == {None, ("alice", ""), ("bob", "")}
            pages = [(await member.get("/connections")).text for member in (alice, bob)]
            assert not any("token-" in page for page in pages)
            await alice.press("/connections/me/disconnect")
            assert (await alice.call("me__whoami"))["isError"]
            assert (await whoami(people, "bob"))[0] == "token-bob"
