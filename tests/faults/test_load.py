"""Too much of anything is refused with a reason, and costs the others nothing (issue 2, Supervision)."""

import asyncio
import json

from support.harness import Place, explains, python_server, undisturbed
from support.rpc import Reply, StdioClient

HEALTHY = {"healthy": python_server("plain")}


async def test_a_flood_of_requests_from_a_server_drowns_nobody(place: Place) -> None:
    servers = {"bad": python_server("stubborn", "floods-pings", call_timeout=30), **HEALTHY}
    async with place.bridge(servers) as client:
        await client.initialize()
        before = client.command.peak_memory()
        async with undisturbed(client):
            reply = await client.call("bad__flood", within=60)
            assert reply.text == "after the flood"
            assert (await client.call("bad__echo", text="and on")).text == "and on"
        assert client.command.peak_memory() - before < 30_000_000


async def test_a_server_that_writes_a_lot_to_standard_error_is_neither_held_up_nor_kept(place: Place) -> None:
    async with place.bridge({"bad": python_server("stubborn", "chatters"), **HEALTHY}) as client:
        await client.initialize()
        before = client.command.peak_memory()
        async with undisturbed(client):
            assert (await client.call("bad__chatter", within=60)).text == "all said"
        assert client.command.peak_memory() - before < 20_000_000


async def test_a_storm_of_changes_is_listed_a_few_times_and_announced_never(place: Place) -> None:
    """Announced is only what really changed."""
    async with place.bridge({"bad": python_server("listings", "grows"), **HEALTHY}) as client:
        await client.initialize()
        await client.tools_with("bad__storm")
        before = len(client.arrived)
        async with undisturbed(client):
            assert (await client.call("bad__storm", within=60)).text == "calm again"
            await client.call("bad__grow")
            await client.tools_with("bad__grown_1")
            journal = json.loads((await client.call("bad__journal")).text)
        assert len([m for m in journal if m.get("method") == "tools/list"]) < 20
        assert len(client.arrived) - before <= 2


async def test_a_client_that_stops_reading_is_not_read_from_without_end(place: Place) -> None:
    # Answered from memory: of calls that a slow server has yet to answer it reads on, since it refuses most of those.
    long = "x" * 1_000_000
    config = place.config({"healthy": python_server("plain", tool={"echo": {"read_only": True, "cache": 3600}})})
    async with place.started("serve", "--config", str(config)) as command:
        reader, writer = command.process.stdout, command.process.stdin
        assert reader
        assert writer
        client = StdioClient(reader, writer, command)
        async with client.reading():
            await client.initialize()
            await client.tools_with("healthy__echo")
            assert (await client.call("healthy__echo", text=long)).text == long
        reader._limit = 1 << 16  # pyright: ignore  # asyncio stops reading the pipe at twice this
        before = command.peak_memory()
        call = '{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"healthy__echo","arguments":{}}}}}\n'
        arguments = json.dumps({"text": long})
        ids = range(1000, 1400)
        writing = asyncio.create_task(client.write("".join(call.format(id_, arguments) for id_ in ids).encode()))
        is_read = True
        while is_read and not writing.done():  # nothing announces that the bridge has stopped reading
            unread = writer.transport.get_write_buffer_size()
            await asyncio.wait([writing], timeout=2)
            is_read = writer.transport.get_write_buffer_size() != unread
        assert not writing.done()
        assert command.peak_memory() - before < 350_000_000
        reader._limit = 1 << 28  # pyright: ignore
        answers = [client.expect(id_) for id_ in ids]
        async with client.reading(), asyncio.timeout(120):  # 800 MB of answers and calls on a busy machine
            await writing
            for answer in answers:
                assert (await answer).text == long


async def test_a_server_that_stops_reading_holds_up_its_own_callers_only(place: Place) -> None:
    servers = {"bad": python_server("stubborn", "stops-reading", call_timeout=3), **HEALTHY}
    async with place.bridge(servers) as client:
        await client.initialize()
        async with undisturbed(client):
            assert (await client.call("bad__stall")).text == "stalled"
            explains(await client.call("bad__echo", text="x" * 2_000_000), "bad")
            explains(await client.call("bad__echo", text="small"), "bad")
            assert (await client.call("healthy__echo", text="x" * 2_000_000)).text == "x" * 2_000_000


