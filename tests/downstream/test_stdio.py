"""The stdio front on real pipes: order, both eras on one channel, spoiled lines, and clients that leave or stall."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcpbridge.base.process.pipes import FdReader
from mcpbridge.downstream import conversation, stdio
from mcpbridge.downstream import stdio as line_channel
from mcpbridge.downstream.stdio import serve_stdio
from mcpbridge.library.bridge import Bridge
from support.harness import Place, python_server
from support.in_process_bridge import bridged, envelope
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport

Message = dict[str, Any]

SILENT_CALLS = {**LEGACY_SERVER, "tools/call": SILENCE}
CALL = {"name": "up__echo", "arguments": {}}


def request(method: str, id_: int | str = 1, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def note(method: str, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def opening(version: str = "2025-11-25", id_: int | str = "init", **capabilities: Any) -> Message:
    return request("initialize", id_, protocolVersion=version, capabilities=capabilities, clientInfo={"name": "c"})


class Channel:
    """The client's ends of the two pipes, and the front behind them."""

    def __init__(self, front: asyncio.Task[None], into: int, out: int) -> None:
        self.front, self._into, self._out = front, into, out
        self.lines: list[Any] = []
        self._rest = b""
        self._news = asyncio.Event()
        self._reader: FdReader | None = None

    def write(self, *messages: Message | list[Any] | bytes) -> None:
        """Send lines, all at once."""
        lines = (m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages)
        os.write(self._into, b"".join(line + b"\n" for line in lines))

    def read(self) -> None:
        """Begin to take what the bridge writes."""
        self._reader = FdReader(self._out, self._arrived, self._news.set)

    async def answer(self, id_: Any) -> Message:
        """The answer to this id, come or to come."""
        await self.until(lambda: any(is_answer(line, id_) for line in self.lines))
        [found] = [line for line in self.lines if is_answer(line, id_)]
        return found

    async def until(self, is_true: Any) -> None:
        with anyio.fail_after(30):
            while not is_true():
                self._news.clear()
                await self._news.wait()

    async def ask(self, method: str, id_: int | str, **params: Any) -> Message:
        self.write(request(method, id_, **params))
        return await self.answer(id_)

    def leave(self) -> None:
        """Close the client's side of the input."""
        if self._into >= 0:
            os.close(self._into)
            self._into = -1

    def hang_up(self) -> None:
        """Close the other pipe too: nothing can be written any more."""
        if self._reader is not None:
            self._reader.close()
        if self._out >= 0:
            os.close(self._out)
            self._out = -1

    async def ended(self) -> None:
        with anyio.fail_after(30):
            await self.front

    def _arrived(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.lines += [json.loads(line) for line in lines]
        self._news.set()


def is_answer(line: Any, id_: Any) -> bool:
    return isinstance(line, dict) and "method" not in line and line["id"] == id_


@asynccontextmanager
async def fronted(bridge: Bridge, *, reads: bool = True, **settings: Any) -> AsyncIterator[Channel]:
    """The front, and a client on its pipes that has said nothing yet."""
    in_fd, into = os.pipe()
    out, out_fd = os.pipe()
    front = asyncio.create_task(serve_stdio(bridge.server, in_fd=in_fd, out_fd=out_fd, **settings))
    channel = Channel(front, into, out)
    if reads:
        channel.read()
    try:
        yield channel
        channel.leave()
    finally:
        front.cancel()
        await asyncio.wait([front])
        channel.leave()
        channel.hang_up()
        os.close(in_fd)
        os.close(out_fd)


@asynccontextmanager
async def opened(script: Any = LEGACY_SERVER, **settings: Any) -> AsyncIterator[tuple[Channel, ScriptedTransport]]:
    """The same with a bridge to one server, `up`."""
    transport = ScriptedTransport(script)
    async with bridged({"up": transport}) as bridge, fronted(bridge, **settings) as channel:
        yield channel, transport


# -- requests


async def test_the_handshake_and_what_follows_may_come_in_one_piece() -> None:
    async with opened() as (channel, _):
        channel.write(
            opening(), note("notifications/initialized"), request("tools/list"), request("tools/call", 2, **CALL)
        )
        assert (await channel.answer("init"))["result"]["protocolVersion"] == "2025-11-25"
        assert (await channel.answer(1))["result"]["tools"]
        assert (await channel.answer(2))["result"]["content"]


async def test_answers_leave_as_they_come() -> None:
    async with opened(SILENT_CALLS) as (channel, transport):
        channel.write(opening(), request("tools/call", 1, **CALL), request("ping", 2))
        await channel.answer(2)
        asked = await transport.hears("tools/call")
        transport.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}})
        assert (await channel.answer(1))["result"] == {"content": []}


