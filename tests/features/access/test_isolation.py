"""What belongs to one user is never another's: a row for each place where the bridge keeps something (issue 23).

Two people with tokens of their own are at one bridge over HTTP. In each row Alice leaves something; Bob, who may call
the same tools, tries to get it in the way in which Alice gets it. `docs/explanation/security.md` has the same table.
"""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from support.harness import eventually, python_server
from support.team import Member, Team, team, token_of

pytestmark = pytest.mark.anyio

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
SERVERS: dict[str, Any] = {
    "counting": python_server("counting", tool={"get_count": {"read_only": True, "cache": "10 min"}}),
    "plain": python_server("plain", redact=["secrets"]),
    "asked": python_server("gated", permission="require_approval"),
}


PERSONAL: dict[str, Any] = {"whoami": python_server("whoami", auth={"as": "user", "variables": ["USER_TOKEN"]})}


@asynccontextmanager
async def two_people(folder: Path, servers: dict[str, Any]) -> AsyncIterator[Team]:
    """A bridge with Alice and Bob."""
    settings: dict[str, Any] = {
        "store": {"path": str(folder / "store.db")},
        "results": {"threshold": 2000, "budget": 1000},
        "approval": {"ask": ["pending"], "timeout": 60},
        "roles": [
            {
                "name": "everybody",
                "principals": "*",
                "servers": [*servers],
                "quota": "40 calls per day",
            }
        ],
    }
    with anyio.fail_after(120):
        async with team(servers, **settings) as people:
            assert await people.bridge.settled(60) or servers is not SERVERS
            yield people


def bearer(member: Member) -> dict[str, str]:
    return {"authorization": f"Bearer {token_of(member.name)}"}


async def recall(member: Member, handle: str) -> str:
    return json.dumps(await member.call("recall", handle=handle))


