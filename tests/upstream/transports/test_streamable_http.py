"""The streamable HTTP transport against servers that behave, misbehave and vanish."""

import asyncio
import gzip
import json
import re
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest

from mcpbridge.base.errors import (
    BridgeError,
    ConfigError,
    Overloaded,
    SessionExpired,
    UpstreamGarbled,
    UpstreamGone,
    UpstreamHttpError,
    UpstreamUnavailable,
)
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.transport import Channel, Outgoing
from mcpbridge.upstream.transports.streamable_http import StreamableHttpTransport
from support.upstreams.scripted_http import (
    Ask,
    Failed,
    HttpServer,
    Recorder,
    Script,
    Spoiled,
    answer_to,
    chunk,
    closed_port,
    deaf_socket,
    event,
    events_head,
    http_server,
    reply,
    request,
    result_of,
)

LEGACY, MODERN = "2025-11-25", "2026-07-28"
INITIALIZED = request(0, "notifications/initialized")
PROGRESS = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}


class Bench:
    """A channel to a scripted server, and what came of it."""

    def __init__(self, server: HttpServer, channel: Channel, got: Recorder, transport: StreamableHttpTransport) -> None:
        self.server, self.channel, self.got, self.transport = server, channel, got, transport

    async def ask(self, id_: int, method: str = "tools/call", **details: Any) -> Frame | Failed | Spoiled:
        self.channel.send(request(id_, method, **details))
        return await self.got.outcome(b"%d" % id_)

    async def handshake(self, version: str = LEGACY) -> None:
        outcome = await self.ask(9000, "initialize")
        assert isinstance(outcome, Frame), outcome
        self.channel.negotiated(version)
        self.channel.send(INITIALIZED)
        await self.server.until("notifications/initialized")


@asynccontextmanager
async def bench(script: Script, **options: Any) -> AsyncIterator[Bench]:
    got = Recorder()
    async with http_server(script) as server:
        options = {"headers": {}, "reconnect_delay": 0.01, **options}
        transport = StreamableHttpTransport("web", server.url, **options)
        with anyio.fail_after(60):
            async with transport.connect(got) as channel:
                yield Bench(server, channel, got, transport)
        assert got.closings == [] or options.get("may_close")


def session_server(on_call: Script) -> Script:
    """A legacy server with a session; `on_call` answers everything but the handshake."""

    async def script(ask: Ask) -> bytes | None:
        if ask.method == "POST" and ask.message.get("method") == "initialize":
            return reply(result_of(ask), mcp_session_id="s-1")
        if ask.method == "DELETE" or (ask.method == "POST" and not ask.id):
            return reply(status=202)
        if ask.method == "GET" and "last-event-id" not in ask.headers:
            return reply(status=405)
        return await on_call(ask)

    return script


async def plain(ask: Ask) -> bytes | None:
    return answer_to(ask)


def error_of(outcome: object, kind: type[BridgeError], *, sent: bool) -> BridgeError:
    assert isinstance(outcome, Failed), outcome
    assert isinstance(outcome.error, kind), outcome.error
    assert outcome.sent is sent
    return outcome.error


# -- answers


async def test_a_json_answer_is_delivered_for_its_request() -> None:
    async with bench(plain) as b:
        outcome = await b.ask(1)
        assert isinstance(outcome, Frame)
        assert bytes(outcome.result) == b'{"content": []}'
        assert b.got.messages[0][1] == b"1"
        (ask,) = b.server.asks
        assert ask.headers["accept"] == "application/json, text/event-stream"
        assert ask.headers["content-type"] == "application/json"
        assert "mcp-session-id" not in ask.headers


async def test_pretty_printed_json_comes_out_on_one_line() -> None:
    """A raw slice of it may go to a client on a line-delimited channel."""

    async def script(ask: Ask) -> bytes:
        return reply(json.dumps(result_of(ask, {"a": [1, 2]}), indent=2).encode().replace(b"\n", b"\r\n"))

    async with bench(script) as b:
        outcome = await b.ask(1)
        assert isinstance(outcome, Frame)
        assert not {b"\r", b"\n"} & {bytes([byte]) for byte in bytes(outcome.result)}
        assert json.loads(bytes(outcome.result)) == {"a": [1, 2]}


async def test_events_are_delivered_as_they_come() -> None:
    went_on = asyncio.Event()

    async def script(ask: Ask) -> None:
        await ask.say(events_head(), chunk(b": hello\n\n"), event(PROGRESS), event("ignored", type="other"))
        await went_on.wait()
        await ask.say(event(result_of(ask)), chunk(b""))

    async with bench(script) as b:
        b.channel.send(request(1))
        await b.got.until(lambda got: got.messages)
        went_on.set()  # the answer can only follow what was heard before
        assert isinstance(await b.got.outcome(b"1"), Frame)
        assert [(frame.method, via) for frame, via in b.got.messages] == [("notifications/progress", b"1"), ("", b"1")]


