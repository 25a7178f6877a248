"""People sign in at the bridge, and a server behind gets a token of its own for each (issue 23, `as = "exchange"`).

The provider is the certified `oidc-provider`, to which `node/provider.mjs` adds the grant that it lacks (RFC 8693). The
server is behind a bridge of its own, which checks the tokens that come to it as a resource server does.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from msgspec import Struct

from support.ports import free_port
from support.real_sign_in import EVERYBODY, Bridge, Kept, Provider, local_server, needs_provider, session, until

pytestmark = needs_provider

TOOL = "up__rich__echo"


class World(Struct):
    provider: Provider
    front: Bridge
    """Where people sign in."""
    guarded: Bridge
    """The server, which lets in those whose token was exchanged for a renewed one."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("exchange")
    before, behind = free_port(), free_port()
    root, resource = f"http://127.0.0.1:{before}", f"http://127.0.0.1:{behind}/mcp"
    # Of what ends within a minute nothing is exchanged: the token of the sign-in is renewed each time.
    provider = Provider([resource], ttl=45, bridges={"front": f"{root}/oauth/callback"})
    client = 'client_id = "front"\nclient_secret = "front-secret"\n'
    with ExitStack() as stack:
        provider.start()
        stack.callback(provider.kill)
        for name in ("guarded", "front"):
            (directory / name).mkdir()
        auth = f'[auth]\nresource = "{resource}"\n[auth.issuers.real]\nissuer = "{provider.url}"\n'
        roles = "".join(
            f'[[roles]]\nname = "{name}"\ngroups = "renewed"\nprincipals = "{provider.url}#{name}"\nservers = "rich"\n'
            for name in ("ann", "bob")
        )
        guarded = Bridge(directory / "guarded", behind, auth, local_server("rich") + roles)
        stack.callback(guarded.end)
        sign_in = f'[auth]\nresource = "{root}/mcp"\n[auth.sign_in]\nissuer = "{provider.url}"\n{client}'
        server = f'[servers.up]\nurl = "{resource}"\n[servers.up.auth]\nas = "exchange"\nissuer = "{provider.url}"\n'
        front = Bridge(directory / "front", before, EVERYBODY + sign_in, server + client)
        stack.callback(front.end)
        yield World(provider, front, guarded)


async def token_of(world: World, who: str) -> str:
    kept = Kept()
    async with asyncio.timeout(120), session(world.front.url, who, kept) as opened:
        await opened.list_tools()
    assert kept.tokens is not None
    return kept.tokens.access_token


async def test_the_provider_s_token_is_renewed_and_exchanged_for_whoever_calls(world: World) -> None:
    tokens = {who: await token_of(world, who) for who in ("ann", "bob", "eve")}
    for who in ("ann", "bob"):
        await asyncio.to_thread(until, lambda who=who: TOOL in world.front.tools(tokens[who]), "it is listed", 120)
        answer = await asyncio.to_thread(world.front.call, tokens[who], TOOL, text=f"{who} calls")
        assert answer["content"][0]["text"] == f"{who} calls", answer
    answer = await asyncio.to_thread(world.front.call, tokens["eve"], TOOL, text="eve calls")
    assert "eve calls" not in str(answer), "the server decides by who she is, not by who called before"
    for token in tokens.values():
        assert (await asyncio.to_thread(world.guarded.ask, token)).status_code == 401, "ours is no token of the server"
    for bridge in (world.front, world.guarded):
        log = bridge.log.read_text("utf-8")
        assert re.search(r"eyJ[\w-]{10,}\.", log) is None
        assert not any(token in log for token in tokens.values())
