"""What is listed must be readable by every typed client, and otherwise be what the server sent."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types.methods import parse_server_result
from pydantic_core import from_json

from mcpbridge.catalog.definitions.check import (
    DEEPEST,
    KINDS,
    LARGEST,
    Changes,
    Definition,
    Kind,
    Unusable,
    check,
    form_for_legacy,
    form_for_modern,
    with_ui_uris,
)
from support.catalog.definitions import dumps, prompt, resource, tool

NOTHING: Changes = {}


def usable(kind: Kind, raw: bytes, *, over_http: bool = False) -> Definition:
    found = check(kind, raw, over_http=over_http)
    assert isinstance(found, Definition), found
    return found


def reason(kind: Kind, raw: bytes, *, over_http: bool = False) -> str:
    found = check(kind, raw, over_http=over_http)
    assert isinstance(found, Unusable), found
    return found.reason


def legacy(raw: bytes, kind: Kind = "tools") -> dict[str, Any]:
    return json.loads(form_for_legacy(usable(kind, raw), NOTHING))


def modern(raw: bytes, kind: Kind = "tools") -> dict[str, Any]:
    return json.loads(form_for_modern(usable(kind, raw), NOTHING))


def faulty_fields(raw: bytes, kind: Kind = "tools") -> list[str]:
    return [field for field, _ in usable(kind, raw).faults]


def test_a_good_definition_is_published_as_it_came() -> None:
    """Bridge: unknown fields, order, numbers of any size, nulls and spelling cross unchanged."""
    raw = (
        b'{"x-new": null, "inputSchema" : {"type":"object","maximum":123456789012345678901234567890,"default":1.0e+2},'
        b'"description":"caf\\u00e9 \xe2\x98\x83","name":"a","outputSchema":{"type":"object"},'
        b'"annotations":{"mine":[1]}}'
    )
    assert form_for_legacy(usable("tools", raw), NOTHING) == raw
    assert form_for_modern(usable("tools", raw), NOTHING) == raw


def test_only_the_changed_member_is_written_anew() -> None:
    raw = b'{"n":1e5,"inputSchema":{"type": "object"},"name":"a","z":[ null ]}'
    changed = form_for_legacy(usable("tools", raw), {"name": b'"s__a"', "description": b'"new"'})
    assert changed == b'{"n":1e5,"inputSchema":{"type": "object"},"name":"s__a","z":[ null ],"description":"new"}'


def test_a_definition_over_several_lines_is_published_on_one() -> None:
    """Over stdio a line break would end the message."""
    raw = json.dumps({"name": "a", "inputSchema": {"type": "object"}}, indent=2).replace("\n", "\r\n").encode()
    published = form_for_legacy(usable("tools", raw), NOTHING)
    assert b"\n" not in published
    assert b"\r" not in published
    assert json.loads(published) == json.loads(raw)


@pytest.mark.parametrize(
    ("kind", "raw", "why"),
    [
        ("tools", b"[]", "not a JSON object"),
        ("tools", b"null", "not a JSON object"),
        ("tools", b'{"name":', "not readable by every client"),
        ("tools", b"", "not readable by every client"),
        ("tools", b'{"name":"a","inputSchema":{"type":"object"},"title":"\xff"}', "not readable by every client"),
        ("tools", b'{"name":"a","inputSchema":{"type":"object"},"title":"\\ud800"}', "not readable by every client"),
        ("tools", b'{"name":"a","inputSchema":{"type":"object","maximum":1e999}}', "not readable by every client"),
        ("tools", b'{"name":"a","inputSchema":{"type":"object","maximum":%b}}' % (b"9" * 5000), "not readable"),
        ("tools", b'{"inputSchema":{"type":"object"}}', "'name' is missing"),
        ("tools", b'{"name":"","inputSchema":{"type":"object"}}', "'name' is missing"),
        ("tools", b'{"name":1,"inputSchema":{"type":"object"}}', "'name' is missing"),
        ("tools", b'{"name":"a"}', "inputSchema is missing"),
        ("tools", tool("a", inputSchema=None), "inputSchema is missing"),
        ("tools", tool("a", inputSchema=True), "inputSchema is missing"),
        ("tools", tool("a", inputSchema={"type": "string"}), "type of its inputSchema"),
        ("tools", tool("a", inputSchema={"type": ["string", "null"]}), "type of its inputSchema"),
        ("tools", tool("a", description="x" * LARGEST), "larger than 256 KiB"),
        ("prompts", b"{}", "'name' is missing"),
        ("resources", b'{"name":"a"}', "'uri' is missing"),
        ("templates", b'{"name":"a","uri":"x:y"}', "'uriTemplate' is missing"),
    ],
)
def test_what_would_break_clients_is_refused_alone(kind: Kind, raw: bytes, why: str) -> None:
    assert why in reason(kind, raw)


def test_the_name_of_a_refused_tool_is_told() -> None:
    found = check("tools", tool("broken", inputSchema=7))
    assert isinstance(found, Unusable)
    assert found.name == "broken"


def nested(levels: int) -> bytes:
    return tool("a", inputSchema={"type": "object", "default": 0}).replace(b":0", b":" + b"[" * levels + b"]" * levels)


def test_nesting_is_limited_to_what_parsers_take() -> None:
    """Rust's serde_json stops at 128 levels, pydantic at 200, for the whole list."""
    usable("tools", nested(DEEPEST - 2))
    assert "nested deeper" in reason("tools", nested(DEEPEST - 1))
    assert "nested deeper" in reason("tools", nested(20_000))


