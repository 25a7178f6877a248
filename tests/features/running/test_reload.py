"""Other settings for a bridge that runs: what they change is changed, and nothing else is disturbed (issue 7)."""

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from mcpbridge.app.admin.control_client import ask_all
from mcpbridge.base.directories import runtime_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.needs_restart import Reloaded
from mcpbridge.config.schema import Settings
from mcpbridge.engine.requests import RequestFailed
from mcpbridge.library.bridge import Bridge
from support.harness import Place, eventually, python_server, undisturbed
from support.in_process_bridge import Ear, bridged
from support.rpc import HttpClient
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport, call_of

Message = dict[str, Any]

CHANGED = "notifications/tools/list_changed"
UNWATCHED: Message = {"daemon": {"watch": False}}
"""For those who ask for each reload: else the bridge may have seen the edit first, and what they ask for is done."""


def settings_of(servers: Message, **sections: Any) -> Settings:
    return Settings.model_validate({"servers": servers, "results": {"strategy": "off"}, **sections})


@asynccontextmanager
async def running(servers: Message, **sections: Any) -> AsyncGenerator[Bridge]:
    with anyio.fail_after(90):
        async with Bridge(settings_of(servers, **sections)) as bridge:
            assert await bridge.settled(10)
            yield bridge


async def tools(bridge: Bridge) -> list[str]:
    return [tool["name"] for tool in (await bridge.request("tools/list", {}))["tools"]]


async def echo(bridge: Bridge, server: str = "a", text: str = "hello") -> str:
    result = await bridge.request("tools/call", {"name": f"{server}__echo", "arguments": {"text": text}})
    assert not result.get("isError"), result
    return result["content"][0]["text"]


async def shown(ear: Ear) -> list[str]:
    return [tool["name"] for tool in (await ear.ask("tools/list"))["result"]["tools"]]


def pid_of(bridge: Bridge, server: str) -> int:
    pid = getattr(bridge.pool.upstreams[server].transport, "pid", None)
    assert isinstance(pid, int)
    return pid


async def ends(pid: int) -> None:
    """Return when there is no such process any more."""

    async def is_gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    assert await eventually(is_gone, bool)


# -- servers


async def test_servers_come_and_go_and_the_others_notice_nothing() -> None:
    async with running({"a": python_server("plain"), "b": python_server("plain")}) as bridge:
        first, gone = pid_of(bridge, "a"), pid_of(bridge, "b")
        done = await bridge.reload(settings_of({"a": python_server("plain"), "c": python_server("plain")}))
        assert (done.added, done.removed, done.replaced, done.kept, done.sections) == (("c",), ("b",), (), (), ())
        assert await echo(bridge, "c") == "hello"
        assert await echo(bridge) == "hello"
        assert pid_of(bridge, "a") == first
        await ends(gone)
        assert "b__echo" not in await tools(bridge)
        with pytest.raises(RequestFailed, match="b__echo"):
            await echo(bridge, "b")
        assert [server["name"] for server in bridge.status()["servers"]] == ["a", "c"]


async def test_a_server_that_is_switched_off_goes_and_comes_back() -> None:
    async with running({"a": python_server("plain")}) as bridge:
        done = await bridge.reload(settings_of({"a": python_server("plain", disabled=True)}))
        assert done.removed == ("a",)
        assert await tools(bridge) == []
        assert bridge.status()["servers"][0]["state"] == "disabled"
        done = await bridge.reload(settings_of({"a": python_server("plain")}))
        assert done.added == ("a",)
        assert await echo(bridge) == "hello"


async def test_a_call_ends_at_the_process_that_it_began_at() -> None:
    """In-flight calls finish on the old instance; new ones get the new one, and the old one ends after its last."""
    async with running({"a": python_server("plain")}) as bridge:
        old, pid = bridge.pool.upstreams["a"], pid_of(bridge, "a")
        held = asyncio.create_task(bridge.request("tools/call", {"name": "a__hold"}))
        await eventually(lambda: asyncio.sleep(0, len(old.running)), bool)
        done = await bridge.reload(settings_of({"a": python_server("plain", "2025-06-18")}))
        assert done.replaced == ("a",)
        assert await bridge.settled(10)
        assert await echo(bridge) == "hello"
        assert pid_of(bridge, "a") != pid
        assert Path(f"/proc/{pid}").exists()
        await old.request(call_of("release"))
        assert (await held)["content"][0]["text"] == "released"
        await ends(pid)


