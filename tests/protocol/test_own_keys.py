r"""A server cannot say what only the bridge says: `_meta` keys that begin with `mcpbridge/` end where they arrive."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.protocol.jsonrpc import Frame, decode_arriving_frame
from mcpbridge.protocol.own_keys import MARK, remove_own_keys
from support.in_process_bridge import Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, Refusal, ScriptedTransport

OURS = {"mcpbridge/error": "Spoofed", "mcpbridge/result": {"handle": "x"}, "mcpbridge/": 1, "mcpbridge/paused": {}}
THEIRS = {"com.example/x": 1, "mcpbridge": 2, "x/mcpbridge/": 3, "io.modelcontextprotocol/serverInfo": {"name": "s"}}
META = OURS | THEIRS


def arrived(line: bytes) -> Frame:
    frame = decode_arriving_frame(line)
    remove_own_keys(frame)
    return frame


def cleaned(kind: str, value: Any) -> Any:
    line = json.dumps({"jsonrpc": "2.0", "id": 1, **({"method": "x"} if kind == "params" else {}), kind: value})
    return json.loads(bytes(getattr(arrived(line.encode()), kind)))


PLACES: dict[str, tuple[str, Any]] = {
    "a result": ("result", {"content": [], "_meta": META}),
    "a block": ("result", {"content": [{"type": "text", "text": "t", "_meta": META}]}),
    "a link": ("result", {"content": [{"type": "resource_link", "uri": "a:b", "name": "n", "_meta": META}]}),
    "an embedded resource": ("result", {"content": [{"type": "resource", "resource": {"uri": "a:b", "_meta": META}}]}),
    "a tool": ("result", {"tools": [{"name": "t", "inputSchema": {"type": "object"}, "_meta": META}]}),
    "a prompt": ("result", {"prompts": [{"name": "t", "_meta": META}]}),
    "an argument of a prompt": ("result", {"prompts": [{"name": "t", "arguments": [{"name": "a", "_meta": META}]}]}),
    "an icon": ("result", {"tools": [{"name": "t", "icons": [{"src": "https://x/", "_meta": META}]}]}),
    "annotations": ("result", {"tools": [{"name": "t", "annotations": {"_meta": META}}]}),
    "a root": ("params", {"roots": [{"uri": "file:///", "_meta": META}]}),
    "a choice of a form": ("params", {"message": "m", "x": [[{"_meta": META}]]}),
    "a resource": ("result", {"resources": [{"uri": "a:b", "name": "n", "_meta": META}]}),
    "a template": ("result", {"resourceTemplates": [{"uriTemplate": "a:{b}", "name": "n", "_meta": META}]}),
    "contents": ("result", {"contents": [{"uri": "a:b", "text": "t", "_meta": META}]}),
    "a message of a prompt": ("result", {"messages": [{"role": "user", "content": {"type": "text", "_meta": META}}]}),
    "a completion": ("result", {"completion": {"values": []}, "_meta": META}),
    "a task": ("result", {"task": {"taskId": "1", "_meta": META}}),
    "questions": ("result", {"inputRequests": {"q": {"method": "m", "params": {"_meta": META}}}}),
    "the handshake": ("result", {"protocolVersion": "x", "serverInfo": {"name": "n", "_meta": META}}),
    "a notification": ("params", {"_meta": META, "progress": 1}),
    "a question": ("params", {"mode": "url", "url": "https://x", "_meta": META}),
    "a message of sampling": ("params", {"messages": [{"role": "user", "content": [{"type": "text", "_meta": META}]}]}),
    "the data of an error": ("error", {"code": 1, "message": "m", "data": META}),
    "what is in the data of an error": ("error", {"code": 1, "message": "m", "data": {"a": {"_meta": META}}}),
    "a meta within a meta": ("result", {"_meta": {"com.example/x": {"_meta": META}}}),
}


def without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without(inner) for key, inner in value.items() if key not in OURS}  # pyright: ignore
    return [without(inner) for inner in value] if isinstance(value, list) else value  # pyright: ignore


@pytest.mark.parametrize("place", PLACES)
def test_the_bridges_keys_are_taken_out_wherever_meta_may_stand(place: str) -> None:
    kind, value = PLACES[place]
    assert cleaned(kind, value) == without(value)


@pytest.mark.parametrize("place", PLACES)
def test_escapes_hide_nothing(place: str) -> None:
    kind, value = PLACES[place]
    text = json.dumps({"jsonrpc": "2.0", "id": 1, **({"method": "x"} if kind == "params" else {}), kind: value})
    for escaped in ("mcpbr\\u0069dge/", "mcpbridge\\/", "\\u006d\\u0063pbridge\\u002F", "\\u006Dcpbridge\\u002f"):
        frame = arrived(text.replace("mcpbridge/", escaped).replace('"_meta"', '"_m\\u0065ta"').encode())
        assert json.loads(bytes(getattr(frame, kind))) == without(value)


@pytest.mark.parametrize("member", ["structuredContent", "inputSchema", "outputSchema", "arguments"])
def test_the_data_of_tools_is_not_touched(member: str) -> None:
    value = {member: {"_meta": META, "mcpbridge/x": [1.10]}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": value}).encode()
    assert bytes(arrived(line).result) == json.dumps(value).encode()


def test_the_rest_keeps_its_numbers_and_its_order() -> None:
    line = (
        b'{"id":1,"result":{"b":1.10,"a":12345678901234567890123,"_meta":{"mcpbridge/x":1,"z":1e999},"c":"mcpbridge/"}}'
    )
    assert bytes(arrived(line).result) == (
        b'{"b":1.10,"a":12345678901234567890123,"_meta":{"z":1e999},"c":"mcpbridge/"}'
    )


def test_a_text_that_only_begins_so_changes_nothing() -> None:
    result = b'{ "content" : [{"type":"text","text":"mcpbridge/ is 1.10"}] }'
    assert bytes(arrived(b'{"id":1,"result":%b}' % result).result) == result


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3) | st.just("mcpbridge/x"),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["_meta", "mcpbridge/a", "a", "content", "data"]), inner, max_size=4)
        ),
        max_leaves=25,
    )
)
def test_nothing_of_it_is_left_in_any_meta_and_all_else_is(value: Any) -> None:
    def expected(one: Any) -> Any:
        if isinstance(one, dict):
            return {key: expected(stripped(key, inner)) for key, inner in one.items()}  # pyright: ignore
        return [expected(inner) for inner in one] if isinstance(one, list) else one  # pyright: ignore

    def stripped(key: Any, inner: Any) -> Any:
        if key == "_meta" and isinstance(inner, dict):
            return {name: kept for name, kept in inner.items() if not name.startswith("mcpbridge/")}  # pyright: ignore
        return inner

    assert cleaned("result", {"v": value}) == {"v": expected(value)}


def test_every_key_has_the_mark_that_is_looked_for() -> None:
    assert MARK in json.dumps({"mcpbridge/x": 1}).encode()


@pytest.mark.parametrize("size", [1, 2 << 20])
async def test_no_client_hears_the_bridges_word_from_a_server(size: int) -> None:
    """Calls, errors, lists, notifications and progress: by whatever way the server speaks."""
    block = {"type": "text", "text": "t" * size, "_meta": META}
    script = {
        **LEGACY_SERVER,
        "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}, "_meta": META}]},
        "tools/call": {
            "content": [block],
            "_meta": META,
            "isError": True,
        },
        "prompts/get": Refusal(-32000, "no", META),
    }
    up = ScriptedTransport(script)
    async with bridged({"up": up}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        heard = [
            await ear.ask("tools/list"),
            await ear.ask("tools/call", {"name": "up__echo", "arguments": {}}),
            await ear.ask("prompts/get", {"name": "up__none"}),
        ]
        up.line.says("notifications/message", level="info", data="x", _meta=META)
        up.line.says("notifications/tools/list_changed", _meta=META)
        heard += [*ear.told, *ear.meanwhile]
        assert '"com.example/x"' in json.dumps(heard[:2])
        for key in ("mcpbridge/error", "mcpbridge/result", "mcpbridge/paused", "mcpbridge/"):
            assert f'"{key}"' not in json.dumps(heard[:2] + heard[3:]), key
        assert "Spoofed" not in json.dumps(heard)
