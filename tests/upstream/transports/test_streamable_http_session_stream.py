"""A legacy session's own stream is there before the first call: what a server asks during it may come there."""

import asyncio

import anyio

from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.upstream.transports.streamable_http import StreamableHttpTransport
from support.upstreams.scripted_http import Ask, Recorder, events_head, http_server, reply, request, result_of


async def open_and_call(url: str, got: Recorder) -> Frame:
    async with StreamableHttpTransport("up", url, headers={}).connect(got) as channel:
        channel.send(request(1, "initialize"))
        assert isinstance(await got.outcome(b"1"), Frame)
        channel.negotiated("2025-06-18")
        channel.send(request(0, "notifications/initialized"))
        channel.send(request(2, "tools/list"))
        assert isinstance(await got.outcome(b"2"), Frame)
        channel.send(request(3, "tools/call"))
        outcome = await got.outcome(b"3")
        assert isinstance(outcome, Frame)
        return outcome


async def test_a_call_waits_for_the_stream_and_a_list_does_not() -> None:
    came: list[str] = []
    listed = asyncio.Event()

    async def answer(ask: Ask) -> None:
        if ask.method == "GET":
            await listed.wait()  # the stream takes longer to open than the list to come
            came.append("stream")
            await ask.say(events_head())
            await ask.gone()
        elif ask.method == "POST" and "id" in ask.message:
            came.append(ask.message["method"])
            if ask.message["method"] == "tools/list":
                listed.set()
            await ask.say(reply(result_of(ask), mcp_session_id="s"))
        else:
            await ask.say(reply(status=202))

    async with http_server(answer) as web:
        with anyio.fail_after(60):
            await open_and_call(web.url, Recorder())
    assert came == ["initialize", "tools/list", "stream", "tools/call"]


async def test_a_stream_that_is_never_answered_holds_no_call_up_for_long() -> None:
    async def answer(ask: Ask) -> None:
        if ask.method == "GET":
            await ask.gone()
        elif ask.method == "POST" and "id" in ask.message:
            await ask.say(reply(result_of(ask), mcp_session_id="s"))
        else:
            await ask.say(reply(status=202))

    async with http_server(answer) as web:
        with anyio.fail_after(60):
            await open_and_call(web.url, Recorder())
