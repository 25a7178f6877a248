"""A server that ends in mid-call: its calls end at once and say why; it comes back (issue 2, Supervision)."""

import pytest

from support.harness import Place, eventually, explains, python_server, undisturbed

SERVERS = {"bad": python_server("spoiler", call_timeout=30), "healthy": python_server("plain")}


@pytest.mark.parametrize(
    ("how", "facts"),
    [
        ("exit", ["exit code 3", "disk full: cannot go on"]),
        ("half a line", ["disk full: cannot go on"]),
        ("signal", ["SIGKILL", "disk full: cannot go on"]),
        ("close output", ["closed its standard output"]),
    ],
)
async def test_its_calls_end_at_once_and_the_next_ones_work(place: Place, how: str, facts: list[str]) -> None:
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        held = client.expect(900)
        await client.write(b'{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"bad__hold"}}\n')
        async with undisturbed(client):
            explains(await client.call("bad__leave", how=how), "bad", *facts)
            explains(await client.answer_to(900), "bad", *facts)
            assert held.done()
            assert "bad__echo" in await client.tools(), "a sick server's tools stay listed"
            back = await eventually(lambda: client.call("bad__echo", text="back"), lambda reply: not reply.failed)
            assert back.text == "back"


async def test_a_server_that_ends_again_and_again_comes_back_each_time(place: Place) -> None:
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        async with undisturbed(client):
            for _ in range(3):
                await eventually(lambda: client.call("bad__echo", text=""), lambda reply: not reply.failed)
                explains(await client.call("bad__leave", how="exit"), "bad", "exit code 3")