async def test_a_batch_is_delivered_one_by_one() -> None:
    async def script(ask: Ask) -> bytes:
        return reply(json.dumps([PROGRESS, result_of(ask)]).encode())

    async with bench(script) as b:
        assert isinstance(await b.ask(1), Frame)
        assert len(b.got.messages) == 2


async def test_an_event_of_3_mb_crosses() -> None:
    text = "x" * (3 << 20)

    async def script(ask: Ask) -> None:
        await ask.say(events_head(), event(result_of(ask, {"text": text})), chunk(b""))

    async with bench(script) as b:
        outcome = await b.ask(1)
        assert isinstance(outcome, Frame)
        assert len(bytes(outcome.result)) > len(text)


async def test_a_stream_left_open_after_the_answer_costs_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.upstream.transports.http_streams._TAIL_SECONDS", 0.01)

    async def script(ask: Ask) -> None:
        await ask.say(events_head(), event(result_of(ask)))
        await ask.gone()

    async with bench(script, max_posts=1) as b:
        assert isinstance(await b.ask(1), Frame)
        await b.server.asks[0].left.wait()  # closed by us
        assert isinstance(await b.ask(2), Frame)


# -- what cannot be read


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":', Spoiled),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":}}', Spoiled),
        (b'{"jsonrpc":"2.0","result":[1,,2]}', Spoiled),
        (b'{"result":' + b"[" * 100_000 + b"]" * 100_000 + b',"id":1}', Spoiled),
        (b"", Failed),
        (b'{"jsonrpc":"2.0","id":77,"result":{}}', Failed),
        (b'{"jsonrpc":"2.0","method":"notifications/message"}', Failed),
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"result":{}}', Frame),
        (b'{"jsonrpc":"2.0","id":1,"result":{"text":"\xff"}}', Frame),
        (b'{"jsonrpc":"2.0","id":1,"result":{"text":"\\ud83d"}}', Frame),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}', Frame),
        (b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"}}', Frame),
    ],
)
async def test_whatever_a_body_holds_its_request_is_settled(body: bytes, expected: type) -> None:
    """Issue 2: nobody waits for the deadline because an answer is spoiled."""

    async def script(ask: Ask) -> bytes:
        return reply(body) if ask.id == 1 else answer_to(ask)

    async with bench(script) as b:
        outcome = await b.ask(1)
        assert isinstance(outcome, expected), outcome
        assert isinstance(await b.ask(2), Frame)
        assert len(b.got.failures) + len(b.got.spoils) == (0 if expected is Frame else 1)


async def test_a_spoiled_event_settles_its_request_and_one_that_is_no_answer_does_not() -> None:
    async def script(ask: Ask) -> None:
        bad_notice = chunk(b'data: {"method":"notifications/message","params":{"a":}}\n\n')
        await ask.say(events_head(), bad_notice)
        bad_answer = chunk(b'data: {"id":1,"result":{"a":}}\n\n')
        await ask.say(bad_answer if ask.id == 1 else event(result_of(ask)), chunk(b""))

    async with bench(script) as b:
        outcome = await b.ask(1)
        assert isinstance(outcome, Spoiled)
        assert isinstance(await b.ask(2), Frame)
        assert [spoiled.ids for spoiled in b.got.spoils] == [[b"1"]]


async def test_a_gzip_bomb_is_refused_before_it_is_unpacked() -> None:
    """200 kB that unpack to 200 MB cost the SDK's client 1.2 GB."""
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b" " * (1 << 20)) for _ in range(200)) + packer.flush()

    async def script(ask: Ask) -> bytes:
        return reply(bomb, content_encoding="gzip") if ask.id == 1 else answer_to(ask)

    async with bench(script, max_bytes=4 << 20) as b:
        tracemalloc.start()
        try:
            error = error_of(await b.ask(1), UpstreamGarbled, sent=True)
            assert tracemalloc.get_traced_memory()[1] < 20 << 20
        finally:
            tracemalloc.stop()
        assert "over the limit" in str(error)
        assert isinstance(await b.ask(2), Frame)


async def test_compressed_answers_are_unpacked_and_broken_ones_fail_their_call_alone() -> None:
    async def script(ask: Ask) -> bytes:
        packed = gzip.compress(json.dumps(result_of(ask)).encode())
        return reply(packed if ask.id != 1 else packed[:12] + b"broken" + packed[18:], content_encoding="gzip")

    async with bench(script) as b:
        error_of(await b.ask(1), UpstreamGarbled, sent=True)
        assert isinstance(await b.ask(2), Frame)


