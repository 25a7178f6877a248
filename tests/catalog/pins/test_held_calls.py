"""Which calls of a tool pass though its server changed it and nobody agreed (issue 22)."""

import json
from typing import Any

import pytest

from mcpbridge.catalog.pins.changes import changes
from mcpbridge.catalog.pins.held_calls import HeldTool

PATH: dict[str, Any] = {"path": {"type": "string"}, "mode": {"enum": ["r", "w"]}}


def a_tool(properties: dict[str, Any] = PATH, schema: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    input_schema = {"type": "object", "properties": properties, **(schema or {})}
    return {"name": "read", "description": "Reads.", "inputSchema": input_schema, **members}


def held(old: dict[str, Any], new: dict[str, Any]) -> HeldTool:
    before, after = json.dumps(old).encode(), json.dumps(new).encode()
    return HeldTool.of("read", before, after, changes("tools", "read", before, after))


@pytest.mark.parametrize(
    ("old", "new", "effect"),
    [
        (a_tool(), a_tool(description="Reads, see https://x.example."), "held"),
        (a_tool(), a_tool(icons=[]), "held"),
        (a_tool(), a_tool(outputSchema={"type": "object"}), "held"),
        (a_tool(), a_tool({**PATH, "mode": {"enum": ["r", "w", "a"]}}), "held"),
        (a_tool(schema={"required": ["path"]}), a_tool(), "held"),
        (a_tool(schema={"additionalProperties": False}), a_tool({**PATH, "n": {"type": "integer"}}), "held"),
        # An open schema lets any name pass, so a new one proves nothing: each call is looked at.
        (a_tool(), a_tool({**PATH, "n": {"type": "integer"}}), "checked"),
        (a_tool(), a_tool({**PATH, "n": {"default": None}}), "checked"),
        (a_tool(), a_tool({**PATH, "n": {"type": "integer"}}, {"required": ["n"]}), "checked"),
        (a_tool(), a_tool({"path": {"type": "string"}}), "checked"),
        (a_tool(), a_tool({**PATH, "mode": {"enum": ["r"]}}), "checked"),
        (a_tool(), a_tool({**PATH, "path": {"type": "integer"}}), "checked"),
        (a_tool(), a_tool(schema={"required": ["path"]}), "checked"),
        # The same arguments would mean something else, or nobody can say.
        (a_tool(), a_tool({**PATH, "path": {"type": "string", "default": "/"}}), "refused"),
        (a_tool(), a_tool({**PATH, "n": {"type": "integer", "default": 3}}), "refused"),
        (a_tool(), a_tool({**PATH, "path": {"type": "string", "maxLength": 3}}), "refused"),
        (a_tool(), a_tool(schema={"additionalProperties": False}), "refused"),
        (a_tool(), a_tool(schema={"not": {"required": ["path"]}}), "refused"),
        (a_tool({"a": {"type": "object", "properties": {"b": {}}}}), a_tool({"a": {"type": "object"}}), "refused"),
        (a_tool({"a": {"properties": {"b": {}, "c": {}}}}), a_tool({"a": {"properties": {"c": {}}}}), "refused"),
        (a_tool(annotations={"readOnlyHint": True}), a_tool(), "refused"),
        (a_tool(), a_tool(inputSchema=3), "refused"),
    ],
)
def test_what_becomes_of_calls(old: dict[str, Any], new: dict[str, Any], effect: str) -> None:
    assert held(old, new).effect == effect


def test_a_call_that_is_looked_at_may_use_what_both_have() -> None:
    found = held(a_tool(), a_tool({"path": {"type": "string"}, "why": {"type": "string"}}))
    assert found.parameters == {"path"}


def test_two_spellings_that_readers_take_differently_are_refused() -> None:
    """Of a member that is named twice, some take the first and others the last."""
    old = json.dumps(a_tool()).encode()
    new = old[:-1] + b',"name":"read"}'
    assert HeldTool.of("read", old, new, changes("tools", "read", old, new)).effect == "refused"
