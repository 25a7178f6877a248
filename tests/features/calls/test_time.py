"""How long a call may take, and what counts (issue 4, Time)."""

import asyncio
from pathlib import Path

from mcpbridge.base.errors import Overloaded
from support.answering_clients import Person, world
from support.harness import Place, explains, python_server
from support.rpc import Message, Reply
from support.virtual_time import pass_time


async def test_a_tool_has_its_own_time_and_others_have_their_servers(place: Place) -> None:
    server = python_server("plain", call_timeout=0.4, tool={"echo": {"call_timeout": 30}, "release": {}})
    other = python_server("plain", call_timeout=30, tool={"hold": {"call_timeout": "200ms"}})
    async with place.bridge({"up": server, "other": other}) as client:
        await client.initialize()
        await client.tools_with("up__hold")
        await client.tools_with("other__hold")
        explains(await client.call("up__hold"), "up", "no answer within 0.4 s")
        explains(await client.call("other__hold"), "other", "no answer within 0.2 s")


async def test_the_default_for_all_calls_holds_where_nothing_nearer_is_said(place: Place) -> None:
    servers = {"up": python_server("plain"), "other": python_server("plain", call_timeout=0.3)}
    async with place.bridge(servers, calls={"call_timeout": 0.2}) as client:
        await client.initialize()
        await client.tools_with("up__hold")
        await client.tools_with("other__hold")
        explains(await client.call("up__hold"), "up", "no answer within 0.2 s")
        explains(await client.call("other__hold"), "other", "no answer within 0.3 s")


async def test_progress_extends_the_time_of_a_call_up_to_the_most(tmp_path: Path) -> None:
    times = {"call_timeout": 24, "max_call_timeout": 52}
    done: Message = {"result": {"content": [{"type": "text", "text": "done"}]}}

    async def beaten(person: Person) -> "tuple[asyncio.Task[Reply], Message]":
        """A call that took 36 seconds so far, with a sign of life every 12; and what the server was sent."""
        call = person.begins("up__play", meta={"progressToken": "mine"}, steps=[{"await": ["never"]}])
        sent = await around.gets("up", "tools/call")
        token = sent["params"]["_meta"]["progressToken"]
        for beat in range(3):
            pass_time(12)
            told = {"progressToken": token, "progress": beat}
            await person.begins("up__play", steps=[{"send": {"method": "notifications/progress", "params": told}}])
            heard = {"progressToken": "mine", "progress": beat}
            await person.client.notice("notifications/progress", lambda params, heard=heard: params == heard)
        return call, sent

    async with world("stdio", tmp_path, {"up": (["legacy"], {"tool": {"play": times}})}) as around:
        person = await around.person(tools={})
        longer, sent = await beaten(person)
        await person.begins("up__play", steps=[{"send": {"id": sent["id"], **done}}])
        assert (await longer).text == "done"
    folder = tmp_path / "most"
    folder.mkdir()
    async with world("stdio", folder, {"up": (["legacy"], {"tool": {"play": times}})}) as around:
        call, _ = await beaten(await around.person(tools={}))
        assert not call.done()
        pass_time(16)
        explains(await call, "up", "no answer within 52 s")


async def test_a_call_that_cannot_be_sent_in_its_time_is_refused_unsent_and_says_what_it_waited_for(
    place: Place,
) -> None:
    tool = {"hold": {"call_timeout": 30, "read_only": True}, "echo": {"call_timeout": 0.2}}
    server = python_server("plain", max_concurrent=1, queue_timeout=5, tool=tool)
    async with place.bridge({"up": server}) as client:
        await client.initialize()
        await client.tools_with("up__hold")
        held = asyncio.create_task(client.call("up__hold", within=20))
        await asyncio.sleep(0)  # it is written first
        refused = await client.call("up__echo", text="too late")
        assert refused.failed
        assert refused.text == f"Server 'up' was busy for 0.2 s with another call. {Overloaded.advice}"
        held.cancel()
