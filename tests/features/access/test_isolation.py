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

from support.answering_clients import ACCEPT, FORM, ask
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
LABELED = {name: python_server("plain", labels=[name]) for name in ("private", "untrusted", "sends")}
TASKS = "io.modelcontextprotocol/tasks"


@asynccontextmanager
async def two_people(folder: Path, servers: dict[str, Any]) -> AsyncIterator[Team]:
    """A bridge with Alice and Bob."""
    settings: dict[str, Any] = {
        "audit": {"enabled": True, "path": str(folder / "audit"), "anchor": str(folder / "anchor")},
        "trust": {"trifecta": "deny" if servers is LABELED else "off"},
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
    return {**headers, "mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}


async def send(member: Member, session: dict[str, str], method: str, id_: int | None = 1, **params: Any) -> str:
    """Send a request of a session, or a notification without an id; what comes back."""
    message = {"jsonrpc": "2.0", "method": method, "params": params, **({} if id_ is None else {"id": id_})}
    return (await member.http.post(f"{member.origin}/mcp", json=message, headers=session)).text


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


async def tasks(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    alice.extensions = bob.extensions = {TASKS: {}}
    hers = await eventually(
        lambda: alice.ask("tools/call", name="jobs__job", arguments={"steps": [{"stay": True}]}),
        lambda answer: "taskId" in answer.get("result", {}),
    )
    task = hers["result"]["taskId"]
    his = [json.dumps(await bob.ask(method, taskId=task)) for method in ("tasks/get", "tasks/cancel")]
    assert all("Unknown task" in answer for answer in his), his
    seen = await alice.ask("tasks/get", taskId=task)
    assert seen["result"]["status"] == "working", "he has not cancelled it"
    return "Unknown task", his[0], json.dumps(seen)


async def subscriptions(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    """What she subscribed to is announced to her alone, and he ends no subscription but his own."""
    await eventually(lambda: alice.ask("resources/list"), lambda found: "memo://two" in json.dumps(found))
    heard: dict[str, list[str]] = {"alice": [], "bob": []}
    streams = {one.name: await begin(one) for one in (alice, bob)}

    async def listen(member: Member, opened: Callable[[], None]) -> None:
        headers = {**streams[member.name], "accept": "text/event-stream"}
        async with member.http.stream("GET", f"{member.origin}/mcp", headers=headers) as stream:
            assert stream.status_code == 200
            opened()
            async for line in stream.aiter_lines():
                if "resources/updated" in line:
                    heard[member.name].append(line)

    async with anyio.create_task_group() as group:
        for one in (alice, bob):
            is_open = anyio.Event()
            group.start_soon(listen, one, is_open.set)
            await is_open.wait()
        await send(alice, streams["alice"], "resources/subscribe", uri="memo://one")
        await send(bob, streams["bob"], "resources/subscribe", uri="memo://two")
        await send(bob, streams["bob"], "resources/unsubscribe", uri="memo://one")
        for uri in ("memo://one", "memo://two"):
            await bob.call("rich__touch", uri=uri)

        async def both() -> dict[str, list[str]]:
            return heard

        await eventually(both, lambda found: all(found.values()))
        group.cancel_scope.cancel()
    assert "memo://one" in heard["alice"][0]
    assert "memo://one" not in json.dumps(heard["bob"])
    return "memo://two", heard["bob"][0], heard["alice"][0]


async def touched_labels(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    """What her session has read forbids him nothing, and no sentence about it reaches him."""
    sessions = {one.name: await begin(one) for one in (alice, bob)}

    async def echo(member: Member, server: str) -> str:
        params = {"name": f"{server}__echo", "arguments": {"text": "x"}}
        return await send(member, sessions[member.name], "tools/call", **params)

    for server in ("private", "untrusted"):
        await eventually(lambda server=server: echo(alice, server), lambda answer: "Error" not in answer)
    hers = await eventually(lambda: echo(alice, "sends"), lambda answer: "private data by" in answer)
    his = await echo(bob, "sends")
    assert "private data" not in his
    return '"text":"x"', his.replace('": ', '":'), hers


async def late_results(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    """The same call of his is made anew, and does not get the result that came too late for her."""
    sessions = {one.name: await begin(one) for one in (alice, bob)}

    async def hold(member: Member) -> str:
        return await send(member, sessions[member.name], "tools/call", id_=70, name="plain__hold", arguments={})

    async def held(times: int) -> None:
        async def holds() -> int:
            return json.dumps((await alice.call("plain__journal"))["content"]).count('"hold')

        await eventually(holds, lambda found: found >= times)

    answers: list[str] = []
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: hold(alice))
        await held(1)
        await send(
            alice, sessions["alice"], "notifications/cancelled", id_=None, requestId=70, reason="timed out after 1s"
        )
        await alice.call("plain__release")

    async def his_call() -> None:
        answers.append(await hold(bob))

    async with anyio.create_task_group() as group:
        group.start_soon(his_call)
        await held(2)
        await bob.call("plain__release")
    hers = await hold(alice)
    assert "mcpbridge/late" in hers
    assert "mcpbridge/late" not in answers[0]
    return "released", answers[0], hers


async def parked_calls(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    """The `requestState` of a call of hers that asks something."""
    alice.can_open = bob.can_open = True
    call: dict[str, Any] = {"name": "asking__play", "arguments": {"steps": ask(FORM)}}
    asked = await eventually(
        lambda: alice.ask("tools/call", **call), lambda answer: "requestState" in answer.get("result", {})
    )
    [key] = asked["result"]["inputRequests"]
    answered = {**call, "requestState": asked["result"]["requestState"], "inputResponses": {key: ACCEPT}}
    his, hers = [json.dumps(await one.ask("tools/call", **answered)) for one in (bob, alice)]
    assert "accept" in hers
    return "-32602", his, hers


async def visits(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    """Browsers that are signed in to pages: what she sends along is good in hers alone, and he signs nobody out."""
    for one in (alice, bob):
        await one.enter()
    form_token = re.findall(r'name="form_token" value="([^"]+)"', (await alice.get("/connections")).text)[0]
    headers = {"origin": bob.origin, "sec-fetch-site": "same-origin"}
    for path in ("sign-out", "whoami/variables", "whoami/disconnect"):
        form = {"form_token": form_token, "v.USER_TOKEN": "token-b"}
        refused = await bob.browser.post(f"{bob.origin}/connections/{path}", data=form, headers=headers)
        assert refused.status_code == 403, path
    await people.bridge.user_accounts.put_out("bob")
    his, hers = [(await one.get("/connections")).text for one in (bob, alice)]
    assert "alice" in hers
    assert "alice" not in his
    return "type=password" if "type=password" in his else 'type="password"', his, hers


async def audit_log(people: Team, alice: Member, bob: Member) -> tuple[str, str, str]:
    """It is a file of whoever runs the bridge. No address serves it, and the console opens by no token of his."""
    await alice.call("plain__echo", text="x")
    seen = ""
    for path in (
        "/api/audit",
        "/api/audit/show",
        "/api/calls",
        "/console/calls",
        "/console/sessions",
        "/console/usage",
    ):
        answer = await bob.http.get(f"{bob.origin}{path}", headers=bearer(bob))
        assert answer.status_code in (303, 403, 404), path
        seen += answer.text
    headers = {"origin": bob.origin, "sec-fetch-site": "same-origin"}
    entered = await bob.browser.post(f"{bob.origin}/console/enter", data={"token": bob.token}, headers=headers)
    seen += entered.text
    assert "alice" not in seen

    async def in_file() -> str:
        assert people.bridge.trail.log is not None
        return "".join(file.read_text() for file in people.bridge.trail.log.folder.glob("*.jsonl"))

    hers = await eventually(in_file, lambda text: "alice" in text)
    return "may not see the console", seen, hers


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
    "tasks": tasks,
    "subscriptions to resources": subscriptions,
    "what a session has touched": touched_labels,
    "late results": late_results,
    "parked calls": parked_calls,
    "visits to pages": visits,
    "audit log and console": audit_log,
}
"""What each row returns: what Bob gets instead, what Bob got, and what Alice got."""
SERVERS_OF: dict[str, dict[str, Any]] = {
    "accounts and variables": PERSONAL,
    "visits to pages": PERSONAL,
    "tasks": {"jobs": python_server("tasks_upstream", "modern")},
    "subscriptions to resources": {"rich": python_server("rich")},
    "what a session has touched": LABELED,
    "parked calls": {"asking": python_server("asking", "legacy")},
}
"""The servers of rows that need others."""


@pytest.mark.parametrize("place", ROWS)
async def test_nobody_gets_what_is_anothers(place: str, tmp_path: Path) -> None:
    servers = SERVERS_OF.get(place, SERVERS)
    async with two_people(tmp_path, servers) as people:
        instead, his, hers = await ROWS[place](people, people["alice"], people["bob"])
    assert instead in his, f"{place}: {his[:500]}"
    assert his != hers, place