async def test_no_call_is_lost_while_the_settings_change_all_the_time() -> None:
    async with running({"a": python_server("plain"), "b": python_server("plain")}) as bridge:
        is_over = False
        calls = 0

        async def go_on(server: str) -> None:
            nonlocal calls
            while not is_over:
                assert await echo(bridge, server, text := f"{calls}") == text
                calls += 1

        async with asyncio.TaskGroup() as group:
            for server in "abab":
                group.create_task(go_on(server))
            for number in range(12):
                a = python_server("plain", tools={"exclude": ["raw_*"] if number % 2 else []})
                b = python_server("plain", *(["2025-06-18"] if number % 4 > 1 else []))
                limits = {"max_per_client": 50 + number, "call_timeout": 30 + number}
                done = await bridge.reload(settings_of({"a": a, "b": b}, calls=limits))
                assert done
                before = calls
                while calls < before + 20:
                    await asyncio.sleep(0.005)
            is_over = True


async def test_many_reloads_leave_nothing_behind() -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - its entries may be gone by the time they are looked at

    async def reloaded(number: int) -> None:
        hook = {"event": "tool_call.before", "url": f"http://127.0.0.1:1/{number}", "tools": ["nothing"]}
        servers = {"a": python_server("plain", *(["2025-06-18"] if number % 2 else []))}
        sections = {"hooks": [hook], "code": {"enabled": True, "max_calls": number + 1}}
        assert await bridge.reload(settings_of(servers, **sections))
        assert await bridge.settled(10)
        assert await echo(bridge) == "hello"

    async with running({"a": python_server("plain")}) as bridge:
        await reloaded(0)
        await reloaded(1)
        await eventually(lambda: asyncio.sleep(0, len(bridge._background.under_way())), lambda count: not count)  # pyright: ignore[reportPrivateUsage]
        pid = pid_of(bridge, "a")

        async def left() -> tuple[int, int, int]:
            children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
            return len(asyncio.all_tasks()), open_files(), len(children)

        before = await left()
        for number in range(2, 22):
            await reloaded(number)
        assert pid_of(bridge, "a") != pid
        await eventually(left, lambda now: all(after <= first for after, first in zip(now, before, strict=True)))


async def test_a_served_file_is_reloaded_under_steady_calls_and_none_is_lost(place: Place) -> None:
    """The bridge as people run it, asked by its control socket as `mcpbridge reload` does."""
    ask = {"do": "reload"}
    async with place.http_bridge({"a": python_server("plain"), "b": python_server("plain")}, **UNWATCHED) as client:
        await client.initialize()
        await client.tools_with("b__echo")
        others = [undisturbed(client, f"{server}__echo") for server in "aabb"]
        async with AsyncExitStack() as steady:
            for other in others:
                await steady.enter_async_context(other)
            for number in range(6):
                a = python_server("plain", *["2025-06-18"] * (number % 2))
                place.config({"a": a, "b": python_server("plain")}, **UNWATCHED)
                [told] = await anyio.to_thread.run_sync(ask_all, runtime_directory(place.environment()), ask)
                assert told["ok"], told
                assert told.get("replaced", []) == ([] if not number else ["a"])
            both = {"a": python_server("plain"), "b": python_server("plain")}
            place.config(both, profiles={"part": {"servers": ["b"]}}, **UNWATCHED)
            [told] = await anyio.to_thread.run_sync(ask_all, runtime_directory(place.environment()), ask)
            assert told["sections"] == ["profiles"]
            async with HttpClient(client.url.replace("/mcp", "/p/part/mcp"), client.command) as at_profile:
                await at_profile.initialize()
                assert {name.partition("__")[0] for name in await at_profile.tools_with("b__echo")} == {"b"}
            place.config({"a": python_server("plain"), "b": {"command": 5}}, **UNWATCHED)
            [told] = await anyio.to_thread.run_sync(ask_all, runtime_directory(place.environment()), ask)
            assert not told["ok"]

        async def servers() -> list[str]:
            return [line for line in place.survivors().values() if "plain.py" in line]

        await eventually(servers, lambda found: len(found) == 2)


