"""What one server does, however bad, freezes no other and condemns no other tool (issue 2, Supervision)."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from support.harness import STOP_DEADLINE, Place, eventually, explains, python_server, undisturbed
from support.rpc import Client

HEALTHY = {"healthy": python_server("plain")}

SOON = 10.0
"""Seconds for one call to a healthy server, which takes 1 ms: generous to a busy machine, and far from the 25 s
for which a cut line of 100 KB once froze every server."""


@asynccontextmanager
async def never_frozen(client: Client) -> AsyncIterator[None]:
    """Calls to the healthy server go on for as long as the body runs, and none takes longer than `SOON`."""
    finished = asyncio.Event()

    async def go_on() -> None:
        while not finished.is_set():
            assert (await client.call("healthy__echo", text="still", within=SOON)).text == "still"
            await asyncio.sleep(0.01)  # steps, not a flood: the body needs the processor too

    calling = asyncio.create_task(go_on())
    try:
        yield
    finally:
        finished.set()
        await calling


async def test_a_server_that_dies_in_an_answer_full_of_quotes_freezes_nobody(place: Place) -> None:
    servers = {"bad": python_server("odd", "dies-talking", call_timeout=30), **HEALTHY}
    async with place.bridge(servers) as client:
        await client.initialize()
        await client.tools_with("bad__cut")
        async with never_frozen(client):
            for _ in range(2):
                explains(await client.call("bad__cut"), "bad")
                back = await eventually(lambda: client.call("bad__echo", text="back"), lambda reply: not reply.failed)
                assert back.text == "back"


@pytest.mark.parametrize("own_session", [False, True])
async def test_a_child_that_writes_for_ever_after_its_server_ended_freezes_nobody(
    place: Place, *, own_session: bool
) -> None:
    """The harness proves that the child is gone at the end."""
    servers = {"bad": python_server("odd", "leaves-writer", call_timeout=30), **HEALTHY}
    async with place.http_bridge(servers) as client:
        await client.initialize()
        await client.tools_with("bad__leave")
        async with never_frozen(client):
            explains(await client.call("bad__leave", own_session=own_session), "bad", "exit code 3")
            back = await eventually(lambda: client.call("bad__echo", text="back"), lambda reply: not reply.failed)
            assert back.text == "back"
        # Once more, so that the bridge is told to stop while the child writes.
        explains(await client.call("bad__leave", own_session=own_session), "bad", "exit code 3")
        client.command.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(STOP_DEADLINE):
            assert await client.command.process.wait() == 0
        assert not place.survivors()


async def test_a_slow_tool_does_not_condemn_the_other_tools_of_a_server_that_answers(place: Place) -> None:
    """Promise of the bridge: a server is left alone only when it fails, not when one of its tools is slow."""
    async with place.bridge({"slow": python_server("plain", call_timeout=3), **HEALTHY}) as client:
        await client.initialize()
        await client.tools_with("slow__hold")
        ids = range(900, 910)
        answers = [client.expect(id_) for id_ in ids]
        call = '{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"slow__hold"}}}}\n'
        async with undisturbed(client):
            await client.write("".join(call.format(id_) for id_ in ids).encode())
            assert (await client.call("slow__echo", text="meanwhile")).text == "meanwhile"
            for reply in await asyncio.gather(*answers):
                explains(reply, "slow", "3 s")
            assert (await client.call("slow__echo", text="as before")).text == "as before"
            journal = json.loads((await client.call("slow__journal")).text)
    assert sum(m.get("params", {}).get("name") == "hold" for m in journal) == len(ids)