async def test_ten_thousand_calls_of_a_slow_server_are_bounded_and_refused_with_a_reason(place: Place) -> None:
    places = {"max_concurrent": 4, "max_queued": 16, "call_timeout": 30, "queue_timeout": 30}
    async with place.bridge({"slow": python_server("plain", **places), **HEALTHY}) as client:
        await client.initialize()
        before = client.command.peak_memory()
        ids = range(100_000, 110_000)
        answers = [client.expect(id_) for id_ in ids]
        call = '{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"slow__hold","arguments":{{}}}}}}\n'
        async with undisturbed(client, within=60):  # ten thousand answers are written meanwhile
            await client.write("".join(call.format(id_) for id_ in ids).encode())
            refused = await _answered(answers, 10_000 - 20)
            for reply in refused:
                _tells_of_a_full_queue(reply)
            assert client.command.peak_memory() - before < 60_000_000
            # Cancelling makes room; whoever is held or waits is left without an answer, as asked.
            for id_, answer in zip(ids, answers, strict=True):
                if not answer.done():
                    await client.tell("notifications/cancelled", requestId=id_)
            assert (await client.call("slow__echo", text="room again")).text == "room again"
            journal = json.loads((await client.call("slow__journal")).text)
        assert sum(m.get("params", {}).get("name") == "hold" for m in journal) <= 20


async def test_ten_thousand_calls_of_a_starting_server_are_bounded_and_refused_with_a_reason(place: Place) -> None:
    """Waiting for a start is bounded like waiting for a turn."""
    marker = place.folder / "told"
    places = {"max_concurrent": 4, "max_queued": 16, "queue_timeout": 30, "init_timeout": 30}
    servers = {"slow": python_server("stubborn", "starts-when-told", str(marker), **places), **HEALTHY}
    async with place.bridge(servers, bridge={"startup_wait": 30}) as client:
        await client.initialize()
        assert (await client.call("healthy__echo", text="up")).text == "up"
        before = client.command.peak_memory()
        ids = range(100_000, 110_000)
        answers = [client.expect(id_) for id_ in ids]
        call = '{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"slow__echo","arguments":{{}}}}}}\n'
        async with undisturbed(client, within=60):
            await client.write("".join(call.format(id_) for id_ in ids).encode())
            for reply in await _answered(answers, 10_000 - 20):
                _tells_of_a_full_queue(reply)
            assert client.command.peak_memory() - before < 60_000_000
            marker.touch()
            async with asyncio.timeout(60):
                served = [reply for reply in await asyncio.gather(*answers) if not reply.failed]
        assert len(served) == 20, "who waited is served"


async def test_ten_thousand_calls_of_what_any_starting_server_may_have_are_bounded(place: Place) -> None:
    """A name without the prefix of a server waits for all of them."""
    marker = place.folder / "told"
    servers = {"slow": python_server("stubborn", "starts-when-told", str(marker)), **HEALTHY}
    async with place.bridge(servers, bridge={"startup_wait": 30}) as client:
        await client.initialize()
        assert (await client.call("healthy__echo", text="up")).text == "up"
        ids = range(100_000, 110_000)
        answers = [client.expect(id_) for id_ in ids]
        call = '{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"anything","arguments":{{}}}}}}\n'
        async with undisturbed(client, within=60):
            await client.write("".join(call.format(id_) for id_ in ids).encode())
            for reply in await _answered(answers, 9_000):
                assert reply.failed
                assert "again" in reply.text, "it says what to do"
            marker.touch()
            async with asyncio.timeout(60):
                for answer in answers:
                    await answer


async def test_a_call_that_waits_too_long_for_its_turn_is_refused_unsent(place: Place) -> None:
    places = {"max_concurrent": 1, "max_queued": 5, "queue_timeout": 0.3, "call_timeout": 30}
    async with place.bridge({"slow": python_server("plain", **places), **HEALTHY}) as client:
        await client.initialize()
        client.expect(900)
        await client.write(b'{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"slow__hold"}}\n')
        async with undisturbed(client):
            reply = await client.call("slow__echo", text="late")
            assert reply.failed
            assert "slow" in reply.text
            await client.tell("notifications/cancelled", requestId=900)
            journal = json.loads((await client.call("slow__journal")).text)
        assert "echo" not in [m.get("params", {}).get("name") for m in journal]


async def _answered(answers: list[asyncio.Future[Reply]], count: int) -> list[Reply]:
    """The first `count` answers."""
    async with asyncio.timeout(90):
        found: list[Reply] = []
        for next_one in asyncio.as_completed(answers):
            found.append(await next_one)
            if len(found) == count:
                return found
    raise AssertionError("never reached")


def _tells_of_a_full_queue(reply: Reply) -> None:
    assert reply.failed, reply.message
    assert "slow" in reply.text
    assert "again" in reply.text, "it says what to do"