async def test_a_compressed_event_stream_is_unpacked() -> None:
    async def script(ask: Ask) -> bytes:
        stream = f"data: {json.dumps(result_of(ask))}\n\n".encode()
        return reply(gzip.compress(stream), content_type="text/event-stream", content_encoding="gzip")

    async with bench(script) as b:
        assert isinstance(await b.ask(1), Frame)


async def test_an_event_over_the_limit_fails_its_call_alone() -> None:
    async def script(ask: Ask) -> bytes | None:
        if ask.id != 1:
            return answer_to(ask)
        await ask.say(events_head())
        await ask.say(*[chunk(b"data: " + b"x" * 50_000)] * 50)
        await ask.gone()
        return None

    async with bench(script, max_bytes=1 << 20) as b:
        error_of(await b.ask(1), UpstreamGarbled, sent=True)
        assert isinstance(await b.ask(2), Frame)


async def test_a_web_page_instead_of_an_answer_is_named_as_such() -> None:
    async def script(ask: Ask) -> bytes:
        return reply(b"<html>hi</html>", content_type="text/html; charset=utf-8")

    async with bench(script) as b:
        error = error_of(await b.ask(1), UpstreamHttpError, sent=True)
        assert "text/html" in str(error)


async def test_a_request_that_is_accepted_and_not_answered_fails_at_once() -> None:
    async def script(ask: Ask) -> bytes:
        return reply(status=202)

    async with bench(script) as b:
        error_of(await b.ask(1), UpstreamGarbled, sent=True)


# -- refusals


