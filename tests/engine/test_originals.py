"""What servers sent can be had beside what clients are given (issue 22)."""

from typing import Any

from support.in_process_bridge import bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport

SERVER: dict[str, Any] = {
    **LEGACY_SERVER,
    "initialize": {
        **dict[str, Any](LEGACY_SERVER["initialize"]),
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
    },
    "tools/list": {"tools": [{"name": "re\u200bad", "description": "Reads.", "inputSchema": {"type": "object"}}, 5]},
    "prompts/list": {"prompts": [{"name": "ask", "description": "Asks.\u202e"}]},
    "resources/list": {"resources": [{"uri": "a:b", "name": "b\u200b"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "a:{b}", "name": "t"}]},
}


async def test_every_kind_is_there_as_sent_and_as_given() -> None:
    async with bridged({"up": ScriptedTransport(SERVER), "other": ScriptedTransport(LEGACY_SERVER)}) as bridge:
        found = {(one.kind, one.name): one for one in bridge.originals("up")}
        assert {kind for kind, _ in found} == {"tools", "prompts", "resources", "templates"}
        tool = found["tools", "re\u200bad"]
        assert (tool.sent["name"], tool.given["name"], tool.changed) == ("re\u200bad", "up__read", ("name",))
        assert tool.reasons == ("name: hidden characters taken out",)
        assert found["prompts", "ask"].given["description"] == "Asks."
        assert found["resources", "a:b"].sent["name"] == "b\u200b"
        assert found["resources", "a:b"].given["name"] == "b"
        assert found["templates", "a:{b}"].given is not None
        unreadable = found["tools", ""]
        assert (unreadable.sent, unreadable.given, unreadable.changed) == (5, None, ())
        assert {one.server for one in bridge.originals()} == {"up", "other"}
