"""The daemon as a process: what clients on its socket get, how it ends, and that there is one of it."""

import asyncio
import json
import os
import shlex
import signal
import socket
from pathlib import Path

import httpx2
import pytest

from support.harness import Place, eventually, python_server
from support.programs.daemon_process import connected, daemon, socket_of
from support.rpc import envelope

SERVERS = {"gated": python_server("gated")}


def request(method: str, id_: int, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode() + b"\n"


async def test_both_eras_are_served_side_by_side(place: Place) -> None:
    config = place.config(SERVERS)
    async with daemon(place, config) as command:
        path = socket_of(place, config)
        assert path.stat().st_mode & 0o777 == 0o600
        async with connected(path, command) as legacy, connected(path, command) as modern:
            assert (await legacy.initialize())["serverInfo"]["name"] == "mcpbridge"
            assert "gated__echo" in await legacy.tools_with("gated__echo")
            assert (await legacy.call("gated__echo", text="old")).text == "old"
            told = await modern.call("gated__echo", text="new", meta=envelope())
            assert (told.text, told.result["resultType"]) == ("new", "complete")
            first, second = await legacy.greeted(), await modern.greeted()
            assert first["mcpbridge"] == 1
            assert first["pid"] == command.pid
            assert first["listings"] == second["listings"]
            [status] = json.loads((await place.run("status", "--json")).out)["bridges"]
            assert status["front"] == "daemon"
            assert [one["name"] for one in status["daemon"]["clients"]] == ["raw", "raw"]
            assert status["daemon"]["idle_s"] is None


async def test_what_comes_with_the_hello_is_taken_after_the_greeting(place: Place) -> None:
    """A shim does not wait for the greeting."""
    config = place.config(SERVERS)
    async with daemon(place, config) as command:
        head = request("server/discover", 1, _meta=envelope())
        async with connected(socket_of(place, config), command, head=head) as client:
            assert "result" in (await client.answer_to(1)).message
            assert client.own[0]["version"]


async def test_an_end_in_order_answers_what_was_read_and_nothing_else(place: Place) -> None:
    config = place.config(SERVERS)
    gate = place.folder / "gate"
    os.mkfifo(gate)
    async with daemon(place, config) as command:
        async with connected(socket_of(place, config), command) as client:
            await client.initialize()
            await client.tools_with("gated__pass_gate")
            call = asyncio.create_task(client.call("gated__pass_gate", gate=str(gate), within=20))
            opened = await asyncio.to_thread(gate.open, "wb")  # returns when the server waits for it
            command.process.send_signal(signal.SIGTERM)
            await command.logged("daemon stopping")
            unread = client.expect(1000)
            await client.write(request("ping", 1000))
            opened.close()
            assert (await call).text == "passed"
            await client.ended()
            assert client.own[-1] == {"mcpbridge": 1, "bye": True, "again": True}
            with pytest.raises(ConnectionError):
                await unread
        assert await command.process.wait() == 0
    assert not socket_of(place, config).exists()


async def test_the_hello_decides_what_is_served(place: Place) -> None:
    config = place.config({**SERVERS, "plain": python_server("plain")}, profiles={"few": {"servers": ["plain"]}})
    async with daemon(place, config) as command:
        path = socket_of(place, config)
        for said, code, words in (
            ({"server": "gatde"}, "unknown-server", "Did you mean 'gated'?"),
            ({"profile": "fwe"}, "unknown-profile", "'fwe'"),
            ({"server": "gated", "profile": "few"}, "invalid-hello", "one of them"),
            ({"mcpbridge": 99}, "unknown-protocol", "99"),
            ({"environ": 1}, "invalid-hello", "environ"),
        ):
            async with connected(path, command, **said) as client:
                told = await client.greeted()
                assert told["code"] == code
                assert words in told["error"]
                await client.ended()
        async with connected(path, command, server="gated") as client:
            await client.initialize()
            assert "echo" in await client.tools_with("echo")
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(request("ping", 1))
        assert json.loads(await reader.read())["code"] == "invalid-hello"
        writer.close()


async def test_a_client_fills_in_a_variable_that_the_daemon_lacks(place: Place) -> None:
    server = python_server("plain", env={"PYTHONHASHSEED": "${SEED_OF_A_CLIENT}"})
    config = place.config({"plain": server})
    async with daemon(place, config) as command:
        async with connected(socket_of(place, config), command) as poor:
            await poor.initialize()
            assert not [name for name in await poor.tools() if name.startswith("plain__")]
            with_it = {"SEED_OF_A_CLIENT": "1234567", "OTHER": "not taken"}
            async with connected(socket_of(place, config), command, environ=with_it) as rich:
                await rich.initialize()
                assert "plain__echo" in await rich.tools_with("plain__echo")
            assert "plain__echo" in await poor.tools_with("plain__echo")
        assert not any("1234567" in line for line in command.log), "it may be a secret"


async def test_a_client_that_knows_where_programs_are_tells_the_daemon(place: Place) -> None:
    """A client that a desktop started has a short PATH; what one from a terminal can start, all can then use."""
    programs, plain = place.folder / "programs", python_server("plain")
    programs.mkdir()
    script = f"#!/bin/sh\nexec {' '.join(map(shlex.quote, [plain['command'], *plain['args']]))}\n"
    (programs / "a-plain-server").write_text(script)
    (programs / "a-plain-server").chmod(0o755)
    config = place.config({"plain": {"command": "a-plain-server"}})
    async with daemon(place, config) as command, connected(socket_of(place, config), command) as poor:
        await poor.initialize()
        await command.logged("command not found: a-plain-server")
        rich_path = {"PATH": f"relative:{programs}:/usr/bin"}
        async with connected(socket_of(place, config), command, environ=rich_path) as rich:
            await rich.initialize()
            assert "plain__echo" in await rich.tools_with("plain__echo")
        assert "plain__echo" in await poor.tools_with("plain__echo")


async def test_it_ends_when_nobody_was_there_for_long_enough(place: Place) -> None:
    config = place.config(SERVERS, daemon={"idle_exit": 5})  # its first client must come before that is over
    async with daemon(place, config, "--idle-exit") as command:
        async with connected(socket_of(place, config), command) as client:
            await client.initialize()
        async with asyncio.timeout(60):
            assert await command.process.wait() == 0
        await command.logged("no client for long enough")
    assert not socket_of(place, config).exists()


async def test_it_stays_while_a_page_of_the_console_is_open(place: Place) -> None:
    """Issue 20: an open page counts as a client for the idle exit."""
    config = place.config(SERVERS, daemon={"idle_exit": 15})  # its first client must come before that is over

    async def idle_time() -> float | None:
        [status] = json.loads((await place.run("status", "--json")).out)["bridges"]
        assert status["daemon"]["clients"] == []
        return status["daemon"]["idle_s"]

    async with daemon(place, config, "--idle-exit") as command, httpx2.AsyncClient(timeout=60) as browser:
        link = json.loads((await place.run("ui", "--json", "--config", str(config))).out)["url"]
        assert await idle_time() is not None, "nobody looks at a page yet"
        assert (await browser.get(link)).status_code == 303
        async with browser.stream("GET", f"{link.partition('/enter')[0]}/events") as page:
            events = page.aiter_bytes()  # forgotten, it would close the page
            await anext(events)
            await eventually(idle_time, lambda seconds: seconds is None)
        async with asyncio.timeout(60):
            assert await command.process.wait() == 0
        await command.logged("no client for long enough")


async def test_a_socket_of_the_service_manager_is_served_and_left_to_it(place: Place) -> None:
    """sd_listen_fds(3)."""
    config = place.config(SERVERS, daemon={"idle_exit": 5})  # its first client must come before that is over
    path = socket_of(place, config)
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        script = f'exec 3<&{listener.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"'
        through, handed = ("bash", "-c", script), (listener.fileno(),)
        async with daemon(place, config, "--idle-exit", through=through, pass_fds=handed) as command:
            async with connected(path, command) as client:
                await client.initialize()
            async with asyncio.timeout(60):
                assert await command.process.wait() == 0
        assert path.exists()


async def test_of_two_that_start_at_once_one_is_the_daemon(place: Place) -> None:
    config = place.config(SERVERS)
    async with daemon(place, config) as command:
        others = await asyncio.gather(*(place.run("daemon", "--config", str(config)) for _ in range(2)))
        assert [one.code for one in others] == [0, 0]
        assert all("another daemon serves" in one.err for one in others)
        async with connected(socket_of(place, config), command) as client:
            await client.initialize()


async def test_a_killed_daemon_leaves_no_process_and_makes_way(place: Place) -> None:
    config = place.config(SERVERS)
    async with daemon(place, config) as command:
        async with connected(socket_of(place, config), command) as client:
            await client.initialize()
            await client.tools_with("gated__echo")
            assert len(place.survivors()) > 1, "the server runs"
            command.process.kill()
            await client.ended()
            assert not any("bye" in line for line in client.own)
        await command.process.wait()

        async def survivors() -> dict[int, str]:
            return place.survivors()

        assert await eventually(survivors, lambda left: not left) == {}
    assert socket_of(place, config).exists(), "it is stale"
    async with daemon(place, config) as command, connected(socket_of(place, config), command) as client:
        await client.initialize()


async def test_a_broken_configuration_is_an_error_and_gives_the_place_up(place: Place) -> None:
    config = place.folder / "servers.toml"
    config.write_text("[servers.one]\ncomand = 'x'\n")
    finished = await place.run("daemon", "--config", str(config))
    assert finished.code == 2
    assert "did you mean" in finished.err.lower()
    assert not socket_of(place, config).exists()


async def test_http_is_served_by_the_same_bridge(place: Place) -> None:
    config = place.config(SERVERS, daemon={"http": "127.0.0.1:0"})
    async with daemon(place, config) as command:
        found = await command.logged(r"http://127\.0\.0\.1:[1-9]\d*")
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            assert (await client.get(f"{found[0]}/healthz")).json() == {"status": "ok"}
            assert (await client.get(f"{found[0]}/readyz")).status_code == 401
            token = Path(place.folder / ".local/state/mcpbridge/http-token").read_text().strip()
            headers = {"authorization": f"Bearer {token}"}
            assert (await client.get(f"{found[0]}/readyz", headers=headers)).status_code in (200, 503)
        async with connected(socket_of(place, config), command) as client:
            await client.initialize()
        [status] = json.loads((await place.run("status", "--json")).out)["bridges"]
        assert status["daemon"]["http"].startswith(found[0])
        assert Path(status["daemon"]["token_file"]).read_text().strip() == token
        up = await place.run("up", "--config", str(config))
        assert f"  token {status['daemon']['token_file']}" in up.out


async def test_an_address_in_use_costs_clients_on_stdio_nothing(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = place.config(SERVERS, daemon={"http": f"127.0.0.1:{taken.getsockname()[1]}"})
        async with daemon(place, config) as command, connected(socket_of(place, config), command) as client:
            await client.initialize()
            found = await place.run("status")
            assert "HTTP is not served" in found.out


async def test_it_tells_the_service_manager_how_it_is(place: Place) -> None:
    """sd_notify(3): READY when it serves, STOPPING when it ends, RELOADING and READY on SIGHUP."""
    path = Path(place.environment()["XDG_RUNTIME_DIR"]) / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(str(path))
        notices.settimeout(10)
        place.env["NOTIFY_SOCKET"] = str(path)
        config = place.config(SERVERS)

        async def said() -> str:
            return (await asyncio.to_thread(notices.recv, 4096)).decode().splitlines()[0]

        async with daemon(place, config) as command:
            assert await said() == "READY=1"
            command.process.send_signal(signal.SIGHUP)
            assert [await said(), await said()] == ["RELOADING=1", "READY=1"]
            command.process.terminate()
            assert await said() == "STOPPING=1"
