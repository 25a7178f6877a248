"""The shim between a client and daemons that come and go (issue 7)."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.harness import DEADLINE, Place, eventually
from support.rpc import Message, Reply, StdioClient, envelope


async def both(client: StdioClient, line: Any, **capabilities: Any) -> None:
    """The client's handshake, from both ends."""
    opening = asyncio.create_task(client.initialize())
    await line.introduced(**capabilities)
    await opening


def asked(client: StdioClient, method: str, **params: Any) -> "asyncio.Task[Reply]":
    return asyncio.create_task(client.request(method, params, within=60))


async def settled(awaitable: Awaitable[Any]) -> Any:
    async with asyncio.timeout(60):
        return await awaitable


@asynccontextmanager
async def plain(place: Place, config: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A shim whose pipes nobody reads, writes or closes but the test."""
    command = [sys.executable, "-m", "mcpbridge", "serve", "--config", str(config)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=place.folder, env=place.environment()) as process:
        try:
            yield process
        finally:
            process.kill()


async def ended(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, which comes at once."""
    return await asyncio.to_thread(process.wait, DEADLINE)


async def test_lines_cross_untouched_both_ways(daemon: Any, place: Place) -> None:
    said = [
        b'{ "id":7, "method":"x/y" ,"jsonrpc":"2.0","params":{"big":123456789012345678901234567890,"n":1.0}}\r\n',
        b" no json \n",
        b"\n",
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\xc3\xa9\xff"}}\n',
        b'{"jsonrpc":"2.0","method":"notifications/x"}\n',
        b"[" * 100_000 + b"\n",
    ]
    answered = [b'{"jsonrpc":"2.0","id":7,"result":{"z":1e400,"a":"\xc3\xa9\xff", "n":1.10}}\n', b"\n", b" {}\r\n"]
    answered.append(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
    async with plain(place, daemon.config) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"".join(said))
        process.stdin.flush()
        line = await daemon.next()
        await line.greet()
        assert [await line.raw() for _ in said] == said
        line.write(b"".join(answered))
        assert [await asyncio.to_thread(process.stdout.readline) for _ in answered] == answered
        process.stdin.close()
        await line.finish()
        assert await ended(process) == 0


async def test_the_hello_tells_who_and_where_the_client_is(place: Place, daemon: Any, shim: Any) -> None:
    place.env |= {"SOME_TOKEN": "a secret", "MCPBRIDGE_PROJECT": "", "CLAUDE_PROJECT_DIR": "/work/over/there"}
    async with shim("--server", "one") as client:
        hello = await (await daemon.next()).greet()
    assert hello["pid"] == client.command.pid
    assert hello["cwd"] == str(place.folder)
    assert hello["project"] == "/work/over/there"
    assert (hello["server"], hello["profile"]) == ("one", "")
    assert hello["environ"]["SOME_TOKEN"] == "a secret"
    assert "secret" not in client.command.told()


async def test_large_frames_pass_whole_and_in_order(daemon: Any, shim: Any) -> None:
    """Both sides write before either reads: nothing may wait for the other."""
    async with shim() as client:
        line = await daemon.next()
        await line.greet()
        params = {"name": "t", "arguments": {"text": "ä" * 10_000_000}}
        calling = asked(client, "tools/call", **params)
        line.say({"jsonrpc": "2.0", "method": "notifications/x", "params": {"text": "y" * 20_000_000}})
        line.say(*({"jsonrpc": "2.0", "method": "notifications/y", "params": {"n": n}} for n in range(1000)))
        request = await line.heard()
        assert request["params"] == params
        line.answer(request, {"text": "z" * 20_000_000})
        assert len((await settled(calling)).result["text"]) == 20_000_000
        assert [one["params"].get("n") for one in client.arrived] == [None, *range(1000)]


async def test_a_client_that_does_not_read_is_not_read_for_ever(daemon: Any, place: Place) -> None:
    """Back-pressure: what waits in the shim is bounded."""
    async with plain(place, daemon.config) as process:
        line = await daemon.next()
        await line.greet()
        filler = json.dumps({"jsonrpc": "2.0", "method": "notifications/x", "params": {"text": "y" * 50_000}}).encode()

        async def flood() -> None:
            for _ in range(4000):
                line.write(filler + b"\n")
                await line.writer.drain()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(flood(), 2)
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
        assert found
        assert int(found[1]) < 120 << 10
        line.writer.transport.abort()


async def test_answers_that_have_left_a_daemon_outlive_it(daemon: Any, place: Place) -> None:
    """The client reads nothing meanwhile: that must not make calls that ran look lost."""
    async with plain(place, daemon.config) as process:
        assert process.stdin
        assert process.stdout
        for n in range(20):
            call = {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": "t"}}
            process.stdin.write(json.dumps(call).encode() + b"\n")
        process.stdin.flush()
        line = await daemon.next()
        await line.greet()
        for _ in range(20):
            line.answer(await line.heard(), {"content": [{"type": "text", "text": "y" * 500_000}]})
        await settled(line.writer.drain())
        await line.leave()
        line = await daemon.next()
        await line.greet()
        for n in range(20):
            told = json.loads(await asyncio.to_thread(process.stdout.readline))
            assert (told["id"], len(told["result"]["content"][0]["text"])) == (n, 500_000)
        process.stdin.close()
        await line.finish()
        assert await ended(process) == 0


async def test_a_stopped_daemon_has_everything_said_again_to_the_next(daemon: Any, shim: Any) -> None:
    """A farewell means that what has no answer was not read: calls are made again too."""
    async with shim() as client:
        line = await daemon.next()
        await line.greet()
        await both(client, line, tools={"listChanged": True}, resources={"subscribe": True})
        for method, params in (
            ("logging/setLevel", {"level": "info"}),
            ("resources/subscribe", {"uri": "x://1"}),
            ("resources/subscribe", {"uri": "x://2"}),
            ("resources/unsubscribe", {"uri": "x://1"}),
        ):
            request = asked(client, method, **params)
            line.answer(await line.heard())
            assert (await settled(request)).result == {}
        calling = asked(client, "tools/call", name="t", arguments={"n": 1})
        call = await line.raw()
        await line.leave()

        line = await daemon.next()
        await line.greet()
        opening = await line.heard()
        assert opening["method"] == "initialize"
        assert opening["params"]["clientInfo"] == {"name": "raw", "version": "1"}
        line.answer(opening)
        said = [await line.heard() for _ in range(3)]
        assert [(one["method"], one.get("params")) for one in said] == [
            ("notifications/initialized", {}),
            ("logging/setLevel", {"level": "info"}),
            ("resources/subscribe", {"uri": "x://2"}),
        ]
        for one in said[1:]:
            line.answer(one)
        again = await line.raw()
        assert again == call, "untouched"
        line.answer(json.loads(again), {"content": []})
        assert (await settled(calling)).result == {"content": []}
        assert not client.arrived, "the client did not notice"


async def test_after_a_crash_only_what_does_no_harm_is_repeated(daemon: Any, shim: Any) -> None:
    async with shim() as client:
        line = await daemon.next()
        await line.greet()
        await both(client, line)
        call, unknown = asked(client, "tools/call", name="t"), asked(client, "vendor/do")
        listing = asked(client, "tools/list")
        for _ in range(3):
            await line.heard()
        await line.crash()
        reply = await settled(call)
        assert reply.failed
        assert "it is not known whether the tool had its effect" in reply.text
        assert (await settled(unknown)).message["error"]["data"] == {"mcpbridge/error": "BridgeEnded"}

        line = await daemon.next()
        await line.greet()
        line.answer(await line.heard())
        assert (await line.heard())["method"] == "notifications/initialized"
        again = await line.heard()
        assert again["method"] == "tools/list"
        line.answer(again, {"tools": []})
        assert (await settled(listing)).result == {"tools": []}


async def test_a_call_that_never_left_is_made_on_the_next_daemon(daemon: Any, shim: Any) -> None:
    """The client says it while there is no daemon."""
    async with shim() as client:
        line = await daemon.next()
        await line.greet()
        await both(client, line)
        await line.crash()
        line = await daemon.next()  # it does not greet yet, and has read nothing when it goes
        calling = asked(client, "tools/call", name="t")
        await line.crash()
        line = await daemon.next()
        await line.greet()
        line.answer(await line.heard())
        assert (await line.heard())["method"] == "notifications/initialized"
        line.answer(await line.heard(), {"content": [{"type": "text", "text": "done"}]})
        assert (await settled(calling)).text == "done"


async def test_what_made_daemons_crash_is_not_asked_for_ever(daemon: Any, shim: Any) -> None:
    async with shim() as client:
        line = await daemon.next()
        await line.greet()
        reading = asked(client, "resources/read", uri="x://poison")
        await line.heard()
        await line.crash()
        line = await daemon.next()
        await line.greet()
        assert (await line.heard())["method"] == "resources/read"
        await line.crash()
        assert "error" in (await settled(reading)).message
        line = await daemon.next()
        await line.greet()
        pinging = asked(client, "ping")
        line.answer(await line.heard())
        await settled(pinging)


async def test_listen_streams_stay_open_over_daemons(daemon: Any, shim: Any) -> None:
    """Modern clients (2026-07-28): one acknowledgement, and word of lists that may have changed meanwhile."""
    stamp = {"io.modelcontextprotocol/subscriptionId": 1}
    async with shim() as client:
        line = await daemon.next()
        await line.greet("before")
        wanted = {"toolsListChanged": True, "promptsListChanged": False}
        listening = asked(client, "subscriptions/listen", notifications=wanted, _meta=envelope())
        await line.heard()
        line.notify("notifications/subscriptions/acknowledged", notifications=wanted, _meta=stamp)
        await client.notice("notifications/subscriptions/acknowledged")
        await line.crash()

        line = await daemon.next()
        await line.greet("after")
        assert (await line.heard())["method"] == "subscriptions/listen"
        line.notify("notifications/subscriptions/acknowledged", notifications=wanted, _meta=stamp)
        line.notify("notifications/x")
        await client.notice("notifications/x")
        assert [one["method"].removeprefix("notifications/") for one in client.arrived] == [
            "subscriptions/acknowledged",
            "tools/list_changed",
            "x",
        ]
        assert client.arrived[1]["params"]["_meta"] == stamp
        line.say({"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete"}})
        assert (await settled(listening)).result == {"resultType": "complete"}


@pytest.mark.parametrize(("listings", "told"), [("same", []), ("other", ["tools", "resources"])])
async def test_a_client_hears_of_lists_that_are_others_now(
    daemon: Any, shim: Any, listings: str, told: list[str]
) -> None:
    """Only of those that it was told to listen for in the handshake."""
    async with shim() as client:
        line = await daemon.next()
        await line.greet("same")
        await both(client, line, tools={"listChanged": True}, prompts={}, resources={"listChanged": True})
        await line.leave()
        line = await daemon.next()
        await line.greet(listings)
        line.answer(await line.heard())
        assert (await line.heard())["method"] == "notifications/initialized"
        line.notify("notifications/x")
        await client.notice("notifications/x")
        assert [one["method"] for one in client.arrived[:-1]] == [f"notifications/{kind}/list_changed" for kind in told]


async def test_questions_of_a_daemon_that_ended_are_withdrawn(daemon: Any, shim: Any) -> None:
    """Their ids may be used again: a late answer must not reach the next daemon."""
    async with shim() as client:
        line = await daemon.next()
        await line.greet()
        await both(client, line)
        line.say({"jsonrpc": "2.0", "id": 1, "method": "roots/list"}, {"jsonrpc": "2.0", "id": 2, "method": "x/y"})
        await client.notice("x/y")
        await client.write(b'{"jsonrpc":"2.0","id":2,"result":{}}\n')
        assert (await line.heard())["id"] == 2
        await line.crash()
        withdrawn = await client.notice("notifications/cancelled")
        assert withdrawn["params"]["requestId"] == 1
        line = await daemon.next()
        await line.greet()
        line.answer(await line.heard())
        assert (await line.heard())["method"] == "notifications/initialized"
        await client.write(b'{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}\n')
        await client.tell("notifications/x")
        assert (await line.heard())["method"] == "notifications/x"


async def test_batches_are_said_again_as_batches(daemon: Any, shim: Any) -> None:
    """Revision 2025-03-26."""

    def request(id_: int, method: str, **params: Any) -> Message:
        return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}

    async with shim() as client:
        line = await daemon.next()
        await line.greet()
        batch = [request(1, "ping"), request(2, "tools/call", name="t"), request(3, "tools/list")]
        await client.write(json.dumps(batch).encode() + b"\n")
        assert await line.heard() == batch
        line.say([{"jsonrpc": "2.0", "id": 1, "result": {}}])
        assert await client.batch() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
        await line.crash()
        [lost] = await client.batch()
        assert lost["id"] == 2
        assert lost["result"]["isError"]
        line = await daemon.next()
        await line.greet()
        assert await line.heard() == batch[2:]
        line.say([{"jsonrpc": "2.0", "id": 3, "result": {}}])
        assert await client.batch() == [{"jsonrpc": "2.0", "id": 3, "result": {}}]


