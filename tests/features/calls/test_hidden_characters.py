"""Hidden characters of results are shown where the settings say so, and the original is kept (issue 22)."""

import json
import re
from typing import Any

import pytest

from support.in_process_bridge import Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport

TAGS = "".join(chr(0xE0000 + ord(letter)) for letter in "send it")
HIDDEN = f"Hello\u200b{TAGS} \x1b[31mred\x1b[0m \u202eend 👩‍💻"
SHOW = {"results": {"hidden_characters": "show"}}


def server(result: dict[str, Any]) -> ScriptedTransport:
    return ScriptedTransport({**LEGACY_SERVER, "tools/call": result})


def text_result(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


def handle_in(result: dict[str, Any]) -> str:
    handle = result["_meta"]["mcpbridge/result"]["handle"]
    assert handle in result["content"][-1]["text"] + result["content"][0]["text"]
    return handle


async def original(ear: Ear, handle: str) -> Any:
    read = await ear.ask("resources/read", {"uri": f"mcpbridge://results/{handle}"})
    return json.loads(read["result"]["contents"][0]["text"])


async def test_they_are_shown_and_recall_gives_the_original() -> None:
    sent = text_result(HIDDEN, structuredContent={"na\u200bme": f"x{TAGS}", "n": 1})
    async with bridged({"a": server(sent)}, servers={"a": SHOW}, results={}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        result = (await ear.ask("tools/call", {"name": "a__echo", "arguments": {}}))["result"]
        text, line = (block["text"] for block in result["content"])
        assert text.startswith("Hello‹U+200B›‹U+E0073›")
        assert "‹U+001B›[31mred‹U+001B›[0m ‹U+202E›end 👩‍💻" in text
        assert result["structuredContent"]["na‹U+200B›me"].startswith("x‹U+E0073›")
        assert "hidden characters shown; as sent: recall(handle)]" in line
        assert await original(ear, handle_in(result)) == sent
        recalled = await ear.ask("tools/call", {"name": "recall", "arguments": {"handle": handle_in(result)}})
        assert TAGS in json.dumps(recalled, ensure_ascii=False)


async def test_those_of_a_large_result_are_shown_in_its_preview() -> None:
    sent = text_result("\n".join(f"line {number} {HIDDEN}" for number in range(500)))
    async with bridged({"a": server(sent)}, results=SHOW["results"]) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        result = (await ear.ask("tools/call", {"name": "a__echo", "arguments": {}}))["result"]
        shown = result["content"][0]["text"]
        assert "hidden characters are shown as ‹U+…›" in shown
        assert "‹U+200B›" in shown
        assert len(shown) <= 2000
        assert not re.search("[\u200b\u202e\x1b\U000e0000-\U000e007f]", shown)
        assert await original(ear, handle_in(result)) == sent


@pytest.mark.parametrize("settings", [{}, {"results": {"hidden_characters": "keep"}}])
async def test_they_pass_where_nothing_is_set(settings: Any) -> None:
    sent = text_result(HIDDEN)
    servers = {"a": settings, "b": SHOW}
    async with bridged({"a": server(sent), "b": server(sent)}, servers=servers, results={}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        result = (await ear.ask("tools/call", {"name": "a__echo", "arguments": {}}))["result"]
        assert result["content"] == sent["content"]


@pytest.mark.parametrize("text", ["plain", "Grüße 你好 👩‍💻 می‌خواهم", "tab\tand\r\nline"])
async def test_a_result_without_any_passes_as_it_is(text: str) -> None:
    sent = text_result(text)
    async with bridged({"a": server(sent)}, servers={"a": SHOW}, results={}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        for _ in range(3):
            assert (await ear.ask("tools/call", {"name": "a__echo", "arguments": {}}))["result"]["content"] == sent[
                "content"
            ]


async def test_they_are_shown_where_results_are_never_shortened_and_blocks_keep_their_order() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "aGk="}
    sent = {"content": [{"type": "text", "text": "a\u200b"}, image, {"type": "text", "text": "b\x08"}]}
    settings = {"results": {"hidden_characters": "show", "strategy": "off"}}
    async with bridged({"a": server(sent)}, servers={"a": settings}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        for _ in range(3):
            result = (await ear.ask("tools/call", {"name": "a__echo", "arguments": {}}))["result"]
            first, second, third, line = result["content"]
            assert (first["text"], second, third["text"]) == ("a‹U+200B›", image, "b‹U+0008›")
            assert line["text"].startswith("[mcpbridge ")
            assert await original(ear, handle_in(result)) == sent


async def test_they_are_shown_where_nothing_is_kept() -> None:
    settings = {"results": {"hidden_characters": "show", "auto_store": False}}
    async with bridged({"a": server(text_result("a\u200b"))}, servers={"a": settings}, results={}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        text, line = (await ear.ask("tools/call", {"name": "a__echo", "arguments": {}}))["result"]["content"]
        assert text["text"] == "a‹U+200B›"
        assert "hidden characters shown; the rest was not kept]" not in line["text"]
