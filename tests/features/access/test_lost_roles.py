"""Who loses a role loses what it brought along: what was kept of tools that there are not any more for somebody.

Issue 23: a user's results, handles and cache entries; what a role forbids is hidden and unknown.
"""

import asyncio
import json
import re
from typing import Any

import pytest

from mcpbridge.config.schema import Settings
from mcpbridge.core.identity import Identity
from mcpbridge.downstream.revisions.request_meta import modern_client
from mcpbridge.library.access import take_role
from mcpbridge.results.kept_results import KeptResults
from support.answering_clients import ALL, FORM
from support.in_process_bridge import BridgeToScripts, Ear, bridged, envelope, frame_of
from support.people import ISSUER, ear_of, introduce, office, person
from support.upstreams.scripted_upstream import SILENCE, ScriptedTransport

pytestmark = pytest.mark.anyio

SECRET = "canary-5f2b9e"


def rows(name: str) -> str:
    word = SECRET if name == "hr" else "harmless"
    return json.dumps([{"id": number, "note": f"{word} number {number}"} for number in range(2000)])


ROLES: list[dict[str, Any]] = [
    {"name": "engineering", "groups": "eng", "servers": ["hr"]},
    {"name": "staff", "principals": "*", "servers": ["mail"]},
]


def server(name: str) -> ScriptedTransport:
    """A server whose every result is large."""
    transport = office(name, "get_rows")
    transport.script = {**transport.script, "tools/call": {"content": [{"type": "text", "text": rows(name)}]}}
    return transport


def place(**sections: Any) -> Any:
    return bridged(
        {name: server(name) for name in ("hr", "mail")},
        roles=ROLES,
        results={"strategy": "preview"},
        expose={"mode": "all"},
        **sections,
    )


async def call(ear: Ear, name: str, **arguments: Any) -> dict[str, Any]:
    answer = await ear.ask("tools/call", {"name": name, "arguments": arguments})
    return answer.get("result", answer)


def handle_in(result: dict[str, Any]) -> str:
    found = re.search(r"\b[a-z2-7]{26}\b", json.dumps(result))
    assert found, result
    return found[0]


async def recall_name(ear: Ear) -> str:
    tools = (await ear.ask("tools/list"))["result"]["tools"]
    return next(tool["name"] for tool in tools if tool["name"].endswith("recall"))


async def passes_on(bridge: BridgeToScripts, ear: Ear, handle: str) -> bool:
    """Whether a part of a kept result gets to another server as an argument."""
    sent = len(bridge.transports["mail"].asked("tools/call"))
    await call(ear, "mail__get_rows", text={"$ref": f"{handle}#/0/note"})
    return SECRET in json.dumps(bridge.transports["mail"].asked("tools/call")[sent:])


async def ways(ear: Ear, handle: str) -> list[str]:
    """What somebody reads of a kept result, by every way that there is."""
    recall = await recall_name(ear)
    asked = [
        await call(ear, recall, handle=handle),
        await call(ear, recall),
        await call(ear, recall, search="rows"),
        await ear.ask("resources/read", {"uri": f"mcpbridge://results/{handle}"}),
        await ear.ask("resources/read", {"uri": f"mcpbridge://results/{handle}/text"}),
    ]
    return [json.dumps(one) for one in asked]


async def test_a_kept_result_of_a_server_that_is_nobody_elses_business_any_more_is_unknown() -> None:
    async with place() as bridge:
        ear = await ear_of(bridge.server, person("ann", groups=["eng"]))
        handle = handle_in(await call(ear, "hr__get_rows"))
        seen = await ways(ear, handle)
        assert sum(SECRET in one for one in seen) >= 3, "with the role it is read"
        assert any(handle in one for one in seen[1:3]), "and listed"
        introduce(ear.client, person("ann", groups=["sales"]))
        for one in await ways(ear, handle):
            assert SECRET not in one
            assert "hr/get_rows" not in one
        assert not await passes_on(bridge, ear, handle)
        unknown = await ear.ask("resources/read", {"uri": f"mcpbridge://results/{'a' * 26}"})
        lost = await ear.ask("resources/read", {"uri": f"mcpbridge://results/{handle}"})
        assert lost["error"]["code"] == unknown["error"]["code"]
        introduce(ear.client, person("ann", groups=["eng"]))
        assert SECRET in (await ways(ear, handle))[0], "it was not forgotten"
        assert await passes_on(bridge, ear, handle)


