"""Results that are kept, and concurrent identical calls that run once (issue 4, Cache)."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from mcpbridge.upstream.settings import ServerSettings
from support.harness import Place, eventually, python_server
from support.in_process_bridge import Ear, bridged
from support.rpc import HttpClient, Message, Reply, StdioClient
from support.upstreams.manifest_servers import remembering_bridge
from support.upstreams.scripted_upstream import LEGACY_SERVER, MODERN_SERVER, SILENCE, ScriptedTransport
from support.virtual_time import pass_time

MARK = "mcpbridge/cache"


def counting(**tools: Any) -> dict[str, Any]:
    """The server that counts, with tools that are cached."""
    cached = {name: {"cache": "60s"} for name in ("get_count", "get_held", "get_failed", "get_error", "get_meta")}
    return python_server("counting", tool={**cached, **tools})


def mark(reply: Reply) -> Message | None:
    """What is told of how the result was come by."""
    return reply.result.get("_meta", {}).get(MARK)


async def ready(client: StdioClient | HttpClient) -> None:
    """The handshake, and the servers are up."""
    await client.initialize()
    await client.tools_with("c__get_count")


class Local:
    """A client in the process of the bridge, whose servers are real ones."""

    def __init__(self, ear: Ear) -> None:
        self.ear = ear
        self._last_id = 0

    async def call(self, tool: str, *, meta: Message | None = None, **arguments: Any) -> Reply:
        """Call a tool."""
        self._last_id += 1
        return await self.start(self._last_id, tool, meta, **arguments)

    async def start(self, id_: int, tool: str, meta: Message | None = None, **arguments: Any) -> Reply:
        """Call a tool under this id."""
        params: Message = {"name": tool, "arguments": arguments} | ({"_meta": meta} if meta else {})
        return Reply(b"", await self.ear.ask("tools/call", params, str(id_).encode()))

    def cancel(self, id_: int) -> None:
        """The call under this id is not wanted any more."""
        self.ear.tell("notifications/cancelled", {"requestId": id_})

    async def tools(self) -> list[str]:
        """The names of the tools listed now."""
        return [tool["name"] for tool in (await self.ear.ask("tools/list"))["result"]["tools"]]


@asynccontextmanager
async def served(servers: Mapping[str, Any], **sections: Any) -> AsyncIterator[Local]:
    """A bridge in front of these servers, and its client."""
    with anyio.fail_after(60):
        how = {"servers": servers, "results": {"strategy": "off"}, **sections}
        async with Bridge(Settings.model_validate(how)) as bridge:
            assert await bridge.settled(10)
            ear = Ear(bridge.server)
            await ear.initialize()
            yield Local(ear)


async def waiting(client: Local | StdioClient, number: int) -> None:
    """So many calls are held by the server."""

    async def held() -> str:
        return (await client.call("c__get_waiting")).text

    await eventually(held, lambda found: found == str(number))


async def test_the_same_call_is_answered_from_memory_and_says_so(place: Place) -> None:
    async with place.bridge({"c": counting()}) as client:
        await ready(client)
        first = await client.call("c__get_count", of="a", deep={"x": 1, "y": [1.0, 2]})
        assert (first.text, mark(first)) == ("get_count 1", None)
        params = {"arguments": {"deep": {"y": [1.0, 2], "x": 1}, "of": "a"}, "name": "c__get_count"}
        again = await client.request("tools/call", params)
        assert again.text == "get_count 1"
        told = mark(again)
        assert told
        assert told["hit"] is True
        assert 0 <= told["age"] <= told["ttl"] == 60
        assert (await client.call("c__get_count", of="b")).text == "get_count 2"
        assert (await client.call("c__get_count", of="a", deep={"x": 1, "y": [1, 2]})).text == "get_count 3"
        # What the client says beside the arguments is not part of the question.
        meta = {"progressToken": 7, "example.com/call": "17"}
        assert (await client.call("c__get_count", meta=meta, of="b")).text == "get_count 2"


async def test_what_a_server_says_itself_stays_as_it_was(place: Place) -> None:
    async with place.bridge({"c": counting()}) as client:
        await ready(client)
        first, again = [await client.call("c__get_meta") for _ in range(2)]
        assert again.result["_meta"].pop(MARK)
        assert first.result == again.result
        assert b'"big":1180591620717411303424' in again.raw.replace(b" ", b"")


async def test_concurrent_identical_calls_run_once(place: Place) -> None:
    async with place.bridge({"c": counting()}) as client:
        await ready(client)
        calls = [asyncio.create_task(client.call("c__get_held", of="x")) for _ in range(4)]
        await waiting(client, 1)
        assert (await client.call("c__get_released")).text == "1"
        replies = await asyncio.gather(*calls)
        assert [reply.text for reply in replies] == ["get_held 1"] * 4
        told = [mark(reply) for reply in replies]
        assert told.count(None) == 1
        assert sum(bool(one and one["shared"]) for one in told) == 3
        assert (await client.call("c__get_number", of="get_held")).text == "1"


async def test_a_client_that_leaves_does_not_end_the_run_of_the_others() -> None:
    async with served({"c": counting()}) as client:
        first = asyncio.create_task(client.start(900, "c__get_held", of="x"))
        await waiting(client, 1)
        other = asyncio.create_task(client.call("c__get_held", of="x"))
        await client.call("c__get_count", of="in between")  # the other is under way now
        client.cancel(900)
        await first
        await client.call("c__get_released")
        assert (await other).text == "get_held 1"
        assert (await client.call("c__get_number", of="cancelled")).text == "0"


async def test_a_run_that_nobody_waits_for_is_cancelled() -> None:
    async with served({"c": counting()}) as client:
        calls = [asyncio.create_task(client.start(id_, "c__get_held", of="x")) for id_ in (900, 901)]
        await waiting(client, 1)
        for id_ in (900, 901):
            client.cancel(id_)
        await asyncio.gather(*calls)

        async def cancelled() -> str:
            return (await client.call("c__get_number", of="cancelled")).text

        await eventually(cancelled, lambda number: number == "1")
        held = asyncio.create_task(client.call("c__get_held", of="x"))
        await waiting(client, 1)
        await client.call("c__get_released")
        assert (await held).text == "get_held 2"


async def test_failures_are_shared_and_not_kept() -> None:
    async with served({"c": counting()}) as client:
        assert [(await client.call("c__get_failed")).text for _ in range(2)] == ["get_failed 1", "get_failed 2"]
        errors = [(await client.call("c__get_error")).message["error"]["message"] for _ in range(2)]
        assert errors[0] != errors[1]


async def test_a_write_to_the_server_makes_it_forget_and_one_to_another_does_not() -> None:
    servers = {"c": counting(), "d": counting()}
    async with served(servers) as client:
        assert (await client.call("c__get_count")).text == "get_count 1"
        await client.call("d__set_mark")
        await client.call("c__get_number", of="get_count")  # it only reads
        assert (await client.call("c__get_count")).text == "get_count 1"
        await client.call("c__set_mark")
        assert (await client.call("c__get_count")).text == "get_count 2"
        await client.call("c__guess")  # who knows what it does
        assert (await client.call("c__get_count")).text == "get_count 3"
        assert (await client.call("c__get_count")).text == "get_count 3"


async def test_what_is_read_beside_a_write_is_not_kept() -> None:
    async with served({"c": counting()}) as client:
        read = asyncio.create_task(client.call("c__get_held", of="x"))
        await waiting(client, 1)
        await client.call("c__set_mark")
        late = asyncio.create_task(client.call("c__get_held", of="x"))  # must not get what was read before the write
        await waiting(client, 2)
        await client.call("c__get_released")
        assert [(await read).text, (await late).text] == ["get_held 1", "get_held 2"]
        assert (await client.call("c__get_held", of="x")).text == "get_held 2"


async def test_what_is_read_during_a_write_is_forgotten_when_that_ends() -> None:
    async with served({"c": counting()}) as client:
        write = asyncio.create_task(client.call("c__set_held"))
        await waiting(client, 1)
        assert (await client.call("c__get_count")).text == "get_count 1"
        await client.call("c__get_released")
        await write
        assert (await client.call("c__get_count")).text == "get_count 2"


async def test_what_was_kept_before_a_write_is_not_served_while_it_runs() -> None:
    """The write may have taken effect long before its answer comes."""
    async with served({"c": counting()}) as client:
        assert (await client.call("c__get_count")).text == "get_count 1"
        write = asyncio.create_task(client.call("c__set_held"))
        await waiting(client, 1)
        assert mark(answer := await client.call("c__get_count")) is None
        assert answer.text == "get_count 2"
        await client.call("c__get_released")
        await write


async def test_a_changed_list_makes_it_forget() -> None:
    async with served({"c": counting()}) as client:
        assert (await client.call("c__get_count")).text == "get_count 1"
        before = len(await client.tools())
        await client.call("c__get_more_tools")
        await eventually(client.tools, lambda tools: len(tools) > before)
        assert (await client.call("c__get_count")).text == "get_count 2"


@pytest.mark.parametrize("scope", ["private", "shared"])
async def test_results_are_for_the_principal_that_called_unless_they_are_shared(place: Place, scope: str) -> None:
    tokens = [{"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest()} for name in ("ann", "bob")]
    servers = {"c": counting(get_count={"cache": "60s", "cache_scope": scope})}
    async with (
        place.http_bridge(servers, http={"tokens": tokens}) as ann,
        HttpClient(ann.url, ann.command) as other,
        HttpClient(ann.url, ann.command) as bob,
    ):
        for client, name in ((ann, "ann"), (other, "ann"), (bob, "bob")):
            client.session["authorization"] = f"Bearer {name}"
            await ready(client)
        texts = [(await client.call("c__get_count")).text for client in (ann, other, bob)]
        assert texts == ["get_count 1", "get_count 1", "get_count 1" if scope == "shared" else "get_count 2"]


async def test_where_a_server_keeps_clients_apart_so_does_the_cache(place: Place) -> None:
    async with (
        place.http_bridge({"c": {**counting(), "share": "session", "cache_scope": "shared"}}) as one,
        HttpClient(one.url, one.command) as two,
    ):
        for client in (one, two):
            await ready(client)
        for client in (one, two, one, two):
            assert (await client.call("c__get_count")).text == "get_count 1"
        assert mark(await client.call("c__get_count"))


async def test_a_setting_for_the_whole_server_caches_only_what_is_known_to_read() -> None:
    """A name is no knowledge (`get_meta`); but a call of a tool with such a name forgets nothing."""
    reading = {"get_count": {"read_only": True}}
    async with served({"c": python_server("counting", cache="60s", tool=reading)}) as client:
        for tool, second in (("get_count", 1), ("get_meta", 2), ("guess", 2), ("set_mark", 2)):
            replies = [await client.call(f"c__{tool}") for _ in range(2)]
            assert replies[1].text.endswith(f" {second}")
            assert (mark(replies[1]) is not None) == (second == 1)
            if tool == "get_meta":
                assert mark(await client.call("c__get_count"))
        assert not mark(await client.call("c__get_count"))


async def test_a_tool_of_which_nothing_is_known_can_be_cached_by_name_and_then_forgets_nothing() -> None:
    async with served({"c": counting(guess={"cache": "60s"}, set_mark={"cache": "60s"})}) as client:
        for tool, second in (("get_count", 1), ("guess", 1), ("set_mark", 2)):
            texts = [(await client.call(f"c__{tool}")).text for _ in range(2)]
            assert texts == [f"{tool} 1", f"{tool} {second}"]


async def test_a_result_that_is_too_large_is_not_kept() -> None:
    servers = {"c": counting(get_large={"cache": "60s"})}
    async with served(servers, cache={"max_result": "64 KiB", "max_bytes": "150 KiB"}) as client:
        for size, second in ((60_000, "1"), (70_000, "3")):
            texts = [(await client.call("c__get_large", size=size)).text for _ in range(2)]
            assert texts[1].startswith(second)
        for size in (60_001, 60_002):  # there is room for two, the oldest goes
            await client.call("c__get_large", size=size)
        assert not mark(await client.call("c__get_large", size=60_000))


async def test_a_program_clears_what_is_kept_and_sees_how_it_served() -> None:
    settings = Settings.model_validate({"servers": {"c": counting(), "d": counting()}})
    with anyio.fail_after(60):
        async with Bridge(settings) as bridge:
            assert await bridge.settled(10)

            async def call(name: str) -> str:
                result = await bridge.request("tools/call", {"name": name, "arguments": {}})
                return result["content"][0]["text"]

            for server in ("c", "d", "c"):
                assert await call(f"{server}__get_count") == "get_count 1"
            told = json.loads(json.dumps(bridge.cache_status()))
            assert (told["entries"], told["hits"], told["misses"]) == (2, 1, 2)
            assert 0 < told["bytes"] < told["max_bytes"]
            tools = {tool["tool"]: (tool["entries"], tool["hits"]) for tool in told["tools"]}
            assert tools == {"c/get_count": (1, 1), "d/get_count": (1, 0)}
            assert bridge.clear_cache(server="d") == 1
            assert bridge.clear_cache(tool="set_*") == 0
            assert await call("c__get_count") == "get_count 1"
            assert await call("d__get_count") == "get_count 2"
            assert bridge.clear_cache(tool="c/*") == 1
            assert bridge.clear_cache() == 1
            assert bridge.cache_status()["entries"] == 0


@pytest.mark.parametrize("glob", ["get_count", "tally", "c/get_count", "c/tally"])
async def test_what_is_kept_of_a_renamed_tool_is_cleared_by_either_name(glob: str) -> None:
    servers = {"c": counting(get_count={"cache": "60s", "rename": "tally"})}
    with anyio.fail_after(60):
        async with Bridge(Settings.model_validate({"servers": servers})) as bridge:
            assert await bridge.settled(10)
            await bridge.request("tools/call", {"name": "c__tally", "arguments": {}})
            assert bridge.clear_cache(tool="c*/other*") == 0
            assert bridge.clear_cache(tool=glob) == 1


async def test_what_differs_in_a_member_of_meta_that_counts_is_not_the_same() -> None:
    async with served({"c": counting()}, cache={"vary": ["example.com/locale"]}) as client:
        for locale, number in (("de", 1), ("fr", 2), ("de", 1), ("fr", 2)):
            meta = {"example.com/locale": locale, "example.com/other": number}
            assert (await client.call("c__get_count", meta=meta)).text == f"get_count {number}"


async def test_a_restart_of_the_server_makes_it_forget() -> None:
    upstream = ScriptedTransport(LEGACY_SERVER)
    tool = {"echo": {"cache": 60, "read_only": True}}
    async with bridged({"up": upstream}, servers={"up": {"tool": tool}}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        for _ in range(2):
            await ear.ask("tools/call", {"name": "up__echo"})
        assert len(upstream.asked("tools/call")) == 1
        assert bridge.cache_status()["entries"] == 1
        upstream.line.ends("exit code 1")
        await upstream.tries(2)
        assert bridge.cache_status()["entries"] == 0


async def test_a_server_that_was_stopped_since_nobody_used_it_makes_it_forget_nothing(tmp_path: Path) -> None:
    """Its results are told on, and its next start changes nothing; a crash does."""
    upstream = ScriptedTransport(LEGACY_SERVER)
    how = {"idle_stop": 5, "tool": {"echo": {"cache": 60, "read_only": True}}}
    async with remembering_bridge(tmp_path, {"up": upstream}, servers={"up": how}) as bridge:
        ear, server = Ear(bridge.server), bridge.pool.upstreams["up"]
        await ear.initialize()
        await ear.ask("tools/call", {"name": "up__echo"})
        pass_time(6)
        while server.status.state != "idle":
            await server.connection.stepped()
        for arguments in ({}, {"n": 1}, {}):
            await ear.ask("tools/call", {"name": "up__echo", "arguments": arguments})
        assert len(upstream.asked("tools/call")) == 2
        assert bridge.cache_status()["entries"] == 2
        upstream.line.ends("exit code 1")
        while server.status.state == "ready":
            await server.connection.stepped()
        await ear.ask("tools/call", {"name": "up__echo", "arguments": {"n": 2}})
        assert bridge.cache_status()["entries"] == 1


async def test_a_server_with_other_settings_makes_it_forget_also_what_the_old_one_said_last() -> None:
    tool = {"echo": {"cache": 60, "read_only": True}}
    made: list[ScriptedTransport] = []

    class Replaced(Bridge):
        def _make_transport(self, name: str, settings: ServerSettings) -> ScriptedTransport:
            made.append(ScriptedTransport({**LEGACY_SERVER, "tools/list": SILENCE} if made else LEGACY_SERVER))
            return made[-1]

    def settings(*args: str) -> Settings:
        return Settings.model_validate({"servers": {"up": {"command": "x", "args": args, "tool": tool}}})

    with anyio.fail_after(10):
        async with Replaced(settings()) as bridge:
            assert await bridge.settled(30)
            await bridge.reload(settings("other"))
            listing = await made[1].hears("tools/list")
            await bridge.request("tools/call", {"name": "up__echo"})
            assert bridge.cache_status()["entries"] == 1
            made[1].line.gives({"jsonrpc": "2.0", "id": listing["id"], "result": LEGACY_SERVER["tools/list"]})
            assert await bridge.settled(30)
            assert bridge.cache_status()["entries"] == 0
            await bridge.request("tools/call", {"name": "up__echo"})
            assert made[1].asked("tools/call")


def asking(_: Message) -> Message:
    """A modern server that asks before it answers, and then counts."""
    return {
        "resultType": "input_required",
        "inputRequests": {
            "q": {
                "method": "elicitation/create",
                "params": {"mode": "form", "message": "Really?", "requestedSchema": {"type": "object"}},
            }
        },
    }


async def test_what_came_of_an_answer_is_not_kept() -> None:
    """What a client was asked for is good for its one call."""
    rounds = 0

    def answer(params: Message) -> Message:
        nonlocal rounds
        if "inputResponses" not in params:
            return asking(params)
        rounds += 1
        return {"resultType": "complete", "content": [{"type": "text", "text": f"answer {rounds}"}]}

    upstream = ScriptedTransport(MODERN_SERVER, **{"tools/call": answer})
    tool = {"echo": {"cache": 60, "read_only": True}}
    async with bridged({"up": upstream}, servers={"up": {"tool": tool}}) as bridge:
        ear = Ear(bridge.server)
        capable = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
        for number in (1, 2):
            first = await ear.ask_modern("tools/call", {"name": "up__echo"}, **capable)
            assert first["result"]["resultType"] == "input_required"
            (key,) = first["result"]["inputRequests"]
            params = {
                "name": "up__echo",
                "requestState": first["result"].get("requestState"),
                "inputResponses": {key: {"action": "accept", "content": {}}},
            }
            second = await ear.ask_modern("tools/call", params, **capable)
            assert second["result"]["content"][0]["text"] == f"answer {number}"
        assert bridge.cache_status()["entries"] == 0


async def test_tools_that_nothing_is_cached_of_have_no_stage() -> None:
    """Costs nothing where it is not used."""
    async with bridged({"up": ScriptedTransport(LEGACY_SERVER)}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        await ear.ask("tools/call", {"name": "up__echo"})
        assert bridge.cache_status() == {
            "entries": 0,
            "bytes": 0,
            "max_bytes": 64 * 1024**2,
            "hits": 0,
            "misses": 0,
            "shared": 0,
            "tools": [],
        }


async def test_commands_show_and_clear_what_a_running_bridge_keeps(place: Place) -> None:
    async with place.bridge({"c": counting(get_meta={"cache": "60s"})}) as client:
        await ready(client)
        for tool in ("get_count", "get_count", "get_meta"):
            await client.call(f"c__{tool}")
        shown = await place.run("cache")
        assert shown.code == 0
        assert "2 results" in shown.out
        assert "c/get_count" in shown.out
        told = json.loads((await place.run("cache", "--json")).out)
        assert [(bridge["entries"], bridge["hits"]) for bridge in told["bridges"]] == [(2, 1)]
        cleared = await place.run("cache", "clear", "--tool", "get_m*", "--json")
        assert json.loads(cleared.out) == {"format": "cache-clear/1", "cleared": 1}
        wrong = await place.run("cache", "clear", "--server", "nobody")
        assert (wrong.code, "no server" in wrong.err) == (2, True)
        assert "1 result forgotten" in (await place.run("cache", "clear", "--server", "c")).err
        assert (await client.call("c__get_count")).text == "get_count 2"


async def test_without_a_running_bridge_the_commands_say_so(place: Place) -> None:
    for arguments in ([], ["clear"]):
        ended = await place.run("cache", *arguments)
        assert (ended.code, "no bridge is running" in ended.err) == (4, True)