async def test_a_daemon_that_was_stopped_is_not_started_for_nothing(daemon: Any, shim: Any) -> None:
    """`mcpbridge down` holds until a client wants something."""
    async with shim() as client:
        line = await daemon.next()
        await line.greet()
        await both(client, line)
        await line.leave(again=False)
        await client.tell("notifications/x")
        calling = asked(client, "tools/call", name="t")
        line = await daemon.next()
        assert daemon.is_alone()
        await line.greet()
        line.answer(await line.heard())
        assert (await line.heard())["method"] == "notifications/initialized"
        said = await line.heard()
        if said["method"] == "notifications/x":  # the shim looked for a daemon, and found it, before that was said
            said = await line.heard()
        line.answer(said, {"content": []})
        assert (await settled(calling)).result == {"content": []}


async def test_a_daemon_that_others_started_is_found(daemon: Any, shim: Any) -> None:
    """`mcpbridge down`, `mcpbridge up`: the client may wait for news of what it subscribed to."""
    async with shim() as client:
        line = await daemon.next()
        await line.greet("before")
        await both(client, line, tools={"listChanged": True})
        await line.leave(again=False)
        line = await daemon.next()
        await line.crash()  # it was the old one, just about to go
        line = await daemon.next()
        await line.greet("after")
        await client.notice("notifications/tools/list_changed")
        line.answer(await line.heard())
        assert (await line.heard())["method"] == "notifications/initialized"


