"""Calls that need no task come to the same as those that have one: `prompts/get` has one, `tools/call` has none."""

import asyncio
import gzip
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio
import pytest

from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.upstream.transports.streamable_http import StreamableHttpTransport
from support.upstreams.scripted_http import (
    Ask,
    HttpServer,
    Recorder,
    answer_to,
    chunk,
    event,
    events_head,
    http_server,
    reply,
    request,
    result_of,
)

LEGACY, MODERN = "2025-11-25", "2026-07-28"
PROGRESS = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}
ASKED = {"jsonrpc": "2.0", "method": "ping", "id": "p"}


def error_of(ask: Ask, id_: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": -32000, "message": "no"}}


def stream(*events: bytes, end: bool = True) -> bytes:
    return events_head() + b"".join(events) + (chunk(b"") if end else b"")


async def in_pieces(ask: Ask, *pieces: bytes) -> None:
    for piece in pieces:
        await ask.say(piece)
        await asyncio.sleep(0.02)


async def and_close(ask: Ask, data: bytes) -> None:
    await ask.say(data)
    ask.writer.close()


def text(ask: Ask, size: int) -> dict[str, Any]:
    return result_of(ask, {"content": [{"type": "text", "text": "x" * size}]})


Answer = Callable[[Ask], bytes | Awaitable[None]]
ANSWERS: Mapping[str, Answer] = {
    "json": lambda ask: reply(result_of(ask)),
    "json with a charset": lambda ask: reply(result_of(ask), content_type="application/json; charset=utf-8"),
    "json of another type": lambda ask: reply(result_of(ask), content_type="text/plain"),
    "json without a type": lambda ask: reply(result_of(ask), content_type=""),
    "pretty": lambda ask: reply(json.dumps(result_of(ask), indent=1).encode().replace(b"\n", b"\r\n")),
    "in chunks": lambda ask: (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        + b"".join(chunk(json.dumps(result_of(ask)).encode()[at : at + 7]) for at in range(0, 60, 7))
        + chunk(b"")
    ),
    "in pieces": lambda ask: in_pieces(ask, reply(result_of(ask))[:70], reply(result_of(ask))[70:]),
    "to the end of the connection": lambda ask: and_close(
        ask, b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + json.dumps(result_of(ask)).encode()
    ),
    "and the connection closes": lambda ask: reply(result_of(ask), connection="close"),
    "an interim answer first": lambda ask: b"HTTP/1.1 103 Early Hints\r\nlink: </>\r\n\r\n" + reply(result_of(ask)),
    "error": lambda ask: reply(error_of(ask, ask.id)),
    "error without an id": lambda ask: reply(error_of(ask, None)),
    "id as a text": lambda ask: reply({**result_of(ask), "id": str(ask.id)}),
    "another id": lambda ask: reply({**result_of(ask), "id": 77}),
    "batch": lambda ask: reply(json.dumps([PROGRESS, result_of(ask)]).encode()),
    "null": lambda ask: reply({**result_of(ask), "result": None}),
    "neither": lambda ask: reply({"jsonrpc": "2.0", "id": ask.id}),
    "a request": lambda ask: reply(ASKED),
    "empty": lambda ask: reply(),
    "noise": lambda ask: reply(b"<html>no</html>"),
    "broken": lambda ask: reply(json.dumps(result_of(ask)).encode()[:-3]),
    "not utf-8": lambda ask: reply(json.dumps(result_of(ask)).encode().replace(b"content", b"c\xffntent")),
    "compressed": lambda ask: reply(gzip.compress(json.dumps(result_of(ask)).encode()), content_encoding="gzip"),
    "a cookie": lambda ask: reply(result_of(ask), set_cookie="at=one"),
    "medium": lambda ask: reply(text(ask, 300_000)),
    "too large": lambda ask: reply(text(ask, 1_200_000)),
    "accepted": lambda ask: reply(status=202),
    "moved": lambda ask: reply(status=307, location="/mcp2") if ask.path == "/mcp" else reply(result_of(ask)),
    "elsewhere": lambda ask: reply(status=307, location="http://other.example/mcp"),
    "see other": lambda ask: reply(status=303, location="/mcp2"),
    "unauthorized": lambda ask: reply(status=401, www_authenticate="Bearer"),
    "session lost": lambda ask: reply(status=404),
    "method not found": lambda ask: reply(
        {"jsonrpc": "2.0", "id": ask.id, "error": {"code": -32601, "message": "x"}}, 404
    ),
    "bad request": lambda ask: reply(error_of(ask, ask.id), 400),
    "too many": lambda ask: reply(b"slow down", 429, retry_after="7"),
    "server error": lambda ask: reply(b"it failed", 500),
    "event": lambda ask: stream(event(result_of(ask))),
    "event with a type and an id": lambda ask: stream(event(result_of(ask), id="e-1", type="message")),
    "event of another type": lambda ask: stream(event({}, type="ping"), event(result_of(ask))),
    "event in two pieces": lambda ask: in_pieces(
        ask,
        events_head(),
        chunk(b"data: "),
        chunk(json.dumps(result_of(ask)).encode() + b"\n"),
        chunk(b"\n"),
        chunk(b""),
    ),
    "event after the head": lambda ask: in_pieces(ask, events_head(), event(result_of(ask)), chunk(b"")),
    "events": lambda ask: stream(event(PROGRESS), event(result_of(ask))),
    "events in one piece": lambda ask: stream(
        chunk(b"data: %b\n\ndata: %b\n\n" % (json.dumps(PROGRESS).encode(), json.dumps(result_of(ask)).encode()))
    ),
    "an event behind the answer": lambda ask: in_pieces(
        ask, events_head(), event(result_of(ask)), event(PROGRESS), chunk(b"")
    ),
    "a priming event": lambda ask: stream(event(None, id="e-0", retry=10), event(result_of(ask))),
    "a comment": lambda ask: stream(chunk(b": hello\n\n"), event(result_of(ask))),
    "a stream that stays open": lambda ask: in_pieces(ask, stream(event(result_of(ask)), end=False)),
    "a stream that breaks after the answer": lambda ask: and_close(ask, stream(event(result_of(ask)), end=False)),
    "a stream that ends early": lambda ask: stream(event(PROGRESS)),
    "a stream that is cut": lambda ask: and_close(ask, stream(event(PROGRESS), end=False)),
    "a stream that is resumed": lambda ask: stream(event(PROGRESS, id="e-1", retry=10)),
    "noise in a stream": lambda ask: stream(chunk(b"data: hello\n\n"), event(result_of(ask))),
    "a batch in a stream": lambda ask: stream(event([PROGRESS, result_of(ask)])),
    "large event": lambda ask: stream(event(text(ask, 300_000))),
    "closed before the answer": lambda ask: and_close(ask, b""),
    "closed within the answer": lambda ask: and_close(ask, reply(result_of(ask))[:-4]),
    "no http": lambda ask: and_close(ask, b"hello\r\n\r\n"),
    "another protocol": lambda ask: b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "two answers": lambda ask: reply(result_of(ask)) + reply(result_of(ask)),
}


def seen(got: Recorder) -> list[object]:
    """All that was delivered."""
    frames = [(one.method, *map(bytes, (one.id, one.params, one.result, one.error)), via) for one, via in got.messages]
    failures = [(id_, type(one.error), re.sub(r":\d+", "", str(one.error)), one.sent) for id_, one in got.failures]
    return [frames, failures, got.spoils]


class Unhurried(Recorder):
    def pause_after(self, seconds: float) -> float:
        return 0.0


async def outcome(answer: Answer, method: str, era: str, before: Answer | None = None) -> list[object]:
    """What becomes of one request, and of a plain one behind it. `before`: two calls are answered so before it."""

    async def script(ask: Ask) -> bytes | None:
        if ask.method == "GET" and "last-event-id" in ask.headers:
            return stream(event({"jsonrpc": "2.0", "id": 5, "result": {"resumed": True}}))
        if ask.method == "POST" and ask.id == 9:
            return reply(result_of(ask), mcp_session_id="s-1")
        if before is not None and ask.method == "POST" and ask.id in (7, 8):
            made = before(ask)
            assert isinstance(made, bytes)
            return made
        if ask.method != "POST" or ask.id != 5:
            return answer_to(ask)
        made = answer(ask)
        if isinstance(made, bytes):
            await ask.say(made)
        else:
            await made
        said.set()
        return None

    said = asyncio.Event()
    got = Unhurried()
    async with http_server(script) as server:
        transport = StreamableHttpTransport(
            "web", server.url, headers={"X-Own": "a, b"}, reconnect_delay=0.01, max_bytes=1_000_000
        )
        with anyio.fail_after(60):
            async with transport.connect(got) as channel:
                channel.send(request(9, "initialize" if era == LEGACY else "tools/call"))
                await got.outcome(b"9")
                channel.negotiated(era)
                if era == LEGACY:
                    channel.send(request(0, "notifications/initialized"))
                    await server.until("GET")
                channel.send(request(4, name="ä"))  # it leaves a connection behind, and the session's stream was tried
                await got.outcome(b"4")
                await anyio.sleep(0.02)
                for id_ in (7, 8) if before is not None else ():
                    channel.send(request(id_))
                    await got.outcome(b"%d" % id_)
                    await anyio.sleep(0.02)
                tasks = len(asyncio.all_tasks())
                channel.send(request(5, method, name="tool", params={"name": "tool"}))
                if method == "tools/call":
                    assert len(asyncio.all_tasks()) == tasks, "it has no task"
                await got.outcome(b"5")
                await said.wait()
                await anyio.sleep(0.05)
                channel.send(request(6, "resources/read"))
                await got.outcome(b"6")
        heads = [
            {
                **ask.headers,
                "host": "",
                "mcp-method": "",
                "path": ask.path,
                "body": ask.body.replace(method.encode(), b"METHOD"),
            }
            for ask in server.asks
            if ask.method == "POST" and ask.message.get("id") in (5, 6)
        ]
        for head in heads:
            head.pop("content-length")
        return [*seen(got), heads, transport.last_words(), repr(channel)]


@pytest.mark.parametrize("era", [LEGACY, MODERN])
@pytest.mark.parametrize("name", ANSWERS)
async def test_each_answer_comes_to_the_same_with_a_task_and_without(name: str, era: str) -> None:
    direct = await outcome(ANSWERS[name], "tools/call", era)
    assert direct == await outcome(ANSWERS[name], "prompts/get", era)


@pytest.mark.parametrize("era", [LEGACY, MODERN])
@pytest.mark.parametrize("name", ANSWERS)
async def test_each_answer_comes_to_the_same_behind_answers_with_the_same_head(name: str, era: str) -> None:
    """What is known of a head holds for the next answer only where that has this very head, and is whole."""
    is_stream = "event" in name or "stream" in name
    before: Answer = lambda ask: stream(event(result_of(ask))) if is_stream else reply(result_of(ask))  # noqa: E731
    direct = await outcome(ANSWERS[name], "tools/call", era, before)
    assert direct == await outcome(ANSWERS[name], "prompts/get", era, before)


@pytest.mark.parametrize("kind", ["json", "stream"])
@pytest.mark.parametrize("extra", ["behind an answer", "part of one behind an answer", "later, unasked", "a line end"])
async def test_an_answer_that_comes_before_its_request_is_never_taken_for_one(kind: str, extra: str) -> None:
    """Response desynchronisation: the ids of the bridge's requests can be guessed, and a proxy in between may err."""

    def answer(ask: Ask, id_: object, word: str) -> bytes:
        message = {"jsonrpc": "2.0", "id": id_, "result": {"word": word}}
        return reply(message) if kind == "json" else stream(event(message))

    async def script(ask: Ask) -> bytes | None:
        said = answer(ask, ask.id, "right")
        if ask.id == 4:
            stray = answer(ask, 5, "wrong")
            if extra == "behind an answer":
                return said + stray
            if extra == "part of one behind an answer":
                return said + stray[:60]
            if extra == "a line end":
                return said + b"\r\n"
            await ask.say(said)
            await got.outcome(b"4")
            await ask.say(stray)
            strayed.set()
            return None
        return said

    got, strayed = Recorder(), asyncio.Event()
    async with http_server(script) as server:
        with anyio.fail_after(60):
            async with StreamableHttpTransport("web", server.url, headers={}).connect(got) as channel:
                channel.negotiated(LEGACY)
                for id_ in (1, 2, 3, 4):  # the head is known from the second on
                    channel.send(request(id_))
                    await got.outcome(b"%d" % id_)
                    await anyio.sleep(0.02)
                if extra == "later, unasked":
                    await strayed.wait()
                    await anyio.sleep(0.05)
                channel.send(request(5))
                frame = await got.outcome(b"5")
                assert isinstance(frame, Frame)
                assert json.loads(bytes(frame.result)) == {"word": "right"}
                channel.send(request(6))
                await got.outcome(b"6")
        assert [bytes(one.id) for one, _ in got.messages] == [b"1", b"2", b"3", b"4", b"5", b"6"]
        assert not got.failures
        assert server.connections == (1 if extra == "a line end" else 2)


async def warm(server: HttpServer, got: Recorder, channel: Any, version: str) -> None:
    """A connection is free."""
    channel.negotiated(version)
    channel.send(request(1))
    await got.outcome(b"1")
    await anyio.sleep(0.02)


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_one_that_is_withdrawn_is_cut_in_the_modern_era_and_listened_to_in_the_legacy_one(era: str) -> None:
    async def script(ask: Ask) -> bytes | None:
        if ask.id != 2:
            return answer_to(ask)
        await ask.gone()
        return None

    got = Recorder()
    async with http_server(script) as server:
        with anyio.fail_after(60):
            async with StreamableHttpTransport("web", server.url, headers={}).connect(got) as channel:
                await warm(server, got, channel, era)
                channel.send(request(2))
                [ask] = [one for one in await server.until("tools/call", 2) if one.id == 2]
                assert channel.withdraw(b"2") is (era == MODERN)
                if era == MODERN:
                    await ask.left.wait()
                else:
                    channel.send(request(3))
                    await got.outcome(b"3")
                    assert not ask.left.is_set()
            await ask.left.wait()
        assert not got.failures


async def test_many_at_once_are_each_answered_once() -> None:
    """Exactly once: each request reaches the server once, and each gets its own answer."""

    async def script(ask: Ask) -> bytes | None:
        if ask.id and ask.id % 3 == 0:
            return stream(event(result_of(ask, {"n": ask.id})))
        if ask.id and ask.id % 7 == 0:
            return reply(result_of(ask, {"n": ask.id}), connection="close")
        return reply(result_of(ask, {"n": ask.id}))

    got = Recorder()
    async with http_server(script) as server:
        with anyio.fail_after(60):
            async with StreamableHttpTransport("web", server.url, headers={}).connect(got) as channel:
                channel.negotiated(LEGACY)
                for first in range(1, 600, 30):
                    for id_ in range(first, first + 30):
                        channel.send(request(id_))
                    for id_ in range(first, first + 30):
                        frame = await got.outcome(b"%d" % id_)
                        assert isinstance(frame, Frame)
                        assert json.loads(bytes(frame.result)) == {"n": id_}
        assert sorted(ask.id for ask in server.asks) == list(range(1, 601))
        assert len(got.messages) == 600
        assert not got.failures
        assert server.connections < 300


async def test_requests_under_way_count_for_the_limit_and_the_end_of_the_channel_cuts_them() -> None:
    async def script(ask: Ask) -> bytes | None:
        if ask.id == 1:
            return answer_to(ask)
        with suppress(ConnectionError):
            await ask.gone()
        return None

    got = Recorder()
    async with http_server(script) as server:
        transport = StreamableHttpTransport("web", server.url, headers={}, max_posts=2)
        with anyio.fail_after(60):
            async with transport.connect(got) as channel:
                await warm(server, got, channel, LEGACY)
                channel.send(request(2))
                channel.send(request(3))
                assert "2 requests under way" in repr(channel)
                with pytest.raises(Exception, match="has 2 requests under way"):
                    channel.send(request(4))
                asks = await server.until("tools/call", 3)
            for ask in asks[1:]:
                await ask.left.wait()
        assert not got.failures