@pytest.mark.parametrize(
    ("status", "headers", "body", "said", "sent"),
    [
        (401, {}, b'{"error": "invalid_token", "error_description": "expired"}', "expired", False),
        (401, {}, b'{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"sign in"}}', "sign in", False),
        (403, {"content_type": "text/plain"}, b"not you,\n\n  s3cret-value", "not you, [redacted]", False),
        (404, {"content_type": "text/html"}, b"<html><title>Not &amp; found</title>", "Not & found", False),
        (429, {"retry_after": "7"}, b"", "HTTP 429 Too Many Requests", False),
        (503, {"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, b"busy", "busy", True),
        (500, {}, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"boom"}}', "boom", True),
        (599, {}, b"x" * 5000, "x…", True),
        (302, {"location": "https://user:pw@elsewhere.example/login?a=b"}, b"", "https://elsewhere.example,", False),
        (307, {"location": "http://[bad"}, b"", "redirect", False),
    ],
)
async def test_a_status_is_reported_as_what_it_is(
    status: int, headers: dict[str, str], body: bytes, said: str, sent: bool
) -> None:
    async def script(ask: Ask) -> bytes:
        return reply(body, status, **headers)

    async with bench(script, headers={"Authorization": "Bearer s3cret-value"}) as b:
        error = error_of(await b.ask(1), UpstreamHttpError, sent=sent)
        assert isinstance(error, UpstreamHttpError)
        assert error.status == status
        assert said in str(error)
        assert len(str(error)) < 400
        assert "pw" not in str(error)
        assert b.transport.last_words() in str(error)
        assert error.retry_after == {429: 7, 503: 0}.get(status)
        assert b.server.asks[0].headers["authorization"] == "Bearer s3cret-value"


@pytest.mark.parametrize("id_", ["1", "null"])
async def test_an_error_answer_under_a_refusal_is_the_answer(id_: str) -> None:
    """MCP 2026-07-28, Streamable HTTP: protocol errors come with 400 and 404 and say more than these."""

    async def script(ask: Ask) -> bytes:
        error = '{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":{"supported":[]}}}'
        return reply((error % id_).encode(), 400)

    async with bench(script) as b:
        outcome = await b.ask(1)
        assert isinstance(outcome, Frame)
        assert b"-32022" in bytes(outcome.error)


async def test_a_body_that_never_ends_does_not_hold_up_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.upstream.transports.streamable_http._ERROR_SECONDS", 0.01)

    async def script(ask: Ask) -> None:
        await ask.say(b"HTTP/1.1 500 No\r\ncontent-length: 100\r\n\r\n")
        await ask.gone()

    async with bench(script) as b:
        error_of(await b.ask(1), UpstreamHttpError, sent=True)


async def test_a_redirect_is_followed_on_the_same_origin_only() -> None:
    async def script(ask: Ask) -> bytes:
        return reply(status=307, location="/mcp/") if ask.path == "/mcp" else answer_to(ask)

    async with bench(script) as b:
        assert isinstance(await b.ask(1), Frame)
        assert [ask.path for ask in b.server.asks] == ["/mcp", "/mcp/"]

    async def elsewhere(ask: Ask) -> bytes:
        return reply(status=307, location="http://127.0.0.2:1/mcp")

    async with bench(elsewhere) as b:
        assert "127.0.0.2" in str(error_of(await b.ask(1), UpstreamHttpError, sent=False))

    async def circle(ask: Ask) -> bytes:
        return reply(status=308, location="/mcp")

    async with bench(circle) as b:
        assert "circle" in str(error_of(await b.ask(1), UpstreamHttpError, sent=False))


# -- connections


async def test_nobody_there_means_nothing_was_sent() -> None:
    got = Recorder()
    with anyio.fail_after(30), closed_port() as port:
        url = f"http://127.0.0.1:{port}/mcp"
        async with StreamableHttpTransport("web", url, headers={}).connect(got) as channel:
            channel.send(request(1))
            error = error_of(await got.outcome(b"1"), UpstreamUnavailable, sent=False)
        assert re.fullmatch(r"Server 'web': connection refused: 127\.0\.0\.1:\d+", str(error))


async def test_a_connection_lost_before_the_answer_leaves_the_outcome_open() -> None:
    async def script(ask: Ask) -> bytes | None:
        if ask.id != 1:
            return answer_to(ask)
        ask.writer.close()
        return None

    async with bench(script) as b:
        error_of(await b.ask(1), UpstreamGone, sent=True)
        assert isinstance(await b.ask(2), Frame)


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_a_stream_cut_before_the_answer_leaves_the_outcome_open(version: str) -> None:
    """Without an event id there is nothing to resume; the modern era has no resumption at all."""

    async def script(ask: Ask) -> None:
        if ask.method == "POST":
            await ask.say(events_head(), event(PROGRESS, id="7" if version == MODERN else ""))
        ask.writer.close()

    async with bench(script) as b:
        b.channel.negotiated(version)
        error_of(await b.ask(1), UpstreamGone, sent=True)
        assert [ask.method for ask in b.server.asks] == ["POST"]


async def test_more_than_the_limit_at_once_is_refused_unsent_and_notifications_still_go() -> None:
    gate = asyncio.Event()

    async def script(ask: Ask) -> bytes:
        if ask.id:
            await gate.wait()
        return answer_to(ask)

    async with bench(script, max_posts=3) as b:
        for id_ in (1, 2, 3):
            b.channel.send(request(id_))
        with pytest.raises(Overloaded):
            b.channel.send(request(4))
        b.channel.send(request(0, "notifications/cancelled"))
        await b.server.until("notifications/cancelled")
        gate.set()
        for id_ in (b"1", b"2", b"3"):
            assert isinstance(await b.got.outcome(id_), Frame)
        assert isinstance(await b.ask(5), Frame)
        assert len(b.server.seen("tools/call")) == 4


async def test_256_requests_at_once_wait_for_none_of_each_other() -> None:
    gate = asyncio.Event()

    async def script(ask: Ask) -> bytes:
        await gate.wait()
        return answer_to(ask)

    async with bench(script) as b:
        for id_ in range(1, 257):
            b.channel.send(request(id_))
        with pytest.raises(Overloaded):
            b.channel.send(request(257))
        await b.server.until("tools/call", 256)  # all there while none is answered
        gate.set()
        await b.got.until(lambda got: len(got.messages) == 256)


async def test_cookies_keep_a_session_on_one_machine() -> None:
    """Load balancers answer with a cookie that names the machine."""

    async def script(ask: Ask) -> bytes:
        return answer_to(ask, set_cookie="machine=b7; Path=/")

    async with bench(script) as b:
        await b.ask(1)
        await b.ask(2)
        assert [ask.headers.get("cookie") for ask in b.server.asks] == [None, "machine=b7"]


async def test_a_client_of_ones_own_does_the_sending() -> None:
    class Sign(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
            request.headers["Authorization"] = "Bearer fresh"
            yield request

    async with bench(plain, client_factory=lambda url: httpx2.AsyncClient(auth=Sign(), timeout=60)) as b:
        assert isinstance(await b.ask(1), Frame)
        assert b.server.asks[0].headers["authorization"] == "Bearer fresh"


async def test_what_a_user_of_the_channel_raises_comes_out_as_it_is() -> None:
    async with http_server(plain) as server:
        with pytest.raises(UpstreamGone):
            async with StreamableHttpTransport("web", server.url, headers={}).connect(Recorder()):
                raise UpstreamGone("web", "had enough")


async def test_leaving_ends_what_is_under_way() -> None:
    async def script(ask: Ask) -> None:
        await ask.gone()

    got = Recorder()
    async with http_server(script) as server:
        with anyio.fail_after(30):
            async with StreamableHttpTransport("web", server.url, headers={}).connect(got) as channel:
                channel.send(request(1))
                await server.until("tools/call")
            await server.asks[0].left.wait()
            with pytest.raises(UpstreamGone):
                channel.send(request(2))
    assert got.failures == []


@pytest.mark.parametrize(
    ("url", "headers"),
    [("ftp://x/", {}), ("http://", {}), ("http://x:y/", {}), ("http://x/", {"a b": "c"}), ("http://x/", {"a": "b\nc"})],
)
async def test_an_address_or_header_that_cannot_be_sent_is_a_mistake_in_the_configuration(
    url: str, headers: dict[str, str]
) -> None:
    with pytest.raises(ConfigError):
        async with StreamableHttpTransport("web", url, headers=headers).connect(Recorder()):
            pass


# -- legacy sessions


async def test_a_session_is_carried_and_ended() -> None:
    """MCP 2025-11-25, transports: session id and version on every request, DELETE at the end."""
    async with bench(session_server(plain), headers={"Mcp-Session-Id": "mine", "X-Own": "kept"}) as b:
        await b.handshake()
        await b.ask(1)
        server = b.server
    first, *others = server.asks
    assert "mcp-session-id" not in first.headers
    assert "mcp-protocol-version" not in first.headers
    assert {ask.headers["mcp-session-id"] for ask in others} == {"s-1"}
    assert {ask.headers["mcp-protocol-version"] for ask in others} == {LEGACY}
    assert {ask.headers["x-own"] for ask in server.asks} == {"kept"}
    assert server.asks[-1].method == "DELETE"
    assert all("mcp-method" not in ask.headers for ask in server.asks)


async def test_nothing_overtakes_the_end_of_the_handshake() -> None:
    """Spec: no request before the server has `notifications/initialized`."""
    gate = asyncio.Event()

    async def script(ask: Ask) -> bytes:
        if ask.method == "POST" and ask.message["method"] == "notifications/initialized":
            await gate.wait()
        return answer_to(ask)

    async with bench(script) as b:
        await b.handshake()
        b.channel.send(request(1))
        b.channel.send(request(0, "notifications/roots/list_changed"))
        assert len(b.server.asks) == 2
        gate.set()
        assert isinstance(await b.got.outcome(b"1"), Frame)
        assert [ask.message["method"] for ask in b.server.asks[:2]] == ["initialize", "notifications/initialized"]
        await b.server.until("notifications/roots/list_changed")


async def test_a_server_without_a_stream_of_its_own_is_asked_once() -> None:
    async with bench(session_server(plain)) as b:
        await b.handshake()
        await b.server.until("GET")
        for id_ in range(1, 20):
            await b.ask(id_)
        assert len(b.server.seen("GET")) == 1


async def test_the_session_stream_is_opened_again_where_it_broke() -> None:
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

    async def script(ask: Ask) -> bytes | None:
        if ask.method != "GET":
            return answer_to(ask)
        if len(b.server.seen("GET")) == 2:
            return reply(status=503)
        await ask.say(events_head(), event(changed, id=f"e{len(b.server.seen('GET'))}"))
        ask.writer.close()
        return None

    async with bench(script) as b:
        await b.handshake()
        gets = await b.server.until("GET", 4)
        assert [ask.headers.get("last-event-id") for ask in gets[:4]] == [None, "e1", "e1", "e3"]
        assert gets[0].headers["accept"] == "text/event-stream"
        await b.got.until(lambda got: len(got.messages) >= 3)  # the answer to initialize, and two changes
        assert [via for frame, via in b.got.messages if frame.method] == [b""] * (len(b.got.messages) - 1)


@pytest.mark.parametrize("answer", [reply(status=401), reply(b"{}"), reply(status=404)])
async def test_a_server_that_refuses_the_stream_is_not_asked_again(answer: bytes) -> None:
    async def script(ask: Ask) -> bytes:
        return answer if ask.method == "GET" else answer_to(ask)

    async with bench(script, reconnect_delay=0.001) as b:
        await b.handshake()
        await b.server.until("GET")
        for id_ in range(1, 20):
            await b.ask(id_)
        assert len(b.server.seen("GET")) == 1


async def test_the_session_stream_survives_a_server_that_hangs_up() -> None:
    async def script(ask: Ask) -> bytes | None:
        if ask.method != "GET":
            return answer_to(ask)
        if len(b.server.seen("GET")) < 4:
            ask.writer.close()
            return None
        await ask.say(events_head(), event(PROGRESS))
        await ask.gone()
        return None

    async with bench(script, reconnect_delay=0.001) as b:
        await b.handshake()
        await b.got.until(lambda got: any(frame.method for frame, _ in got.messages))


async def test_a_handshake_that_is_never_acknowledged_does_not_stop_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.upstream.transports.streamable_http._TELL_SECONDS", 0.05)

    async def script(ask: Ask) -> bytes | None:
        if ask.method == "POST" and ask.message["method"] == "notifications/initialized":
            await ask.gone()
            return None
        return answer_to(ask)

    async with bench(script) as b:
        await b.handshake()
        assert isinstance(await b.ask(1), Frame)
        assert "notifications/initialized" in b.transport.last_words()


async def test_a_notification_that_cannot_be_delivered_is_noted() -> None:
    async def script(ask: Ask) -> None:
        ask.writer.close()

    async with bench(script) as b:
        b.channel.send(request(0, "notifications/x"))
        while not b.transport.last_words():
            await asyncio.sleep(0)
        assert "closed" in b.transport.last_words()


async def test_a_request_withdrawn_before_it_is_connected_is_never_sent() -> None:
    with deaf_socket() as deaf, anyio.fail_after(30):
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        got = Recorder()
        async with StreamableHttpTransport("web", url, headers={}).connect(got) as channel:
            channel.negotiated(MODERN)
            channel.send(request(1))
            await asyncio.sleep(0)
            assert channel.withdraw(b"1") is True
    assert got.failures == []


async def test_a_session_stream_that_finds_its_session_gone_ends_the_channel() -> None:
    """Nobody else would notice on an idle connection, and changes of the lists would be missed."""

    async def script(ask: Ask) -> bytes | None:
        if ask.method != "GET":
            return answer_to(ask)
        if len(b.server.seen("GET")) > 1:
            return reply(status=404)
        await ask.say(events_head())
        ask.writer.close()
        return None

    async with bench(script) as b:
        await b.handshake()
        await b.got.until(lambda got: got.closings)
        assert b.got.closings == ["the server ended the session"]
        b.got.closings.clear()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b""),
        (404, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}'),
        (404, b'{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Session not found"}}'),
        (400, b"Bad Request: invalid session id"),
        (400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Server not initialized"}}'),
    ],
)
async def test_a_lost_session_is_told_apart_from_other_refusals(status: int, body: bytes) -> None:
    """Spec: 404 to a session means that the client must start a new one. Nothing was executed."""

    async def script(ask: Ask) -> bytes:
        return reply(body, status)

    async with bench(session_server(script)) as b:
        await b.handshake()
        error_of(await b.ask(1), SessionExpired, sent=False)
        server = b.server
    assert server.seen("DELETE") == []


