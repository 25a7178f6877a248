"""Which tool a `tools/call` means: promises of the bridge to whoever calls tools (docs, tools and names)."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import Raw

from mcpbridge.base.errors import ArgumentsRefused, BadRequest, UnknownName
from mcpbridge.catalog.resolve import ResolvedCall, inner_call, resolve
from mcpbridge.catalog.snapshot import Snapshot, ToolRef
from mcpbridge.catalog.upstream_filter import Offer
from mcpbridge.core.model import BRIDGE
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from support.catalog.snapshots import build_snapshot


def offer(server: str, *names: str) -> Offer:
    return Offer(server, tuple(encode({"name": name, "inputSchema": {"type": "object"}}) for name in names))


CATALOG = build_snapshot([offer("git", "status", "log"), offer("fs", "read", "log"), offer(BRIDGE, "call_tool")], {})


def resolved(
    name: str,
    arguments: object = None,
    *,
    catalog: Snapshot = CATALOG,
    shown: Mapping[str, str] | None = None,
    may_unwrap: bool = True,
    session_tools: Mapping[str, ToolRef] | None = None,
) -> ResolvedCall:
    params = Body(encode({"name": name} if arguments is None else {"name": name, "arguments": arguments}))
    before = bytes(params.data)
    try:
        return resolve(
            catalog,
            name=name,
            params=params,
            catalog_name=lambda name: (shown or {}).get(name, name),
            may_unwrap=lambda ref: may_unwrap,
            session_tools=session_tools,
        )
    finally:
        assert bytes(params.data) == before, "resolving changes nothing"


def value(call: ResolvedCall) -> Any:
    return json.loads(bytes(call.arguments)) if call.arguments is not None else None


@pytest.mark.parametrize("name", ["git__status", "git/status", "git.status", "status"])
def test_a_wire_name_and_every_alias_are_the_tool(name: str) -> None:
    call = resolved(name, {"a": 1})
    assert (call.ref.id, call.name, value(call)) == ("git/status", name, {"a": 1})
    assert (call.transform, call.was_text, call.was_wrapped) == ("", False, False)


def test_a_call_without_arguments_has_none() -> None:
    assert resolved("status").arguments is None


def test_a_name_that_a_client_alone_is_listed_is_what_it_stands_for() -> None:
    assert resolved("log", shown={"log": "fs__log"}).ref.id == "fs/log"


def test_a_wire_name_goes_before_what_a_client_alone_is_listed() -> None:
    assert resolved("git__log", shown={"git__log": "fs__log"}).ref.id == "git/log"


def test_what_a_client_is_listed_goes_before_an_alias() -> None:
    """The client saw this name in its list; the alias it never saw."""
    assert resolved("status", shown={"status": "fs__read"}).ref.id == "fs/read"


@pytest.mark.parametrize("name", ["git__status", "status", "git/status"])
def test_a_transform_behind_the_name_is_taken_off(name: str) -> None:
    call = resolved(f"{name} | transform: $.a")
    assert (call.ref.id, call.name, call.transform) == ("git/status", name, "$.a")


def test_a_transform_may_stand_behind_a_name_that_a_client_alone_is_listed() -> None:
    call = resolved("brief | transform: $.a", shown={"brief": "git__status"})
    assert (call.ref.id, call.transform) == ("git/status", "$.a")


def test_arguments_that_are_text_become_the_object_in_it() -> None:
    call = resolved("status", '{"a": 1}')
    assert (value(call), call.was_text, call.has_wrong_arguments) == ({"a": 1}, True, False)


@pytest.mark.parametrize("arguments", [[1], 5, "no object", "[1]", True])
def test_arguments_that_are_no_object_are_marked(arguments: object) -> None:
    """The caller must not learn by them that a tool exists which it may not know of."""
    assert resolved("status", arguments).has_wrong_arguments
    assert resolved("call_tool", {"name": "status", "arguments": arguments}).has_wrong_arguments


@pytest.mark.parametrize("name", ["call_tool", "mcpbridge/call_tool"])
def test_the_call_in_call_tool_is_the_call(name: str) -> None:
    call = resolved(name, {"name": "status", "arguments": {"a": 1}})
    assert (call.ref.id, call.name, value(call), call.was_wrapped) == ("git/status", "status", {"a": 1}, True)


def test_text_within_call_tool_is_read_too() -> None:
    call = resolved("call_tool", {"name": "status", "arguments": '{"a": 1}'})
    assert (value(call), call.was_text, call.was_wrapped) == ({"a": 1}, True, True)


def test_a_transform_may_stand_outside_or_inside_of_call_tool() -> None:
    outside = resolved("call_tool | transform: $.a", {"name": "status"})
    inside = resolved("call_tool", {"name": "status | transform: $.b"})
    assert (outside.ref.id, outside.transform) == ("git/status", "$.a")
    assert (inside.ref.id, inside.transform) == ("git/status", "$.b")


def test_of_two_transforms_none_is_guessed() -> None:
    with pytest.raises(UnknownName):
        resolved("call_tool | transform: $.a", {"name": "status | transform: $.b"})


def test_call_tool_does_not_call_itself() -> None:
    with pytest.raises(BadRequest, match="not itself"):
        resolved("call_tool", {"name": "mcpbridge/call_tool", "arguments": {"name": "status"}})


def test_where_rules_are_about_call_tool_it_stays_what_is_called() -> None:
    call = resolved("call_tool", {"name": "status"}, may_unwrap=False)
    assert (call.ref.id, call.was_wrapped) == ("mcpbridge/call_tool", False)


@pytest.mark.parametrize(
    ("name", "arguments"), [("nothing | transform: $.a", None), ("call_tool", {"name": "nothing"})]
)
def test_an_unknown_name_is_named_without_what_was_around_it(name: str, arguments: object) -> None:
    with pytest.raises(UnknownName) as unknown:
        resolved(name, arguments)
    assert unknown.value.name == "nothing"


def test_tools_of_the_session_come_last() -> None:
    own = build_snapshot([offer("tools", "mine", "status")], {}).tools
    mine, status = own.values()
    assert resolved("mine | transform: $.a", session_tools={"mine": mine}).ref is mine
    assert resolved("call_tool", {"name": "mine"}, session_tools={"mine": mine}).ref is mine
    assert resolved("status", session_tools={"status": status}).ref.id == "git/status"


def test_tools_in_no_list_can_be_called() -> None:
    hidden = CATALOG.hiding(frozenset({"git__status"}))
    assert "git__status" not in hidden.tools
    assert resolved("git__status", catalog=hidden).ref.id == "git/status"


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "t", "arguments": {"a": 1}},
        {"tool": "t", "args": {"a": 1}},
        {"tool_name": "t", "parameters": {"a": 1}},
        {"name": "t", "a": 1},
        '{"name": "t", "input": {"a": 1}}',
    ],
)
def test_words_that_models_take_for_those_of_call_tool_are_understood(arguments: object) -> None:
    name, inner = inner_call(Body(encode({"arguments": arguments})))
    assert (name, json.loads(bytes(inner))) == ("t", {"a": 1})


def test_null_within_call_tool_is_no_arguments() -> None:
    assert inner_call(Body(b'{"arguments":{"name":"t","arguments":null}}')) == ("t", Raw(b"{}"))


@pytest.mark.parametrize("arguments", [None, {}, {"name": 5}, "text", {"name": "t", "arguments": {}, "stray": 1}])
def test_call_tool_without_a_tool_or_with_too_much_is_refused(arguments: object) -> None:
    with pytest.raises(ArgumentsRefused, match="call_tool"):
        resolved("call_tool", arguments)
