"""Servers in the sandbox: what they cannot reach, what they are given, how they end, and when they are not started."""

import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import ValidationError

from mcpbridge.base.errors import UpstreamError
from mcpbridge.base.process import process
from mcpbridge.sandbox.runner import Isolation
from mcpbridge.sandbox.settings import SandboxSettings
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Upstream
from mcpbridge.upstream.transports.factory import TransportMaker
from mcpbridge.upstream.transports.sandboxed_stdio import SandboxedTransport
from support.upstreams.scripted_upstream import Watcher, call_of

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no sandbox elsewhere")

SERVERS = Path(__file__).parents[2] / "servers"
REAL = Path(__file__).parents[3] / ".venv-servers/bin/mcp-server-time"
_SANDBOX = Isolation(SandboxSettings())
_ALONE = Isolation(SandboxSettings(mode="launcher"))

either = pytest.mark.parametrize("runner", [_SANDBOX, _ALONE], ids=["best", "launcher"])

LEFT_ALONE = """
import anyio, sys
from mcpbridge.sandbox.runner import Isolation
from mcpbridge.sandbox.settings import SandboxSettings
from mcpbridge.upstream.transports.sandboxed_stdio import SandboxedTransport
from mcpbridge.upstream.settings import ServerSettings

class Deaf:
    def __getattr__(self, name): return lambda *_, **__: None

async def main(mode, servers, out):
    files = {"read_only": [servers], "read_write": [out]}
    how = {"command": sys.executable, "args": ["-ES", servers + "/prying.py", out + "/held"]}
    settings = ServerSettings.model_validate({**how, "sandbox": {"allow_fs": files}})
    runner = Isolation(SandboxSettings(mode=mode))
    transport = SandboxedTransport("up", settings, lambda: runner, max_bytes=1 << 20)
    async with transport.connect(Deaf()):
        await anyio.sleep_forever()

anyio.run(main, *sys.argv[1:])
"""
"""A bridge that starts the prying server and does nothing else."""


@asynccontextmanager
async def started(
    sandbox: dict[str, Any] | None = None,
    *args: str,
    runner: Isolation = _SANDBOX,
    state: str = "ready",
    name: str = "up",
    **settings: Any,
) -> AsyncIterator[Upstream]:
    """The prying server, in a sandbox that lets it read its own program."""
    own = sandbox or {}
    own = {**own, "allow_fs": {"read_only": [str(SERVERS)], **own.get("allow_fs", {})}}
    how = {"command": sys.executable, "args": ["-ES", str(SERVERS / "prying.py"), *args], "sandbox": own}
    servers = {name: ServerSettings.model_validate({**how, "start": "eager", **settings})}
    watcher, make = Watcher(), TransportMaker(max_bytes=1 << 20, redact=str, runner=lambda: runner)
    pool = Pool(servers, make, watcher, client_info={"name": "b", "version": "1"})
    with anyio.fail_after(120):
        async with pool.running():
            await watcher.reaches(state)
            yield pool.upstreams[name]


async def told(up: Upstream, name: str, **arguments: Any) -> str:
    call = call_of(name)
    call.params.put("arguments", arguments)
    return (await up.request(call)).value()["content"][0]["text"]


@on_linux
@either
async def test_it_reaches_nothing_but_what_it_is_given(
    runner: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_CANARY", "canary")
    tmp_path.chmod(0o755)
    (tmp_path / "secret").write_text("canary")
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "file").write_text("to read")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        access = {"allow_fs": {"read_only": [str(SERVERS), str(shown)]}}
        async with started(access, runner=runner, env={"OWN": "mine"}) as up:
            assert isinstance(up.transport, SandboxedTransport)
            assert up.transport.tier in ("bubblewrap", "launcher")
            assert (await told(up, "read", path=str(tmp_path / "secret"))).startswith("stopped")
            assert (await told(up, "write", path=str(tmp_path / "made"))).startswith("stopped")
            assert (await told(up, "write", path=str(shown / "made"))).startswith("stopped")
            assert (await told(up, "connect", port=port)).startswith("stopped")
            assert await told(up, "read", path=str(shown / "file")) == "to read"
            assert await told(up, "variable", of="SECRET_CANARY") == "not there"
            assert await told(up, "variable", of="OWN") == "mine"
            assert await told(up, "home") == "[] True"
            assert await told(up, "spawn") == "started\n"
            held = await up.transport.memory()
            assert held is not None
            assert held > 5 << 20, "what it holds is still known, for `memory_limit`"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "shown"]
    assert [path.name for path in shown.iterdir()] == ["file"]


