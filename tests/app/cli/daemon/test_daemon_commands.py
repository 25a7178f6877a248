"""`up`, `down`, `restart`, `reload`, `status`, `logs` with a real daemon; `service` without a service manager."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.app.cli.commands import run
from mcpbridge.app.cli.daemon.logs import _from_file, _is_another
from mcpbridge.app.cli.running_bridges import log_of
from mcpbridge.app.stdio_proxy.start_daemon import COOKIE
from mcpbridge.base.process.orphan_reaper_main import COOKIE_NAME
from mcpbridge.base.version import __version__
from support.harness import Command, Finished, Place, eventually, python_server
from support.json_output import documents
from support.programs.daemon_process import connected, daemon, socket_of

SERVERS = {"one": python_server("plain")}

Run = Callable[..., Finished]


class _NoLog:
    """Of a daemon in the background, whose log is a file."""

    def told(self) -> str:
        return "see the log file"


@pytest.fixture
def here(place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in the test process, with the environment of the place."""
    for name in [*os.environ]:
        if name.startswith(("XDG_", "MCPBRIDGE")):
            monkeypatch.delenv(name)
    for name, value in place.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place.folder)
    monkeypatch.setenv("MCPBRIDGE_CONFIG", str(place.folder / "servers.toml"))  # else a person would be asked

    def run_command(*words: str) -> Finished:
        capsys.readouterr()
        code = run(words)
        said = capsys.readouterr()
        documents(words, said.out, said.err)
        return Finished(code, said.out, said.err)

    return run_command


@asynccontextmanager
async def nothing_left(place: Place) -> AsyncIterator[None]:
    """After the body no process of the place is there, or it is ended and the test fails."""
    own = f"{os.getpid()}"

    async def survivors() -> list[str]:
        return [words for pid, words in place.survivors().items() if str(pid) != own]

    place._running += 1  # commands that are run meanwhile leave the daemon alone
    try:
        yield
        assert await eventually(survivors, lambda left: not left) == []
    finally:
        place._running -= 1
        place.kill_survivors()


async def test_the_daemon_comes_up_starts_anew_and_goes(place: Place, here: Run) -> None:
    config = place.config(SERVERS, daemon={"idle_exit": 0.2})
    async with nothing_left(place):
        up = await asyncio.to_thread(here, "up", "--json")
        assert up.code == 0, up.err
        told = json.loads(up.out)
        assert told["started"] is True
        assert told["idle_exit_s"] is None, "it stays"
        again = await asyncio.to_thread(here, "up")
        assert (again.code, "runs already" in again.out) == (0, True)

        status = await asyncio.to_thread(here, "status")
        assert str(config) in status.out
        assert told["log"] in status.out

        async with connected(socket_of(place, config), Command.__new__(Command), version="") as client:
            client.log = _NoLog()
            await client.initialize()
            restarted = await asyncio.to_thread(here, "restart", "--json")
            assert restarted.code == 0, restarted.err
            assert json.loads(restarted.out)["pid"] == told["pid"], "the socket never has another owner"
            assert json.loads(restarted.out)["instance"] != told["instance"]
            await client.ended()
            assert client.own[-1]["again"] is True
        async with connected(socket_of(place, config), Command.__new__(Command)) as client:
            client.log = _NoLog()
            await client.initialize()
            assert "one__echo" in await client.tools_with("one__echo")
            down = await asyncio.to_thread(here, "down", "--json")
            assert json.loads(down.out) == {"format": "down/1", "stopped": [told["pid"]]}
            await client.ended()
            assert client.own[-1]["again"] is False
        assert (await asyncio.to_thread(here, "status")).code == 4
        nothing = await asyncio.to_thread(here, "down", "--all")
        assert (nothing.code, "no daemon is running" in nothing.err) == (0, True)

        logs = await asyncio.to_thread(here, "logs", "-n", "1000")
        assert (logs.code, logs.out.count("daemon started")) == (0, 2)
        raw = await asyncio.to_thread(here, "logs", "--json", "-n", "1")
        assert json.loads(raw.out)["level"]


async def test_what_was_edited_takes_effect_and_what_is_wrong_does_not(place: Place, here: Run) -> None:
    config = place.config(SERVERS, daemon={"watch": False})
    async with nothing_left(place):
        await asyncio.to_thread(here, "up")
        place.config({**SERVERS, "two": python_server("plain")}, daemon={"watch": False})
        done = await asyncio.to_thread(here, "reload")
        assert (done.code, "added two" in done.out) == (0, True), done
        right = config.read_text()
        config.write_text("[servers.one]\ncomand = 1\n")
        for command in ("reload", "restart"):
            wrong = await asyncio.to_thread(here, command)
            assert wrong.code == 2
            assert "servers.toml:2" in wrong.out + wrong.err
        status = json.loads((await asyncio.to_thread(here, "status", "--json")).out)["bridges"][0]
        assert {server["name"] for server in status["servers"]} == {"one", "two"}
        shown = await asyncio.to_thread(here, "status")
        assert "not in effect" in shown.out
        config.write_text(right)
        assert (await asyncio.to_thread(here, "down")).code == 0


