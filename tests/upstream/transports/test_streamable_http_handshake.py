"""The end of the handshake over streamable HTTP: where it goes, and what waits for it."""

import anyio
import pytest

from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.transport import Channel
from mcpbridge.upstream.transports import streamable_http
from mcpbridge.upstream.transports.streamable_http import StreamableHttpTransport
from support.upstreams.scripted_http import Ask, Recorder, Script, events_head, http_server, reply, request, result_of


async def begin(channel: Channel, got: Recorder) -> None:
    channel.send(request(1, "initialize"))
    assert isinstance(await got.outcome(b"1"), Frame)
    channel.negotiated("2025-06-18")
    channel.send(request(0, "notifications/initialized"))


async def test_every_kind_of_request_follows_a_redirect() -> None:
    """Frameworks redirect `/mcp` to `/mcp/`: notifications, answers, the session's stream and its end were lost."""

    async def answer(ask: Ask) -> bytes | None:
        if ask.path == "/mcp":
            return reply(status=307, location="/mcp/")
        if ask.method == "GET":
            await ask.say(events_head())
            await ask.gone()
            return None
        if ask.method == "POST" and ask.id is not None and "method" in ask.message:
            return reply(result_of(ask), mcp_session_id="s")
        return reply(status=202)

    got = Recorder()
    with anyio.fail_after(60):
        async with http_server(answer) as web:
            async with StreamableHttpTransport("up", web.url, headers={}).connect(got) as channel:
                await begin(channel, got)
                await web.until("GET", 2)
                channel.send(request(0, "notifications/cancelled"))
                await web.until("notifications/cancelled", 2)
            await web.until("DELETE", 2)
            seen = {
                ask.message["method"] if ask.method == "POST" else ask.method for ask in web.asks if ask.path == "/mcp/"
            }
    assert seen == {"initialize", "notifications/initialized", "notifications/cancelled", "GET", "DELETE"}


def never_acknowledged(*, has_head: bool) -> Script:
    """Answers everything but `notifications/initialized`, or begins an answer to that which never ends."""

    async def answer(ask: Ask) -> bytes | None:
        if ask.method == "GET":
            return reply(status=405)
        if ask.message["method"] == "notifications/initialized":
            await ask.say(events_head() if has_head else b"")
            await ask.gone()
            return None
        return reply(result_of(ask))

    return answer


async def test_an_acknowledgement_whose_body_never_ends_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status has said that it was taken."""
    monkeypatch.setattr(streamable_http, "_ERROR_SECONDS", 1000.0)
    monkeypatch.setattr(streamable_http, "_INTRODUCTION_SECONDS", 1000.0)
    monkeypatch.setattr(streamable_http, "_TELL_SECONDS", 1000.0)
    got = Recorder()
    with anyio.fail_after(20):
        async with (
            http_server(never_acknowledged(has_head=True)) as web,
            StreamableHttpTransport("up", web.url, headers={}).connect(got) as channel,
        ):
            await begin(channel, got)
            channel.send(request(2))
            assert isinstance(await got.outcome(b"2"), Frame)


async def test_an_acknowledgement_that_does_not_come_is_not_waited_for_at_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A start has 10 s for its lists: a server that is slow to say that it was introduced never got one."""
    monkeypatch.setattr(streamable_http, "_INTRODUCTION_SECONDS", 0.05)
    monkeypatch.setattr(streamable_http, "_TELL_SECONDS", 1000.0)
    got = Recorder()
    with anyio.fail_after(20):
        async with (
            http_server(never_acknowledged(has_head=False)) as web,
            StreamableHttpTransport("up", web.url, headers={}).connect(got) as channel,
        ):
            await begin(channel, got)
            channel.send(request(2))
            assert isinstance(await got.outcome(b"2"), Frame)