async def test_what_is_kept_of_servers_that_somebody_still_sees_stays() -> None:
    async with place() as bridge:
        ear = await ear_of(bridge.server, person("ann", groups=["eng"]))
        handle = handle_in(await call(ear, "mail__get_rows"))
        introduce(ear.client, person("ann"))
        assert "harmless" in json.dumps(await call(ear, await recall_name(ear), handle=handle))


async def test_a_cached_result_is_for_who_may_call() -> None:
    async with place(servers={"hr": {"cache": "60s"}}) as bridge:
        ear = await ear_of(bridge.server, person("ann", groups=["eng"]))
        for _ in range(2):
            assert SECRET in json.dumps(await call(ear, "hr__get_rows"))
        introduce(ear.client, person("ann"))
        assert SECRET not in json.dumps(await call(ear, "hr__get_rows"))


async def test_a_result_that_says_nothing_of_its_origin_is_not_for_who_is_kept_to_roles() -> None:
    async with place() as bridge:
        kept = bridge.results.kept_results
        assert isinstance(kept, KeptResults)
        ann = f"{ISSUER}#ann"
        await bridge.store.put("result", rows("hr").encode(), principal=ann, expires_in=60, handle="b" * 26)
        ear = await ear_of(bridge.server, person("ann", groups=["eng"]))
        assert SECRET not in json.dumps(await call(ear, await recall_name(ear), handle="b" * 26))


async def modern_call(bridge: BridgeToScripts, who: Identity, server: str, **more: Any) -> dict[str, Any]:
    """The answer that a modern client of somebody gets to a call, which may be a question."""
    meta = envelope(**{"io.modelcontextprotocol/clientCapabilities": ALL})
    frame = frame_of("tools/call", {"name": f"{server}__get_rows", "arguments": {}, "_meta": meta, **more})
    client = modern_client(frame)
    introduce(client, who)
    return json.loads((await bridge.server.answer(client, frame, lambda _: None)).data)


async def parked(bridge: BridgeToScripts, who: Identity, server: str) -> str:
    """Have a call of somebody wait for the answer to a question; returns its state."""
    transport = bridge.transports[server]

    def asks(params: dict[str, Any]) -> str:
        line = next(line for line in transport.lines if line.heard and line.heard[-1].get("params") == params)
        line.gives({"jsonrpc": "2.0", "id": f"question of {server}", **FORM})
        return SILENCE

    transport.script["tools/call"] = asks
    answer = await modern_call(bridge, who, server)
    assert answer["result"]["resultType"] == "input_required", answer
    return answer["result"]["requestState"]


async def test_calls_that_wait_for_an_answer_end_with_the_role_that_they_need() -> None:
    """Issue 23: parked calls of what is not theirs any more end."""
    ann = person("ann", groups=["eng"])
    async with place() as bridge:
        lost, kept = [await parked(bridge, ann, name) for name in ("hr", "mail")]
        fewer = Settings.model_validate({"roles": ROLES[1:]}).roles
        await bridge.reload(bridge.settings.model_copy(update={"roles": fewer}))
        answer = await bridge.transports["hr"].answer("question of hr")
        assert answer["result"] == {"action": "cancel"}
        await bridge.transports["hr"].hears("notifications/cancelled")
        assert not bridge.transports["mail"].asked("notifications/cancelled")
        accepted = {"q1": {"action": "accept", "content": {"name": "Ada"}}}
        gone = await modern_call(bridge, ann, "hr", requestState=lost, inputResponses=accepted)
        assert "error" in gone, gone
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            resumed = tasks.create_task(modern_call(bridge, ann, "mail", requestState=kept, inputResponses=accepted))
            answer = await bridge.transports["mail"].answer("question of mail")
            assert answer["result"] == accepted["q1"]
            line = next(line for line in bridge.transports["mail"].lines if line.asked("tools/call"))
            line.gives({"jsonrpc": "2.0", "id": line.asked("tools/call")[0]["id"], "result": {"content": []}})
        assert "result" in resumed.result(), resumed.result()


ACCEPTED = {"q1": {"action": "accept", "content": {"name": "Ada"}}}


