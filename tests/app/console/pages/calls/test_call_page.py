"""One call's page: what was sent and shown, where the time went, what was logged, and how to make it again."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge import Bridge
from support.console_app import Visiting, visible, visit, visiting
from support.harness import eventually, python_server

TEXT = '<script>alert(1)</script>"><img src=x onerror=alert(1)>\x1b[31m\u202egpj'
BIG = "\n".join(f"line {number} of many" for number in range(3000))
CONFIG: dict[str, Any] = {"servers": {"gated": python_server("gated")}}


def echo(text: str) -> str:
    """Say it again."""
    return text


def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


def big() -> str:
    """Say much."""
    return BIG


def broken() -> str:
    """Fail."""
    raise ValueError("out of paper")


async def newest(one: Visiting, count: int = 1) -> str:
    """The uid of the newest call, once so many are recorded."""
    text = await eventually(lambda: one.get("calls"), lambda text: text.count('id="call-') >= count)
    return re.findall(r'id="call-([0-9a-f]{16})"', text)[0]


async def test_a_call_shows_arguments_result_stages_and_tokens(tmp_path: Path) -> None:
    """Issue 20: arguments as sent, a waterfall of its stages, the result as the model saw it, tokens."""
    async with visiting(CONFIG, tmp_path) as one:
        await one.bridge.call_tool("gated/echo", {"text": TEXT})
        html = await one.get(f"calls/{await newest(one)}")
        text = visible(html)
        for words in (
            "gated/echo",
            "Where the time went",
            "server",
            "tokens (estimated)",
            "The model saw it as the server",
        ):
            assert words in text
        assert "<script>alert" not in html
        assert "<img src=x" not in html
        assert "\x1b" not in html
        assert "\u202e" not in html
        assert "⟦U+202E⟧" in text
        assert html.count("<rect") >= 2


async def test_mended_arguments_stand_beside_those_that_were_sent(tmp_path: Path) -> None:
    async with visiting(CONFIG, tmp_path) as one:
        await one.bridge.call_tool("gated/echo", {"text": 3})
        text = visible(await one.get(f"calls/{await newest(one)}"))
        assert '"text": 3' in text
        assert '"text": "3"' in text
        assert "As mended, for the server" in text
        assert "arguments mended" in visible(await one.get("calls"))


async def test_a_preview_stands_beside_the_original_with_tokens_of_both(tmp_path: Path) -> None:
    """Issue 20: the result as the model saw it beside the original, tokens of both."""
    async with visiting({}, tmp_path, tools=[big]) as one:
        await one.bridge.call_tool("big")
        uid = await newest(one)
        html = await one.get(f"calls/{uid}")
        text = visible(html)
        assert "As the model saw it" in text
        assert "As the server sent it" in text
        assert "recall(handle" in text
        assert "line 1500 of many" in text  # in the original alone
        (shown, sent) = re.findall(r"(\d[\d,]*) tokens</small>", html)
        assert int(shown.replace(",", "")) < int(sent.replace(",", ""))
        (result,) = set(re.findall(r'href="/console/(results/[^"]*)">Open it', html))
        assert "line 0 of many" in await one.get(result)


async def test_an_original_that_is_forgotten_is_no_error(tmp_path: Path) -> None:
    async with visiting({}, tmp_path, tools=[big]) as one:
        answer = await one.bridge.call_tool("big")
        uid = await newest(one)
        await one.bridge.results.kept_results.drop(answer.handle, principal="")
        assert "It is kept no more" in visible(await one.get(f"calls/{uid}"))


async def test_failures_and_refusals_say_why_and_what_to_do(tmp_path: Path) -> None:
    """Issue 20: failures and refusals are there too, with the fix."""
    denied = {"permissions": [{"tools": "tools/echo", "permission": "deny"}]}
    async with visiting(denied, tmp_path, tools=[echo, shout, broken]) as one:
        await one.bridge.call_tool("tools/echo", {"text": "x"})
        text = visible(await one.get(f"calls/{await newest(one, 1)}"))
        assert "A rule denies this call" in text
        assert "[[permissions]]" in text
        assert "docs/reference/errors.md#notpermitted" in text
        await one.bridge.call_tool("broken")
        text = visible(await one.get(f"calls/{await newest(one, 2)}"))
        assert "The tool itself says that it failed" in text
        assert "out of paper" in text
        await one.bridge.call_tool("tools/shout", {})
        text = visible(await one.get(f"calls/{await newest(one, 3)}"))
        assert "do not fit the tool's schema" in text
        assert "`text` is missing" in text  # the message of the error itself
        listed = visible(await one.get("calls?outcome=failures"))
        assert listed.count("NotPermitted") == 1
        assert "3 calls" in listed


async def test_nested_calls_are_a_tree(tmp_path: Path) -> None:
    """Issue 20: nested calls (code mode, agents, hooks) as a tree."""
    bridges: list[Bridge] = []

    async def outer() -> str:
        """Calls others."""
        return (await bridges[0].call_tool("echo", {"text": "inner"})).text

    async with visiting({}, tmp_path, tools=[echo, outer]) as one:
        bridges.append(one.bridge)
        await one.bridge.call_tool("outer")
        text = await eventually(lambda: one.get("calls"), lambda text: text.count('id="call-') == 2)
        calls = dict(re.findall(r'id="call-([0-9a-f]{16})" href="[^"]*">([^<]*)<', text))
        of = {name: uid for uid, name in calls.items()}
        html = await one.get(f"calls/{of['tools/outer']}")
        assert f"/console/calls/{of['tools/echo']}" in html.partition("Calls that it made")[2]
        assert (
            f"/console/calls/{of['tools/outer']}" in (await one.get(f"calls/{of['tools/echo']}")).partition("<h1>")[0]
        )


async def test_a_call_is_made_again_as_it_was_and_with_other_arguments(tmp_path: Path) -> None:
    """Issue 20: call again, edit and call."""
    async with visiting(CONFIG, tmp_path) as one:
        await one.bridge.call_tool("gated/echo", {"text": "first"})
        uid = await newest(one)
        part = await one.post(f"calls/{uid}/again")
        assert "first" in part
        (again,) = re.findall(r"/console/(calls/[0-9a-f]{16})", part)
        text = visible(await one.get(again))
        assert "first" in text
        assert "console" in text  # the client
        assert "second" in await one.post(f"calls/{uid}/again", arguments='{"text": "second"}')
        location = await one.post(f"calls/{uid}/again", status=303, part=False, arguments='{"text": "third"}')
        assert "third" in await one.get(location.removeprefix("/console/"))
        assert "4 calls" in visible(await one.get("calls"))


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"text": ', "\x00", "[" * 100_000])
async def test_arguments_that_are_no_object_are_refused(text: str, tmp_path: Path) -> None:
    async with visiting({}, tmp_path, tools=[echo]) as one:
        await one.bridge.call_tool("echo", {"text": "x"})
        uid = await newest(one)
        assert "JSON" in await one.post(f"calls/{uid}/again", status=400, arguments=text)
        await one.post(f"calls/{uid}/again", status=400, part=False, arguments=text)
        assert "1 call" in visible(await one.get("calls"))


async def test_calls_of_the_console_meet_every_rule(tmp_path: Path) -> None:
    """Whoever is signed in by a token calls as that token's principal."""
    rules = {"permissions": [{"principals": "lead", "tools": "tools/echo", "permission": "deny"}]}
    async with visiting(rules, tmp_path, tools=[echo]) as one, visit(one.bridge, "admin", "lead") as lead:
        await one.bridge.call_tool("echo", {"text": "x"})
        uid = await newest(one)
        assert "The call is done" in await one.post(f"calls/{uid}/again")
        assert "went wrong" in await lead.post(f"calls/{uid}/again")
        async with visit(one.bridge, "read", "watcher") as reader:
            await reader.post(f"calls/{uid}/again", status=403)
            text = visible(await reader.get(f"calls/{uid}"))
            assert "Call again" not in text
            assert "may look" in text


