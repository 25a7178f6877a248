"""A call as a command, a program and a request: what is pasted is the same call."""

import ast
import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.app.console.pages.calls.copies import Target, copies_of
from mcpbridge.app.console.shown_text import inert_text
from mcpbridge.base.masking.mask import MASK

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.text(max_size=8), VALUES, max_size=4)


def target(
    arguments: dict[str, Any], *, method: str = "tools/call", name: str = "git/log", ascii_only: bool = False
) -> Target:
    text = json.dumps(arguments, ensure_ascii=False)
    return Target(method, name, text, "/home/ann/servers.toml", "http://127.0.0.1:8808/mcp", is_served=True)


def copies(one: Target) -> dict[str, str]:
    return {copy.key: copy.text for copy in copies_of(one)}


@given(ARGUMENTS)
def test_the_command_has_the_same_arguments(arguments: dict[str, Any]) -> None:
    text = copies(target(arguments))["cli"]
    words = shlex.split(text)
    assert words[:5] == ["mcpbridge", "call", "--config", "/home/ann/servers.toml", "--args"]
    assert json.loads(words[5]) == arguments
    assert words[6:] == ["git/log"]
    assert inert_text(text, 1 << 30) == text  # nothing in it hides or moves


@given(ARGUMENTS)
def test_the_request_has_the_same_arguments(arguments: dict[str, Any]) -> None:
    text = copies(target(arguments))["curl"]
    words = shlex.split(text)
    assert words[:2] == ["curl", "http://127.0.0.1:8808/mcp"]
    body = json.loads(words[words.index("--data-binary") + 1])
    assert body["method"] == "tools/call"
    assert (body["params"]["name"], body["params"]["arguments"]) == ("git/log", arguments)
    headers = [words[at + 1] for at, word in enumerate(words) if word == "-H"]
    assert "Mcp-Name: git/log" in headers
    assert "Authorization: Bearer $TOKEN" in headers
    assert inert_text(text, 1 << 30) == text


@given(ARGUMENTS)
def test_the_program_has_the_same_arguments(arguments: dict[str, Any]) -> None:
    tree = ast.parse(copies(target(arguments))["python"])
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    (call,) = [node for node in calls if node.func.attr == "call_tool"]  # type: ignore[attr-defined]
    assert [ast.literal_eval(argument) for argument in call.args] == ["git/log", arguments]


HOSTILE = ["a'; rm -rf ~ #", "$(id)", "`id`", "a\nb", "\x1b[31m", "\u202egpj", "--help", "ü\u200b", "a b"]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("method", ["tools/call", "resources/read", "prompts/get"])
def test_names_that_servers_choose_are_only_names(name: str, method: str) -> None:
    """What an upstream says is hostile: it must not become a word of the shell, or code."""
    found = copies(target({}, method=method, name=name))
    if "cli" in found:
        assert shlex.split(found["cli"]).count(name) == 1
    body = json.loads(shlex.split(found["curl"])[-1])
    assert name in (body["params"].get("name"), body["params"].get("uri"))
    strings = [node.value for node in ast.walk(ast.parse(found["python"])) if isinstance(node, ast.Constant)]
    assert name in strings


def test_resources_and_prompts_are_copied_as_what_they_are() -> None:
    assert shlex.split(copies(target({}, method="resources/read", name="file:///a"))["cli"])[:2] == [
        "mcpbridge",
        "read",
    ]
    assert "cli" not in copies(target({}, method="prompts/get"))
    assert copies(target({}, method="completion/complete")) == {}


def test_what_is_masked_or_not_served_is_said() -> None:
    notes = {copy.key: copy.note for copy in copies_of(target({"key": MASK}))}
    assert all(MASK in note for note in notes.values())
    unserved = Target("tools/call", "a/b", "{}", "", "http://127.0.0.1:8808/mcp", is_served=False)
    found = {copy.key: copy for copy in copies_of(unserved)}
    assert "serves no HTTP" in found["curl"].note
    assert "--config" not in found["cli"].text
