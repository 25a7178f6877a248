"""Accounts of single users at servers: how a person gets one, sees it and gives it up (issue 23)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from support.harness import eventually
from support.team import Team, link_in, team
from support.upstreams.oauth_server import OAuthWorld, oauth_world


@asynccontextmanager
async def signed_up(**auth: Any) -> AsyncIterator[tuple[OAuthWorld, Team]]:
    """A guarded server, and a bridge for alice and bob, of whom each has a browser that is signed in to the pages."""
    with anyio.fail_after(60):
        async with oauth_world() as world:
            servers = {"up": {"url": world.url, "era": "legacy", "auth": {"as": "user", **auth}}}
            async with team(servers) as people:
                for member in people.members.values():
                    await member.enter()
                yield world, people


async def listed(people: Team) -> None:
    """Return when the tools of the server are listed."""

    async def names() -> list[str]:
        return [tool["name"] for tool in (await people["alice"].ask("tools/list"))["result"]["tools"]]

    await eventually(names, lambda found: "up__read" in found)


def said(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


async def test_each_user_calls_with_an_account_of_their_own() -> None:
    async with signed_up() as (world, people):
        assert "Connected" in (await people["alice"].connect("up")).text
        await listed(people)
        assert "Connected" in (await people["bob"].connect("up")).text
        used: dict[str, set[str]] = {}
        for name, member in people.members.items():
            world.seen.clear()
            assert said(await member.call("up__read", text=name)) == f"read {name}"
            used[name] = set(world.seen)
        assert all(len(tokens) == 1 and tokens != {""} for tokens in used.values())
        assert used["alice"].isdisjoint(used["bob"])


async def test_a_call_without_an_account_says_where_to_get_one_and_for_whom() -> None:
    """A client that opens no pages: an error with a link, which works for its user alone (the phishing case)."""
    async with signed_up() as (world, people):
        await people["alice"].connect("up")
        await listed(people)
        world.seen.clear()
        refused = await people["bob"].call("up__read", text="it")
        assert refused["isError"]
        assert "account of your own" in said(refused)
        assert world.seen == []
        link = link_in(said(refused))
        opened_by_alice = await people["alice"].get(link)
        assert opened_by_alice.status_code == 403
        assert "another user" in opened_by_alice.text
        assert "Connected" in (await people["bob"].follow(link)).text
        assert said(await people["bob"].call("up__read", text="it")) == "read it"
        assert (await people["bob"].get(link)).status_code == 404