async def test_an_unknown_method_in_a_session_is_not_a_lost_session() -> None:
    async def script(ask: Ask) -> bytes:
        return reply({"jsonrpc": "2.0", "id": ask.id, "error": {"code": -32601, "message": "no"}}, 404)

    async with bench(session_server(script)) as b:
        await b.handshake()
        assert isinstance(await b.ask(1), Frame)


async def test_a_404_without_a_session_is_just_that() -> None:
    async def script(ask: Ask) -> bytes:
        return reply(status=404)

    async with bench(script) as b:
        error = error_of(await b.ask(1), UpstreamHttpError, sent=False)
        assert not isinstance(error, SessionExpired)


async def test_a_broken_stream_is_resumed_at_its_last_event() -> None:
    async def script(ask: Ask) -> bytes | None:
        if ask.method == "POST":
            await ask.say(events_head(), event(id="e0"), event(PROGRESS, id="e1"), chunk(b"id: e2\ndata: half"))
            ask.writer.close()
            return None
        tries = len(b.server.seen("GET")) - 1  # one was for the session's own stream
        if tries == 1:
            return reply(status=502)
        await ask.say(events_head(), event(PROGRESS, id=f"r{tries}"))
        if tries == 4:
            await ask.say(event(answer))
        ask.writer.close()
        return None

    answer = {"jsonrpc": "2.0", "id": 1, "result": {}}
    async with bench(session_server(script)) as b:
        await b.handshake()
        await b.server.until("GET")
        assert isinstance(await b.ask(1), Frame)
        gets = b.server.seen("GET")[1:]
        assert [ask.headers["last-event-id"] for ask in gets] == ["e1", "e1", "r2", "r3"]
        assert {via for _, via in b.got.messages[1:]} == {b"1"}