async def finished(bridge: BridgeToScripts, who: Identity, server: str, state: str) -> dict[str, Any]:
    """Come back to a call that waits, as this person; the answer, once the server has done its part."""
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        resumed = tasks.create_task(modern_call(bridge, who, server, requestState=state, inputResponses=ACCEPTED))
        answer = await bridge.transports[server].answer(f"question of {server}")
        assert answer["result"] == ACCEPTED["q1"]
        line = next(line for line in bridge.transports[server].lines if line.asked("tools/call"))
        line.gives({"jsonrpc": "2.0", "id": line.asked("tools/call")[0]["id"], "result": {"content": []}})
    return resumed.result()


MOVED = [{"tools": "mail/*", "when": "claims.team == 'sales'", "permission": "deny", "reason": "not for sales"}]


async def test_a_call_that_waits_is_judged_by_the_token_that_comes_back() -> None:
    """Newer tokens count at once (docs/how-to/give-people-roles.md), also for what an older one has begun."""
    async with place(permissions=MOVED) as bridge:
        state = await parked(bridge, person("ann", team="core"), "mail")
        moved = await modern_call(
            bridge, person("ann", team="sales"), "mail", requestState=state, inputResponses=ACCEPTED
        )
        assert moved["result"]["isError"], moved
        assert "not for sales" in json.dumps(moved)
        answer = await bridge.transports["mail"].answer("question of mail")
        assert answer["result"] == {"action": "cancel"}, "the answer never reaches the server"
        await bridge.transports["mail"].hears("notifications/cancelled")
        back = await modern_call(
            bridge, person("ann", team="core"), "mail", requestState=state, inputResponses=ACCEPTED
        )
        assert "error" in back, "the call is over"


async def test_a_call_that_waits_continues_for_a_newer_token_that_allows_it() -> None:
    async with place(permissions=MOVED) as bridge:
        state = await parked(bridge, person("ann", team="core"), "mail")
        assert "result" in await finished(bridge, person("ann", team="research"), "mail", state)


async def test_a_call_that_waits_is_judged_by_the_rules_of_now() -> None:
    """A rule that wants a person to agree cannot be made up for in the middle of a call."""
    ann = person("ann")
    async with place() as bridge:
        state = await parked(bridge, ann, "mail")
        asking = [{"tools": "mail/*", "permission": "require_approval"}]
        rules = Settings.model_validate({"permissions": asking}).permissions
        await bridge.reload(bridge.settings.model_copy(update={"permissions": rules}))
        refused = await modern_call(bridge, ann, "mail", requestState=state, inputResponses=ACCEPTED)
        assert "has to agree" in json.dumps(refused)
        await bridge.transports["mail"].hears("notifications/cancelled")


async def test_a_call_that_waits_is_not_lost_with_a_token_that_lacks_scopes() -> None:
    """Its client steps up, and comes back with a wider one."""
    wide, narrow = person("ann", scopes=("mail",)), person("ann")
    async with place(auth={"tool_scopes": {"mail/*": ["mail"]}}) as bridge:
        state = await parked(bridge, wide, "mail")
        refused = await modern_call(bridge, narrow, "mail", requestState=state, inputResponses=ACCEPTED)
        assert "mail" in json.dumps(refused.get("error", refused)), refused
        assert not bridge.transports["mail"].asked("notifications/cancelled")
        assert "result" in await finished(bridge, wide, "mail", state)


async def test_a_call_that_waits_ends_with_the_role_of_an_emergency() -> None:
    roles = [*ROLES[1:], {"name": "oncall", "groups": "oncall", "servers": ["hr"], "break_glass": True}]
    ann = person("ann", groups=["oncall"])
    async with place() as bridge:
        await bridge.reload(
            bridge.settings.model_copy(update={"roles": Settings.model_validate({"roles": roles}).roles})
        )
        take_role(bridge, ann.principal, "oncall", "the site is down", 60, "test")
        lost, kept = [await parked(bridge, ann, name) for name in ("hr", "mail")]
        assert bridge.policy.roles is not None
        assert bridge.policy.roles.break_glass.give_back(ann.principal, "oncall")
        bridge.server.roles_changed(ann.principal)  # as when its time is over
        answer = await bridge.transports["hr"].answer("question of hr")
        assert answer["result"] == {"action": "cancel"}
        await bridge.transports["hr"].hears("notifications/cancelled")
        assert "error" in await modern_call(bridge, ann, "hr", requestState=lost, inputResponses=ACCEPTED)
        assert "result" in await finished(bridge, ann, "mail", kept)