async def test_up_while_one_ends_starts_the_next(place: Place) -> None:
    config = place.config({"gated": python_server("gated")})
    gate = place.folder / "gate"
    os.mkfifo(gate)
    async with nothing_left(place), daemon(place, config) as ending:
        async with connected(socket_of(place, config), ending) as client:
            await client.initialize()
            await client.tools_with("gated__pass_gate")
            call = asyncio.create_task(client.call("gated__pass_gate", gate=str(gate), within=20))
            opened = await asyncio.to_thread(gate.open, "wb")
            ending.process.terminate()
            await ending.logged("daemon stopping")
            async with place.started("up", "--json", "--config", str(config)) as up:
                assert up.process.stdout

                async def is_waiting() -> bool:
                    return len(place.survivors()) > 2

                await eventually(is_waiting, bool)
                opened.close()
                assert (await call).text == "passed"
                printed = await up.process.stdout.read()
                assert printed, up.log
                told = json.loads(printed)
        assert told["started"] is True
        assert told["pid"] != ending.pid
        assert (await place.run("down", "--config", str(config))).code == 0


async def test_what_the_daemon_took_up_by_itself_is_told(place: Place, here: Run) -> None:
    config = place.config(SERVERS, results={"strategy": "off", "threshold": 8000})
    async with nothing_left(place):
        await asyncio.to_thread(here, "up")
        place.config(SERVERS, results={"strategy": "off", "threshold": 9000}, daemon={"idle_exit": 5})
        done = await asyncio.to_thread(here, "reload")
        assert "changed [results]" in done.out, "whether the command or the daemon was first"
        assert "restart`: daemon.idle_exit" in done.out
        again = json.loads((await asyncio.to_thread(here, "reload", "--json")).out)["bridges"][0]
        assert again["before"]["sections"] == ["results"]
        assert "sections" not in again
        assert "after a restart: daemon.idle_exit" in (await asyncio.to_thread(here, "status")).out
        text = config.read_text()
        config.unlink()
        gone = await asyncio.to_thread(here, "status")
        assert gone.code == 0

        async def status() -> str:
            return (await asyncio.to_thread(here, "status")).out

        assert "cannot be read" in await eventually(status, lambda told: "not in effect" in told)
        config.write_text(text)
        await asyncio.to_thread(here, "down")


async def test_one_that_hangs_is_told_with_its_process(place: Place, here: Run) -> None:
    config = str(place.config(SERVERS))
    async with nothing_left(place):
        pid = json.loads((await asyncio.to_thread(here, "up", "--json")).out)["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            words = [[word, "--config", config] for word in ("up", "restart", "reload", "down")]
            finished = await asyncio.gather(*(place.run(*one) for one in [*words, ["status"]]))
            for one in finished[:4]:
                assert one.code == 7
                assert f"process {pid}, does not answer" in one.err
                assert f"kill -9 {pid}" in one.err
            assert finished[4].code == 7
            assert f"process {pid}: it does not answer; `kill -9 {pid}`" in finished[4].out
        finally:
            os.kill(pid, signal.SIGCONT)
        assert (await asyncio.to_thread(here, "down")).code == 0


@pytest.fixture
def upgraded(place: Place) -> Callable[[], None]:
    """What runs in the place is of another release until this is called."""
    site = place.folder / "site"
    site.mkdir()
    older = "import mcpbridge.base.version as here\nhere.__version__ = '0.0.1'\n"
    (site / "sitecustomize.py").write_text(older)
    place.env["PYTHONPATH"] = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])

    def upgrade() -> None:
        (site / "sitecustomize.py").unlink()
        shutil.rmtree(site / "__pycache__", ignore_errors=True)

    return upgrade


