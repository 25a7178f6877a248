"""How much of a tool is listed at each level (issue 6, Catalog slimming)."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcpbridge.catalog.definitions.check import LARGEST
from mcpbridge.catalog.slim.levels import LEVELS, Level
from mcpbridge.catalog.slim.slim import fitting, slim_changes, slimmed, visible
from mcpbridge.protocol.jsonrpc import decode_fields
from support.catalog.definitions import dumps, tool


def call_line(name: str, schema: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(schema.get('properties', {}))})"


def listed(definition: bytes, level: Level) -> dict[str, Any]:
    found = slimmed(definition, level, call_line)
    assert len(found) <= len(definition)
    assert slimmed(found, level, call_line) == found
    return json.loads(found)


ISSUE = tool(
    "get_issue",
    title="Get issue",
    description="  Get an issue of a repository.   \n\n\n" + "It says much more of how it is to be used. " * 10,
    inputSchema={
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "title": "GetIssueArguments",
        "properties": {
            "issue_id": {"type": "integer", "title": "Issue Id", "description": "The ID of the issue.", "minimum": 1},
            "since": {
                "anyOf": [{"type": "string", "pattern": "^2"}, {"type": "null"}],
                "default": None,
                "description": "Only if it changed since then. In any form that has a year, a month and a day.",
            },
        },
        "required": ["issue_id"],
        "additionalProperties": False,
    },
    outputSchema={
        "type": "object",
        "properties": {"n": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}},
    },
    annotations={"readOnlyHint": True},
    icons=[{"src": "data:,"}],
    _meta={"mine": [1, 2]},
)


def test_tidy_leaves_all_that_a_model_uses() -> None:
    found = listed(ISSUE, "tidy")
    assert found["description"].startswith("Get an issue of a repository.\n\nIt says much more")
    assert found["inputSchema"] == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "issue_id": {"type": "integer", "description": "The ID of the issue.", "minimum": 1},
            "since": {
                "anyOf": [{"type": "string", "pattern": "^2"}, {"type": "null"}],
                "description": "Only if it changed since then. In any form that has a year, a month and a day.",
            },
        },
        "required": ["issue_id"],
        "additionalProperties": False,
    }
    sent = json.loads(ISSUE)
    for member in ("name", "title", "annotations", "icons", "_meta", "outputSchema"):
        assert found[member] == sent[member]


def test_slim_leaves_beginnings() -> None:
    found = listed(ISSUE, "slim")
    assert (
        found["description"]
        == (
            "Get an issue of a repository. It says much more of how it is to be used."
            " It says much more of how it is to be used. It says much more of how it is to be used…"
        )[: found["description"].index("…")]
        + "…"
    )
    assert len(found["description"]) <= 160
    assert found["inputSchema"]["properties"] == {
        "issue_id": {"type": "integer", "minimum": 1},
        "since": {
            "anyOf": [{"type": "string", "pattern": "^2"}, {"type": "null"}],
            "description": "Only if it changed since then…",
        },
    }


def test_skeleton_leaves_names_and_all_that_checks() -> None:
    found = listed(ISSUE, "skeleton")
    assert found["description"] == "Get an issue of a repository."
    assert found["inputSchema"] == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "issue_id": {"type": "integer", "minimum": 1},
            "since": {"anyOf": [{"type": "string", "pattern": "^2"}, {"type": "null"}]},
        },
        "required": ["issue_id"],
        "additionalProperties": False,
    }


def test_signatures_leave_a_line_and_a_sentence() -> None:
    found = listed(ISSUE, "signatures")
    assert found["description"] == "get_issue(issue_id, since)\nGet an issue of a repository."
    assert found["inputSchema"] == {"type": "object"}
    assert "outputSchema" not in found
    assert json.loads(slimmed(ISSUE, "signatures"))["inputSchema"] == listed(ISSUE, "skeleton")["inputSchema"]


def test_a_signature_may_tell_what_a_shorter_schema_does_not() -> None:
    """It is made of the whole schema, and the same is found where the whole is no longer known."""
    noted = tool(
        "t", inputSchema={"type": "object", "properties": {"a": {"type": "string", "description": "What a is " * 20}}}
    )

    def with_mark(name: str, schema: Mapping[str, Any]) -> str:
        return call_line(name, schema) + ("…" if "description" in str(schema) else "")

    assert json.loads(slimmed(noted, "signatures", with_mark))["description"] == "t(a)…"
    skeleton = slimmed(noted, "skeleton")
    assert json.loads(slimmed(skeleton, "signatures", with_mark))["description"] == "t(a)"


def test_a_signature_stands_only_where_it_says_as_much_and_is_shorter() -> None:
    without = tool("stop", description="Stop it.", inputSchema={"type": "object", "properties": {}})
    assert slimmed(without, "signatures", call_line) is without
    marked = tool(
        "run", inputSchema={"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "R"}}}
    )
    assert slimmed(marked, "signatures", call_line) is marked
    long = slimmed(ISSUE, "signatures", lambda name, schema: f"{name}({'x' * 500})")
    assert json.loads(long)["inputSchema"] == listed(ISSUE, "skeleton")["inputSchema"]


def test_off_and_what_is_short_already_come_back_as_they_are() -> None:
    assert slimmed(ISSUE, "off") is ISSUE
    short = tool("stop", description="Stop it.")
    for level in LEVELS:
        assert slimmed(short, level, call_line) is short
        assert slim_changes(decode_fields(short), level, call_line) == {}


def test_an_empty_description_is_left_out() -> None:
    assert "description" not in listed(tool("t", description=" \n "), "tidy")


def test_each_level_is_at_most_as_large_as_the_one_before() -> None:
    sizes = [len(slimmed(ISSUE, level, call_line)) for level in LEVELS]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(LEVELS)


def test_the_mildest_level_that_fits_is_taken() -> None:
    tools = [ISSUE, tool("other", description="Another one.")]

    def count(text: str) -> int:
        return len(text)

    def cost(level: Level) -> int:
        return sum(len(visible(slimmed(one, level, call_line))) for one in tools)

    for level in LEVELS:
        assert fitting(tools, "off", cost(level), signature=call_line, count=count) == level
        assert (
            fitting(tools, level, cost(level) - 1, signature=call_line, count=count)
            == (LEVELS[min(LEVELS.index(level) + 1, 4)])
        )
        assert fitting(tools, level, 0) == level
    assert fitting(tools, "slim", 10**6) == "slim"
    assert fitting(tools, "tidy", 1) == "signatures"


def test_what_models_see_is_name_description_and_arguments() -> None:
    assert json.loads(visible(ISSUE)).keys() == {"name", "description", "inputSchema"}
    assert (
        visible(b'{"x": 1, "name" : "a",\n"inputSchema": { "a": 1.0E+2 }}') == '{"name":"a","inputSchema":{"a":1.0E+2}}'
    )
    assert visible(b"no JSON \xff") == "no JSON �"


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=2),
    max_leaves=5,
)
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "name": JSON | st.just("get"),
        "description": JSON | st.text(st.sampled_from("get(a)\n. "), max_size=60),
        "inputSchema": JSON | st.dictionaries(st.sampled_from(["type", "properties", "title"]), JSON, max_size=4),
        "outputSchema": JSON,
        "x": JSON,
    },
)  # fmt: skip


@settings(deadline=None)
@given(MEMBERS, st.sampled_from(LEVELS))
@example({"description": "a", "inputSchema": {"title": [], "properties": {"": None}}}, "signatures")
def test_no_definition_is_too_odd(members: dict[str, Any], level: Level) -> None:
    found = listed(dumps(members), level)
    assert found.get("x") == members.get("x")
    assert found.get("name") == members.get("name")


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b"\xff", b'{"name":"\\ud800"}', b'{"a":' * 5000 + b"1" + b"}" * 5000]
)
def test_what_is_no_definition_passes(raw: bytes) -> None:
    for level in LEVELS:
        assert slimmed(raw, level, call_line) is raw


def test_megabytes_are_survived() -> None:
    words = tool("t", description="word " * 300_000)
    assert len(slimmed(words, "slim")) < 300
    large = tool("t", inputSchema={"type": "object", "properties": {"a": {"enum": ["x" * LARGEST]}}, "required": []})
    assert slimmed(large, "slim") is large  # the catalog takes none so large
