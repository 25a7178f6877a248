"""The transport of HTTP+SSE (2024-11-05): its endpoint, its POSTs, its end. The rest is in the contract suite."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import BridgeError, SessionExpired, UpstreamHttpError, UpstreamUnavailable
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.transport import Channel
from mcpbridge.upstream.transports.sse import SseTransport
from support.upstreams.scripted_http import (
    Ask,
    Failed,
    HttpServer,
    Recorder,
    Script,
    chunk,
    events_head,
    http_server,
    reply,
    request,
)

ENDPOINT = b"event: endpoint\ndata: /post?session=1\n\n"
RESULT = b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'


def streaming(
    *parts: bytes, then: Callable[[Ask], Awaitable[None]] | None = None, post: Script | None = None
) -> Script:
    """GET brings these bytes and then holds the stream, or does `then`; POSTs are taken."""

    async def script(ask: Ask) -> bytes | None:
        if ask.method == "POST":
            return await post(ask) if post is not None else reply(status=202)
        await ask.say(events_head(), *map(chunk, parts))
        await (then(ask) if then is not None else ask.gone())
        return None

    return script


@asynccontextmanager
async def connected(script: Script, **options: Any) -> AsyncIterator[tuple[Channel, Recorder, HttpServer]]:
    got = Recorder()
    with anyio.fail_after(60):
        async with http_server(script) as server:
            transport = SseTransport("up", server.url, **{"headers": {}, **options})
            async with transport.connect(got) as channel:
                yield channel, got, server


async def refusal(script: Script, **options: Any) -> BridgeError:
    with pytest.raises(BridgeError) as caught:
        async with connected(script, **options):
            raise AssertionError("not reached")
    return caught.value


# -- the endpoint


@pytest.mark.parametrize(
    ("said", "path"),
    [
        (b"/post?session=1", "/post?session=1"),
        (b"post", "/post"),
        (b"?session=2", "/mcp?session=2"),
        (b"{origin}/abs", "/abs"),
    ],
)
async def test_messages_go_to_the_endpoint_that_the_stream_names(said: bytes, path: str) -> None:
    async def script(ask: Ask) -> bytes | None:
        if ask.method == "POST":
            return reply(status=202)
        origin = f"http://{ask.headers['host']}".encode()
        await ask.say(events_head(), chunk(b"event: endpoint\ndata: " + said.replace(b"{origin}", origin) + b"\n\n"))
        await ask.gone()
        return None

    async with connected(script, headers={"Authorization": "Bearer t"}) as (channel, _, server):
        channel.send(request(1))
        (ask,) = await server.until("POST")
        assert ask.path == path
        assert ask.headers["authorization"] == "Bearer t"
        (get,) = server.seen("GET")
        assert get.headers["accept"] == "text/event-stream"
        assert get.headers["authorization"] == "Bearer t"


@pytest.mark.parametrize(
    "endpoint", [b"https://evil.example/x", b"//evil.example/x", b"http://127.0.0.1:1/x", b"ftp://127.0.0.1/"]
)
async def test_an_endpoint_on_another_origin_is_refused_and_sent_nothing(endpoint: bytes) -> None:
    """Whoever names it would get our credentials."""
    error = await refusal(streaming(b"event: endpoint\ndata: " + endpoint + b"\n\n"))
    assert isinstance(error, UpstreamUnavailable)
    assert "another origin" in error.what


async def test_a_stream_that_names_no_endpoint_is_given_up() -> None:
    error = await refusal(streaming(b": hello\n\n"), connect_timeout=1)
    assert "names no endpoint in it within 1 s" in str(error)

    async def end(ask: Ask) -> None:
        await ask.say(chunk(b""))

    assert "before it named an endpoint" in str(await refusal(streaming(b": hello\n\n", then=end)))


@pytest.mark.parametrize(
    ("status", "said"), [(401, "HTTP 401"), (404, "HTTP 404"), (405, "HTTP 405"), (503, "HTTP 503")]
)
async def test_a_refused_stream_says_why(status: int, said: str) -> None:
    async def script(ask: Ask) -> bytes | None:
        return reply({"error": "not with s3cret-token"}, status=status)

    error = await refusal(script, headers={"Authorization": "Bearer s3cret-token"})
    assert isinstance(error, UpstreamHttpError)
    assert error.status == status
    assert said in error.what
    assert "s3cret" not in str(error)


async def test_an_answer_that_is_no_stream_says_so() -> None:
    async def script(ask: Ask) -> bytes | None:
        return reply(b"<html>", content_type="text/html")

    assert "it answers GET with text/html (HTTP 200) instead of an event stream" in str(await refusal(script))


async def test_redirects_are_followed_on_the_origin_only() -> None:
    async def script(ask: Ask) -> bytes | None:
        if ask.path == "/mcp":
            return reply(status=301, location="/mcp/")
        if ask.path == "/mcp/":
            await ask.say(events_head(), chunk(b"event: endpoint\ndata: post\n\n"))
            await ask.gone()
            return None
        return reply(status=202)

    async with connected(script) as (channel, _, server):
        channel.send(request(1))
        (ask,) = await server.until("POST")
        assert ask.path == "/mcp/post"

    async def away(ask: Ask) -> bytes | None:
        return reply(status=302, location="https://evil.example/sse")

    assert "redirects to https://evil.example, which is not followed" in str(await refusal(away))


# -- the stream


async def test_events_come_in_whatever_pieces_and_forms() -> None:
    stream = (
        b"\xef\xbb\xbf" + ENDPOINT + b": comment\r\n\r\nevent: message\r\nid: 4\r\n"
        b'data: {"jsonrpc":"2.0",\r\ndata: "id":1,"result":{"\xc3\xbc":1}}\r\n\r\n'
        b"event: other\ndata: {}\n\n" + RESULT.replace(b'"id":1', b'"id":2')
    )
    async with connected(streaming(*(stream[at : at + 3] for at in range(0, len(stream), 3)))) as (_, got, _):
        outcome = await got.outcome(b"1")
        assert isinstance(outcome, Frame)
        assert bytes(outcome.result) == '{"ü":1}'.encode()
        assert isinstance(await got.outcome(b"2"), Frame)
        assert len(got.messages) == 2


async def test_messages_that_come_with_the_endpoint_are_not_lost() -> None:
    async with connected(streaming(ENDPOINT + RESULT)) as (_, got, _):
        assert isinstance(await got.outcome(b"1"), Frame)


async def test_a_compressed_stream_is_read() -> None:
    async def script(ask: Ask) -> bytes | None:
        await ask.say(events_head(content_encoding="gzip"), chunk(gzip.compress(ENDPOINT + RESULT)))
        await ask.gone()
        return None

    async with connected(script) as (_, got, _):
        assert isinstance(await got.outcome(b"1"), Frame)


@pytest.mark.parametrize(
    ("rest", "ends", "told"),
    [
        (b"", True, "it ended its event stream"),
        (b'data: {"jsonrpc":"2.0","id":1,"res', True, "its event stream was cut in the middle of a message"),
        (b"", False, "its event stream was cut: the connection was cut within the answer"),
        (RESULT[:-1], False, "its event stream was cut in the middle of a message: "),
    ],
)
async def test_a_stream_that_ends_or_is_cut_ends_the_channel(rest: bytes, ends: bool, told: str) -> None:
    """Half an event is not delivered (HTML standard): the answer in it may not be whole."""

    async def cut(ask: Ask) -> None:
        await ask.say(*([chunk(rest)] if rest else []), *([chunk(b"")] if ends else []))
        ask.writer.close()

    async with connected(streaming(ENDPOINT, then=cut)) as (_, got, _):
        await got.until(lambda got: got.closings)
        assert got.closings[0].startswith(told)
        assert got.messages == []


# -- POSTs


async def test_a_refused_post_fails_its_request_only() -> None:
    async def post(ask: Ask) -> bytes | None:
        return reply(b"no", status=500) if ask.id == 1 else reply(status=202)

    async with connected(streaming(ENDPOINT, post=post)) as (channel, got, server):
        channel.send(request(1))
        outcome = await got.outcome(b"1")
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, UpstreamHttpError)
        channel.send(request(2))
        await server.until("POST", 2)
        assert not got.closings


async def test_a_session_that_the_server_forgot_is_reported_as_such() -> None:
    async def post(ask: Ask) -> bytes | None:
        return reply(b"Could not find session", status=404)

    async with connected(streaming(ENDPOINT, post=post)) as (channel, got, _):
        channel.send(request(1, "initialize"))
        first = await got.outcome(b"1")
        assert isinstance(first, Failed)
        assert not isinstance(first.error, SessionExpired)
        channel.negotiated("2024-11-05")
        channel.send(request(2))
        second = await got.outcome(b"2")
        assert isinstance(second, Failed)
        assert isinstance(second.error, SessionExpired)


async def test_an_answer_in_the_body_of_a_post_is_not_lost() -> None:
    """No server should; some do."""

    async def post(ask: Ask) -> bytes | None:
        return reply({"jsonrpc": "2.0", "id": ask.id, "result": {}})

    async with connected(streaming(ENDPOINT, post=post)) as (channel, got, _):
        channel.send(request(1))
        assert isinstance(await got.outcome(b"1"), Frame)


async def test_a_notification_waits_for_what_was_sent_before_and_a_request_for_nobody() -> None:
    free = asyncio.Event()

    async def post(ask: Ask) -> bytes | None:
        if ask.id == 1:
            await free.wait()
        return reply(status=202)

    async with connected(streaming(ENDPOINT, post=post)) as (channel, _, server):
        channel.send(request(1))
        channel.send(request(0, "notifications/cancelled"))
        channel.send(request(2, "ping"))
        await server.until("ping")
        assert not server.seen("notifications/cancelled")
        free.set()
        await server.until("notifications/cancelled")


async def test_nothing_overtakes_the_introduction() -> None:
    free = asyncio.Event()

    async def post(ask: Ask) -> bytes | None:
        if ask.message.get("method") == "notifications/initialized":
            await free.wait()
        return reply(status=202)

    async with connected(streaming(ENDPOINT, post=post)) as (channel, _, server):
        channel.send(request(0, "notifications/initialized"))
        channel.send(request(1, "tools/list"))
        await server.until("notifications/initialized")
        assert not server.seen("tools/list")
        free.set()
        await server.until("tools/list")