async def kept_results(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    result = await alice.call("counting__get_large", size=60_000)
    handle = str(result["_meta"]["mcpbridge/result"]["handle"])
    return "Nothing is kept", await recall(bob, handle), await recall(alice, handle)


async def references(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    """A handle among the arguments stands for the result."""
    result = await alice.call("counting__get_large", size=60_000)
    reference = {"$ref": str(result["_meta"]["mcpbridge/result"]["handle"])}
    answers = [json.dumps(await one.call("plain__echo", text=reference)) for one in (bob, alice)]
    assert "xxxxxxxx" in answers[1]
    assert "xxxxxxxx" not in answers[0]
    return "isError", answers[0], answers[1]


async def cached_results(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    first = json.dumps((await alice.call("counting__get_count", of="x"))["content"])
    answers = [json.dumps((await one.call("counting__get_count", of="x"))["content"]) for one in (bob, alice)]
    assert answers[1] == first, "hers is cached"
    assert answers[0] != first, "the server was asked again for him"
    return "content", '"content": []', f'"content": {answers[1]}'


async def begin(member: Member) -> dict[str, str]:
    """A session of the handshake era."""
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    headers = {"accept": "application/json, text/event-stream", **bearer(member)}
    answer = await member.http.post(f"{member.origin}/mcp", json=message, headers=headers)
    return {**headers, "mcp-session-id": answer.headers["mcp-session-id"]}


async def sessions(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    hers = await begin(alice)
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    answers = [
        await one.http.post(f"{one.origin}/mcp", json=ping, headers={**hers, **bearer(one)}) for one in (bob, alice)
    ]
    return "404", f"{answers[0].status_code}", f"{answers[1].status_code}"


async def event_replay(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    """`Last-Event-ID` of a stream of hers."""
    hers = await begin(alice)
    statuses: list[str] = []
    for one in (bob, alice):
        headers = {**hers, **bearer(one), "accept": "text/event-stream", "last-event-id": "1"}
        async with one.http.stream("GET", f"{one.origin}/mcp", headers=headers) as stream:
            statuses.append(f"{stream.status_code}")
    assert statuses[0] == "404"
    return "404", statuses[0], "hers: " + ("unknown event" if statuses[1] != "200" else "open")


async def approvals(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    """A call of hers that waits is none that he lists or decides, and what she was granted is not his."""
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: alice.call("asked__echo", text="please"))
        [waiting] = await eventually(people.bridge.approvals.pending, bool)
        listed = await bob.http.get(f"{bob.origin}/api/approvals", headers=bearer(bob))
        decided = await bob.http.post(
            f"{bob.origin}/api/approvals/{waiting.request.id}", json={"approved": True}, headers=bearer(bob)
        )
        assert (listed.status_code, decided.status_code) == (403, 403)
        still = [one.request.id for one in await people.bridge.approvals.pending()]
        group.cancel_scope.cancel()
    return "403", f"{listed.status_code}", f"waits: {still == [waiting.request.id]}"


async def usage(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    """What she called, in the call log."""
    await alice.call("plain__echo", text="x")

    async def report(member: Member) -> str:
        answer = await member.http.get(f"{member.origin}/api/usage", params={"user": "*"}, headers=bearer(member))
        return json.dumps(answer.json()["rows"])

    hers = await eventually(lambda: report(alice), lambda text: "alice" in text)
    return "[]", await report(bob), hers


async def results_of_others_over_rest(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    """The kept results, the console and the audit log are for administrators."""
    result = await alice.call("counting__get_large", size=60_000)
    handle = str(result["_meta"]["mcpbridge/result"]["handle"])
    paths = [f"/api/results/{handle}?principal=alice", "/api/results?principal=alice", "/api/stats"]
    answers = [await bob.http.get(f"{bob.origin}{path}", headers=bearer(bob)) for path in paths]
    assert {answer.status_code for answer in answers} == {403}
    return "forbidden", answers[0].text, "hers"


async def placeholders(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    """A placeholder of a secret that she was shown stands for it in her calls alone."""
    shown = json.dumps(await alice.call("plain__echo", text=f"Use {SECRET}."), ensure_ascii=False)
    assert SECRET not in shown
    [placeholder] = set(re.findall("‹[^›]+›", shown))
    his, hers = [
        json.dumps((await one.call("plain__echo", text=placeholder))["content"], ensure_ascii=False)
        for one in (bob, alice)
    ]
    assert placeholder in hers, "the server got the secret, and said it again"
    return "‹" + chr(92), his, hers  # what the server got is a text that only looks like one


async def accounts(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    """Her variables, and the process that runs with them."""
    for one in (alice, bob):
        await one.enter()
    await alice.press("/connections/whoami/variables", **{"v.USER_TOKEN": "token-a"})
    await eventually(lambda: alice.ask("tools/list"), lambda found: "whoami__whoami" in json.dumps(found))
    hers = json.dumps(await alice.call("whoami__whoami"))
    assert "token-a" in hers
    assert "token-a" not in (await bob.get("/connections/whoami/variables")).text
    return "account of your own", json.dumps(await bob.call("whoami__whoami")), hers


async def quotas(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    for _ in range(41):
        hers = await alice.call("plain__echo", text="x")
    his = await bob.call("plain__echo", text="x")
    assert "mcpbridge/error" not in his.get("_meta", {})
    return "x", json.dumps(his["content"]), json.dumps(hers["_meta"]["mcpbridge/error"])


Row = Callable[[Team, Member, Member], Awaitable[tuple[str, str, str]]]
ROWS: dict[str, Row] = {
    "kept results and handles": kept_results,
    "handles among arguments": references,
    "cached results": cached_results,
    "sessions": sessions,
    "replay of events": event_replay,
    "approvals": approvals,
    "call log and usage": usage,
    "results over REST": results_of_others_over_rest,
    "placeholders of secrets": placeholders,
    "accounts and variables": accounts,
    "quotas": quotas,
}
"""What each row returns: what Bob gets instead, what Bob got, and what Alice got."""


@pytest.mark.parametrize("place", ROWS)
async def test_nobody_gets_what_is_anothers(place: str, tmp_path: Path) -> None:
    servers = PERSONAL if place == "accounts and variables" else SERVERS
    async with two_people(tmp_path, servers) as people:
        instead, his, hers = await ROWS[place](people, people["alice"], people["bob"])
    assert instead in his, f"{place}: {his[:500]}"
    assert his != hers, place