async def test_both_eras_may_be_mixed_on_one_channel() -> None:
    """MCP 2026-07-28, Versioning and Compatibility: a server may serve both; the era is that of the request."""
    async with opened() as (channel, _):
        found = await channel.ask("server/discover", "d", _meta=envelope())
        assert "2026-07-28" in found["result"]["supportedVersions"]
        assert "resultType" in (await channel.ask("tools/call", 1, **CALL, _meta=envelope()))["result"]
        assert (await channel.ask("tools/list", 2))["error"]["code"] == -32602, "no handshake, and no envelope any more"
        channel.write(opening("2025-03-26"))
        await channel.answer("init")
        assert "resultType" not in (await channel.ask("tools/call", 3, **CALL))["result"]
        assert "resultType" in (await channel.ask("tools/call", 4, **CALL, _meta=envelope()))["result"]
        bad = {**envelope(), "io.modelcontextprotocol/protocolVersion": "2031-01-01"}
        assert (await channel.ask("tools/list", 5, _meta=bad))["error"]["code"] == -32022


async def test_a_cancellation_reaches_a_request_that_came_in_the_same_piece() -> None:
    async with opened(SILENT_CALLS) as (channel, transport):
        channel.write(opening())
        await channel.answer("init")
        channel.write(
            request("tools/call", 7, **CALL), note("notifications/cancelled", requestId=7), request("ping", 8)
        )
        await channel.answer(8)
        if transport.asked("tools/call"):
            await transport.hears("notifications/cancelled")
        channel.write(request("ping", 7))
        assert (await channel.answer(7))["result"] == {}, "the id is free, and got no answer before"


@pytest.mark.parametrize("meta", [{}, {"_meta": envelope()}], ids=["legacy", "modern"])
async def test_a_cancelled_request_of_either_era_gets_no_answer(meta: Message) -> None:
    async with opened(SILENT_CALLS) as (channel, transport):
        channel.write(opening(), request("tools/call", 7, **CALL, **meta))
        await transport.hears("tools/call")
        channel.write(note("notifications/cancelled", requestId=7))
        await transport.hears("notifications/cancelled")
        channel.write(request("ping", 8))
        await channel.answer(8)
        assert [line["id"] for line in channel.lines] == ["init", 8]


async def test_progress_and_changes_are_written_between_answers() -> None:
    async with opened(SILENT_CALLS) as (channel, transport):
        channel.write(opening(), note("notifications/initialized"))
        channel.write(request("tools/call", 1, **CALL, _meta={"progressToken": "t"}))
        token = (await transport.hears("tools/call"))["params"]["_meta"]["progressToken"]
        transport.line.says("notifications/progress", progressToken=token, progress=1)
        transport.script["tools/list"] = {"tools": []}
        transport.line.says("notifications/tools/list_changed")
        await channel.until(lambda: len(channel.lines) == 3)
        assert [line.get("method") for line in channel.lines[1:]] == [
            "notifications/progress",
            "notifications/tools/list_changed",
        ]


# -- batches


async def test_a_batch_is_answered_with_a_batch_in_the_one_revision_that_has_them() -> None:
    async with opened() as (channel, _):
        channel.write(opening("2025-03-26"))
        await channel.answer("init")
        strays = [{"jsonrpc": "2.0", "id": 9}, {"jsonrpc": "2.0", "id": 10, "result": {}}, {"id": 11, "method": 5}, 5]
        channel.write(
            [request("ping", 1), note("notifications/initialized"), request("tools/call", "b", **CALL), *strays]
        )
        await channel.until(lambda: isinstance(channel.lines[-1], list))
        answers = {answer["id"]: answer for answer in channel.lines[-1]}
        assert answers[1]["result"] == {}
        assert answers["b"]["result"]["content"]
        assert {answers[id_]["error"]["code"] for id_ in (9, 11, None)} == {-32600}
        assert len(channel.lines[-1]) == 5


async def test_a_batch_of_notifications_is_answered_with_nothing() -> None:
    async with opened() as (channel, _):
        channel.write(opening("2025-03-26"), [note("notifications/initialized")], request("ping", 2))
        await channel.answer(2)
        assert len(channel.lines) == 2


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_a_batch_in_another_revision_is_refused(version: str) -> None:
    async with opened() as (channel, _):
        channel.write(opening(version), [request("ping", 1)], request("ping", 2))
        await channel.answer(2)
        refused = await channel.answer(None)
        assert refused["error"]["code"] == -32600
        assert "2025-03-26" in refused["error"]["message"]


async def test_an_empty_batch_is_refused() -> None:
    """JSON-RPC 2.0, section 6."""
    async with opened() as (channel, _):
        channel.write(opening("2025-03-26"), [])
        assert (await channel.answer(None))["error"]["code"] == -32600