async def test_a_server_that_is_slow_to_start_is_replaced_under_load_and_no_call_is_lost(place: Place) -> None:
    """200 calls a second. Before the new process is up there come more calls than may wait for it."""
    marker = place.folder / "marker"
    at_once = asyncio.Semaphore(32)  # as many as can wait at any time, so that no pause of the machine is too long

    def slow(name: str, until: str = ":") -> Message:
        signs = python_server("stubborn", "starts-slowly", "0", name)
        words = f"{until}; exec {shlex.join([signs['command'], *signs['args']])}"
        return {"a": {"command": "sh", "args": ["-c", words], "max_queued": 48}}

    async with place.http_bridge(slow("old"), **UNWATCHED) as client:
        await client.initialize()
        await client.tools_with("a__echo")
        calls: list[asyncio.Task[str]] = []
        who: list[str] = []

        async def call(number: int) -> str:
            async with at_once:
                is_new = "new" in who
                reply = await client.call("a__echo", within=60, text=str(number))
            assert not reply.failed, reply.text
            name, text = reply.text.split()
            assert name == "new" or not is_new, "from one moment on it is the new one"
            who.append(name)
            return text

        async def go_on(count: int) -> None:
            for _ in range(count):
                calls.append(asyncio.create_task(call(len(calls))))
                await asyncio.sleep(0.005)

        await go_on(60)
        await asyncio.gather(*calls)
        assert who == ["old"] * 60
        place.config(slow("new", f"until test -e {shlex.quote(str(marker))}; do sleep 0.01; done"), **UNWATCHED)
        [told] = await anyio.to_thread.run_sync(ask_all, runtime_directory(place.environment()), {"do": "reload"})
        assert told["replaced"] == ["a"]
        await go_on(320)
        await asyncio.gather(*calls)
        assert who == ["old"] * 380
        marker.touch()
        while "new" not in who:
            await go_on(10)
            await asyncio.gather(*(one for one in calls if one.done()))  # if one failed, it is told now
        await go_on(10)
        assert await asyncio.gather(*calls) == [str(number) for number in range(len(calls))]
        assert await call(0) == "0"


# -- what clients are listed


async def test_another_filter_is_told_once_and_starts_nothing() -> None:
    async with running({"a": python_server("plain"), "b": python_server("plain")}) as bridge:
        ear, pid = Ear(bridge.server), pid_of(bridge, "a")
        await ear.initialize()
        assert "a__raw_result" in await shown(ear)
        servers = {"a": python_server("plain", tools={"exclude": ["raw_*"]}), "b": python_server("plain")}
        done = await bridge.reload(settings_of(servers))
        assert done == Reloaded(kept=("a",))
        assert [message["method"] for message in ear.told] == [CHANGED]
        assert "a__raw_result" not in await shown(ear)
        assert "b__raw_result" in await shown(ear)
        assert pid_of(bridge, "a") == pid


async def test_who_sees_the_same_as_before_is_told_nothing() -> None:
    rule = {"permission": "deny", "tools": ["a/raw_*"], "clients": ["ear"]}
    async with running({"a": python_server("plain")}) as bridge:
        ear, other = Ear(bridge.server), Ear(bridge.server)
        await ear.initialize()
        await other.initialize()
        other.client.introduce({"name": "other"})
        for one in (ear, other):
            assert "a__raw_result" in await shown(one)
        done = await bridge.reload(settings_of({"a": python_server("plain")}, permissions=[rule]))
        assert done == Reloaded(sections=("permissions",))
        assert [message["method"] for message in ear.told] == [CHANGED]
        assert other.told == []
        assert "a__raw_result" not in await shown(ear)
        assert "a__raw_result" in await shown(other)
        refused = (await ear.ask("tools/call", {"name": "a__raw_result", "arguments": {"raw": "{}"}}))["result"]
        assert "denied by the policy" in refused["content"][0]["text"]
        await bridge.reload(settings_of({"a": python_server("plain")}))
        assert len(ear.told) == 2
        assert "a__raw_result" in await shown(ear)


