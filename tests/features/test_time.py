"""How long a call may take, and what counts (issue 4, Time)."""

import asyncio

from harness import Place, explains, python_server
from mcpbridge.errors import Overloaded


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


async def test_progress_extends_the_time_of_a_call_up_to_the_most(place: Place) -> None:
    times = {"call_timeout": 0.4, "max_call_timeout": 0.9}
    server = python_server("flaky", tool={"beat": times})
    async with place.bridge({"up": server}) as client:
        await client.initialize()
        await client.tools_with("up__beat")
        meta = {"progressToken": "t"}
        longer = await client.call("up__beat", meta=meta, beats=6, pause=0.1)
        assert longer.text == "done"
        explains(await client.call("up__beat", meta=meta, beats=11, pause=0.1), "up", "no answer within 0.9 s")


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
