"""`mcpbridge serve` with a daemon that is not there yet, and servers that are known (issue 21, start)."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from app.stdio_proxy.conftest import DAEMON, SERVERS, processes, served
from support.harness import Place, eventually, python_server
from support.rpc import MODERN, StdioClient, envelope

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets")

HOLD_BACK = """
import os, sys
if "daemon" in sys.orig_argv and os.path.exists({gate!r}):
    open({gate!r}, "rb").read()
"""
"""Run at the start of every Python: a daemon does nothing before the gate is opened and closed."""


class Cold:
    """A place whose daemon has ended, and which holds the next one back."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.gate = place.folder / "daemon-gate"
        self.folder = place.folder / ".local/state/mcpbridge/snapshots"
        site = place.folder / "site"
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(HOLD_BACK.format(gate=str(self.gate)))
        place.env["PYTHONPATH"] = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)

    async def know(self, version: str = "2025-11-25", *options: str, tool: str = "one__echo") -> None:
        """Have a daemon that serves the client of the tests once, with all servers up, and end it."""
        async with served(self.place, *options) as client:
            await open_as(client, version)
            while tool not in await tools_of(client, version):
                await client.notice("notifications/tools/list_changed")
            await eventually(self.files, bool, within=60)
        await self.end_daemon()

    async def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.snapshot"))

    async def end_daemon(self) -> None:
        for pid in processes(self.place, DAEMON):
            os.kill(pid, signal.SIGTERM)

        async def left() -> dict[int, str]:
            return self.place.survivors()

        await eventually(left, lambda found: not found, within=60)

    async def daemon(self) -> int:
        """The daemon that starts. The lists come from a snapshot, perhaps before its process is its program."""

        async def found() -> list[int]:
            return processes(self.place, DAEMON)

        [pid] = await eventually(found, bool, within=60)
        return pid

    def hold_back(self) -> None:
        os.mkfifo(self.gate)

    async def let_go(self) -> None:
        """Every daemon goes on, and the next ones are not held back."""

        def open_and_close() -> None:
            self.gate.open("wb").close()  # returns when a daemon waits
            self.gate.unlink()

        await asyncio.to_thread(open_and_close)


@pytest.fixture
def cold(shared: Place) -> Cold:
    return Cold(shared)


async def open_as(client: StdioClient, version: str) -> None:
    if version == MODERN:
        assert "result" in (await client.request("server/discover", {"_meta": envelope()}, within=60)).message
    else:
        await client.initialize(version)


async def tools_of(client: StdioClient, version: str) -> list[str]:
    params = {"_meta": envelope()} if version == MODERN else {}
    return [tool["name"] for tool in (await client.request("tools/list", params, within=60)).result["tools"]]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", MODERN])
async def test_lists_come_while_the_daemon_is_held_back_and_the_call_goes_through(cold: Cold, version: str) -> None:
    await cold.know(version)
    cold.hold_back()
    async with served(cold.place) as client:
        await open_as(client, version)
        assert "one__echo" in await tools_of(client, version)
        meta = envelope() if version == MODERN else None
        call = asyncio.create_task(client.call("one__echo", text="through", within=60, meta=meta))
        await cold.let_go()
        assert (await call).text == "through"
        assert "one__echo" in await tools_of(client, version)
        assert client.arrived == []


async def test_the_official_client_does_not_notice(cold: Cold) -> None:
    """Both of its eras: it finds out by itself which one the bridge speaks."""

    @asynccontextmanager
    async def session() -> AsyncIterator[ClientSession]:
        arguments = ["-m", "mcpbridge", "serve", "--config", str(cold.place.folder / "servers.toml")]
        environ = cold.place.environment()
        parameters = StdioServerParameters(command=sys.executable, args=arguments, env=environ, cwd=cold.place.folder)
        async with stdio_client(parameters) as streams, ClientSession(*streams) as opened:
            await opened.initialize()
            yield opened

    async with session() as warm:
        while "one__echo" not in (tools := [tool.name for tool in (await warm.list_tools()).tools]):
            await asyncio.sleep(0)
        await eventually(cold.files, bool, within=60)
    await cold.end_daemon()
    cold.hold_back()
    async with session() as early:
        assert [tool.name for tool in (await early.list_tools()).tools] == tools
        assert (await early.list_prompts()).prompts == []
        call = asyncio.create_task(early.call_tool("one__echo", {"text": "through"}))
        await cold.let_go()
        result: Any = await call
        assert result.content[0].text == "through"


GATED = """
import os, runpy, sys
gate, script = sys.argv[1:3]
if os.path.exists(gate):
    open(gate, "rb").read()
sys.path.insert(0, os.path.dirname(script))
sys.argv = [script]
runpy.run_path(script, run_name="__main__")
"""


async def test_a_call_waits_only_for_its_own_server(cold: Cold) -> None:
    gate, script = cold.place.folder / "gate", SERVERS["one"]["args"][-1]
    slow = {"command": sys.executable, "args": ["-ESc", GATED, str(gate), script]}
    cold.place.config({"slow": slow, **SERVERS})
    await cold.know(tool="slow__echo")
    os.mkfifo(gate)  # opened at the end
    async with served(cold.place) as client:
        await client.initialize()
        assert {"one__echo", "slow__echo"} <= set(await client.tools())
        assert (await client.call("one__echo", text="at once", within=60)).text == "at once"
        waiting = asyncio.create_task(client.call("slow__echo", text="later", within=60))
        (await asyncio.to_thread(gate.open, "wb")).close()
        assert (await waiting).text == "later"


CHANGING = """
import os, runpy, sys
name, script = sys.argv[1:3]
source = open(script).read().replace("echo", open(name).read().strip())
sys.path.insert(0, os.path.dirname(script))
sys.argv = [script]
exec(compile(source, script, "exec"), {"__name__": "__main__", "__file__": script})
"""