async def test_what_was_not_kept_can_be_called_with_new_arguments_only(tmp_path: Path) -> None:
    async with visiting({"calls": {"log_content": False}}, tmp_path, tools=[echo]) as one:
        await one.bridge.call_tool("echo", {"text": "private"})
        uid = await newest(one)
        html = await one.get(f"calls/{uid}")
        assert "private" not in html
        assert "Its content is not kept" in visible(html)
        assert "are not kept whole" in await one.post(f"calls/{uid}/again", status=400)
        assert "new" in await one.post(f"calls/{uid}/again", arguments='{"text": "new"}')
        await one.get(f"calls/{uid}/cassette", status=404)


async def test_the_copies_are_of_this_call(tmp_path: Path) -> None:
    async with visiting(CONFIG, tmp_path) as one:
        await one.bridge.call_tool("gated/echo", {"text": "it's <b>"})
        html = await one.get(f"calls/{await newest(one)}")
        copies = {
            key: visible(text) for key, text in re.findall(r'<code id="copy-(\w+)">(.*?)</code>', html, re.DOTALL)
        }
        assert json.loads(shlex.split(copies["cli"])[3]) == {"text": "it's <b>"}
        assert "call_tool(" in copies["python"]
        assert "Mcp-Method: tools/call" in copies["curl"]


async def test_the_cassette_of_a_call_replays_it(tmp_path: Path) -> None:
    """Issue 20: copy as cassette."""
    async with visiting(CONFIG, tmp_path) as one:
        await one.bridge.call_tool("gated/echo", {"text": "kept"})
        uid = await newest(one)
        path = tmp_path / "call.jsonl"
        path.write_text(await one.get(f"calls/{uid}/cassette"))
    config = {"servers": {"gated": {"command": "no-such-program"}}}
    with anyio.fail_after(60):
        async with Bridge.open(config, cassette=path, remember=False, environ={}) as bridge:
            assert (await bridge.call_tool("gated/echo", {"text": "kept"})).text == "kept"


async def test_the_trace_of_the_client_is_named(tmp_path: Path) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    async with visiting({}, tmp_path, tools=[echo]) as one:
        params = {
            "name": "echo",
            "arguments": {"text": "x"},
            "_meta": {"traceparent": f"00-{trace}-b7ad6b7169203331-01"},
        }
        await one.bridge.request("tools/call", params)
        assert trace in await one.get(f"calls/{await newest(one)}")


async def test_what_the_server_wrote_meanwhile_is_shown(tmp_path: Path) -> None:
    """Issue 20: log lines and stderr of that time."""
    async with visiting({"servers": {"telling": python_server("telling")}}, tmp_path) as one:
        await one.bridge.call_tool("telling/fail", {"how": "stderr", "text": "low on ink"})
        first = await newest(one, 1)
        assert "low on ink" in visible(await one.get(f"calls/{first}/log"))
        await one.bridge.call_tool("telling/fail", {"how": "exit", "text": "out of ink"})
        second = await newest(one, 2)
        text = visible(await one.get(f"calls/{second}/log"))  # also of a process that is gone
        assert "out of ink" in text
        page = visible(await one.get(f"calls/{second}"))
        assert "The connection ended during the call" in page