async def test_a_polling_server_is_asked_at_its_own_pace_for_as_long_as_it_takes() -> None:
    """MCP 2025-11-25, Transports: the server lets the connection go, names an interval, and answers on a later GET."""

    async def script(ask: Ask) -> bytes | None:
        if ask.method == "POST":
            await ask.say(events_head(), event(id="p0", retry=1), chunk(b""))
        elif len(b.server.seen("GET")) < 5:
            await ask.say(events_head(), chunk(b": nothing yet\n\n"), chunk(b""))
        else:
            await ask.say(events_head(), event({"jsonrpc": "2.0", "id": 1, "result": {}}), chunk(b""))
        return None

    async with bench(session_server(script)) as b:
        await b.handshake()
        assert isinstance(await b.ask(1), Frame)


@pytest.mark.parametrize(("status", "tries"), [(404, 1), (405, 1), (500, 5)])
async def test_a_stream_that_cannot_be_resumed_is_given_up(status: int, tries: int) -> None:
    async def script(ask: Ask) -> bytes | None:
        if ask.method == "GET":
            return reply(status=status)
        await ask.say(events_head(), event(id="e0"), chunk(b""))
        return None

    async with bench(session_server(script), reconnect_delay=0.001) as b:
        await b.handshake()
        await b.server.until("GET")
        error_of(await b.ask(1), UpstreamGone, sent=True)
        assert len(b.server.seen("GET")) == 1 + tries


