"""Servers in containers (issue 18, 28): with Podman or Docker where one runs here, and what is decided without them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from anyio import fail_after
from pydantic import ValidationError

from mcpbridge import Bridge
from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.config.load import load
from mcpbridge.config.trust.description import what_runs
from mcpbridge.protocol.transport import Receiver
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.transports import container_reaper_main as reaper
from mcpbridge.upstream.transports.container import ContainerTransport, command_line, find_engine, missing_sources
from mcpbridge.upstream.transports.settings import ContainerSettings
from support.containers import IMAGE, TestEngine, engine_of
from support.harness import eventually

# -- settings


@pytest.mark.parametrize(
    "given",
    [
        {"image": "a", "command": "b"},
        {"image": "a", "url": "http://127.0.0.1/mcp"},
        {"image": ""},
        {"image": "a b"},
        {"image": "--privileged"},
        {"image": "a", "cwd": "/tmp"},
        {"image": "a", "memory_limit": "1 GiB"},
        {"image": "a", "sandbox": True},
        {"image": "a", "inherit_env": True},
        {"image": "a", "transport": "sse"},
        {"image": "a", "headers": {"a": "b"}},
        {"command": "a", "container": {"network": "none"}},
        {"url": "http://127.0.0.1/mcp", "container": {"pids": 5}},
        {"image": "a", "container": {"mounts": ["/tmp"]}},
        {"image": "a", "container": {"mounts": ["/tmp:data"]}},
        {"image": "a", "container": {"mounts": [":/data"]}},
        {"image": "a", "container": {"mounts": ["/tmp:/data:read"]}},
        {"image": "a", "container": {"mounts": ["/tmp:/data:ro:x"]}},
        {"image": "a", "container": {"network": "--privileged"}},
        {"image": "a", "container": {"memory": "1 KiB"}},
        {"image": "a", "container": {"cpus": 0}},
        {"image": "a", "container": {"pids": 0}},
        {"image": "a", "container": {"engine": "lxc"}},
        {"image": "a", "container": {"workdir": "data"}},
        {"image": "a", "container": {"options": ["--detach"]}},
        {"image": "a", "container": {"options": ["--name=x"]}},
        {"image": "a", "container": {"options": ["--user", "root"]}},
        {"image": "a", "container": {"memroy": "1 GiB"}},
    ],
)
def test_mistakes_of_the_settings_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ServerSettings.model_validate(given)


def words(given: dict[str, Any], parent: dict[str, str] | None = None) -> tuple[list[str], dict[str, str]]:
    settings = ServerSettings.model_validate({"image": "ghcr.io/a/b:1", **given})
    return command_line("shop", settings, "mcpbridge-1-2-x", parent or {})


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({}, "--rm"),
        ({}, "--interactive"),
        ({}, "--pull=missing"),
        ({"pull": "never"}, "--pull=never"),
        ({"network": "none"}, "--network=none"),
        ({"network": "host"}, "--network=host"),
        ({"memory": "512 MiB"}, "--memory=536870912"),
        ({"memory": 100_000_000}, "--memory=100000000"),
        ({"cpus": 0.5}, "--cpus=0.5"),
        ({"cpus": 2}, "--cpus=2"),
        ({"pids": 64}, "--pids-limit=64"),
        ({"user": "1000:1000"}, "--user=1000:1000"),
        ({"workdir": "/data"}, "--workdir=/data"),
        ({"entrypoint": "/bin/server"}, "--entrypoint=/bin/server"),
        ({"mounts": ["/srv/x:/data:ro", "cache:/cache"]}, "--volume=/srv/x:/data:ro"),
        ({"mounts": ["/srv/x:/data:ro", "cache:/cache"]}, "--volume=cache:/cache"),
        ({"options": ["--read-only", "--cap-drop=ALL"]}, "--cap-drop=ALL"),
    ],
)
def test_each_setting_is_an_option_before_the_image(given: dict[str, Any], option: str) -> None:
    argv, _ = words({"container": given, "args": ["serve", "--rm-all"]})
    assert option in argv[: argv.index("ghcr.io/a/b:1")]
    assert argv[argv.index("ghcr.io/a/b:1") :] == ["ghcr.io/a/b:1", "serve", "--rm-all"]


def test_what_is_not_set_is_left_to_the_engine() -> None:
    argv, env = words({})
    names = [word.partition("=")[0] for word in argv if word.startswith("--")]
    assert names == ["--rm", "--interactive", "--name", "--log-driver", "--label", "--label", "--pull"]
    assert env == {}


def test_secrets_are_not_among_the_arguments() -> None:
    """Every user of the machine sees the arguments of all processes."""
    argv, env = words(
        {"env": {"TOKEN": "s3cret=1\n2", "PORT": 80}, "inherit_env": ["API_KEY", "ABSENT"]},
        {"API_KEY": "k3y", "MORE": "x"},
    )
    assert {"--env=TOKEN", "--env=PORT", "--env=API_KEY"} <= {*argv}
    assert "--env=ABSENT" not in argv
    assert env == {"TOKEN": "s3cret=1\n2", "PORT": "80", "API_KEY": "k3y"}
    assert not any("s3cret" in word or "k3y" in word for word in argv)


@pytest.mark.parametrize("name", ["PATH", "HOME", "DOCKER_HOST", "CONTAINER_HOST", "LD_PRELOAD", "XDG_RUNTIME_DIR"])
def test_variables_of_the_server_do_not_become_those_of_the_engine(name: str) -> None:
    argv, env = words({"env": {name: "/in/there"}})
    assert f"--env={name}=/in/there" in argv
    assert name not in env


def test_sources_of_mounts_begin_where_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    file = tmp_path / "servers.toml"
    mounts = ["./data:/a:ro", "../x:/b", "~/notes:/c", "/srv:/d", "cache:/e"]
    file.write_text(f'[servers.s]\nimage = "i"\ncontainer = {{ mounts = {json.dumps(mounts)} }}\n')
    settings = load(str(file)).settings.servers["s"]
    assert settings.container.mounts == [
        f"{tmp_path}/data:/a:ro",
        f"{tmp_path.parent}/x:/b",
        "/home/ada/notes:/c",
        "/srv:/d",
        "cache:/e",
    ]
    assert missing_sources(settings.container)[:2] == [f"{tmp_path}/data", f"{tmp_path.parent}/x"]


def test_a_missing_source_is_named_before_anything_starts(tmp_path: Path) -> None:
    container = ContainerSettings(mounts=[f"{tmp_path}:/a", f"{tmp_path}/none:/b", "cache:/c"])
    assert missing_sources(container) == [f"{tmp_path}/none"]


def test_who_is_asked_for_trust_is_told_the_image(tmp_path: Path) -> None:
    file = tmp_path / "servers.toml"
    file.write_text('[servers.s]\nimage = "evil:1"\nargs = ["-x"]\ncontainer = { mounts = ["/:/host"] }\n')
    assert list(what_runs(load(str(file)).settings)) == ["server s: runs the image evil:1 -x with /:/host"]


# -- engines


def stand_in(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


WORKS, NO_SERVICE = "exit 0", 'echo "Cannot connect to the Docker daemon at unix:///x" >&2; exit 1'


@pytest.mark.parametrize(
    ("docker", "podman", "wanted", "chosen"),
    [
        (WORKS, WORKS, "auto", "docker"),
        (NO_SERVICE, WORKS, "auto", "podman"),
        (None, WORKS, "auto", "podman"),
        (WORKS, None, "auto", "docker"),
        (WORKS, WORKS, "podman", "podman"),
        (WORKS, WORKS, "docker", "docker"),
        (None, None, "auto", "docker is not installed; podman is not installed"),
        (NO_SERVICE, None, "auto", "Cannot connect to the Docker daemon"),
        (NO_SERVICE, NO_SERVICE, "auto", "podman does not work: Cannot connect"),
        (None, WORKS, "docker", "docker is not installed. Install or start docker"),
        (NO_SERVICE, WORKS, "docker", "docker does not work"),
        ("exit 3", None, "docker", "exit code 3"),
    ],
)
async def test_an_engine_that_answers_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, docker: str | None, podman: str | None, wanted: str, chosen: str
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, script in (("docker", docker), ("podman", podman)):
        if script is not None:
            stand_in(folder, name, script)
    monkeypatch.setenv("PATH", str(folder))
    with fail_after(60):
        if chosen in ("docker", "podman"):
            assert (await find_engine("shop", wanted)).program == str(folder / chosen)
        else:
            with pytest.raises(UpstreamUnavailable) as caught:
                await find_engine("shop", wanted)
            assert chosen in str(caught.value)


def test_containers_tell_whether_their_bridge_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        alive, own = reaper.name_of(child.pid, "ab12"), reaper.name_of(os.getpid(), "ab12")
        assert not reaper.is_orphan(alive)
        child.kill()
    assert reaper.is_orphan(alive)
    assert not reaper.is_orphan(own)
    another_time = own.split("-")
    another_time[2] = str(int(another_time[2]) + 1)  # the id was given to another process since
    assert reaper.is_orphan("-".join(another_time))


@pytest.mark.parametrize(
    "name", ["", "web", "mcpbridge", "mcpbridge-1", "mcpbridge-a-b-c", "mcpbridge-1-2", "x-999999-1-a"]
)
def test_containers_of_others_are_never_orphans(name: str) -> None:
    assert not reaper.is_orphan(name)


async def test_orphans_alone_are_removed_when_an_engine_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = reaper.name_of(os.getpid(), "ab12")
    record = tmp_path / "record"
    stand_in(
        tmp_path / "bin",
        "docker",
        f'echo "$@" >> {record}; [ "$1" = ps ] && printf "web\\n{own}\\nmcpbridge-4194999-1-ff\\n"; exit 0',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    await find_engine("shop", "docker")
    listed, *removed = record.read_text().splitlines()
    assert f"label=mcpbridge.machine={reaper.machine()}" in listed
    assert removed == ["kill mcpbridge-4194999-1-ff", "rm --force mcpbridge-4194999-1-ff"]


class Unheard:
    """Of a connection on which nothing is said."""

    def closed(self, reason: str) -> None:
        """Nobody asks why."""


async def test_a_container_that_takes_long_to_go_is_left_to_its_reaper_which_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reaper ended with nobody to wait for it, and stayed in the process table as long as the bridge."""
    may_go = tmp_path / "may go"
    waits = f'until [ -e "{may_go}" ]; do sleep 0.02; done'
    script = f'case "$*" in run*) cat ;; *name=*) {waits} ;; esac; exit 0'
    stand_in(tmp_path / "bin", "docker", script)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr("mcpbridge.upstream.transports.container._REMOVE_SECONDS", 0.05)
    settings = ServerSettings.model_validate({"image": "a", "container": {"engine": "docker"}})
    transport = ContainerTransport("shop", settings, max_bytes=1000)

    with fail_after(60):
        async with transport.connect(cast("Receiver", Unheard())):
            (watch,) = reapers_of(transport.container)
        assert Path(f"/proc/{watch}").exists()
        may_go.touch()
        await eventually(lambda: asyncio.to_thread(Path(f"/proc/{watch}").exists), lambda is_there: not is_there)