async def test_what_cannot_be_served_ends_with_the_reason(daemon: Any, place: Place) -> None:
    running = asyncio.create_task(place.run("serve", "--config", str(daemon.config), "--server", "nope"))
    line = await daemon.next()
    await line.heard()
    line.say({"mcpbridge": 1, "error": "no server is called 'nope'", "code": "unknown-server"})
    await line.crash()
    finished = await settled(running)
    assert (finished.code, finished.err) == (2, "mcpbridge: no server is called 'nope'")


async def test_a_daemon_that_does_not_understand_the_shim_is_not_asked_again(daemon: Any, place: Place) -> None:
    """The bridge is in the process then, and gets what the client has said."""
    async with plain(place, daemon.config) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n{"jsonrpc":"2.0",')
        process.stdin.flush()
        line = await daemon.next()
        await line.heard()
        assert (await line.heard())["method"] == "ping"
        line.say({"mcpbridge": 1, "error": "this is another world", "code": "unknown-protocol"})
        await line.crash()
        assert json.loads(await asyncio.to_thread(process.stdout.readline)) == {"jsonrpc": "2.0", "id": 1, "result": {}}
        process.stdin.write(b'"id":2,"method":"ping"}\n')
        process.stdin.flush()
        assert json.loads(await asyncio.to_thread(process.stdout.readline))["id"] == 2
        process.stdin.close()
        assert await asyncio.to_thread(process.wait, 60) == 0
        assert daemon.is_alone()


async def test_the_end_of_input_is_passed_on_and_the_last_answers_are_read(daemon: Any, shim: Any) -> None:
    async with shim() as client:
        line = await daemon.next()
        await line.greet()
        calling = asked(client, "tools/call", name="t")
        request = await line.heard()
        await client.close()
        assert await line.raw() == b"", "half-closed"
        line.answer(request, {"content": []})
        await line.crash()
        assert (await settled(calling)).result == {"content": []}
        assert await settled(client.command.process.wait()) == 0


async def test_what_is_piped_in_and_lost_is_no_success(daemon: Any, place: Place) -> None:
    """`kill -9` of the daemon after the end of the input: a script must not take that for an answer."""
    async with plain(place, daemon.config) as process:
        assert process.stdin
        assert process.stdout
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}}
        process.stdin.write(json.dumps(call).encode() + b"\n")
        process.stdin.close()
        line = await daemon.next()
        await line.greet()
        assert await line.heard() == call
        assert await line.raw() == b"", "half-closed"
        await line.crash()
        told = json.loads(await asyncio.to_thread(process.stdout.readline))
        assert (told["id"], told["result"]["isError"]) == (1, True)
        assert await ended(process) == 1


