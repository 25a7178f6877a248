"""Mistakes of the person who set it up: what, where, why, what to do (issue 2)."""

import json
import socket

from support.harness import Place, python_server

HEALTHY = {"healthy": python_server("plain")}


async def test_an_unknown_key_is_an_error_that_names_the_nearest(place: Place) -> None:
    config = place.config({"one": python_server("plain", cal_timeout=5)})
    for command in ("serve", "check", "list"):
        finished = await place.run(command, "--config", str(config))
        assert finished.code == 2
        assert str(config) in finished.err
        assert "cal_timeout" in finished.err
        assert "call_timeout" in finished.err.replace("cal_timeout", "")
        assert "Traceback" not in finished.err


async def test_a_file_that_is_no_toml_is_an_error_with_its_place(place: Place) -> None:
    config = place.folder / "servers.toml"
    config.write_text("[servers.one]\ncommand = \n")
    finished = await place.run("check", "--config", str(config))
    assert finished.code == 2
    assert f"{config}:2:" in finished.err


async def test_a_missing_file_is_an_error_that_names_it(place: Place) -> None:
    finished = await place.run("check", "--config", str(place.folder / "absent.toml"))
    assert finished.code == 2
    assert "absent.toml" in finished.err


async def test_a_missing_variable_turns_its_server_off_and_no_other(place: Place) -> None:
    servers = {"secret": python_server("plain", env={"TOKEN": "${NO_SUCH_VARIABLE}"}), **HEALTHY}
    async with place.bridge(servers) as client:
        await client.initialize()
        tools = await client.tools_with("healthy__echo")
        assert not [name for name in tools if name.startswith("secret__")]
        [running] = json.loads((await place.run("status", "--json")).out)["bridges"]
    [reason] = [server["reason"] for server in running["servers"] if server["name"] == "secret"]
    assert "NO_SUCH_VARIABLE" in reason
    finished = await place.run("check", "--config", str(place.config(servers)))
    assert finished.code == 4
    assert "NO_SUCH_VARIABLE" in finished.out + finished.err


async def test_a_port_in_use_is_an_error_that_says_so(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        finished = await place.run("serve", "--config", str(place.config(HEALTHY)), "--http", address)
    assert finished.code == 2
    assert address in finished.err
    assert "in use" in finished.err
    assert "Traceback" not in finished.err


async def test_an_open_address_without_authentication_is_refused(place: Place) -> None:
    finished = await place.run("serve", "--config", str(place.config(HEALTHY)), "--http", "0.0.0.0:0")
    assert finished.code == 2
    assert "--no-auth" in finished.err


async def test_a_secret_of_the_configuration_reaches_no_log(place: Place) -> None:
    secret = "s3cr3t-value-of-the-test"
    place.env["MY_TOKEN"] = secret
    script = "import os, sys; sys.exit('cannot sign in with ' + os.environ['TOKEN'])"
    servers = {"leaky": {"command": "python3", "args": ["-c", script], "env": {"TOKEN": "${MY_TOKEN}"}}, **HEALTHY}
    config = place.config(servers)
    finished = await place.run("check", "--config", str(config))
    assert "cannot sign in with" in finished.out + finished.err
    assert secret not in finished.out + finished.err