# -- containers


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> TestEngine:
    found = engine_of(tmp_path_factory.mktemp("engine"))
    if isinstance(found, str):
        pytest.skip(f"no engine runs containers here: {found}")
    return found


@pytest.fixture
def ready(engine: TestEngine, monkeypatch: pytest.MonkeyPatch) -> TestEngine:
    for name, value in engine.env.items():
        monkeypatch.setenv(name, value)
    return engine


def config(engine: TestEngine, /, **more: Any) -> dict[str, Any]:
    container = {"engine": engine.name, "network": "none", **more.pop("container", {})}
    return {"servers": {"boxed": {"image": IMAGE, "container": container, **more}}}


@asynccontextmanager
async def bridge_with(engine: TestEngine, /, **more: Any) -> AsyncGenerator[Bridge]:
    with fail_after(120):
        async with Bridge.open(config(engine, **more), remember=False) as bridge:
            yield bridge
        assert engine.containers() == []


async def seen(bridge: Bridge, tool: str = "look") -> Any:
    return json.loads((await bridge.call_tool(f"boxed/{tool}")).text)


async def test_a_server_runs_in_a_container_and_nothing_is_left_of_it(ready: TestEngine, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    shown.chmod(0o777)
    (shown / "note.txt").write_text("x")
    container = {"mounts": [f"{shown}:/data:ro", f"{shown}:/more"], "workdir": "/tmp", "user": "12:34"}
    env = {"TOKEN": 's3cret x="1"', "PATH": "/nowhere"}
    async with bridge_with(ready, args=["a", "b c"], env=env, container=container) as bridge:
        inside = await seen(bridge)
        assert inside["args"] == ["a", "b c"]
        assert inside["cwd"] == "/tmp"
        assert inside["uid"] == 12
        assert inside["net"] == ["lo"]
        assert inside["mounts"] == {"/data": ["note.txt"], "/more": ["note.txt"]}
        assert inside["env"].items() >= env.items()
        assert not [name for name in inside["env"] if name.startswith(("MCPBRIDGE", "CONTAINERS_", "VIRTUAL_ENV"))]
        (name,) = ready.containers()
        assert not reaper.is_orphan(name)
        assert "s3cret" not in Path("/proc/self/cmdline").read_text()
        refused = await bridge.call_tool("boxed/write")
        assert refused.is_error
        assert "Read-only file system" in refused.text


async def test_two_servers_have_containers_of_their_own(ready: TestEngine) -> None:
    both = config(ready)
    both["servers"]["other"] = both["servers"]["boxed"]
    with fail_after(120):
        async with Bridge.open(both, remember=False) as bridge:
            await asyncio.gather(bridge.call_tool("boxed/look"), bridge.call_tool("other/look"))
            assert len(set(ready.containers())) == 2
        assert ready.containers() == []


async def test_a_server_that_ignores_its_end_is_removed(ready: TestEngine) -> None:
    async with bridge_with(ready) as bridge:
        await seen(bridge, "deaf")
        assert len(ready.containers()) == 1


async def test_memory_is_limited_and_the_bridge_lives(ready: TestEngine) -> None:
    try:
        ready.run(
            "run", "--rm", "--network=none", "--memory=67108864", "--entrypoint=/python", IMAGE, "-I", "-S", "-c", "1"
        )
    except subprocess.CalledProcessError as error:
        pytest.skip(f"the engine limits no memory here: {error.stderr.strip()[-200:]}")
    before = sorted(Path.cwd().iterdir())
    async with bridge_with(ready, container={"memory": 64 << 20, "pids": 20}) as bridge:
        await seen(bridge)
        killed = await bridge.call_tool("boxed/fill")
        assert killed.is_error
        assert sorted(Path.cwd().iterdir()) == before
        assert "exit code 137" in killed.text
        assert (await seen(bridge))["cwd"] == "/"  # in a new one


async def test_what_the_engine_says_of_a_failed_start_is_told(ready: TestEngine) -> None:
    missing = {"image": "localhost/mcpbridge-none:1", "container": {"engine": ready.name, "pull": "never"}}
    with fail_after(120):
        async with Bridge.open({"servers": {"boxed": missing}}, remember=False) as bridge:
            result = await eventually(
                lambda: bridge.call_tool("boxed/look"), lambda result: "mcpbridge-none" in result.text
            )
            assert result.is_error
    assert ready.containers() == []


BRIDGE = """
import asyncio, json, sys
from mcpbridge import Bridge

async def main():
    async with Bridge.open(json.loads(sys.argv[1]), remember=False) as bridge:
        await bridge.call_tool(f"boxed/{sys.argv[2]}")
        print("ready", flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


@asynccontextmanager
async def another_bridge(settings: dict[str, Any], tool: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BRIDGE, json.dumps(settings), tool),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        with fail_after(60):
            assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("tool", ["look", "deaf"])
async def test_nothing_is_left_when_the_bridge_is_killed(ready: TestEngine, tool: str) -> None:
    """Issue 18, 28: no orphan containers after kill -9, not even of a server that ignores its end."""
    async with another_bridge(config(ready), tool) as process:
        assert len(ready.containers()) == 1
        process.kill()
        await eventually(lambda: asyncio.to_thread(ready.containers), lambda names: not names, within=60)


def reapers_of(container: str) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                argv = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(word.endswith(b"container_reaper_main.py") for word in argv) and container.encode() in argv:
                found.append(int(entry.name))
    return found


async def test_the_next_bridge_removes_what_a_killed_one_and_its_reaper_left(ready: TestEngine) -> None:
    async with another_bridge(config(ready), "deaf") as process:
        (left,) = ready.containers()
        for pid in reapers_of(left):
            os.kill(pid, signal.SIGKILL)
        process.kill()
        await process.wait()
        assert ready.containers() == [left]
        async with bridge_with(ready) as bridge:
            await seen(bridge)
            assert left not in ready.containers()


async def test_containers_of_a_bridge_that_lives_are_left_alone(ready: TestEngine) -> None:
    async with another_bridge(config(ready), "look"):
        (other,) = ready.containers()
        with fail_after(120):
            async with Bridge.open(config(ready), remember=False) as bridge:
                await seen(bridge)
                assert other in ready.containers()
        assert ready.containers() == [other]
    await eventually(lambda: asyncio.to_thread(ready.containers), lambda names: not names, within=60)


async def test_a_call_that_is_given_up_while_it_starts_leaves_nothing(ready: TestEngine) -> None:
    for seconds in (0.0, 0.05, 0.2, 0.4):
        with fail_after(120):
            async with Bridge.open(config(ready), remember=False) as bridge:
                task = asyncio.ensure_future(bridge.call_tool("boxed/look"))
                await asyncio.wait([task], timeout=seconds)
                task.cancel()
                await asyncio.wait([task])
    await eventually(lambda: asyncio.to_thread(ready.containers), lambda names: not names, within=60)