# -- spoiled lines


@pytest.mark.parametrize(
    ("line", "id_", "code"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"ping",}', 7, -32700),
        (b'{"jsonrpc":"2.0","id":"a","method":"ping","params":{"x":"cut', "a", -32700),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', 7, -32600),
        (b'{"jsonrpc":"2.0","id":7}', 7, -32600),
        (b"{}", None, -32600),
        (b"hello", None, -32700),
        (b"42", None, -32600),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 7, -32600),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"' + b"y" * 50_000 + b'"}}', 7, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None, -32600),
    ],
    ids=["comma", "cut", "wrong type", "no method", "empty", "text", "number", "deep", "too long", "null id"],
)
async def test_a_spoiled_line_is_answered_by_its_id_and_the_next_one_works(line: bytes, id_: Any, code: int) -> None:
    """Issue 2: the caller must not wait for its deadline."""
    async with opened(max_frame=40_000) as (channel, _):
        writing = asyncio.get_running_loop().run_in_executor(None, channel.write, line)
        assert (await channel.answer(id_))["error"]["code"] == code
        await writing
        channel.write(request("ping", "next"))
        assert (await channel.answer("next"))["result"] == {}


async def test_an_answer_to_nothing_is_ignored() -> None:
    async with opened() as (channel, _):
        channel.write(
            {"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": 2, "error": {}}, request("ping", 3)
        )
        await channel.answer(3)
        assert len(channel.lines) == 1


async def test_a_request_over_several_lines_is_put_together_or_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_channel, "PRETTY_WAIT", 0.02)
    async with opened() as (channel, _):
        channel.write(json.dumps(request("ping", 1), indent=2).encode())
        assert (await channel.answer(1))["result"] == {}
        channel.write(b'{"jsonrpc":"2.0","id":2,')
        channel.write(b'"method":')
        assert (await channel.answer(2))["error"]["code"] == -32700


async def test_a_last_request_without_a_line_end_is_answered() -> None:
    async with opened() as (channel, _):
        os.write(channel._into, json.dumps(request("ping", 1)).encode())
        channel.leave()
        assert (await channel.answer(1))["result"] == {}
        await channel.ended()


# -- clients that leave or stall


async def test_requests_under_way_when_the_input_ends_are_still_answered() -> None:
    async with opened(SILENT_CALLS) as (channel, transport):
        channel.write(opening(), request("tools/call", 1, **CALL))
        asked = await transport.hears("tools/call")
        channel.leave()
        await asyncio.sleep(0)
        transport.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}})
        assert (await channel.answer(1))["result"] == {"content": []}
        await channel.ended()
        assert not transport.asked("notifications/cancelled")


async def test_a_question_to_a_client_that_left_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can answer no more, so nobody waits for that until the grace is over."""
    monkeypatch.setattr(stdio, "END_GRACE", 3600)
    async with opened(SILENT_CALLS) as (channel, transport):
        channel.write(opening(elicitation={}), note("notifications/initialized"), request("tools/call", 1, **CALL))
        asked = await transport.hears("tools/call")
        question = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
        ask = {"jsonrpc": "2.0", "method": "elicitation/create", "params": question}
        transport.line.gives({**ask, "id": "before"})
        await channel.until(lambda: any(line.get("method") == "elicitation/create" for line in channel.lines))
        channel.leave()
        assert "gone" in (await transport.answer("before"))["error"]["message"]
        transport.line.gives({**ask, "id": "after"})
        assert "error" in await transport.answer("after")
        transport.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}})
        assert (await channel.answer(1))["result"] == {"content": []}
        await channel.ended()


async def test_requests_that_take_longer_than_the_grace_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "END_GRACE", 0.02)
    async with opened(SILENT_CALLS) as (channel, transport):
        channel.write(opening(), request("tools/call", 1, **CALL))
        await transport.hears("tools/call")
        channel.leave()
        await channel.ended()
        await transport.hears("notifications/cancelled")


async def test_requests_of_a_client_that_is_gone_are_cancelled_at_once() -> None:
    async with opened(SILENT_CALLS) as (channel, transport):
        channel.write(opening(), request("tools/call", 1, **CALL))
        await transport.hears("tools/call")
        channel.hang_up()
        channel.leave()
        await channel.ended()
        await transport.hears("notifications/cancelled")


async def test_a_client_that_stops_listening_is_noticed_at_the_next_answer() -> None:
    async with opened(SILENT_CALLS) as (channel, transport):
        channel.write(opening(), request("tools/call", 1, **CALL))
        await transport.hears("tools/call")
        channel.hang_up()
        channel.write(request("ping", 2))
        await channel.ended()
        await transport.hears("notifications/cancelled")


async def test_a_client_that_does_not_read_is_read_no_further_and_loses_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_channel, "READ_LIMIT", 50_000)
    long = {"content": [{"type": "text", "text": "x" * 100_000}]}
    script = {**LEGACY_SERVER, "tools/call": long}
    async with opened(script, reads=False) as (channel, transport):
        channel.write(opening())
        for number in range(40):
            channel.write(request("tools/call", number, **CALL))
            for _ in range(10):  # turns of the loop: enough for a request that is read to be answered
                await asyncio.sleep(0)
        assert len(transport.asked("tools/call")) < 40, "the rest waits in the pipe"
        channel.read()
        for number in range(40):
            assert (await channel.answer(number))["result"] == long


async def test_notifications_to_a_client_that_does_not_read_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are level triggers or decoration; answers are not dropped."""
    monkeypatch.setattr(conversation, "PUSH_LIMIT", 1000)
    noisy = {**LEGACY_SERVER, "logging/setLevel": {}}
    async with opened(noisy, reads=False) as (channel, transport):
        channel.write(opening(), request("logging/setLevel", 1, level="debug"), request("tools/list", 2))
        for number in range(100):
            transport.line.says("notifications/message", level="info", data="z" * 5000 + str(number))
            await asyncio.sleep(0)
        channel.write(request("ping", 3))
        await asyncio.sleep(0)
        channel.read()
        await channel.answer(3)
        assert len([line for line in channel.lines if "method" in line]) < 100