async def test_a_cancelled_legacy_request_is_still_listened_to() -> None:
    """Spec: on legacy HTTP a disconnect is no cancellation; the notification is."""
    gate = asyncio.Event()

    async def script(ask: Ask) -> bytes:
        await gate.wait()
        return answer_to(ask)

    async with bench(session_server(script)) as b:
        await b.handshake()
        b.channel.send(request(1))
        await b.server.until("tools/call")
        assert b.channel.withdraw(b"1") is False
        gate.set()
        assert isinstance(await b.got.outcome(b"1"), Frame)


async def test_an_answer_to_the_server_is_posted() -> None:
    async with bench(session_server(plain)) as b:
        await b.handshake()
        b.channel.send(Outgoing(b'{"jsonrpc":"2.0","id":"q","result":{}}'))
        b.channel.send(request(1))
        await b.got.outcome(b"1")
        async with b.server.news:
            await b.server.news.wait_for(lambda: any(b'"q"' in ask.body for ask in b.server.asks))


async def test_a_refused_notification_is_noted_and_harms_nothing() -> None:
    async def script(ask: Ask) -> bytes:
        return answer_to(ask) if ask.id else reply(b"no room", 507)

    async with bench(script) as b:
        b.channel.send(request(0, "notifications/x"))
        assert isinstance(await b.ask(1), Frame)
        while not b.transport.last_words():
            await asyncio.sleep(0)
        assert "no room" in b.transport.last_words()


# -- the modern era


async def test_a_modern_request_repeats_itself_in_its_headers() -> None:
    """MCP 2026-07-28, Streamable HTTP, Request Metadata."""
    async with bench(plain) as b:
        meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
        await b.ask(1, "server/discover", params=meta)
        b.channel.negotiated(MODERN)
        await b.ask(2, name="plain_tool", headers=[("Mcp-Param-Region", "eu")])
        await b.ask(3, name="wörk")
        await b.ask(4, "tools/list")
        server = b.server
    discover, plain_call, odd_call, listing = (ask.headers for ask in server.asks)
    assert {ask.headers["mcp-protocol-version"] for ask in server.asks} == {MODERN}
    assert discover["mcp-method"] == "server/discover"
    assert (plain_call["mcp-method"], plain_call["mcp-name"]) == ("tools/call", "plain_tool")
    assert plain_call["mcp-param-region"] == "eu"
    assert odd_call["mcp-name"] == "=?base64?d8O2cms=?="
    assert "mcp-name" not in listing


async def test_the_modern_era_has_no_session_no_get_and_no_delete() -> None:
    async def script(ask: Ask) -> bytes:
        return answer_to(ask, mcp_session_id="s-1")

    async with bench(script) as b:
        await b.ask(1, "server/discover")
        b.channel.negotiated(MODERN)
        b.channel.send(INITIALIZED)
        await b.ask(2)
        server = b.server
    assert {ask.method for ask in server.asks} == {"POST"}
    assert all("mcp-session-id" not in ask.headers for ask in server.asks)


async def test_withdrawing_a_modern_request_closes_its_stream() -> None:
    """MCP 2026-07-28, Streamable HTTP, Cancellation: closing the response stream is the cancellation."""

    async def script(ask: Ask) -> None:
        await ask.gone()

    async with bench(script) as b:
        b.channel.negotiated(MODERN)
        b.channel.send(request(1))
        (ask,) = await b.server.until("tools/call")
        assert b.channel.withdraw(b"1") is True
        await ask.left.wait()
        assert b.channel.withdraw(b"1") is True
        assert b.got.failures == []


async def test_a_probe_that_is_refused_leaves_the_way_open_to_the_handshake() -> None:
    async def script(ask: Ask) -> bytes:
        if ask.method == "POST" and ask.message["method"] == "server/discover":
            return reply(b"Bad Request: no session id", 400)
        return answer_to(ask)

    async with bench(script) as b:
        error_of(await b.ask(1, "server/discover"), UpstreamHttpError, sent=False)
        await b.handshake()
        assert isinstance(await b.ask(2), Frame)
        assert "mcp-protocol-version" not in b.server.seen("initialize")[0].headers


