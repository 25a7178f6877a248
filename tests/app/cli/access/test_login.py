"""`mcpbridge login` and `logout`: a person signs in, with a stand-in for the browser (issue 3)."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from support.harness import Command, Place, python_server
from support.upstreams.oauth_server import OAuthWorld, oauth_world

VISIT = "import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=20).read()"
"""What the stand-in for a browser does with the address that it is started with."""


def with_browser(place: Place) -> None:
    script = place.folder / "browser"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(VISIT)} "$1" >/dev/null 2>&1\n')
    script.chmod(0o755)
    place.env["BROWSER"] = str(script)


def config_for(place: Place, world: OAuthWorld, **auth: Any) -> str:
    server = {"url": world.url, "era": "legacy", **({"auth": auth} if auth else {})}
    return str(place.config({"up": server, "local": python_server("plain")}))


async def call(place: Place, config: str) -> dict[str, Any]:
    finished = await place.run("call", "up__read", "text=it", "--config", config)
    return {"code": finished.code, "out": finished.out, "err": finished.err}


async def test_login_opens_the_browser_and_later_commands_are_signed_in(place: Place) -> None:
    with_browser(place)
    async with oauth_world() as world:
        config = config_for(place, world)
        before = await place.run("list", "--config", config)
        assert "up is missing: HTTP 401, needs sign-in: run `mcpbridge login up`" in before.err
        finished = await place.run("login", "up", "--config", config)
        assert finished.code == 0, finished.err
        assert finished.out == f"signed in to up at {world.issuer}, with basic\n"
        assert "/authorize?" in finished.err
        assert len(world.server.asked) == 1
        after = await call(place, config)
        assert after["code"] == 0, after
        assert "read it" in after["out"]
        told = finished.out + finished.err + before.err + after["out"] + after["err"]
        assert not [token for token in (*world.server.access, *world.server.refresh) if token in told]


async def test_without_a_browser_the_address_is_pasted(place: Place) -> None:
    async with oauth_world() as world:
        config = config_for(place, world)
        async with place.started("login", "up", "--no-browser", "--config", config) as command:
            page = (await command.logged(r"http://\S+/authorize\?\S+"))[0]
            async with httpx2.AsyncClient(timeout=60) as client:
                ended_at = (await client.get(page)).headers["location"]
            assert command.process.stdin
            command.process.stdin.write(b"http://127.0.0.1/callback?code=x&state=y\n")
            await command.logged("not the a")
            command.process.stdin.write(f"  {ended_at}  \n".encode())
            await _ended(command)
        assert (await call(place, config))["code"] == 0


async def _ended(command: Command) -> None:
    with anyio.fail_after(60):
        assert await command.process.wait() == 0, command.told()


async def test_a_running_bridge_needs_no_restart(place: Place) -> None:
    with_browser(place)
    async with oauth_world() as world:
        config = config_for(place, world, interactive=False)
        async with place.started("serve", "--config", config) as command:
            await command.logged("needs sign-in: run `mcpbridge login up`", within=60)
            assert world.server.asked == []
            assert (await place.run("login", "up", "--config", config)).code == 0
            await command.logged('"up".*"upstream ready"', within=60)


async def test_serve_on_stdio_opens_the_browser_itself(place: Place) -> None:
    with_browser(place)
    async with oauth_world() as world:
        async with place.started("serve", "--config", config_for(place, world)) as command:
            await command.logged('"up".*"upstream ready"', within=60)
        assert len(world.server.asked) == 1


async def test_serve_over_http_opens_no_browser(place: Place) -> None:
    with_browser(place)
    async with oauth_world() as world:
        async with place.started("serve", "--http", "0", "--config", config_for(place, world)) as command:
            await command.logged("needs sign-in: run `mcpbridge login up`", within=60)
        assert world.server.asked == []


async def test_two_bridges_open_one_page(place: Place) -> None:
    with_browser(place)
    async with oauth_world() as world:
        config = config_for(place, world)
        async with (
            place.started("serve", "--config", config) as one,
            place.started("serve", "--config", config) as other,
        ):
            await one.logged('"up".*"upstream ready"', within=60)
            await other.logged('"up".*"upstream ready"', within=60)
        assert len(world.server.asked) == 1


async def test_more_rights_are_asked_for_by_name(place: Place) -> None:
    with_browser(place)
    async with oauth_world(scopes={"read": "write"}) as world:
        config = config_for(place, world)
        assert (await place.run("login", "up", "--config", config)).code == 0
        refused = await call(place, config)
        assert refused["code"] != 0
        assert "mcpbridge login up --scope write" in refused["out"] + refused["err"]
        finished = await place.run("login", "up", "--scope", "write", "--config", config, "--json")
        assert json.loads(finished.out)["scope"] == "basic write"
        assert (await call(place, config))["code"] == 0


async def test_logout_forgets_and_revokes(place: Place) -> None:
    with_browser(place)
    async with oauth_world() as world:
        config = config_for(place, world)
        await place.run("login", "up", "--config", config)
        assert world.server.refresh
        finished = await place.run("logout", "up", "--config", config)
        assert finished.out == "signed out of up\n"
        assert finished.err == ""
        assert world.server.refresh == {}
        again = await place.run("logout", "up", "--config", config)
        assert "nobody was signed in" in again.err
        assert not list(Path(place.folder).rglob("*.sealed"))
        assert "needs sign-in" in (await place.run("list", "--config", config)).err


@pytest.mark.parametrize(
    ("server", "hint"), [("local", "from `env`"), ("upp", "Did you mean 'up'?"), ("fixed", "headers.Authorization")]
)
async def test_what_cannot_be_signed_in_to_is_said(place: Place, server: str, hint: str) -> None:
    servers = {
        "up": {"url": "http://127.0.0.1:9/mcp"},
        "local": python_server("plain"),
        "fixed": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer of-mine-and-long"}},
    }
    finished = await place.run("login", server, "--config", str(place.config(servers)))
    assert finished.code == 2
    assert hint in finished.err


async def test_a_server_that_is_not_there_is_said(place: Place) -> None:
    config = place.config({"up": {"url": "http://127.0.0.1:9/mcp"}})
    finished = await place.run("login", "up", "--config", str(config))
    assert finished.code == 4
    assert "connection refused" in finished.err
