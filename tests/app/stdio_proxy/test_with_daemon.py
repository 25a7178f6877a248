"""The shim and the real daemon, before real servers: one of each, whatever ends when (issue 7)."""

import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from app.stdio_proxy.conftest import DAEMON, SERVER, SERVERS, processes, served
from mcpbridge.app.daemon.log_rotation import LARGEST
from mcpbridge.base.directories import daemon_key
from support.harness import Place, eventually
from support.programs.daemon_process import socket_of
from support.rpc import StdioClient, envelope

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets")


async def ready(client: StdioClient) -> None:
    await client.initialize()
    await client.tools_with("one__echo")


def kill_daemon(place: Place) -> int:
    [pid] = processes(place, DAEMON)
    os.kill(pid, signal.SIGKILL)
    return pid


async def test_ten_clients_at_once_share_one_daemon_and_one_server(shared: Place) -> None:
    """Whoever comes first starts it; nobody waits for the others."""
    async with AsyncExitStack() as stack:
        clients = await asyncio.gather(*(stack.enter_async_context(served(shared)) for _ in range(10)))
        await asyncio.gather(*(client.initialize() for client in clients))
        await clients[0].tools_with("one__echo")
        replies = await asyncio.gather(
            *(client.call("one__echo", text=str(n), within=60) for n, client in enumerate(clients))
        )
        assert [reply.text for reply in replies] == [str(n) for n in range(10)]
        assert len(processes(shared, DAEMON)) == 1
        assert len(processes(shared, SERVER)) == 1
        assert not [line for client in clients for line in client.command.log]
    assert len(processes(shared, DAEMON)) == 1, "it stays for those who come next"


async def test_a_killed_daemon_costs_the_call_it_was_at_and_no_more(shared: Place) -> None:
    async with served(shared) as client, served(shared) as other:
        await ready(client)
        await other.initialize()
        holding = asyncio.create_task(client.call("one__hold", within=60))

        async def has_begun() -> bool:  # the two clients' lines go different ways
            return '"hold"' in (await other.call("one__journal", within=60)).text

        await eventually(has_begun, bool)
        killed = kill_daemon(shared)
        reply = await holding
        assert reply.failed
        assert "not known whether the tool had its effect" in reply.text
        assert (await client.call("one__echo", text="again", within=60)).text == "again"
        assert (await other.call("one__echo", text="too", within=60)).text == "too"
        [daemon] = processes(shared, DAEMON)
        assert daemon != killed

        async def servers() -> list[int]:
            return processes(shared, SERVER)

        await eventually(servers, lambda found: len(found) == 1)  # that of the killed one goes with it


async def test_a_socket_that_a_killed_daemon_left_is_in_nobodys_way(shared: Place) -> None:
    config = shared.folder / "servers.toml"
    log = shared.folder / f".local/state/mcpbridge/daemon-{daemon_key(config)}.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"x" * (LARGEST + 1))
    async with served(shared) as client:
        await ready(client)
        [daemon] = processes(shared, DAEMON)
        assert os.getsid(daemon) not in (os.getsid(0), os.getsid(client.command.pid)), "who ends groups spares it"
        assert f"PPid:\t{client.command.pid}\n" not in Path(f"/proc/{daemon}/status").read_text(), "and descendants"
        assert Path(f"/proc/{daemon}/cwd").readlink() == shared.folder
    assert log.stat().st_mode & 0o777 == 0o600
    assert b"daemon started" in log.read_bytes()[:1000]
    assert log.with_name(log.name + ".1").stat().st_size == LARGEST + 1, "put aside"
    kill_daemon(shared)
    assert socket_of(shared, config).exists()
    async with served(shared) as client:
        await ready(client)
        assert (await client.call("one__echo", text="back")).text == "back"


async def test_a_killed_shim_is_forgotten_and_its_daemon_stays(shared: Place) -> None:
    async with served(shared) as client:
        await ready(client)
        async with served(shared) as killed:
            await killed.initialize()
            os.kill(killed.command.pid, signal.SIGKILL)
            await killed.command.process.wait()

            async def connected() -> int:
                [told] = json.loads((await shared.run("status", "--json")).out)["bridges"]
                return len(told["daemon"]["clients"])

            await eventually(connected, lambda number: number == 1)
        assert (await client.call("one__echo", text="here")).text == "here"