# -- answers with an id of another form, or on another stream


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_an_answer_whose_id_became_a_string_lets_go_of_its_stream(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpbridge.upstream.transports.http_streams._TAIL_SECONDS", 0.01)

    async def script(ask: Ask) -> None:
        await ask.say(events_head(), event(result_of(ask) | {"id": str(ask.id)}))
        await ask.gone()

    async with bench(script, max_posts=1) as b:
        b.channel.negotiated(version)
        for id_ in range(1, 4):
            assert isinstance(await b.ask(id_), Frame)
            await b.server.asks[-1].left.wait()
        assert [bytes(frame.id) for frame, _ in b.got.messages] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("body", [b'{"id":"1","result":{"a":}}', b'{"id":1,"result":{"a":}}'])
async def test_a_spoiled_answer_is_known_by_its_id_in_either_form(body: bytes) -> None:
    async def script(ask: Ask) -> None:
        notice = b'{"method":"notifications/message"}'
        await ask.say(events_head(), chunk(b"data: " + notice + b"\n\n"), chunk(b"data: " + body + b"\n\n"))
        await ask.gone()

    async with bench(script) as b:
        assert isinstance(await b.ask(1), Spoiled)


@pytest.mark.parametrize("answer", ['{"jsonrpc":"2.0","id":%s,"result":{}}', '{"jsonrpc":"2.0","id":%s,"result":[,]}'])
@pytest.mark.parametrize("form", ["%s", '"%s"'])
async def test_an_answer_on_another_stream_lets_go_of_the_requests_own(
    form: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a server would else use up all the requests that may be under way."""
    monkeypatch.setattr("mcpbridge.upstream.transports.streamable_http._ELSEWHERE_SECONDS", 0.01)
    listening: asyncio.Future[Ask] = asyncio.get_running_loop().create_future()

    async def script(ask: Ask) -> bytes | None:
        if ask.method == "GET":
            await ask.say(events_head())
            listening.set_result(ask)
            await ask.gone()
            return None
        if ask.method == "DELETE" or not ask.id:
            return reply(status=202)
        if ask.message["method"] == "initialize":
            return reply(result_of(ask), mcp_session_id="s-1")
        await ask.say(events_head())
        line = (answer % (form % ask.id)).encode()
        await (await listening).say(chunk(b"data: " + line + b"\n\n"))
        await ask.gone()
        return None

    async with bench(script, max_posts=1) as b:
        await b.handshake()
        for id_ in (1, 2):
            b.channel.send(request(id_))
            await (await b.server.until("tools/call", id_))[-1].left.wait()
        delivered = [frame for frame, via in b.got.messages if via == b""]
        assert len(delivered) + len(b.got.spoils) == 2
        assert b.got.failures == []


# -- secrets


@pytest.mark.parametrize(
    ("before", "content_type"),
    [(8190, "text/plain"), (195, "text/plain"), (195, "application/json"), (195, "text/html")],
)
async def test_a_secret_across_the_place_where_a_text_is_cut_is_masked(before: int, content_type: str) -> None:
    secret = "s3cret-value-" + "v" * 40
    filler = "x" * (before - 20) + " " * 20 if before < 300 else " " * before

    async def script(ask: Ask) -> bytes:
        said = filler + secret
        bodies = {"text/plain": said, "application/json": f'{{"message": "{said}"}}', "text/html": f"<p>{said}</p>"}
        return reply(bodies[content_type].encode(), 500, content_type=content_type)

    async with bench(script, headers={"Authorization": f"Bearer {secret}"}) as b:
        error = error_of(await b.ask(1), UpstreamHttpError, sent=True)
        assert "s3c" not in str(error)


async def test_a_secret_that_a_page_writes_with_entities_is_masked() -> None:
    async def script(ask: Ask) -> bytes:
        return reply(b"<p>not s3cret-value&#33;</p>", 500, content_type="text/html")

    async with bench(script, headers={"Authorization": "Bearer s3cret-value!"}) as b:
        assert "not [redacted]" in str(error_of(await b.ask(1), UpstreamHttpError, sent=True))


async def test_a_secret_in_an_answer_that_is_no_message_is_masked_before_the_answer_is_cut() -> None:
    async def script(ask: Ask) -> bytes:
        return reply(b"x" * 75 + b" s3cret-value")

    async with bench(script, headers={"Authorization": "Bearer s3cret-value"}) as b:
        outcome = await b.ask(1)
        assert "s3c" not in repr(outcome)