async def test_a_client_that_neither_reads_nor_leaves_does_not_keep_the_front_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the servers behind the bridge would live on with it."""
    monkeypatch.setattr(stdio, "FLUSH_PATIENCE", 0.02)
    long = {"content": [{"type": "text", "text": "x" * 3_000_000}]}
    async with opened({**LEGACY_SERVER, "tools/call": long}, reads=False) as (channel, transport):
        channel.write(opening(), request("tools/call", 1, **CALL))
        await transport.hears("tools/call")
        channel.leave()
        await channel.ended()


async def test_two_clients_of_one_bridge_do_not_hear_each_other() -> None:
    transport = ScriptedTransport(SILENT_CALLS)
    async with bridged({"up": transport}) as bridge, fronted(bridge) as first, fronted(bridge) as second:
        for channel in (first, second):
            channel.write(opening(id_=1), request("tools/call", 2, **CALL))
        await transport.hears("tools/call", times=2)
        second.write(note("notifications/cancelled", requestId=2))
        await transport.hears("notifications/cancelled")
        for number, sent in enumerate(transport.asked("tools/call")):
            transport.line.gives({"jsonrpc": "2.0", "id": sent["id"], "result": {"n": number}})
        assert (await first.answer(2))["result"]["n"] in (0, 1)
        second.write(request("ping", 3))
        await second.answer(3)
        assert [line["id"] for line in second.lines] == [1, 3]


# -- as people type it


async def test_requests_from_a_pipe_are_answered_into_a_pipe(place: Place) -> None:
    config = place.config({"up": python_server("plain")})
    lines = [
        opening(),
        note("notifications/initialized"),
        request("tools/call", 1, name="up__echo", arguments={"text": "hi"}),
    ]
    said = " ".join(shlex.quote(json.dumps(line)) for line in lines)
    serve = shlex.join([sys.executable, "-m", "mcpbridge", "serve", "--config", str(config)])
    shell = await asyncio.create_subprocess_shell(
        f"printf '%s\\n' {said} | {serve} 2>/dev/null | cat", stdout=subprocess.PIPE, env=place.environment()
    )
    with anyio.fail_after(60):
        out, _ = await shell.communicate()
    answers = {line["id"]: line for line in map(json.loads, out.splitlines()) if "id" in line}
    assert answers[1]["result"]["content"][0]["text"] == "hi"
    assert not place.survivors()


async def test_requests_from_a_file_are_answered_into_a_file(place: Place) -> None:
    config = place.config({"up": python_server("plain")})
    requests, answers = place.folder / "requests", place.folder / "answers"
    requests.write_text("\n".join(json.dumps(line) for line in (opening(), request("tools/list", 1))))
    with requests.open() as given, answers.open("w") as taken:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mcpbridge", "serve", "--config", str(config)),
            stdin=given,
            stdout=taken,
            stderr=subprocess.DEVNULL,
            env=place.environment(),
        )
        with anyio.fail_after(60):
            assert await process.wait() == 0
    found = {line["id"]: line for line in map(json.loads, answers.read_text().splitlines()) if "id" in line}
    assert any(tool["name"] == "up__echo" for tool in found[1]["result"]["tools"])