@pytest.mark.parametrize("where", ["in its place", "elsewhere"])
async def test_after_an_upgrade_it_starts_anew_as_the_new_release(
    place: Place, upgraded: Callable[[], None], where: str
) -> None:
    config = place.config(SERVERS)
    new = socket_of(place, config)
    async with nothing_left(place):
        up = await place.run("up", "--json", "--config", str(config))
        old = Path(json.loads(up.out)["socket"])
        assert old != new
        upgraded()
        if where == "in its place":
            restarted = await place.run("restart", "--config", str(config))
        else:
            (place.folder / "other").symlink_to(sys.prefix)
            program = str(place.folder / "other" / "bin" / "python")
            words = (program, "-P", "-m", "mcpbridge", "restart", "--config", str(config))
            done = await asyncio.to_thread(
                subprocess.run, words, env=place.environment(), capture_output=True, text=True, check=False
            )
            restarted = Finished(done.returncode, done.stdout, done.stderr)
        assert restarted.code == 0, restarted
        [told] = json.loads((await place.run("status", "--json")).out)["bridges"]
        assert told["version"] == __version__
        assert told["daemon"]["socket"] == str(new)
        assert told["daemon"]["idle_exit_s"] is None, "it stays as before"
        assert old.exists() == (where == "in its place"), "clients of the old release are still served"
        for path in (new, old) if old.exists() else (new,):
            async with connected(path, Command.__new__(Command)) as client:
                client.log = _NoLog()
                assert (await client.greeted())["pid"] == told["pid"]
        again = await place.run("restart", "--config", str(config))
        assert again.code == 0, again
        assert old.exists() == (where == "in its place")
        assert (await place.run("down", "--config", str(config))).code == 0
        assert not new.exists()
        assert not old.exists()


async def test_what_starts_it_leaves_it_nothing_that_is_open_or_marked(place: Place) -> None:
    """A client may wait for the end of a pipe; a bridge ends whoever bears the mark of a server of its own."""
    config = place.config(SERVERS)
    ours, its = os.pipe()
    environ = {**place.environment(), COOKIE_NAME: "0" * 32}
    words = [sys.executable, "-P", "-m", "mcpbridge", "up", "--config", str(config), "--json"]
    async with nothing_left(place):
        try:
            done = await asyncio.to_thread(
                subprocess.run, words, env=environ, pass_fds=[its], capture_output=True, check=True
            )
            os.close(its)
            assert await asyncio.wait_for(asyncio.to_thread(os.read, ours, 1), 10) == b"", "its end is seen"
            pid = json.loads(done.stdout)["pid"]
            assert COOKIE_NAME.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
            assert COOKIE == COOKIE_NAME
        finally:
            os.close(ours)
        assert (await place.run("down", "--config", str(config))).code == 0


async def test_the_log_is_followed_when_a_new_one_begins(place: Place, here: Run) -> None:
    log = log_of(place.config(SERVERS).resolve())
    log.parent.mkdir(parents=True)
    log.write_text("first\nsecond\n")
    async with place.started("logs", "-f", "-n", "1") as command:
        assert command.process.stdout

        async def shown() -> str:
            assert command.process.stdout
            async with asyncio.timeout(60):
                return (await command.process.stdout.readline()).decode().strip()

        assert await shown() == "second"
        with log.open("a") as file:
            file.write('{"event": "third", "level": "info"}\nfou')
            file.flush()
            assert await shown() == "info     third"
            file.write("rth\n")
        log.rename(log.with_name("old"))
        log.write_text("fifth\n")
        assert [await shown(), await shown()] == ["fourth", "fifth"]
        command.process.send_signal(signal.SIGINT)
        assert await command.process.wait() == 0


def test_what_a_log_gets_in_the_moment_before_it_is_put_aside_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, old = tmp_path / "log", tmp_path / "old"
    log.write_text("first\n")

    def when_all_was_read(*there: Any) -> bool:
        if not old.exists():
            with log.open("a") as file:
                file.write("second\n")
            log.rename(old)
            log.write_text("third\n")
        return _is_another(*there)

    monkeypatch.setattr("mcpbridge.app.cli.daemon.logs._is_another", when_all_was_read)
    shown = _from_file(log, 1, follow=True)
    assert [*islice(shown, 2)] == ["first", "second"]
    assert next(shown) == "third"


def test_a_wrong_configuration_is_told_before_anything_starts(place: Place, here: Run) -> None:
    config = place.folder / "servers.toml"
    config.write_text("[servers.one]\ncomand = 1\n")
    wrong = here("up")
    assert wrong.code == 2
    assert "servers.toml:2" in wrong.err
    assert not socket_of(place, config).exists()
    assert here("logs").code == 4
    assert here("reload").code == 4


def test_a_service_is_files_and_commands(place: Place, here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # where no service manager is
    config = place.config(SERVERS)
    unit = place.folder / ".config" / "systemd" / "user" / "mcpbridge.service"
    if not Path("/proc").exists():
        pytest.skip("systemd units are for Linux")
    assert here("service", "status").code == 4
    dry = here("service", "install", "--dry-run")
    assert (dry.code, unit.exists()) == (0, False)
    printed = here("service", "install", "--print", "--socket")
    assert f'"--config" "{config}" "--idle-exit"' in printed.out
    assert f"ListenStream={socket_of(place, config)}" in printed.out
    made = here("service", "install")
    assert (made.code, "systemctl --user enable" in made.out) == (0, True)
    assert f'"--config" "{config}"\n' in unit.read_text()
    assert here("service", "status").code == 0
    assert here("service", "uninstall").code == 0
    assert not unit.exists()
    assert here("service", "uninstall").code == 4