def test_brackets_in_text_are_no_nesting() -> None:
    usable("tools", tool("a", description="[{" * 500))


@pytest.mark.parametrize("kind", [None, ["object"], ["null", "object"]])
def test_an_input_schema_of_no_clear_type_is_an_object(kind: object) -> None:
    schema = {"type": kind, "properties": {"a": {}}} if kind else {"properties": {"a": {}}}
    assert legacy(tool("a", inputSchema=schema))["inputSchema"] == {"type": "object", "properties": {"a": {}}}


def test_keywords_that_clients_read_are_mended() -> None:
    """TypeScript's SDK refuses boolean property schemas; a shorthand is no schema for anybody."""
    schema = {
        "type": "object",
        "$schema": 7,
        "properties": {"yes": True, "no": False, "short": "string", "null": None, "good": {"type": "string"}},
        "required": ["good", 3],
    }
    raw = tool("a", inputSchema=schema)
    assert legacy(raw)["inputSchema"] == {
        "type": "object",
        "properties": {"yes": {}, "no": {"not": {}}, "short": {}, "null": {}, "good": {"type": "string"}},
        "required": ["good"],
    }
    ((field, fault),) = usable("tools", raw).faults
    assert field == "inputSchema"
    assert "'short' has no schema" in fault
    assert "'yes'" not in fault
    assert "required" in fault


def test_keywords_of_the_wrong_kind_are_left_out() -> None:
    raw = tool("a", inputSchema={"type": "object", "properties": [], "required": True, "other": [None]})
    assert legacy(raw)["inputSchema"] == {"type": "object", "other": [None]}
    raw = tool("a", inputSchema={"type": "object", "properties": None, "required": None})
    assert legacy(raw)["inputSchema"] == {"type": "object"}


@pytest.mark.parametrize("schema", ["text", True, [], 0])
def test_an_output_schema_that_is_none_is_left_out(schema: object) -> None:
    raw = tool("a", outputSchema=schema)
    assert "outputSchema" not in legacy(raw)
    assert "outputSchema" not in modern(raw)
    assert faulty_fields(raw) == ["outputSchema"]


def test_an_output_schema_of_another_type_is_for_modern_clients_only() -> None:
    """Structured results were objects up to 2025-11-25 (MCP 2025-11-25, Tools, Structured Content)."""
    for schema in ({"type": "array"}, {"anyOf": [{"type": "string"}]}, {"type": ["object", "null"]}, {}):
        raw = tool("a", outputSchema=schema)
        assert "outputSchema" not in legacy(raw)
        assert modern(raw)["outputSchema"] == schema
        assert faulty_fields(raw) == []


def test_an_output_schema_with_properties_is_an_object_to_legacy_clients() -> None:
    raw = tool("a", outputSchema={"properties": {"x": True}})
    assert legacy(raw)["outputSchema"] == {"properties": {"x": {}}, "type": "object"}
    assert modern(raw)["outputSchema"] == {"properties": {"x": {}}}


def test_execution_is_for_legacy_clients_only() -> None:
    """2026-07-28 removed it."""
    raw = tool("a", execution={"taskSupport": "optional"})
    assert legacy(raw)["execution"] == {"taskSupport": "optional"}
    assert "execution" not in modern(raw)


def test_odd_fields_are_left_out_and_told() -> None:
    raw = tool(
        "a",
        title=7,
        description=["x"],
        icons=[{"src": "https://i", "sizes": "48x48"}, {"mimeType": "x"}, {"src": "data:,", "theme": "pink", "k": 1}],
        annotations={"readOnlyHint": "true", "destructiveHint": False, "mine": None},
        _meta=3,
        execution={"taskSupport": "perhaps"},
    )
    assert legacy(raw) == {
        "name": "a",
        "inputSchema": {"type": "object"},
        "icons": [{"src": "https://i"}, {"src": "data:,", "k": 1}],
        "annotations": {"destructiveHint": False, "mine": None},
        "execution": {},
    }
    assert faulty_fields(raw) == ["title", "description", "icons", "_meta", "annotations", "execution"]


