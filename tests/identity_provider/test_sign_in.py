"""Signing in for real: the certified `oidc-provider` and the bridge as processes, and the SDKs' OAuth clients.

The browser's part is done by requests, or by Chromium.
"""

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2
import pytest
from joserfc.jwk import RSAKey
from mcp import ClientSession
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

NODE = Path(__file__).parent / "node"
CALLBACK = "http://127.0.0.1:18907/callback"
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (NODE / "node_modules/oidc-provider").is_dir(),
    reason="`make test` installs the provider into tests/identity_provider/node, with npm",
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(check: Any, what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            if check():
                return
        except httpx2.HTTPError:
            pass
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.1)


class Provider:
    """The provider, which can die and return."""

    def __init__(self, resources: list[str], *, ttl: int = 600, opaque: bool = False) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})
        self.options = {"port": self.port, "resources": resources, "ttl": ttl, "opaque": opaque}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = json.dumps({**self.options, "keys": [self.key.as_dict(private=True)]})
        self.process = subprocess.Popen(
            ["node", str(NODE / "provider.mjs"), options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(lambda: httpx2.get(f"{self.url}/jwks", trust_env=False).status_code == 200, "the provider answers")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)
            self.process = None

    def machine_token(self, resource: str) -> str:
        form = {"grant_type": "client_credentials", "resource": resource, "scope": "tools"}
        answer = httpx2.post(f"{self.url}/token", data=form, auth=("bridge", "bridge-secret"), trust_env=False)
        return str(answer.json()["access_token"])


class Bridge:
    """The bridge, as a process that serves HTTP."""

    def __init__(self, directory: Path, port: int, auth: str) -> None:
        self.url, self.root = f"http://127.0.0.1:{port}/mcp", f"http://127.0.0.1:{port}"
        rich = Path(__file__).parents[1] / "servers" / "rich.py"
        config = directory / "servers.toml"
        server = f'[servers.rich]\ncommand = "{sys.executable}"\nargs = ["{rich}"]\n'
        config.write_text(f"{auth}\n{server}", "utf-8")
        self.log = directory / "log.txt"
        home = {"HOME": str(directory), "XDG_STATE_HOME": str(directory), "XDG_RUNTIME_DIR": str(directory)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mcpbridge", "serve", "--http", f"127.0.0.1:{port}", "--config", str(config)],
                stdout=log,
                stderr=log,
                env={**os.environ, **home},
            )
        try:
            until(lambda: httpx2.get(f"{self.root}/healthz", trust_env=False).status_code == 200, "the bridge serves")
        except AssertionError:
            self.end()
            raise AssertionError(self.log.read_text("utf-8")) from None

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(30)

    def ask(self, token: str | None, path: str = "/mcp", method: str = "tools/list") -> httpx2.Response:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        }
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
            **({"authorization": f"Bearer {token}"} if token else {}),
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta}}
        return httpx2.post(self.root + path, json=body, headers=headers, trust_env=False, timeout=60)


@contextmanager
def running(directory: Path, **more: Any) -> Iterator[tuple[Provider, Bridge]]:
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    provider = Provider([f"{root}/mcp", f"{root}/servers/rich/mcp", f"{root}/other"], **more)
    introspection = 'introspection = { client_id = "bridge", client_secret = "bridge-secret" }'
    auth = (
        f'[auth]\nresource = "{root}/mcp"\nscopes = ["tools"]\n[auth.issuers.real]\nissuer = "{provider.url}"\n'
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


def sign_in(page: str, who: str) -> str:
    """What a browser does: it signs in, agrees, and is sent back. Returns where to."""
    with httpx2.Client(trust_env=False, timeout=60) as browser:
        url, form = page, None
        for _ in range(20):
            answer = browser.get(url) if form is None else browser.post(url, data=form)
            form = None
            if answer.is_redirect:
                url = urljoin(url, answer.headers["location"])
                if url.startswith(CALLBACK):
                    return url
                continue
            found = re.search(r'<form[^>]*action="([^"]+)"', answer.text)
            assert found is not None, answer.text
            url = urljoin(url, found[1])
            form = dict(re.findall(r'name="([^"]+)"[^>]*value="([^"]*)"', answer.text))
            if 'name="login"' in answer.text:
                form |= {"login": who, "password": "any"}
        raise AssertionError("the sign-in never ends")


class Kept:
    """A store of the SDK's client."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.information: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.information

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.information = client_info


@asynccontextmanager
async def session(url: str, who: str, kept: Kept, browser: Any = sign_in) -> AsyncIterator[ClientSession]:
    """A session of the Python SDK's client, which signs in when it is asked to."""
    back: list[str] = []

    async def visit(page: str) -> None:
        back.append(await asyncio.to_thread(browser, page, who))

    async def returned() -> AuthorizationCodeResult:
        query = httpx2.URL(back[-1]).params
        return AuthorizationCodeResult(code=query["code"], state=query["state"], iss=query.get("iss"))

    metadata = OAuthClientMetadata(
        client_name="python-sdk",
        redirect_uris=[AnyUrl(CALLBACK)],
        token_endpoint_auth_method="none",
        grant_types=["authorization_code", "refresh_token"],
    )
    provider = OAuthClientProvider(url, metadata, kept, redirect_handler=visit, callback_handler=returned)
    async with (
        httpx2.AsyncClient(auth=provider, timeout=60, trust_env=False) as client,
        streamable_http_client(url, http_client=client) as streams,
        ClientSession(streams[0], streams[1]) as opened,
    ):
        await opened.initialize()
        yield opened


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
            auth = f'[auth]\nresource = "{resource}"\n[auth.issuers.mock]\nissuer = "{document["issuer"]}"\n'
            bridge = Bridge(tmp_path, own, auth)
            try:
                for name in ("id_token", "access_token"):
                    assert bridge.ask(tokens[name]).status_code == 401, name
            finally:
                bridge.end()
        finally:
            mock.terminate()
