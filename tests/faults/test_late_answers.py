"""A server over HTTP forgets its session while it still works on calls of it: their answers are not lost (issue 18)."""

import asyncio
from typing import Any

import anyio

from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from support.in_process_bridge import Ear
from support.upstreams.scripted_http import Ask, event, events_head, http_server, reply, result_of

NAMES = ("slow", "quick")
TOOLS = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]}
INITIALIZED = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "x", "version": "1"},
}


class ForgetfulServer:
    """Knows the session that it gave last; works on a call of `slow` until `finishes`, and counts those calls."""

    def __init__(self, *, has_stream: bool) -> None:
        self.session, self.count, self.slow_calls = "", 0, 0
        self.works, self.finishes, self.stream_asked = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.has_stream = has_stream
        self.forgets_stream = asyncio.Event()

    def forget(self) -> None:
        self.session = ""
        self.forgets_stream.set()

    async def script(self, ask: Ask) -> bytes | None:
        if ask.method == "DELETE":
            return reply(status=200)
        if ask.method == "GET" and not self.has_stream:
            return reply(status=405)
        method = ask.message["method"] if ask.method == "POST" else ""
        if method == "server/discover":
            return reply(b"no session", 400)
        if method == "initialize":
            self.count += 1
            self.session = f"session-{self.count}"
            return reply(result_of(ask, INITIALIZED), mcp_session_id=self.session)
        if ask.headers.get("mcp-session-id") != self.session:
            self.stream_asked.set()
            return reply(b"no such session", 404)
        if ask.method == "GET":
            await ask.say(events_head(), event(id="1", retry=1))
            await self.forgets_stream.wait()
            self.forgets_stream.clear()
            ask.writer.close()
            return None
        if "id" not in ask.message:
            return reply(status=202)
        if method == "tools/list":
            return reply(result_of(ask, TOOLS))
        name = ask.message["params"]["name"]
        if name == "slow":
            self.slow_calls += 1
            await ask.say(events_head())
            self.works.set()
            await self.finishes.wait()
            await ask.say(event(result_of(ask, said("slow"))))
            return None
        return reply(result_of(ask, said(name)))


def said(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def settings_of(url: str) -> Settings:
    server = {"url": url, "call_timeout": 60, "queue_timeout": 60}
    return Settings.model_validate({"servers": {"far": server}, "results": {"strategy": "off"}})


async def test_a_call_that_the_server_still_works_on_outlives_its_session() -> None:
    """A call beside it finds the session gone, and is served in the next one."""
    server = ForgetfulServer(has_stream=False)
    with anyio.fail_after(60):
        async with http_server(server.script) as serving, Bridge(settings_of(serving.url)) as bridge:
            ear = Ear(bridge.server)
            await ear.initialize()
            await ear.ask("tools/list")
            slow = asyncio.create_task(ear.ask("tools/call", {"name": "far__slow"}, id_=b"2"))
            await server.works.wait()
            for number in (3, 4):  # the second session is forgotten too
                server.forget()
                quick = await ear.ask("tools/call", {"name": "far__quick"}, id_=b"%d" % number)
                assert quick["result"] == said("quick")
            assert not slow.done()
            server.finishes.set()
            assert (await slow)["result"] == said("slow")
            assert bridge.pool.upstreams["far"].status.state == "ready"
    assert server.count == 3
    assert server.slow_calls == 1


async def test_a_call_outlives_its_session_when_the_sessions_stream_finds_it_gone() -> None:
    server = ForgetfulServer(has_stream=True)
    with anyio.fail_after(60):
        async with http_server(server.script) as serving, Bridge(settings_of(serving.url)) as bridge:
            ear = Ear(bridge.server)
            await ear.initialize()
            await ear.ask("tools/list")
            slow = asyncio.create_task(ear.ask("tools/call", {"name": "far__slow"}, id_=b"2"))
            await server.works.wait()
            server.forget()
            await server.stream_asked.wait()
            quick = await ear.ask("tools/call", {"name": "far__quick"}, id_=b"3")
            assert quick["result"] == said("quick")
            server.finishes.set()
            assert (await slow)["result"] == said("slow")
    assert server.count == 2
    assert server.slow_calls == 1


async def test_a_session_whose_stream_is_gone_is_begun_anew_once_its_calls_have_ended() -> None:
    server = ForgetfulServer(has_stream=True)
    with anyio.fail_after(60):
        async with http_server(server.script) as serving, Bridge(settings_of(serving.url)) as bridge:
            ear = Ear(bridge.server)
            await ear.initialize()
            await ear.ask("tools/list")
            slow = asyncio.create_task(ear.ask("tools/call", {"name": "far__slow"}, id_=b"2"))
            await server.works.wait()
            server.forget()
            await server.stream_asked.wait()
            assert server.count == 1
            server.finishes.set()
            assert (await slow)["result"] == said("slow")
            connection = bridge.pool.upstreams["far"].connection
            while server.count == 1 or connection.session is None:
                await connection.stepped()