async def test_what_is_piped_in_is_answered_though_its_end_comes_first(daemon: Any, shim: Any) -> None:
    """`… | mcpbridge serve | …`, and the daemon ends in between."""
    async with shim() as client:
        pinging = client.expect(5)
        await client.write(b'{"jsonrpc":"2.0","id":5,"method":"ping"}')
        await client.close()
        line = await daemon.next()
        await line.greet()
        assert (await line.heard())["id"] == 5
        await line.leave()
        line = await daemon.next()
        await line.greet()
        line.answer(await line.heard())
        assert await line.raw() == b""
        await line.crash()
        assert (await settled(pinging)).result == {}


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
async def test_a_shim_that_is_ended_is_gone_at_once(
    daemon: Any, place: Place, number: signal.Signals, code: int
) -> None:
    async with plain(place, daemon.config) as process:
        line = await daemon.next()
        await line.greet()
        process.send_signal(number)
        assert await ended(process) == code
        await line.finish()  # the daemon knows


async def test_a_shim_whose_client_was_killed_is_gone_at_once(daemon: Any, place: Place) -> None:
    """Even if a daemon takes its time: both its streams are closed."""
    async with plain(place, daemon.config) as process:
        assert process.stdin
        assert process.stdout
        line = await daemon.next()
        await line.greet()
        process.stdin.close()
        process.stdout.close()
        assert await ended(process) == 0
        await line.finish()