def test_a_null_that_means_absent_is_left_out_in_silence() -> None:
    """TypeScript's SDK refuses null there; servers that print every field send it."""
    raw = tool("a", title=None, annotations=None, outputSchema=None, _meta=None, icons=None, mine=None)
    assert legacy(raw) == {"name": "a", "inputSchema": {"type": "object"}, "mine": None}
    assert faulty_fields(raw) == []


def test_prompts_keep_the_arguments_that_can_be_given() -> None:
    raw = prompt("p", arguments=[{"name": "a", "required": "yes"}, {"description": "nameless"}, "text"])
    assert legacy(raw, "prompts") == {"name": "p", "arguments": [{"name": "a"}]}


def test_resources_without_a_name_are_named_by_their_uri() -> None:
    assert legacy(b'{"uri":"x:y"}', "resources") == {"uri": "x:y", "name": "x:y"}
    assert legacy(b'{"uriTemplate":"x:{y}","name":5}', "templates")["name"] == "x:{y}"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("2025-01-12T15:00:58Z", True),
        ("2025-01-12T15:00:58.123+02:00", True),
        ("2025-01-12", False),
        ("2025-13-12T15:00:58Z", False),
        ("yesterday", False),
        (7, False),
    ],
)
def test_dates_are_such_as_typescript_takes(value: object, kept: bool) -> None:
    raw = resource("x:y", annotations={"lastModified": value, "priority": 0.5}, size=3)
    assert ("lastModified" in legacy(raw, "resources")["annotations"]) is kept


def test_numbers_of_resources_are_in_their_range() -> None:
    raw = resource("x:y", size="3", annotations={"priority": 2, "audience": ["user", "machine"]}, mimeType=1)
    assert legacy(raw, "resources") == {"uri": "x:y", "name": "x:y", "annotations": {"audience": ["user"]}}


MARKED = {
    "type": "object",
    "properties": {
        "x-mcp-header": {"type": "string"},
        "region": {"type": "string", "x-mcp-header": "Region", "default": {"x-mcp-header": "data"}},
        "inner": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
    },
}


@pytest.mark.parametrize("over_http", [False, True])
def test_header_marks_are_for_modern_clients(over_http: bool) -> None:
    """They mean nothing before 2026-07-28. Data and properties of that name are none."""
    raw = tool("a", inputSchema=MARKED)
    definition = usable("tools", raw, over_http=over_http)
    assert form_for_modern(definition, NOTHING) == raw
    published = json.loads(form_for_legacy(definition, NOTHING))["inputSchema"]
    assert published["properties"]["region"] == {"type": "string", "default": {"x-mcp-header": "data"}}
    assert published["properties"]["inner"]["properties"]["n"] == {"type": "integer"}
    assert published["properties"]["x-mcp-header"] == {"type": "string"}
    assert definition.headers == ({("region",): "Region", ("inner", "n"): "N"} if over_http else {})
    assert definition.is_marked
    assert definition.faults == ()


def test_header_marks_in_a_schema_that_must_be_mended_stay_too() -> None:
    schema = {**MARKED, "required": ["region", 7]}
    definition = usable("tools", tool("a", inputSchema=schema))
    modern, legacy = (json.loads(form(definition, NOTHING)) for form in (form_for_modern, form_for_legacy))
    assert modern["inputSchema"] == {**MARKED, "required": ["region"]}
    assert legacy["inputSchema"]["required"] == ["region"]
    assert "x-mcp-header" not in legacy["inputSchema"]["properties"]["region"]


def test_a_schema_that_only_mentions_the_word_is_not_marked() -> None:
    raw = tool("a", inputSchema={"type": "object", "properties": {"x-mcp-header": {"type": "string"}}})
    definition = usable("tools", raw, over_http=True)
    assert not definition.is_marked
    assert form_for_legacy(definition, NOTHING) == form_for_modern(definition, NOTHING) == raw


def test_header_marks_are_stripped_wherever_a_schema_stands() -> None:
    mark = {"type": "string", "x-mcp-header": "A"}
    schema = {
        "type": "object",
        "x-mcp-header": "B",
        "anyOf": [mark, True],
        "items": [mark],
        "$defs": {"d": {"items": mark, "not": mark}},
        "enum": [mark],
    }
    assert legacy(tool("a", inputSchema=schema))["inputSchema"] == {
        "type": "object",
        "anyOf": [{"type": "string"}, True],
        "items": [{"type": "string"}],
        "$defs": {"d": {"items": {"type": "string"}, "not": {"type": "string"}}},
        "enum": [mark],
    }