async def test_restarts_and_stops_of_the_daemon_are_not_noticed(shared: Place) -> None:
    config = str(shared.folder / "servers.toml")
    async with served(shared) as client:
        await ready(client)
        before = processes(shared, DAEMON)
        assert (await shared.run("restart", "--config", config)).code == 0
        assert (await client.call("one__echo", text="restarted", within=60)).text == "restarted"
        after = processes(shared, DAEMON)
        assert len(after) == 1
        assert (await shared.run("down", "--config", config)).code == 0
        assert processes(shared, DAEMON) == [], "as long as nobody wants anything"
        assert (await client.call("one__echo", text="woken", within=60)).text == "woken"
        assert processes(shared, DAEMON) not in (before, after, [])


async def test_a_modern_client_that_leaves_out_the_meta_is_told_so_through_the_shim(shared: Place) -> None:
    """MCP 2026-07-28, Base Protocol, `_meta`: a request without it is refused with -32602, which names the key."""
    async with served(shared) as client:
        assert "result" in (await client.request("server/discover", {"_meta": envelope()}, within=60)).message
        for method, params in (("tools/list", {}), ("tools/call", {"name": "one__echo", "arguments": {}})):
            error = (await client.request(method, params, within=60)).message["error"]
            assert error["code"] == -32602
            assert "io.modelcontextprotocol/protocolVersion" in error["message"]
        listed = await client.request("tools/list", {"_meta": envelope()}, within=60)
        assert "result" in listed.message, "the channel goes on"


SLOW_SERVER = """
import os, runpy, sys
gate, script = sys.argv[1:3]
if os.path.exists(gate):
    open(gate, "rb").read()
sys.path.insert(0, os.path.dirname(script))
sys.argv = [script]
runpy.run_path(script, run_name="__main__")
"""


async def test_a_cold_daemon_lists_what_it_knows_before_any_server_runs(shared: Place) -> None:
    """Some clients list once, right after their hello, and know nothing of what comes later (issue 13)."""
    gate, script = shared.folder / "gate", SERVERS["one"]["args"][-1]
    shared.config({"one": {"command": sys.executable, "args": ["-ESc", SLOW_SERVER, str(gate), script]}})
    async with served(shared) as client:
        await ready(client)
        known = await client.tools()
    for pid in processes(shared, DAEMON):
        os.kill(pid, signal.SIGTERM)

    async def left() -> dict[int, str]:
        return shared.survivors()

    await eventually(left, lambda found: not found, within=60)
    os.mkfifo(gate)  # from now on a server says nothing before this is opened and closed
    async with served(shared) as client:
        await client.initialize()
        assert await client.tools() == known
        assert "one__echo" in known
        call = asyncio.create_task(client.call("one__echo", text="at once", within=60))
        (await asyncio.to_thread(gate.open, "wb")).close()  # returns when the server waits
        assert (await call).text == "at once"


async def test_a_view_that_there_is_not_ends_the_shim_with_the_reason(shared: Place) -> None:
    config = str(shared.folder / "servers.toml")
    finished = await shared.run("serve", "--config", config, "--server", "onee")
    assert finished.code == 2
    assert finished.err.splitlines() == ["mcpbridge: no server is called 'onee'. Did you mean 'one'?"]


async def test_a_wrong_configuration_is_told_with_its_line(shared: Place) -> None:
    (shared.folder / "servers.toml").write_text("[servers.one]\ncomand = 'x'\n")
    finished = await shared.run("serve", "--config", str(shared.folder / "servers.toml"))
    assert finished.code == 2
    assert f"{shared.folder}/servers.toml:2: servers.one.comand: unknown key" in finished.err


@pytest.mark.parametrize("why", ["the directory is not private", "the daemon does not start"])
async def test_without_a_daemon_the_bridge_is_in_the_process(shared: Place, tmp_path: Path, why: str) -> None:
    if why == "the directory is not private":
        runtime = Path(shared.environment()["XDG_RUNTIME_DIR"])
        (runtime / "mcpbridge").mkdir(mode=0o755)
    else:
        (tmp_path / "site").mkdir()
        broken = "import os, sys\nif 'daemon' in sys.orig_argv: os._exit(3)\n"
        (tmp_path / "site/sitecustomize.py").write_text(broken)
        shared.env["PYTHONPATH"] = str(tmp_path / "site")
    async with served(shared) as client:
        await ready(client)
        assert (await client.call("one__echo", text="alone")).text == "alone"
        assert processes(shared, DAEMON) == []
        await client.command.logged("mcpbridge: continuing without a daemon: ")
    assert processes(shared, SERVER) == []
