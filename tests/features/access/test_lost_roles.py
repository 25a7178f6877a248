"""Who loses a role loses what it brought along: what was kept of tools that there are not any more for somebody.

Issue 23: a user's results, handles and cache entries; what a role forbids is hidden and unknown.
"""

import json
import re
from typing import Any

import pytest

from mcpbridge.results.kept_results import KeptResults
from support.in_process_bridge import BridgeToScripts, Ear, bridged
from support.people import ISSUER, ear_of, introduce, office, person
from support.upstreams.scripted_upstream import ScriptedTransport

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
