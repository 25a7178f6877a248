"""Tools that wait, as MCP clients see them: what they get, and what their users are asked."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from hypothesis import given as over
from hypothesis import strategies as st

from mcpbridge.config.schema import Settings
from mcpbridge.core.tool_calls_and_results import PAUSED
from mcpbridge.engine.wiring.tools import ProgramTool
from mcpbridge.library.bridge import Bridge
from mcpbridge.tools.human_in_the_loop.functions import Pause
from mcpbridge.tools.human_in_the_loop.human import HumanBackend, asked_about, form_of
from mcpbridge.tools.human_in_the_loop.manual import ManualBackend
from mcpbridge.tools.human_in_the_loop.settings import PausingSettings
from support.front_clients import open_front

MODES = ["legacy", "2026-07-28"]
COUNT: dict[str, Any] = {
    "type": "object",
    "properties": {"count": {"type": "integer", "minimum": 0}, "note": {"type": "string"}},
    "required": ["count"],
}


def manual(output: dict[str, Any], **settings: Any) -> dict[str, ProgramTool]:
    made = PausingSettings(**{"ask_client": True, "reason": "How many are there?", **settings})
    return {"count": ProgramTool(ManualBackend.of("count", "Count things.", None, output, settings=made), made)}


@asynccontextmanager
async def running(folder: Path, tools: dict[str, ProgramTool]) -> AsyncGenerator[Bridge]:
    settings = {"store": {"path": str(folder / "s.db")}, "results": {"strategy": "off"}}
    with anyio.fail_after(60):
        async with Bridge(Settings.model_validate(settings), tools=tools) as bridge:
            yield bridge


class User:
    """Who sits behind a client: answers one question after the other."""

    def __init__(self, *answers: types.ElicitResult) -> None:
        self._answers = list(answers)
        self.shown: list[Any] = []

    async def __call__(self, context: object, params: Any) -> types.ElicitResult:
        self.shown.append(params)
        return self._answers.pop(0)


def accept(**content: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content)


@pytest.mark.parametrize("mode", MODES)
async def test_the_user_of_a_client_that_shows_forms_gives_the_result(tmp_path: Path, mode: str) -> None:
    user = User(
        accept(count=3), accept(count=-1), types.ElicitResult(action="decline"), types.ElicitResult(action="cancel")
    )
    async with running(tmp_path, manual(COUNT)) as bridge:
        async with bridge.client(mode=mode, elicitation_callback=user) as client:
            results = [await client.call_tool("count", {"what": "apples\u202e"}) for _ in range(4)]
        accepted, wrong, declined, dismissed = results
        assert accepted.structured_content == {"count": 3}
        assert declined.is_error
        assert "declined" in declined.content[0].text
        waiting = await bridge.paused_calls()
        assert [one.id for one in waiting] == [one.meta[PAUSED]["id"] for one in (wrong, dismissed)]
        assert "How many are there?" in user.shown[0].message
        assert "apples\\u202e" in user.shown[0].message
        assert (await bridge.resume(waiting[0].id, {"count": 4})).structured == {"count": 4}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "tools",
    [manual(COUNT, ask_client=False), manual({"type": "array", "items": COUNT}), manual({"type": "object"})],
    ids=["not-wanted", "too-deep", "no-fields"],
)
async def test_who_cannot_be_asked_so_gets_a_paused_result(
    tmp_path: Path, tools: dict[str, ProgramTool], mode: str
) -> None:
    user = User()
    async with running(tmp_path, tools) as bridge:
        async with bridge.client(mode=mode, elicitation_callback=user) as client:
            await client.list_tools()
            result = await client.call_tool("count", {})
        assert user.shown == []
        assert not result.is_error
        assert (await bridge.paused_calls())[0].id == result.meta[PAUSED]["id"]


async def test_a_plain_value_is_one_field_of_the_form(tmp_path: Path) -> None:
    user = User(accept(result=7))
    async with running(tmp_path, manual({"type": "integer"})) as bridge:
        async with bridge.client(elicitation_callback=user) as client:
            result = await client.call_tool("count", {})
        assert result.structured_content == {"result": 7}


@pytest.mark.parametrize("mode", MODES)
async def test_what_a_human_tool_wants_to_know_is_asked_of_the_user(tmp_path: Path, mode: str) -> None:
    fields = {"type": "object", "properties": {"sure": {"type": "boolean"}}}

    def deploy(service: str) -> Pause | None:
        return Pause(f"Deploy {service}?", form=fields) if service == "own" else None

    def decided(response: dict[str, Any] | bool) -> str:
        return f"decided: {json.dumps(response)}"

    made = PausingSettings(ask_client=True, response_schema={"type": "boolean"})
    tools = {"deploy": ProgramTool(HumanBackend.of(deploy, decided, settings=made), made)}
    user = User(accept(response=True), types.ElicitResult(action="decline"), types.ElicitResult(action="cancel"))
    async with running(tmp_path, tools) as bridge:
        async with bridge.client(mode=mode, elicitation_callback=user) as client:
            results = [await client.call_tool("deploy", {"service": "x"}) for _ in range(3)]
        assert results[0].content[0].text == "decided: true"
        assert results[1].is_error
        (waiting,) = await bridge.paused_calls()
        assert results[2].meta[PAUSED]["id"] == waiting.id


async def test_a_pause_with_fields_of_its_own_asks_for_those(tmp_path: Path) -> None:
    fields = {"type": "object", "properties": {"sure": {"type": "boolean"}}}

    def deploy(service: str) -> Pause:
        return Pause(f"Deploy {service}?", form=fields)

    def decided(response: dict[str, Any]) -> str:
        return f"decided: {response['sure']}"

    tools = {"deploy": ProgramTool(HumanBackend.of(deploy, decided), PausingSettings())}
    user = User(accept(sure=True))
    async with running(tmp_path, tools) as bridge:
        async with bridge.client(elicitation_callback=user) as client:
            result = await client.call_tool("deploy", {"service": "x"})
        assert result.content[0].text == "decided: True"
        assert "Deploy x?" in user.shown[0].message
        assert user.shown[0].requested_schema["properties"] == fields["properties"]


@pytest.mark.parametrize("front", ["stdio", "http"])
async def test_a_paused_result_crosses_real_fronts(tmp_path: Path, front: str) -> None:
    async with running(tmp_path, manual(COUNT)) as bridge, open_front(front, bridge, tmp_path) as opened:
        await opened.client.initialize("2025-11-25")
        reply = await opened.client.call("count", what="pears")
        assert reply.result["_meta"][PAUSED]["tool"] == "tools/count"
        assert "structuredContent" not in reply.result
        (waiting,) = await bridge.paused_calls()
        assert waiting.arguments == {"what": "pears"}
        assert (await bridge.resume(waiting.id, {"count": 2})).structured == {"count": 2}


# -- forms

PLAIN = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "format": "email", "maxLength": 9},
        {"type": "string", "enum": ["a", "b"]},
        {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
        {"type": "integer", "minimum": 1},
        {"type": "number", "title": "How much"},
        {"type": "boolean", "default": True},
    ]
)
DEEP = st.sampled_from(
    [
        {"type": "object"},
        {"type": "array", "items": {"type": "string"}},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"type": ["string", "null"]},
        {"type": "string", "pattern": "x"},
        {"type": "string", "format": "ipv4"},
        {"type": "integer", "enum": [1, 2]},
        {"type": "string", "enum": [1, 2]},
        {"$ref": "#/$defs/A"},
        {},
        True,
    ]
)
NAMES = st.text(min_size=1, max_size=4)


@over(st.dictionaries(NAMES, PLAIN, min_size=1, max_size=5))
def test_an_object_of_plain_fields_is_a_form_as_it_is(fields: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    assert form_of(schema) == {"type": "object", "properties": fields, "required": list(fields)}


@over(st.dictionaries(NAMES, PLAIN, max_size=4), NAMES, DEEP)
def test_one_field_that_is_not_plain_makes_it_none(fields: dict[str, Any], name: str, deep: Any) -> None:
    assert form_of({"type": "object", "properties": {**fields, name: deep}}) is None


@over(st.text(), st.text())
def test_what_the_user_reads_hides_nothing(text: str, value: str) -> None:
    shown = asked_about("Well?", json.dumps({"a": value}, ensure_ascii=False).encode("utf-8", "replace"))
    assert shown.startswith("Well?\nArguments: ")
    assert shown.removeprefix("Well?\n").isprintable()