async def test_an_open_stream_is_told_once_and_keeps_nothing_of_the_old_settings() -> None:
    async with running({"a": python_server("plain")}, hooks=[_HOOK]) as bridge:
        ear = Ear(bridge.server)
        wanted = {"notifications": {"toolsListChanged": True}}
        stream = asyncio.create_task(ear.ask_modern("subscriptions/listen", wanted, b"5"))
        await ear.hears("notifications/subscriptions/acknowledged")
        held = len(bridge.leases)
        await bridge.reload(settings_of({"a": python_server("plain", tools={"exclude": ["raw_*"]})}, results={}))
        assert [message["method"] for message in ear.meanwhile[1:]] == [CHANGED]
        await eventually(lambda: asyncio.sleep(0, len(bridge.leases)), lambda now: now == held)
        bridge.server.listeners.end_all()
        assert (await stream)["result"]["resultType"] == "complete"


async def test_the_same_settings_change_nothing() -> None:
    async with running({"a": python_server("plain")}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        assert not await bridge.reload(settings_of({"a": python_server("plain")}))
        assert ear.told == []


async def test_profiles_come_and_who_came_to_one_that_goes_sees_nothing() -> None:
    servers = {"a": python_server("plain"), "b": python_server("plain")}
    async with running(servers) as bridge:
        done = await bridge.reload(settings_of(servers, profiles={"part": {"servers": ["b"]}}))
        assert done == Reloaded(sections=("profiles",))
        assert list(bridge.server.profiles) == ["part"]
        ear = Ear(bridge.server)
        ear.client.profile_name = "part"
        await ear.initialize()
        assert {name.partition("__")[0] for name in await shown(ear)} == {"b"}
        await bridge.reload(settings_of(servers))
        assert list(bridge.server.profiles) == []
        assert [message["method"] for message in ear.told] == [CHANGED]
        assert await shown(ear) == []
        answer = await ear.ask("tools/call", {"name": "a__echo", "arguments": {"text": "x"}})
        assert answer["error"]["code"] == -32602


async def test_names_and_lists_follow_the_settings_of_the_bridge() -> None:
    transports = {"a": ScriptedTransport(LEGACY_SERVER), "b": ScriptedTransport(LEGACY_SERVER)}
    async with bridged(transports) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        assert await shown(ear) == ["a__echo", "b__echo"]
        plain = {name: {"command": "scripted"} for name in transports}
        await bridge.reload(settings_of({"a": plain["a"]}, bridge={"prefix": "never", "instructions": "hear, hear"}))
        assert await shown(ear) == ["echo"]
        assert len(ear.told) == 1
        assert (await Ear(bridge.server).initialize())["instructions"].startswith("hear, hear")
        await bridge.reload(settings_of({"a": plain["a"]}, expose={"mode": "search"}))
        assert await shown(ear) == ["call_tool", "describe_tools", "find_tools"]
        assert len(ear.told) == 2


# -- what becomes of calls


async def test_results_are_treated_as_the_new_settings_say() -> None:
    long = {"content": [{"type": "text", "text": "one line of text\n" * 2000}]}
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": long})
    async with bridged({"a": transport}) as bridge:
        whole = (await bridge.request("tools/call", {"name": "a__echo"}))["content"][0]["text"]
        await bridge.reload(Settings.model_validate({"servers": {"a": {"command": "scripted"}}}))
        short = (await bridge.request("tools/call", {"name": "a__echo"}))["content"][0]["text"]
        assert len(short) < len(whole) / 4
        assert transport.attempts == 1


async def test_what_was_counted_and_kept_stays() -> None:
    """Rates that stay the same are counted on, kept results answer on, and what was spent is spent."""
    served = ScriptedTransport(LEGACY_SERVER)
    calls = {"rate_limit": "3/h", "cache": 60}

    def changed(number: int) -> Settings:
        server = {"command": "scripted", "tool": {"echo": {"read_only": True}}, "tags": [str(number)]}
        return settings_of({"a": server}, calls=calls)

    async with bridged({"a": served}, servers={"a": {"tool": {"echo": {"read_only": True}}}}, calls=calls) as bridge:
        for number in range(3):
            await bridge.request("tools/call", {"name": "a__echo"}, user="ann")
            assert await bridge.reload(changed(number)) == Reloaded(kept=("a",))
        assert len(served.asked("tools/call")) == 1, "the kept result answered"
        refused = await bridge.request("tools/call", {"name": "a__echo"}, user="ann")
        assert refused["_meta"]["mcpbridge/error"] == "RateLimited"
        assert bridge.metrics.of_server("a").calls == 4


async def test_a_call_that_waits_for_a_person_waits_on() -> None:
    server = {"command": "scripted", "permission": "require_approval"}
    transport = ScriptedTransport(LEGACY_SERVER)
    async with bridged({"a": transport}, servers={"a": {"permission": "require_approval"}}) as bridge:
        call = asyncio.create_task(bridge.request("tools/call", {"name": "a__echo"}))
        pending = await eventually(bridge.approvals.pending, bool)
        await bridge.reload(settings_of({"a": {**server, "title": "A"}}, approval={"timeout": 100}))
        await bridge.approvals.decide(pending[0].request.id, "once", "me")
        assert (await call)["content"][0]["text"] == "done"


async def test_hooks_are_the_new_ones_for_new_calls(tmp_path: Path) -> None:
    refuse = tmp_path / "refuse.py"
    refuse.write_text('import json, sys\njson.load(sys.stdin)\nprint(json.dumps({"refuse": "not today"}))\n')
    hook = {"event": "tool_call.before", "command": [sys.executable, "-S", str(refuse)]}
    async with bridged({"a": ScriptedTransport(LEGACY_SERVER)}) as bridge:
        settings = bridge.settings
        assert (await bridge.request("tools/call", {"name": "a__echo"}))["content"][0]["text"] == "done"
        with_hook = settings.model_copy(update={"hooks": settings_of({}, hooks=[hook]).hooks})
        assert await bridge.reload(with_hook) == Reloaded(sections=("hooks",))
        refused = await bridge.request("tools/call", {"name": "a__echo"})
        assert "not today" in refused["content"][0]["text"]
        await bridge.reload(settings)
        assert (await bridge.request("tools/call", {"name": "a__echo"}))["content"][0]["text"] == "done"


async def test_what_runs_for_the_old_settings_ends_with_their_last_call() -> None:
    async with running({"a": python_server("plain")}, hooks=[_HOOK]) as bridge:
        kept = len(bridge.leases)
        held = asyncio.create_task(bridge.request("tools/call", {"name": "a__hold"}))
        await eventually(lambda: asyncio.sleep(0, len(bridge.pool.upstreams["a"].running)), bool)
        await bridge.reload(settings_of({"a": python_server("plain")}))
        assert len(bridge.leases) == kept + 1, "the hooks of the held call are still there"
        await bridge.request("tools/call", {"name": "a__release"})
        await held
        await eventually(lambda: asyncio.sleep(0, len(bridge.leases)), lambda now: now == kept)


_HOOK = {"event": "tool_call.before", "url": "http://127.0.0.1:1/", "tools": ["nothing"]}


# -- what takes a restart, and what cannot be had


async def test_what_takes_a_restart_is_named_and_disturbs_nothing() -> None:
    async with bridged({"a": ScriptedTransport(LEGACY_SERVER)}) as bridge:
        servers = {"a": {"command": "scripted"}}
        wanted = settings_of(
            servers,
            store={"max_bytes": "10 MiB"},
            bridge={"name": "other", "list_ttl": 5},
            daemon={"idle_exit": 5, "watch": False},
        )
        done = await bridge.reload(wanted)
        assert done.needs_restart == ("bridge.name", "store.max_bytes", "daemon.idle_exit")
        assert done.sections == ("bridge", "daemon")
        assert bridge.settings.bridge.name == "mcpbridge"
        assert bridge.settings.bridge.list_ttl == 5
        assert not bridge.settings.daemon.watch
        assert bridge.status()["needs_restart"] == list(done.needs_restart)
        assert (await bridge.reload(wanted)).needs_restart == done.needs_restart, "as long as it was not started anew"
        assert (await bridge.reload(settings_of(servers))).needs_restart == ()
        assert bridge.status()["needs_restart"] == []


async def test_settings_that_cannot_be_had_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running({"a": python_server("plain")}) as bridge:
        pid, kept, settings = pid_of(bridge, "a"), len(bridge.leases), bridge.settings
        monkeypatch.setattr("mcpbridge.sandbox.python.program.why_none", lambda: "programs cannot run here")
        with pytest.raises(ConfigError, match="programs cannot run here"):
            await bridge.reload(settings_of({}, code={"enabled": True}, hooks=[_HOOK], search={"feedback": True}))
        assert bridge.settings is settings
        assert await echo(bridge) == "hello"
        assert (pid_of(bridge, "a"), len(bridge.leases)) == (pid, kept)