async def test_a_server_that_has_changed_is_notified_of_once(cold: Cold) -> None:
    name, script = cold.place.folder / "name", SERVERS["one"]["args"][-1]
    name.write_text("echo")
    one = {"command": sys.executable, "args": ["-ESc", CHANGING, str(name), script]}
    cold.place.config({"one": one}, daemon={"revalidate": 0})
    await cold.know()
    name.write_text("other")
    cold.hold_back()
    async with served(cold.place) as client:
        await client.initialize()
        assert "one__echo" in await client.tools()
        await cold.let_go()
        assert "one__other" in await client.tools_with("one__other")
        assert "one__echo" not in await client.tools()
        assert [one["method"] for one in client.arrived] == ["notifications/tools/list_changed"]


async def test_two_clients_of_one_cold_daemon_are_both_answered(cold: Cold) -> None:
    """The second one finds the socket of a daemon that does not greet."""
    await cold.know()
    cold.hold_back()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(served(cold.place)) for _ in range(2)]
        for client in clients:
            await client.initialize()
            assert "one__echo" in await client.tools()
        calls = [asyncio.create_task(one.call("one__echo", text="both", within=60)) for one in clients]
        await cold.let_go()
        assert [(await call).text for call in calls] == ["both", "both"]
        assert len(processes(cold.place, DAEMON)) == 1


async def test_a_daemon_that_is_killed_while_it_starts_is_replaced_unnoticed(cold: Cold) -> None:
    await cold.know()
    cold.hold_back()
    async with served(cold.place) as client, served(cold.place) as other:
        for one in (client, other):
            await one.initialize()
            assert "one__echo" in await one.tools()
        calls = [asyncio.create_task(one.call("one__echo", text="once", within=60)) for one in (client, other)]
        first = await cold.daemon()
        cold.gate.unlink()
        os.kill(first, signal.SIGKILL)
        assert [(await call).text for call in calls] == ["once", "once"]
        assert all(one.arrived == [] for one in (client, other))


async def test_a_daemon_that_cannot_start_leaves_the_client_a_bridge_of_its_own(cold: Cold) -> None:
    await cold.know()
    broken = "import os, sys\nif 'daemon' in sys.orig_argv: os._exit(3)\n"
    (cold.place.folder / "site/sitecustomize.py").write_text(broken)
    async with served(cold.place) as client:
        await client.initialize()
        assert "one__echo" in await client.tools()
        assert (await client.call("one__echo", text="alone", within=60)).text == "alone"
        await client.command.logged("mcpbridge: continuing without a daemon: ")


async def test_what_no_bridge_can_serve_is_refused_with_the_reason(cold: Cold) -> None:
    """The configuration is broken after the snapshot was read, and before the daemon reads it."""
    await cold.know()
    cold.hold_back()
    async with served(cold.place) as client:
        await client.initialize()
        assert "one__echo" in await client.tools()
        call = asyncio.create_task(client.call("one__echo", within=60))
        await client.request("ping", within=60)
        (cold.place.folder / "servers.toml").write_text("[servers.one]\ncomand = 'x'\n")
        await cold.let_go()
        error = (await call).message["error"]
        assert "servers.one.comand: unknown key" in error["message"]
        async with asyncio.timeout(60):
            assert await client.command.process.wait() != 0


@pytest.mark.parametrize("what", ["edited", "off", "another client"])
async def test_no_snapshot_answers_for_something_else(cold: Cold, what: str) -> None:
    await cold.know()
    config = cold.place.folder / "servers.toml"
    if what == "edited":
        config.write_text(config.read_text().replace("[servers", "# edited\n[servers", 1) + "\n")
    if what == "off":
        cold.place.env["MCPBRIDGE_SNAPSHOT"] = "0"
    cold.hold_back()
    async with served(cold.place) as client:
        sampling = {"sampling": {}} if what == "another client" else {}
        opening = asyncio.create_task(client.initialize(**sampling))
        await cold.let_go()
        await opening
        assert "one__echo" in await client.tools()


async def test_the_status_has_the_snapshots_and_the_settings_remove_them(cold: Cold) -> None:
    await cold.know()
    [before] = await cold.files()
    assert before.stat().st_mode & 0o777 == 0o600
    assert cold.folder.stat().st_mode & 0o777 == 0o700
    async with served(cold.place) as client:
        await client.initialize()
        assert (await client.call("one__echo", text="up", within=60)).text == "up"
        [bridge] = json.loads((await cold.place.run("status", "--json")).out)["bridges"]
        snapshot = bridge["daemon"]["snapshot"]
        assert (snapshot["kinds"], snapshot["bytes"]) == (1, before.stat().st_size)
        assert snapshot["used_s"] is not None
        assert "1 kind of client" in (await cold.place.run("status")).out
        cold.place.config(SERVERS, daemon={"snapshot": False})
        await cold.place.run("reload")
        await eventually(cold.files, lambda found: not found, within=60)
        [bridge] = json.loads((await cold.place.run("status", "--json")).out)["bridges"]
        assert bridge["daemon"]["snapshot"] is None


async def test_an_edit_makes_new_snapshots(cold: Cold) -> None:
    await cold.know()
    cold.place.config({**SERVERS, "two": python_server("plain")})
    async with served(cold.place) as client:
        await client.initialize()
        await client.tools_with("two__echo")

        async def head() -> bytes:
            found = await cold.files()
            with contextlib.suppress(FileNotFoundError):
                return found[0].read_bytes() if found else b""
            return b""

        await eventually(head, lambda data: b"two__echo" in data, within=60)
