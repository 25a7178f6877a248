"""Spec files: what stands in them, as tables of `[tools]`; and what is wrong, with file and key."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.base.errors import ConfigError
from mcpbridge.tools.factory import read_settings
from mcpbridge.tools.spec_files import SpecTool, read_spec

WEATHER = {
    "tool_id": "weather",
    "tool_name": "The weather",
    "tool_description": "The weather of a city.",
    "tool_execution_mode": "remote",
    "tool_custom_config": {
        "schema": {
            "input": {"type": "object", "properties": {"city": {"type": "string"}}},
            "output": {"type": "object"},
        },
        "tags": ["sky"],
    },
    "tool_calling_config": {
        "protocol": "https",
        "endpoint": "${BASE}/v1/{city}",
        "method": "get",
        "headers": {"Authorization": "Bearer ${KEY}"},
        "timeout_s": 5,
        "retry": {"tries": 3, "backoff_s": 0.5},
        "output_mapping": {"high": "$.main.high"},
    },
}
SCORE = {
    "tool_id": "score.text v2",
    "tool_execution_mode": "local",
    "tool_calling_config": {"executor_class": "pkg.mod.Scorer", "constructor_args": {"model": "small"}},
}
ADD = {
    "function_id": "add",
    "function_description": "Adds.",
    "function_custom_parameters": {"a": {"type": "number", "required": True}, "b": "number"},
    "function_calling_config": {"protocol": "python", "endpoint": "calc.core:add"},
}


def read(value: object, file: str = "caps.json") -> list[SpecTool]:
    return list(read_spec(value if isinstance(value, str) else json.dumps(value), file))


def expanded(one: SpecTool) -> object:
    return json.loads(json.dumps(one.table).replace("${BASE}", "https://h").replace("${KEY}", "key"))


def test_a_tool_over_http_stands_as_its_table() -> None:
    (one,) = read([WEATHER])
    assert (one.name, one.key, one.warnings) == ("weather", "[0]", ())
    assert one.table == {
        "description": "The weather of a city.",
        "title": "The weather",
        "input_schema": WEATHER["tool_custom_config"]["schema"]["input"],  # type: ignore[index]
        "output_schema": {"type": "object"},
        "tags": ["sky"],
        "endpoint": "${BASE}/v1/{city}",
        "method": "get",
        "headers": {"Authorization": "Bearer ${KEY}"},
        "output_mapping": {"high": "$.main.high"},
        "call_timeout": 5,
        "retry": {"tries": 3, "backoff": 0.5},
    }
    assert one.keys["call_timeout"] == "[0].tool_calling_config.timeout_s"
    assert one.keys["input_schema"] == "[0].tool_custom_config.schema.input"
    assert read_settings(expanded(one)).call_timeout == 5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "document",
    [
        [WEATHER, SCORE, ADD],
        {"tools": [WEATHER, SCORE], "functions": [ADD]},
        {"agent": {"capabilities": {"tool": [WEATHER, SCORE], "functions": {"one": ADD}}}, "version": 3},
    ],
)
def test_items_are_found_in_every_usual_container(document: object) -> None:
    found = read(document)
    assert [one.name for one in found] == ["weather", "score-text-v2", "add"]
    for one in found:
        read_settings(expanded(one))


def test_a_single_item_and_toml_are_files_too() -> None:
    assert read(ADD)[0].key == ""
    text = '[[tools]]\ntool_id = "x"\n[tools.tool_calling_config]\nprotocol = "a2a"\nendpoint = "https://h"\n'
    (one,) = read(text, "caps.toml")
    assert (one.table, one.keys["agent"]) == ({"agent": "https://h"}, "tools[0].tool_calling_config.endpoint")


def test_a_local_tool_and_a_function_stand_as_theirs() -> None:
    _, score, add = read([WEATHER, SCORE, ADD])
    assert score.table == {"executor_class": "pkg.mod.Scorer", "constructor_args": {"model": "small"}}
    assert add.table == {
        "description": "Adds.",
        "input_schema": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a"],
        },
        "function": "calc.core:add",
    }


@pytest.mark.parametrize(
    ("config", "table"),
    [
        ({"endpoint": "https://h/x"}, {"endpoint": "https://h/x"}),
        ({"protocol": "REST", "endpoint": "https://h/x"}, {"endpoint": "https://h/x"}),
        ({"protocol": "grpc", "endpoint": "h:1", "method": "a.B/C"}, {"grpc": "h:1", "method": "a.B/C"}),
        ({"protocol": "grpc", "endpoint": "grpcs://h:1"}, {"grpc": "h:1", "tls": True}),
        ({"protocol": "openapi", "endpoint": "api.json"}, {"openapi": "api.json"}),
        ({"protocol": "agent", "endpoint": "pkg.mod:helper"}, {"agent": "pkg.mod:helper"}),
        ({"function": "pkg.mod.name"}, {"function": "pkg.mod:name"}),
        ({"endpoint": "pkg.mod:name"}, {"function": "pkg.mod:name"}),
        (
            {"endpoint": "https://h", "retry": 2, "timeout": "3s"},
            {"endpoint": "https://h", "retry": 2, "call_timeout": "3s"},
        ),
    ],
)
def test_what_is_called_and_how(config: dict[str, Any], table: dict[str, Any]) -> None:
    (one,) = read([{"tool_id": "x", "tool_calling_config": config}])
    assert one.table == table


def item(**more: Any) -> dict[str, Any]:
    return {"tool_id": "x", "tool_calling_config": {"endpoint": "https://h"}, **more}


def calling(**config: Any) -> dict[str, Any]:
    return item(tool_calling_config={"endpoint": "https://h", **config})


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ([], "caps.json: no tools are described here"),
        ({"tools": []}, "caps.json: no tools are described here"),
        (3, "caps.json: no tools are described here"),
        ("{", "caps.json:1:2: not valid JSON"),
        ([3], "caps.json: [0]: expected an object that describes a tool"),
        ({"tools": [{"tool_calling_config": {}}]}, "caps.json: tools[0].tool_id: missing"),
        ([item(tool_id=3)], "caps.json: [0].tool_id: expected a text, not a number"),
        ([item(tool_id="!")], "caps.json: [0].tool_id: not usable as the name of a tool"),
        ([item(tool_id="x" * 40)], "caps.json: [0].tool_id: not usable as the name of a tool"),
        ([item(), item()], "caps.json: [1].tool_id: 'x' is here twice\n  The other one is [0]."),
        ([item(tool_description=["x"])], "[0].tool_description: expected a text, not a list"),
        ([item(tool_execution_mode="cloud")], "[0].tool_execution_mode: expected `local` or `remote`"),
        ([item(tool_custom_config=[])], "[0].tool_custom_config: expected an object, not a list"),
        (
            [item(tool_custom_config={"schema": {"input": "x"}})],
            "[0].tool_custom_config.schema.input: expected an object, not a text",
        ),
        ([item(tool_calling_config=None)], "[0].tool_calling_config.endpoint: missing: where it is called"),
        ([item(tool_calling_config={"protocol": "grcp"})], "Did you mean `grpc`?"),
        ([item(tool_calling_config={"protocol": "mcp"})], "An MCP server goes into the configuration itself"),
        ([item(tool_calling_config={"protocol": "local"})], "[0].tool_calling_config: missing: what to run"),
        (
            [item(tool_execution_mode="remote", tool_calling_config={"protocol": "local"})],
            "`remote` execution and a local protocol exclude each other",
        ),
        ([calling(headers=["x"])], "[0].tool_calling_config.headers: expected an object, not a list"),
        ([calling(timeout_s=[])], "[0].tool_calling_config.timeout_s: expected seconds, not a list"),
        ([calling(retry=True)], "[0].tool_calling_config.retry: expected an object with `tries` and `backoff_s`"),
        ([calling(output_mapping=3)], "[0].tool_calling_config.output_mapping: expected a JSONPath"),
        ([item(tool_custom_parameters=[{"type": "x"}])], "[0].tool_custom_parameters[0].name: expected a text"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_key(document: object, told: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        read(document)
    assert told in str(wrong.value)


def test_what_is_no_toml_is_told_by_its_place() -> None:
    with pytest.raises(ConfigError, match=r"caps\.toml: not valid TOML: .*line 2"):
        read("x = 1\ny = !\n", "caps.toml")


def test_what_is_not_used_is_told_and_costs_nothing() -> None:
    (one,) = read([{**calling(methd="GET"), "vendor": 1}])
    assert one.table == {"endpoint": "https://h"}
    assert one.warnings == (
        "caps.json: [0].tool_calling_config: not used: `methd` (did you mean `method`?)",
        "caps.json: [0]: not used: `vendor`",
    )


def test_no_spec_can_name_a_command() -> None:
    for config in ({"command": ["rm"], "endpoint": "https://h"}, {"protocol": "command", "endpoint": "rm"}):
        try:
            (one,) = read([item(tool_calling_config=config)])
        except ConfigError:
            continue
        assert "command" not in one.table


_KEYS = [*WEATHER, *ADD, "protocol", "endpoint", "method", "headers", "retry", "executor_class", "tools", "schema"]
_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["local", "http", "a.b:c"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150)
@given(document=_ANY)
def test_any_file_is_read_or_refused_in_our_words(document: object) -> None:
    told = ""
    try:
        assert all(one.name and one.table for one in read(document))
    except ConfigError as error:
        told = str(error)
    assert not told or told.startswith("caps.json")