def test_header_marks_that_cannot_be_obeyed_rule_a_tool_out_over_http_only() -> None:
    """MCP 2026-07-28, Tools, x-mcp-header: clients MUST drop such a tool; on stdio there are no headers."""
    raw = tool("a", inputSchema={"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}})
    assert "x-mcp-header" in reason("tools", raw, over_http=True)
    assert legacy(raw)["inputSchema"]["properties"] == {"n": {"type": "number"}}


def test_a_tool_points_to_its_app_by_the_published_uri() -> None:
    """MCP Apps 2026-01-26, Resource Discovery: in both places, the flat one being deprecated."""
    meta = {"ui": {"resourceUri": "ui://x", "csp": None}, "ui/resourceUri": "ui://x", "big": 1}
    definition = usable("tools", tool("a", _meta=meta))
    assert definition.ui == ("ui://x",)
    assert with_ui_uris(definition, {"ui://x": "ui://x"}) == {}
    changes = with_ui_uris(definition, {"ui://x": "ui://work/x"})
    assert json.loads(form_for_legacy(definition, changes))["_meta"] == {
        "ui": {"resourceUri": "ui://work/x", "csp": None},
        "ui/resourceUri": "ui://work/x",
        "big": 1,
    }


def test_odd_app_uris_are_left_alone() -> None:
    definition = usable("tools", tool("a", _meta={"ui": "text", "ui/resourceUri": "ui://x"}))
    assert json.loads(with_ui_uris(definition, {"ui://x": "ui://w/x"})["_meta"] or b"") == {
        "ui": "text",
        "ui/resourceUri": "ui://w/x",
    }
    assert usable("tools", tool("a", _meta={"ui": {"resourceUri": 7}})).ui == ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5) | st.sampled_from(["object", "user", "2025-01-12", "optional"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.sampled_from(
        ["type", "properties", "required", "$schema", "src", "sizes", "theme", "name", "title", "readOnlyHint", "ui",
         "audience", "priority", "lastModified", "taskSupport", "x-mcp-header", "resourceUri"]
    ), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
MEMBERS = ["title", "description", "icons", "annotations", "_meta", "execution", "outputSchema", "arguments", "size",
           "mimeType", "inputSchema", "name", "uri", "uriTemplate", "x-other"]  # fmt: skip
LISTS = {
    "tools": ("tools/list", "tools"),
    "prompts": ("prompts/list", "prompts"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
}


@given(
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(MEMBERS), json_values, max_size=6),
    st.fixed_dictionaries(
        {"type": st.just("object") | st.none() | json_values},
        optional=dict.fromkeys(("properties", "required", "$schema"), json_values),
    ),
)
def test_whatever_a_server_lists_no_typed_client_refuses_what_is_published(
    kind: Kind, odd: dict[str, Any], schema: dict[str, Any]
) -> None:
    """The SDK's client checks the whole list: this is what one bad definition must never get to."""
    raw = dumps({"name": "a", "uri": "x:y", "uriTemplate": "x:{y}", "inputSchema": schema} | odd)
    definition = check(kind, raw)
    if isinstance(definition, Unusable):
        return
    method, member = LISTS[kind]
    for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
        listed = from_json(form_for_legacy(definition, NOTHING))
        parse_server_result(method, version, {member: [listed]})
    listed = from_json(form_for_modern(definition, NOTHING))
    tail = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    parse_server_result(method, "2026-07-28", {member: [listed], **tail})


@given(st.sampled_from(KINDS), st.binary(max_size=60))
def test_no_bytes_make_it_raise(kind: Kind, raw: bytes) -> None:
    check(kind, raw)


@pytest.mark.parametrize(
    "src", ["http://x/i.png", "javascript:alert(1)", "file:///etc/passwd", "ftp://x/i", "x.png", ""]
)
def test_an_icon_that_clients_must_not_fetch_is_left_out(src: str) -> None:
    """MCP 2025-11-25, icons: https and data only, since each client fetches it by itself."""
    raw = tool("a", icons=[{"src": src}, {"src": "HTTPS://x/i.png"}, {"src": "data:image/png;base64,AA=="}])
    assert [icon["src"][:5] for icon in legacy(raw)["icons"]] == ["HTTPS", "data:"]
    assert faulty_fields(raw) == ["icons"]
