"""What a client of each revision gets of a server that speaks the newest of either era."""

from typing import Any

import pytest
from mcp_types.methods import validate_server_result

from mcpbridge.protocol.revisions import LEGACY, REVISIONS
from support.in_process_bridge import Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, MODERN_SERVER, ScriptedTransport

ICONS = [{"src": "https://x/i.png"}]
TOOL = {
    "name": "t",
    "title": "T",
    "icons": ICONS,
    "inputSchema": {"type": "object"},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
    "_meta": {"v/k": 1},
    "x-new": None,
}
RESULT = {
    "content": [
        {"type": "text", "text": "hello", "x-new": 1},
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {"type": "resource_link", "name": "notes", "uri": "file:///notes", "icons": ICONS},
    ],
    "structuredContent": {"a": 1},
    "_meta": {"v/k": None},
}
LISTS: dict[str, Any] = {"tools/list": {"tools": [TOOL]}, "tools/call": RESULT}
SERVERS = {
    "2025-11-25": {
        **LEGACY_SERVER,
        **LISTS,
        "initialize": {**LEGACY_SERVER["initialize"], "protocolVersion": "2025-11-25"},
    },
    "2026-07-28": {**MODERN_SERVER, **LISTS},
}
TYPES = {
    "2024-11-05": ["text", "text", "resource", "text", "text"],
    "2025-03-26": ["text", "audio", "text", "text"],
    "2025-06-18": ["text", "audio", "resource_link"],
    "2025-11-25": ["text", "audio", "resource_link"],
    "2026-07-28": ["text", "audio", "resource_link"],
}


