"""Signing in for real: the certified `oidc-provider` and the bridge as processes, and the SDKs' OAuth clients.

The browser's part is done by requests, or by Chromium.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from joserfc.jwk import RSAKey

from support.ports import free_port
from support.real_sign_in import (
    CALLBACK,
    CHROMIUM,
    EVERYBODY,
    NODE,
    Bridge,
    Kept,
    Provider,
    needs_provider,
    session,
    sign_in,
    until,
)

pytestmark = needs_provider


@contextmanager
def running(directory: Path, **more: Any) -> Iterator[tuple[Provider, Bridge]]:
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    provider = Provider([f"{root}/mcp", f"{root}/servers/rich/mcp", f"{root}/other"], **more)
    introspection = 'introspection = { client_id = "bridge", client_secret = "bridge-secret" }'
    auth = (
        f'{EVERYBODY}[auth]\nresource = "{root}/mcp"\nscopes = ["tools"]\n'
        f'[auth.issuers.real]\nissuer = "{provider.url}"\n'
        f"{introspection if more.get('opaque') else ''}"
    )
    provider.start()
    try:
        bridge = Bridge(directory, port, auth)
        try:
            yield provider, bridge
        finally:
            bridge.end()
    finally:
        provider.kill()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Provider, Bridge]]:
    with running(tmp_path_factory.mktemp("sign-in")) as found:
        yield found


async def test_the_python_sdk_finds_the_provider_signs_in_and_works(both: tuple[Provider, Bridge]) -> None:
    _, bridge = both
    people: dict[str, Kept] = {"ann": Kept(), "bob": Kept()}
    for who, kept in people.items():
        async with asyncio.timeout(120), session(bridge.url, who, kept) as opened:
            assert "rich__echo" in {tool.name for tool in (await opened.list_tools()).tools}
            assert not (await opened.call_tool("rich__echo", {"text": who})).is_error
        assert kept.tokens is not None
        assert bridge.ask(kept.tokens.access_token).status_code == 200
    ann, bob = (kept.tokens.access_token for kept in people.values() if kept.tokens)
    log = bridge.log.read_text("utf-8")
    assert ann not in log
    assert bob.split(".")[2] not in log


async def test_a_server_alone_is_signed_in_to_as_a_resource_of_its_own(both: tuple[Provider, Bridge]) -> None:
    _, bridge = both
    kept, path = Kept(), "/servers/rich/mcp"
    async with asyncio.timeout(120), session(bridge.root + path, "ann", kept) as opened:
        assert "echo" in {tool.name for tool in (await opened.list_tools()).tools}
    assert kept.tokens is not None
    assert bridge.ask(kept.tokens.access_token, path).status_code == 200
    assert bridge.ask(kept.tokens.access_token).status_code == 401


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
async def test_a_person_signs_in_with_a_browser(both: tuple[Provider, Bridge]) -> None:
    _, bridge = both

    def browse(page: str, who: str) -> str:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            try:
                tab = browser.new_page()
                tab.goto(page)
                tab.fill("input[name=login]", who)
                tab.fill("input[name=password]", "any")
                tab.click("button[type=submit]")
                with tab.expect_request(lambda request: request.url.startswith(CALLBACK)) as sent_back:
                    tab.click("button[type=submit]")  # agrees
                return sent_back.value.url
            finally:
                browser.close()

    kept = Kept()
    async with asyncio.timeout(180), session(bridge.url, "eve", kept, browse) as opened:
        assert (await opened.list_tools()).tools


async def test_the_typescript_sdk_signs_in_and_works(both: tuple[Provider, Bridge]) -> None:
    _, bridge = both

    def talk() -> dict[str, Any]:
        program = [str(shutil.which("node")), str(NODE / "sdk_client.mjs"), bridge.url]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            ending = threading.Timer(120, client.kill)
            ending.start()
            try:
                assert client.stdin is not None
                assert client.stdout is not None
                page = json.loads(client.stdout.readline())["page"]
                client.stdin.write(sign_in(page, "ann") + "\n")
                client.stdin.flush()
                return json.loads(client.stdout.readline())
            finally:
                ending.cancel()
                client.kill()

    assert "rich__echo" in (await asyncio.to_thread(talk))["tools"]


def test_a_program_signs_in_by_itself_and_only_tokens_for_the_bridge_count(both: tuple[Provider, Bridge]) -> None:
    provider, bridge = both
    assert bridge.ask(provider.machine_token(bridge.url)).status_code == 200
    refused = bridge.ask(provider.machine_token(f"{bridge.root}/other"))
    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]


def test_opaque_tokens_of_the_provider_are_asked_about(tmp_path: Path) -> None:
    with running(tmp_path, opaque=True) as (provider, bridge):
        token = provider.machine_token(bridge.url)
        assert "." not in token
        assert bridge.ask(token).status_code == 200
        assert bridge.ask(provider.machine_token(f"{bridge.root}/other")).status_code == 401
        fresh = provider.machine_token(bridge.url)
        provider.kill()
        down = bridge.ask(fresh)
        assert (down.status_code, bool(down.headers["retry-after"])) == (503, True)
        assert bridge.ask(token).status_code == 200, "it was asked about a moment ago"
        assert token not in bridge.log.read_text("utf-8")


def test_the_provider_dies_and_returns(tmp_path: Path) -> None:
    """Known keys continue to let people in; who comes with a key that nobody knows is to come again."""
    with running(tmp_path) as (provider, bridge):
        first, second = (provider.machine_token(bridge.url) for _ in range(2))
        unknown = provider.machine_token(bridge.url)
        assert bridge.ask(first).status_code == 200
        provider.kill()
        assert bridge.ask(first).status_code == 200
        assert bridge.ask(second).status_code == 200, "never seen, and checked with the known keys"
        provider.key = RSAKey.generate_key(2048, {"kid": "two", "use": "sig", "alg": "RS256"})
        provider.start()
        rotated = provider.machine_token(bridge.url)
        until(lambda: bridge.ask(rotated).status_code == 200, "the new key is known")
        until(lambda: bridge.ask(unknown).status_code == 401, "the old key is withdrawn")


def test_tokens_of_the_mock_are_no_access_tokens_for_the_bridge(tmp_path: Path) -> None:
    """`oidc-provider-mock` knows no resources: its ID tokens are for clients, its access tokens say nothing."""
    port, own = free_port(), free_port()
    issuer = f"http://127.0.0.1:{port}"
    program = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port)]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as mock:
        try:
            metadata = f"{issuer}/.well-known/openid-configuration"
            until(lambda: httpx2.get(metadata, trust_env=False).status_code == 200, "the mock answers")
            document = httpx2.get(metadata, trust_env=False).json()
            resource = f"http://127.0.0.1:{own}/mcp"
            asked = {"client_id": resource, "redirect_uri": CALLBACK, "response_type": "code", "scope": "openid"}
            agreed = httpx2.post(document["authorization_endpoint"], params=asked, data={"sub": "ann"}, trust_env=False)
            code = httpx2.URL(agreed.headers["location"]).params["code"]
            form = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK}
            form |= {"client_id": resource, "client_secret": "any"}
            assert agreed.is_redirect, agreed.text
            tokens = httpx2.post(document["token_endpoint"], data=form, trust_env=False).json()
            auth = f'{EVERYBODY}[auth]\nresource = "{resource}"\n[auth.issuers.mock]\nissuer = "{document["issuer"]}"\n'
            bridge = Bridge(tmp_path, own, auth)
            try:
                for name in ("id_token", "access_token"):
                    assert bridge.ask(tokens[name]).status_code == 401, name
            finally:
                bridge.end()
        finally:
            mock.terminate()