@on_linux
@pytest.mark.parametrize("network", [{"network": "open"}, {"allow_network": True}])
async def test_the_network_is_there_if_that_is_said(network: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with started(network) as up:
            assert await told(up, "connect", port=listening.getsockname()[1]) == "127.0.0.1"


@on_linux
async def test_its_working_directory_is_read_but_not_changed(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "file").write_text("to read")
    async with started({}, cwd=str(tmp_path)) as up:
        assert await told(up, "read", path="file") == "to read"
        assert (await told(up, "write", path="made")).startswith("stopped")


@on_linux
@either
async def test_its_home_is_kept_between_starts_and_is_its_own(runner: Isolation, tmp_path: Path) -> None:
    name = f"home_{tmp_path.name}"
    async with started({}, runner=runner, name=name) as up:
        assert await told(up, "home") == "[] True"
        temporary = await told(up, "variable", of="TMPDIR")
    async with started({}, runner=runner, name=name) as up:
        assert await told(up, "home") == "['kept'] True"
        assert await told(up, "variable", of="TMPDIR") != temporary, "that one is empty at each start"
    async with started({}, runner=runner, name=f"{name}_other") as up:
        assert await told(up, "home") == "[] True"


@on_linux
@either
async def test_it_has_the_processors_it_is_given(runner: Isolation) -> None:
    async with started({"cpus": 1}, runner=runner) as up:
        assert await told(up, "processors") == "1 stopped: PermissionError"
    async with started({}, runner=runner) as up:
        assert (await told(up, "processors")).split()[0] == str(len(os.sched_getaffinity(0)))


@on_linux
async def test_all_its_processes_together_have_the_memory_it_is_given() -> None:
    """The kernel limits each process; what they hold in all is watched, as with `memory_limit`."""
    async with started({"memory": "64 MB"}) as up:
        with pytest.raises(UpstreamError, match="of memory"):
            await told(up, "hold", processes=3, size=40 << 20)


def held(directory: Path) -> Path:
    """A directory that anybody may write into, with a pipe `held`: reading that ends when all who write have ended."""
    directory.chmod(0o755)
    out = directory / "out"
    out.mkdir()
    out.chmod(0o777)
    os.mkfifo(out / "held")
    (out / "held").chmod(0o666)
    return out


@on_linux
@either
async def test_it_ends_with_all_that_it_started(
    runner: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ignores SIGTERM, and leaves its session where it can, goes too."""
    monkeypatch.setattr(process, "STDIN_GRACE", 0.1)
    out, rest = held(tmp_path), list[str]()

    async def listen() -> None:
        async with await anyio.open_file(out / "held") as stream:
            rest.append(await stream.read())

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            access = {"allow_fs": {"read_write": [str(out)]}}
            async with started(access, str(out / "held"), runner=runner) as up:
                assert isinstance(up.transport, SandboxedTransport)
                assert await told(up, "spawn") == "started\n"
                assert not rest
    assert rest == [""]


@on_linux
@either
async def test_it_ends_when_the_bridge_is_killed(runner: Isolation, tmp_path: Path) -> None:
    """SIGKILL leaves the bridge no moment to end anything."""
    assert await runner.why_none() is None
    out, mode = held(tmp_path), "launcher" if runner is _ALONE else "auto"
    bridge = await anyio.open_process([sys.executable, "-c", LEFT_ALONE, mode, str(SERVERS), str(out)], stderr=None)
    try:
        with anyio.fail_after(120):
            async with await anyio.open_file(out / "held") as stream:  # it is up
                bridge.kill()
                assert await stream.read() == ""
    finally:
        await bridge.aclose()


@on_linux
async def test_without_a_sandbox_it_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(self: Isolation) -> tuple[str, str]:
        return "no sandbox keeps programs from files outside", "Install bubblewrap."

    monkeypatch.setattr(Isolation, "why_none", none)
    async with started(state="retrying") as up:
        assert "files outside" in up.connection.state_text
        assert "Install bubblewrap." in up.connection.state_text


@on_linux
@pytest.mark.skipif(not REAL.exists(), reason="needs the servers of the example")
async def test_a_real_server_works() -> None:
    how = {"command": str(REAL), "args": ["--local-timezone", "UTC"], "sandbox": True, "start": "eager"}
    servers = {"up": ServerSettings.model_validate(how)}
    watcher, make = Watcher(), TransportMaker(max_bytes=1 << 20, redact=str, runner=lambda: _SANDBOX)
    pool = Pool(servers, make, watcher, client_info={"name": "b", "version": "1"})
    with anyio.fail_after(120):
        async with pool.running():
            await watcher.reaches("ready")
            assert '"timezone": "UTC"' in await told(pool.upstreams["up"], "get_current_time", timezone="UTC")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "http://localhost", "sandbox": True}, "goes with `command`"),
        ({"command": "x", "sandbox": "off"}, "sandbox"),
        ({"command": "x", "sandbox": {"network": "none", "allow_network": True}}, "take out `allow_network`"),
        ({"command": "x", "sandbox": {"cpus": 0}}, "cpus"),
        ({"command": "x", "sandbox": {"allow_fs": {"read_only": ["/"]}}}, "open everything"),
    ],
)
def test_mistakes_of_the_settings_are_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ServerSettings.model_validate(settings)


def test_a_sandbox_is_said_by_a_word_or_a_table() -> None:
    assert ServerSettings.model_validate({"command": "x"}).sandbox is None
    assert ServerSettings.model_validate({"command": "x", "sandbox": False}).sandbox is None
    assert ServerSettings.model_validate({"command": "x", "sandbox": True}).sandbox is not None
    assert ServerSettings.model_validate({"command": "x", "sandbox": {"pids": 9}}).sandbox is not None