@pytest.mark.parametrize("spoken", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_lists_and_results_are_those_of_the_clients_revision(spoken: str, revision: str) -> None:
    async with bridged({"up": ScriptedTransport(SERVERS[spoken])}) as bridge:
        ear = Ear(bridge.server)
        ask = ear.ask
        if revision in LEGACY:
            await ear.initialize(revision)
        else:
            ask = ear.ask_modern
        page = (await ask("tools/list"))["result"]
        validate_server_result("tools/list", revision, page)
        [tool] = page["tools"]
        assert ("title" in tool) == ("outputSchema" in tool) == (revision >= "2025-06-18")
        assert ("icons" in tool) == (revision >= "2025-11-25")
        assert ("annotations" in tool) == (revision >= "2025-03-26")
        assert (tool["_meta"], tool["x-new"]) == ({"v/k": 1}, None)
        result = (await ask("tools/call", {"name": "t"}))["result"]
        validate_server_result("tools/call", revision, result)
        assert [block["type"] for block in result["content"]] == TYPES[revision]
        assert result["content"][0] == {"type": "text", "text": "hello", "x-new": 1}
        assert ("structuredContent" in result) == (revision >= "2025-06-18")
        assert result["_meta"]["v/k"] is None
        for hop in ("ttlMs", "cacheScope", "resultType"):
            assert (hop in page) == (revision >= "2026-07-28")


async def test_a_server_that_is_not_newer_is_passed_on_byte_for_byte() -> None:
    """Nobody looks inside: what a future revision or a vendor puts there crosses."""
    odd = {"content": [{"type": "hologram", "n": None}], "x": 1e5}
    transport = ScriptedTransport(SERVERS["2025-11-25"], **{"tools/call": odd})
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize("2025-11-25")
        assert (await ear.ask("tools/call", {"name": "t"}))["result"] == odd


async def test_a_server_by_itself_tells_its_own_instructions_whole() -> None:
    """An endpoint for one server is that server (docs/reference/protocol.md, Instructions)."""
    long = "All of it. " * 500
    script = {**LEGACY_SERVER, "initialize": {**LEGACY_SERVER["initialize"], "instructions": long}}
    async with bridged({"up": ScriptedTransport(script), "other": ScriptedTransport(MODERN_SERVER)}) as bridge:
        merged, alone = Ear(bridge.server), Ear(bridge.server)
        text = (await merged.initialize())["instructions"]
        assert len(text) <= 2000
        assert text.index("Server `other`:\n> be modern") < text.index("Server `up`:\n> All of it.")
        alone.client.view = "up"
        assert (await alone.initialize())["instructions"] == long


async def test_a_list_is_as_fresh_as_its_servers_say() -> None:
    transport = ScriptedTransport(MODERN_SERVER, **{"tools/list": {"tools": [], "ttlMs": 7000}})
    sections = {"bridge": {"list_ttl": "30s"}}
    async with bridged({"up": transport, "old": ScriptedTransport(LEGACY_SERVER)}, **sections) as bridge:
        ear = Ear(bridge.server)
        assert (await ear.ask_modern("tools/list"))["result"]["ttlMs"] == 7000
        assert (await ear.ask_modern("prompts/list"))["result"]["ttlMs"] == 30_000
        found = (await ear.ask_modern("server/discover"))["result"]
        assert (found["ttlMs"], found["cacheScope"]) == (30_000, "private")


async def test_what_a_server_says_of_a_resource_is_kept_and_of_an_old_one_nothing_is_claimed() -> None:
    reads = {"contents": [{"uri": "x:y", "text": "t"}], "resultType": "complete", "ttlMs": 5, "cacheScope": "public"}
    listing = {"resources": [{"uri": "x:y", "name": "n"}]}
    modern = ScriptedTransport(MODERN_SERVER, **{"resources/read": reads, "resources/list": listing})
    old = {"contents": [{"uri": "o:p", "text": "t"}]}
    declares: Any = {**LEGACY_SERVER["initialize"], "capabilities": {"resources": {}}}
    other = {"resources/read": old, "resources/list": {"resources": [{"uri": "o:p", "name": "n"}]}}
    legacy = ScriptedTransport(LEGACY_SERVER, initialize=declares, **other)
    async with bridged({"up": modern, "old": legacy}) as bridge:
        ear = Ear(bridge.server)
        kept = (await ear.ask_modern("resources/read", {"uri": "x:y"}))["result"]
        assert (kept["ttlMs"], kept["cacheScope"]) == (5, "public")
        ours = (await ear.ask_modern("resources/read", {"uri": "o:p"}))["result"]
        assert (ours["ttlMs"], ours["cacheScope"]) == (0, "private")
        answers = {"uri": "x:y", "inputResponses": {"a": {"action": "accept"}}}
        once = await ear.ask_modern("resources/read", answers)
        assert once["result"]["ttlMs"] == 0
        await ear.initialize("2025-11-25")
        assert (await ear.ask("resources/read", {"uri": "x:y"}))["result"] == {"contents": reads["contents"]}


async def test_an_extension_that_is_allowed_crosses_both_ways_and_no_other() -> None:
    """What the bridge does not understand stays out unless whoever runs it says that it is pure data."""
    mine, other = "com.example/mine", "com.example/other"
    declared = {"extensions": {mine: {"v": 1}, other: {}}}
    discovered = MODERN_SERVER["server/discover"]
    capable = {**discovered, "capabilities": {**discovered["capabilities"], **declared}}
    transport = ScriptedTransport(MODERN_SERVER, **{"server/discover": capable})
    async with bridged({"up": transport}, bridge={"extensions": [mine]}) as bridge:
        ear = Ear(bridge.server)
        for revision in LEGACY:
            told = (await ear.initialize(revision))["capabilities"]
            assert told.get("extensions", {}) == ({mine: {"v": 1}} if revision >= "2025-06-18" else {})
        found = (await ear.ask_modern("server/discover"))["result"]
        assert found["capabilities"]["extensions"] == {mine: {"v": 1}}
        key = "io.modelcontextprotocol/clientCapabilities"
        await ear.ask_modern("tools/call", {"name": "echo"}, **{key: {"extensions": {mine: {"c": 2}, other: {}}}})
        [call] = transport.asked("tools/call")
        sent = call["params"]["_meta"][key]["extensions"]
        assert sent[mine] == {"c": 2}
        assert other not in sent
        [listed] = transport.asked("tools/list")
        assert listed["params"]["_meta"][key]["extensions"].keys() == sent.keys() - {mine}