@pytest.mark.parametrize(
    ("number", "code"), [(None, 0), (signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
async def test_when_daemons_crash_again_and_again_the_client_gets_a_bridge_of_its_own(
    daemon: Any, place: Place, number: signal.Signals | None, code: int
) -> None:
    """In the middle of the conversation, which goes on; and it goes with the shim."""
    async with plain(place, daemon.config) as process:
        assert process.stdin
        assert process.stdout
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        said = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
        ]
        process.stdin.write(b"".join(json.dumps(one).encode() + b"\n" for one in said))
        process.stdin.flush()
        line = await daemon.next()
        await line.greet()
        await line.introduced()
        assert b'"id":1' in await asyncio.to_thread(process.stdout.readline)
        for _ in range(2):
            await line.crash()
            line = await daemon.next()
            await line.greet()
        process.stdin.write(b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}\n')
        process.stdin.flush()
        await line.crash()
        reply = json.loads(await asyncio.to_thread(process.stdout.readline))
        assert reply["id"] == 2
        assert "tools" in reply["result"], "it has been told of the handshake"
        assert daemon.is_alone()
        assert len(place.survivors()) == 2
        process.stdin.close() if number is None else process.send_signal(number)
        assert await asyncio.to_thread(process.wait, 60) == code

        async def survivors() -> dict[int, str]:
            return place.survivors()

        await eventually(survivors, lambda left: not left)
