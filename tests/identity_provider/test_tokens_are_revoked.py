"""When somebody is signed in no more, the provider's tokens of theirs work no more either (issue 23).

The provider is the certified `oidc-provider`; whether a token works says its introspection.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest
from mcp.shared.auth import OAuthToken
from msgspec import Struct

from mcpbridge.app.sign_in.identity_provider import ProviderTokens
from mcpbridge.storage.token_store import SealedFiles
from support.ports import free_port
from support.real_sign_in import EVERYBODY, Bridge, Kept, Provider, home_at, needs_provider, session

pytestmark = needs_provider


class World(Struct):
    provider: Provider
    bridge: Bridge
    directory: Path
    auth: str
    """Of the configuration."""

    async def kept(self, who: str) -> ProviderTokens | None:
        """What the bridge keeps of the provider's for somebody."""
        found = await SealedFiles(self.directory / "mcpbridge" / "secrets").load(
            f"identity-provider/{self.provider.url}#{who}"
        )
        return None if found is None else msgspec.json.decode(found, type=ProviderTokens)

    def works(self, token: str) -> bool:
        """Whether a token of the provider's does."""
        form = {"token": token, "client_id": "front", "client_secret": "front-secret"}
        answer = httpx2.post(f"{self.provider.url}/token/introspection", data=form, trust_env=False)
        assert answer.status_code == 200, answer.text
        return bool(answer.json()["active"])

    async def sign_in(self, who: str) -> tuple[str, OAuthToken]:
        """A program signs in for somebody, and leaves. Its client id and its tokens."""
        kept = Kept()
        async with asyncio.timeout(120), session(self.bridge.url, who, kept) as opened:
            await opened.list_tools()
        assert kept.tokens is not None
        assert kept.information is not None
        return str(kept.information.client_id), kept.tokens

    def end(self, client_id: str, tokens: OAuthToken) -> None:
        """The program ends its sign-in."""
        form = {"client_id": client_id, "token": tokens.refresh_token or ""}
        answer = httpx2.post(f"{self.bridge.root}/oauth/revoke", data=form, trust_env=False)
        assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory, port = tmp_path_factory.mktemp("revoked"), free_port()
    root = f"http://127.0.0.1:{port}"
    provider = Provider([f"{root}/mcp"], bridges={"front": f"{root}/oauth/callback"})
    provider.start()
    sign_in = f'issuer = "{provider.url}"\nclient_id = "front"\nclient_secret = "front-secret"\n'
    try:
        auth = f'{EVERYBODY}[auth]\nresource = "{root}/mcp"\n[auth.sign_in]\n{sign_in}'
        found = World(provider, Bridge(directory, port, auth), directory, auth)
        try:
            yield found
        finally:
            found.bridge.end()
    finally:
        provider.kill()


async def test_the_last_program_that_leaves_takes_the_provider_s_tokens_along(world: World) -> None:
    first = await world.sign_in("ann")
    earlier = await world.kept("ann")
    second = await world.sign_in("ann")
    kept = await world.kept("ann")
    assert earlier is not None
    assert kept is not None
    await asyncio.to_thread(world.end, *first)
    assert await world.kept("ann") == kept
    for token in (kept.refresh, earlier.refresh):
        assert await asyncio.to_thread(world.works, token), "the other program needs them"
    await asyncio.to_thread(world.end, *second)
    assert await world.kept("ann") is None
    for token in (kept.refresh, earlier.refresh, kept.access):
        assert not await asyncio.to_thread(world.works, token)


@pytest.mark.parametrize("runs", [True, False])
async def test_who_is_put_out_has_nothing_that_works_at_the_provider(world: World, runs: bool) -> None:
    """Whether the bridge runs or not."""
    await world.sign_in("bob")
    kept = await world.kept("bob")
    assert kept is not None
    assert await asyncio.to_thread(world.works, kept.refresh)
    if not runs:
        await asyncio.to_thread(world.bridge.end)
    command = [sys.executable, "-m", "mcpbridge", "users", "revoke", f"{world.provider.url}#bob"]
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, "--config", str(world.directory / "servers.toml")],
        env={**os.environ, **home_at(world.directory)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert await world.kept("bob") is None
    assert not await asyncio.to_thread(world.works, kept.refresh)
    assert kept.refresh not in world.bridge.log.read_text("utf-8")


async def test_what_is_kept_of_a_sign_in_that_has_ended_by_itself_is_revoked(world: World) -> None:
    """Here with the store of the bridge, while it was down."""
    if world.bridge.process.poll() is None:
        await asyncio.to_thread(world.bridge.end)
    port = int(world.bridge.root.rpartition(":")[2])
    world.bridge = await asyncio.to_thread(Bridge, world.directory, port, world.auth)
    await world.sign_in("eve")
    kept = await world.kept("eve")
    assert kept is not None
    await asyncio.to_thread(world.bridge.end)
    for file in await asyncio.to_thread(lambda: list(world.directory.rglob("store.db*"))):
        file.unlink()
    world.bridge = await asyncio.to_thread(Bridge, world.directory, port, world.auth)
    async with asyncio.timeout(60):
        while await asyncio.to_thread(world.works, kept.refresh):
            await asyncio.sleep(0.1)  # nothing else says that the bridge has looked
    assert await world.kept("eve") is None
