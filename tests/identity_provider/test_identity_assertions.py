"""Enterprise-managed authorization: one sign-in at the bridge, and every upstream is reached (issue 23).

The provider is the certified `oidc-provider`, to which `node/provider.mjs` adds the grant that it lacks (ID-JAG). The
upstreams are bridges, which are authorization servers that take such assertions; an MCP server is behind each.
"""

import asyncio
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from support.ports import free_port
from support.real_sign_in import (
    EVERYBODY,
    Bridge,
    Kept,
    Provider,
    home_at,
    local_server,
    needs_provider,
    session,
    until,
)

pytestmark = needs_provider

SECRET = "a-secret-of-the-front-at-its-upstreams"
HOLDER = "a-token-of-a-service-account-0123456789"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sign_in_section(root: str, provider: Provider, client: str) -> str:
    return (
        f'[auth]\nresource = "{root}/mcp"\n[auth.sign_in]\nissuer = "{provider.url}"\nclient_id = "{client}"\n'
        f'client_secret = "{client}-secret"\nscopes = ["openid", "email", "groups"]\n'
    )


class World(Struct):
    """The provider, the bridge that people sign in at, and those behind it."""

    provider: Provider
    front: Bridge
    first: Bridge
    second: Bridge
    directory: Path
    token: str = ""
    """Ann's, from the one time that she signed in."""
    sign_ins: int = 0


def upstream_of(directory: Path, port: int, provider: Provider, name: str) -> Bridge:
    directory.mkdir()
    root = f"http://127.0.0.1:{port}"
    client = f'[auth.sign_in.clients.front-at-{name}]\nsha256 = "{digest(SECRET)}"\nassertions = true\n'
    roles = '[[roles]]\nname = "anns"\ngroups = "anns"\nservers = "*"\n'
    return Bridge(directory, port, sign_in_section(root, provider, name) + client, local_server("rich") + roles)


def server(name: str, upstream: str, url: str, more: str = "") -> str:
    client = f'client_id = "front-at-{upstream}", client_secret = "{SECRET}"'
    return f'[servers.{name}]\nurl = "{url}/mcp"\nauth = {{ as = "id-jag", {client}{more} }}\n'


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("id-jag")
    ports = {name: free_port() for name in ("front", "first", "second")}
    roots = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    at_first = {"client_id": "front-at-first"}
    provider = Provider(
        [],
        ttl=3600,
        bridges={name: f"{root}/oauth/callback" for name, root in roots.items()},
        assertions={
            roots["first"]: at_first,
            roots["second"]: {"client_id": "front-at-second"},
            "urn:expired": {**at_first, "aud": roots["first"], "ttl": -600},
            "urn:elsewhere": {**at_first, "aud": "https://elsewhere.example"},
            "urn:stranger": {"client_id": "somebody-else", "aud": roots["first"]},
            "urn:again": {**at_first, "aud": roots["first"], "jti": "always-the-same"},
        },
    )
    with ExitStack() as stack:
        provider.start()
        stack.callback(provider.kill)
        first = upstream_of(directory / "first", ports["first"], provider, "first")
        stack.callback(first.end)
        second = upstream_of(directory / "second", ports["second"], provider, "second")
        stack.callback(second.end)
        spoiled = [
            server(name, "first", roots["first"], f', issuer = "{roots["first"]}", audience = "urn:{audience}"')
            for name, audience in {
                **{name: name for name in ("expired", "elsewhere", "stranger", "unknown")},
                **dict.fromkeys(("again1", "again2"), "again"),
            }.items()
        ]
        servers = [
            server("first", "first", roots["first"], f', issuer = "{roots["first"]}"'),
            server("second", "second", roots["second"]),  # which says itself who its authorization server is
            *spoiled,
            server("later", "second", roots["second"]),
        ]
        tokens = f'[[http.tokens]]\nname = "service"\nsha256 = "{digest(HOLDER)}"\n'
        auth = EVERYBODY + sign_in_section(roots["front"], provider, "front")
        (directory / "front").mkdir()
        front = Bridge(directory / "front", ports["front"], auth, "".join(servers) + tokens)
        stack.callback(front.end)
        yield World(provider, front, first, second, directory / "front")


def text_of(answer: dict[str, Any]) -> str:
    return json.dumps(answer)


async def sign_in_once(world: World) -> str:
    if not world.token:
        from support.real_sign_in import sign_in

        def counted(page: str, who: str) -> str:
            world.sign_ins += 1
            return sign_in(page, who)

        kept = Kept()
        async with asyncio.timeout(120), session(world.front.url, "ann", kept, counted) as opened:
            await opened.list_tools()
        assert kept.tokens is not None
        world.token = kept.tokens.access_token
    return world.token


