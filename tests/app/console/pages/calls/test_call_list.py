"""The list of calls: filters, live parts, running calls, and who may cancel them."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mcpbridge.app.admin.control_commands import live_calls
from support.console_app import ORIGIN, Visiting, visible, visit, visiting
from support.harness import eventually, python_server

SERVERS = {"servers": {"gated": python_server("gated"), "plain": python_server("plain")}}


async def recorded(one: Visiting, count: int, path: str = "calls") -> str:
    """The list once it has so many calls."""
    return await eventually(lambda: one.get(path), lambda text: text.count('id="call-') == count)


@asynccontextmanager
async def held(one: Visiting, folder: Path) -> AsyncIterator["asyncio.Task[object]"]:
    """A call under way, until the body ends or cancels it."""
    gate = folder / "gate"
    os.mkfifo(gate)
    call = asyncio.create_task(one.bridge.call_tool("gated/pass_gate", {"gate": str(gate)}))
    try:
        yield call
    finally:
        descriptor = os.open(gate, os.O_RDWR | os.O_NONBLOCK)
        os.close(descriptor)
        await asyncio.wait({call}, timeout=30)


async def test_an_empty_list_says_what_to_do_first(tmp_path: Path) -> None:
    async with visiting(SERVERS, tmp_path) as one:
        assert "No call was made yet" in visible(await one.get("calls"))


async def test_where_nothing_is_recorded_it_says_how_to(tmp_path: Path) -> None:
    async with visiting({**SERVERS, "call_log": {"enabled": False}}, tmp_path) as one:
        text = visible(await one.get("calls"))
        assert "Calls are not recorded" in text
        assert "[call_log]" in text
        assert "Nothing is recorded" in visible(await one.get("timeline"))
        assert "Sessions are not recorded" in visible(await one.get("sessions"))


async def test_filters_in_the_address_choose_the_calls(tmp_path: Path) -> None:
    """Issue 20: filters (server, tool, client, principal, outcome, time, duration, text) kept in the URL."""
    async with visiting(SERVERS, tmp_path) as one:
        await one.bridge.call_tool("gated/echo", {"text": "needle"})
        await one.bridge.call_tool("plain/echo", {"text": "straw"}, user="ann")
        await one.bridge.call_tool("gated/echo", {"nonsense": [1]})
        await recorded(one, 3)
        for query, count in {
            "server=gated": 2,
            "tool=echo": 3,
            "tool=plain/*": 1,
            "principal=ann": 1,
            "principal=''": 2,
            "text=needle": 1,
            "outcome=ok": 3 - 0,
            "outcome=failures": 0,
            "since=1h": 3,
            "until=1h": 0,
            "min=1h": 0,
            "max=1h": 3,
            "server=gated&text=straw": 0,
        }.items():
            if query.startswith("outcome"):
                continue  # whether an unknown argument is refused is the server's affair
            text = await one.get(f"calls?{query}")
            assert text.count('id="call-') == count, query
        page = await one.get("calls?server=gated&min=0")
        assert 'value="gated"' in page
        assert "/console/calls/export.csv?server=gated" in page


async def test_a_form_with_empty_boxes_leads_to_the_short_address(tmp_path: Path) -> None:
    async with visiting(SERVERS, tmp_path) as one:
        answer = await one.client.get("http://127.0.0.1:7000/console/calls?server=gated&tool=&text=")
        assert answer.headers["location"] == "/console/calls?server=gated"
        part = await one.client.get(
            "http://127.0.0.1:7000/console/calls?server=gated&tool=", headers={"hx-request": "true"}
        )
        assert part.headers["hx-push-url"] == "/console/calls?server=gated"
        assert "<html" not in part.text


async def test_what_is_no_filter_is_said_and_filters_nothing(tmp_path: Path) -> None:
    async with visiting(SERVERS, tmp_path) as one:
        await one.bridge.call_tool("gated/echo", {"text": "x"})
        await recorded(one, 1)
        text = await one.get("calls?since=yesterday&outcome=fine")
        assert "expected a time span" in text
        assert "there is no outcome" in text
        assert text.count('id="call-') == 1


async def test_older_calls_are_on_further_pages(tmp_path: Path) -> None:
    async with visiting(SERVERS, tmp_path) as one:
        for number in range(60):
            await one.bridge.call_tool("gated/echo", {"text": str(number)})
        text = await eventually(lambda: one.get("calls"), lambda text: "60 calls" in visible(text))
        assert text.count('id="call-') == 50
        (older,) = re.findall(r'href="/console/(calls\?before=\d+)"', text)
        rest = await one.get(older)
        assert rest.count('id="call-') == 10
        assert set(re.findall('id="call-[^"]*"', rest)).isdisjoint(re.findall('id="call-[^"]*"', text))
        assert "hx-trigger" not in rest.partition('id="calls"')[2].partition(">")[0]  # only the newest page is live


async def test_an_open_page_asks_only_for_what_is_newer(tmp_path: Path) -> None:
    """50 open pages must not read the log again and again."""
    async with visiting(SERVERS, tmp_path) as one:
        await one.bridge.call_tool("gated/echo", {"text": "1"})
        text = await recorded(one, 1)
        (look,) = re.findall(r'hx-get="/console/(calls/list\?after=\d+)"', text)
        assert await one.get(look, status=204) == ""
        await one.bridge.call_tool("gated/echo", {"text": "2"})

        async def newer() -> str:
            answer = await one.client.get(f"http://127.0.0.1:7000/console/{look}")
            return answer.text

        part = await eventually(newer, bool)
        assert part.count('id="call-') == 2
        assert await one.get(look) == part


async def test_a_running_call_stands_on_top_and_can_be_cancelled(tmp_path: Path) -> None:
    """Issue 20: running calls stand on top with Cancel."""
    async with visiting(SERVERS, tmp_path) as one, held(one, tmp_path) as call:
        text = await eventually(lambda: one.get("calls"), lambda text: "Running now" in text)
        assert "gated/pass_gate" in text
        (uid,) = re.findall(r"/calls/([0-9a-f]{16})/cancel\"", text.partition('hx-post="')[2].partition(">")[0])
        assert "running" in await one.get(f"calls/{uid}")
        assert "Running now" not in await one.get("calls/running?server=plain")
        assert "is cancelled" in await one.post(f"calls/{uid}/cancel")
        with anyio.fail_after(30):
            result = await call
        assert "a person cancelled this call" in result.text  # type: ignore[attr-defined]
        page = await eventually(lambda: one.get(f"calls/{uid}"), lambda text: ">cancelled<" in text)
        assert "Check whether the action took effect" in page
        assert "over already" in await one.post(f"calls/{uid}/cancel", status=404)
        assert "Running now" not in await one.get("calls/running")


async def test_a_terminal_gets_the_calls_under_way_and_the_last_ones(tmp_path: Path) -> None:
    """Issue 20: `mcpbridge top` shows live calls: what the control socket answers it."""
    async with visiting(SERVERS, tmp_path) as one:
        await one.bridge.call_tool("plain/echo", {"text": "one"})
        await one.bridge.call_tool("gated/echo", {"text": "two"})
        async with held(one, tmp_path):
            await eventually(lambda: live_calls(one.bridge), lambda calls: bool(calls["running"]))
            calls = await eventually(lambda: live_calls(one.bridge), lambda calls: len(calls["ended"]) == 2)
            assert [call["tool"] for call in calls["running"]] == ["gated/pass_gate"]
            assert [(call["tool"], call["outcome"]) for call in calls["ended"]] == [
                ("gated/echo", "ok"),
                ("plain/echo", "ok"),
            ]


async def test_who_may_only_look_is_offered_no_cancelling(tmp_path: Path) -> None:
    async with (
        visiting(SERVERS, tmp_path) as one,
        held(one, tmp_path),
        visit(one.bridge, "read", "watcher") as reader,
    ):
        text = await eventually(lambda: reader.get("calls"), lambda text: "Running now" in text)
        assert "Cancel" not in text
        await reader.post("calls/0000000000000001/cancel", status=403)


async def test_a_call_that_does_not_exist_is_no_error_of_the_page(tmp_path: Path) -> None:
    async with visiting(SERVERS, tmp_path) as one:
        for path in ("calls/0000000000000001", "calls/x", "calls/%00", "calls/7/log", "calls/7/cassette", "sessions/x"):
            assert "no such" in (await one.get(path, status=404)).lower()
        await one.post("calls/zzz/cancel", status=404)
        await one.post("calls/7/again", status=404)


@pytest.mark.parametrize("name", ["alice", ""])
async def test_my_calls_are_those_of_who_looks(tmp_path: Path, name: str) -> None:
    """Issue 23. The local user has no name."""
    async with visiting(SERVERS, tmp_path) as owner:
        for user in ("alice", "bob", ""):
            await owner.bridge.call_tool("plain/echo", {"text": "x"}, user=user)
        await recorded(owner, 3)
        async with visit(owner.bridge, *(("read", name) if name else ())) as one:
            answer = await one.client.get(f"{ORIGIN}/console/calls/mine")
            mine = await one.get(answer.headers["location"].removeprefix("/console/"))
            assert mine.count('id="call-') == 1
            assert ("alice" in visible(mine), "bob" in visible(mine)) == (bool(name), False)
            assert "<h1>My calls</h1>" in mine
            assert "<h1>Calls</h1>" in await recorded(one, 3)
