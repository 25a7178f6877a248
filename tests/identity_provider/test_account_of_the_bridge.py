"""`auth.as = "client"`: whoever calls, the server sees the bridge, by a token of a real provider (issue 23).

The provider is the certified `oidc-provider`. The server is behind a bridge of its own, which checks the tokens that
come to it: signature, issuer, audience and expiry, as a resource server does.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from mcpbridge.storage.call_log.reader import Filter, read_calls
from support.identity_providers import claims_in
from support.ports import free_port
from support.real_sign_in import Bridge, Provider, local_server, needs_provider, until

pytestmark = needs_provider

PEOPLE = {name: f"a-token-of-{name}-0123456789012345678901234567" for name in ("ann", "bob")}
SECRET = "bridge-secret"


class World(Struct):
    provider: Provider
    front: Bridge
    """What people come to; it reaches the server behind the other one as itself."""
    guarded: Bridge
    directory: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("client")
    behind, before = free_port(), free_port()
    resource = f"http://127.0.0.1:{behind}/mcp"
    provider = Provider([resource, f"http://127.0.0.1:{before}/mcp"], ttl=3600)
    auth = f'[auth]\nresource = "{resource}"\n[auth.issuers.real]\nissuer = "{provider.url}"\n'
    log = "[call_log]\nenabled = true\n"
    roles = f'[[roles]]\nname = "machines"\nprincipals = "{provider.url}#bridge"\nservers = "rich"\n'
    tokens = "".join(
        f'[[http.tokens]]\nname = "{name}"\nsha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
        for name, token in PEOPLE.items()
    )

    def server(name: str, secret: str) -> str:
        auth = f'{{ as = "client", client_id = "bridge", client_secret = "{secret}" }}'
        return f'[servers.{name}]\nurl = "{resource}"\nauth = {auth}\n'

    with ExitStack() as stack:
        provider.start()
        stack.callback(provider.kill)
        for name in ("guarded", "front"):
            (directory / name).mkdir()
        guarded = Bridge(directory / "guarded", behind, auth + log, local_server("rich") + roles)
        stack.callback(guarded.end)
        servers = server("up", SECRET) + server("wrong", "another-secret")
        front = Bridge(directory / "front", before, log, servers + tokens)
        stack.callback(front.end)
        yield World(provider, front, guarded, directory)


async def logged(world: World, name: str) -> list[dict[str, Any]]:
    """The calls of tools that a bridge has recorded."""
    [path] = await asyncio.to_thread(lambda: list((world.directory / name).rglob("calls.db")))
    rows = await asyncio.to_thread(lambda: read_calls(path, Filter(), limit=100))
    return [row for row in rows if row["method"] == "tools/call" and row["outcome"] == "ok"]


async def test_everybody_calls_with_the_account_of_the_bridge(world: World) -> None:
    """The server behind gets a token of the provider for itself, never that which somebody came with."""
    assert (await asyncio.to_thread(world.guarded.ask, None)).status_code == 401
    assert (await asyncio.to_thread(world.guarded.ask, PEOPLE["ann"])).status_code == 401
    for name, token in PEOPLE.items():
        await asyncio.to_thread(until, lambda token=token: "up__rich__echo" in world.front.tools(token), "listed", 120)
        answer = await asyncio.to_thread(world.front.call, token, "up__rich__echo", text=name)
        assert answer["content"][0]["text"] == name, answer

    async def both(name: str) -> list[dict[str, Any]]:
        async with asyncio.timeout(60):
            while len(found := await logged(world, name)) < 2:
                await asyncio.sleep(0.1)  # rows are gathered; nothing else says that they are written
        return found

    assert [row["principal"] for row in await both("front")] == ["ann", "bob"]
    assert {row["principal"] for row in await both("guarded")} == {f"{world.provider.url}#bridge"}
    assert {row["oauth_client"] for row in await both("guarded")} == {"bridge"}


async def test_the_server_checks_the_token(world: World) -> None:
    """A token of the same client for another resource opens nothing: what the bridge sends is for this server."""
    other = await asyncio.to_thread(world.provider.machine_token, f"{world.front.root}/mcp")
    assert claims_in(other)["aud"] == f"{world.front.root}/mcp"
    assert (await asyncio.to_thread(world.guarded.ask, other)).status_code == 401
    own = await asyncio.to_thread(world.provider.machine_token, f"{world.guarded.root}/mcp")
    assert (await asyncio.to_thread(world.guarded.ask, own)).status_code == 200


async def test_a_wrong_secret_is_named_and_shown_nowhere(world: World) -> None:
    def failed() -> bool:
        answer = world.front.call(PEOPLE["ann"], "wrong__rich__echo", text="x")
        return "wrong" in json.dumps(answer)

    await asyncio.to_thread(until, failed, "the call fails", 60)
    log = await asyncio.to_thread(world.front.log.read_text, "utf-8")
    assert "invalid_client" in log
    assert SECRET not in log
    assert "another-secret" not in log


async def test_the_token_is_asked_for_once_and_outlives_the_provider(world: World) -> None:
    """Calls of everybody share it until it ends."""
    world.provider.kill()
    try:
        for name, token in PEOPLE.items():
            answer = await asyncio.to_thread(world.front.call, token, "up__rich__echo", text=f"{name} again")
            assert answer["content"][0]["text"] == f"{name} again", answer
    finally:
        await asyncio.to_thread(world.provider.start)