async def test_who_signed_in_once_reaches_two_upstreams(world: World) -> None:
    """Their roles go by her groups, so they know who she is. One is named, the other says who its provider is."""
    ann = await sign_in_once(world)
    wanted = {"first__rich__echo", "second__rich__echo"}
    await asyncio.to_thread(until, lambda: wanted <= world.front.tools(ann), "both are listed", 120)
    for tool in sorted(wanted):
        answer = await asyncio.to_thread(world.front.call, ann, tool, text="hello")
        assert answer["content"][0]["text"] == "hello", answer
    assert world.sign_ins == 1
    for bridge in (world.front, world.first, world.second):
        log = bridge.log.read_text("utf-8")
        assert ann not in log
        assert "eyJ" not in log, "no token of anybody"


async def test_what_was_spoiled_on_the_way_is_refused_there(world: World) -> None:
    ann = await sign_in_once(world)
    for name in ("expired", "elsewhere", "stranger"):
        answer = text_of(await asyncio.to_thread(world.front.call, ann, f"{name}__rich__echo", text="hello"))
        assert "hello" not in answer
    assert "invalid_grant" in world.front.log.read_text("utf-8")
    log = world.first.log.read_text("utf-8")
    for reason in ("expired", "for another authorization server", "for another client"):
        assert reason in log, reason


async def test_an_assertion_that_was_used_before_is_refused(world: World) -> None:
    ann = await sign_in_once(world)

    def states() -> dict[str, bool]:
        tools = world.front.tools(ann)
        return {name: f"{name}__rich__echo" in tools for name in ("again1", "again2")}

    await asyncio.to_thread(until, lambda: sorted(states().values()) == [False, True], "one of the two is there", 120)
    tools = await asyncio.to_thread(world.front.tools, ann)
    refused = next(name for name in ("again1", "again2") if f"{name}__rich__echo" not in tools)
    lines = [line for line in world.front.log.read_text("utf-8").splitlines() if refused in line]
    assert any("invalid_grant" in line for line in lines), lines


async def test_a_provider_that_vouches_for_nobody_there_is_no_way_in(world: World) -> None:
    ann = await sign_in_once(world)
    assert "unknown__rich__echo" not in await asyncio.to_thread(world.front.tools, ann)
    assert "invalid_target" in world.front.log.read_text("utf-8")


async def test_a_service_account_has_nobody_who_vouches_for_it(world: World) -> None:
    ann = await sign_in_once(world)
    await asyncio.to_thread(until, lambda: "first__rich__echo" in world.front.tools(ann), "it is listed", 120)
    answer = text_of(await asyncio.to_thread(world.front.call, HOLDER, "first__rich__echo", text="x"))
    assert "signed in at the bridge" in answer


async def test_a_person_without_the_group_is_let_in_and_may_call_nothing(world: World) -> None:
    """The upstream decides by what the assertion says of bob, not of whoever listed."""
    ann = await sign_in_once(world)
    await asyncio.to_thread(until, lambda: "first__rich__echo" in world.front.tools(ann), "it is listed", 120)
    kept = Kept()
    async with asyncio.timeout(120), session(world.front.url, "bob", kept) as opened:
        await opened.list_tools()
    assert kept.tokens is not None
    answer = await asyncio.to_thread(world.front.call, kept.tokens.access_token, "first__rich__echo", text="hello")
    assert "hello" not in text_of(answer)


async def test_the_provider_dies_and_returns(world: World) -> None:
    """What was given works on. Who needs another assertion is told to come again."""
    ann = await sign_in_once(world)
    await asyncio.to_thread(until, lambda: "first__rich__echo" in world.front.tools(ann), "it is listed", 120)
    assert (await asyncio.to_thread(world.front.call, ann, "first__rich__echo", text="hello")).get("content")
    eve = Kept()
    async with asyncio.timeout(120), session(world.front.url, "eve", eve) as opened:
        await opened.list_tools()
    assert eve.tokens is not None
    world.provider.kill()
    answer = await asyncio.to_thread(world.front.call, ann, "first__rich__echo", text="hello")
    assert answer["content"][0]["text"] == "hello", answer
    down = text_of(await asyncio.to_thread(world.front.call, eve.tokens.access_token, "first__rich__echo", text="x"))
    assert "nobody vouches for you there now" in down
    world.provider.start()

    def returns() -> bool:
        assert eve.tokens is not None
        return "nobody vouches" not in text_of(world.front.call(eve.tokens.access_token, "first__rich__echo", text="x"))

    await asyncio.to_thread(until, returns, "eve is vouched for again", 120)


async def test_who_is_put_out_is_vouched_for_no_more(world: World) -> None:
    """Last of all: it ends what the others use."""
    ann = await sign_in_once(world)
    principal = f"{world.provider.url}#ann"
    command = [sys.executable, "-m", "mcpbridge", "users", "revoke", principal]
    command += ["--config", str(world.directory / "servers.toml")]
    env = home_at(world.directory)
    done = await asyncio.to_thread(subprocess.run, command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    await asyncio.to_thread(until, lambda: world.front.ask(ann).status_code == 401, "her token works no more")
    gone = "a client ended its sign-in"
    await asyncio.to_thread(until, lambda: gone in world.first.log.read_text("utf-8"), "its token was taken back")
