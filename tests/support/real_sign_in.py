"""Signing in for real: the certified `oidc-provider` and the bridge as processes, and the SDK's OAuth client."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from html import unescape
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

from support.ports import free_port
from support.programs import preloaded_bridge

NODE = Path(__file__).parents[1] / "identity_provider" / "node"
CALLBACK = "http://127.0.0.1:18907/callback"
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")

needs_provider = pytest.mark.skipif(
    shutil.which("node") is None or not (NODE / "node_modules/oidc-provider").is_dir(),
    reason="`make test` installs the provider into tests/identity_provider/node, with npm",
)


EVERYBODY = '[[roles]]\nname = "everybody"\nprincipals = "*"\nservers = "*"\n'
"""The roles of tests that are about something else: people sign in only where there are some."""


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


def local_server(name: str, script: str = "rich") -> str:
    """The configuration of a server that is a process."""
    path = Path(__file__).parents[1] / "servers" / f"{script}.py"
    return f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = ["{path}"]\n'


def home_at(directory: Path) -> dict[str, str]:
    """The environment of a bridge that keeps all that it keeps in this directory, and of commands for it."""
    kinds = ("STATE_HOME", "DATA_HOME", "CONFIG_HOME", "CACHE_HOME", "RUNTIME_DIR")
    return {**os.environ, "HOME": str(directory), **{f"XDG_{kind}": str(directory) for kind in kinds}}


class Provider:
    """The provider, which can die and return."""

    def __init__(self, resources: list[str], *, ttl: int = 600, opaque: bool = False, **more: Any) -> None:
        """`more`: options of `provider.mjs`."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})
        self.options = {"port": self.port, "resources": resources, "ttl": ttl, "opaque": opaque, **more}
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

    def __init__(self, directory: Path, port: int, auth: str, servers: str = "", program: Sequence[str] = ()) -> None:
        """`servers`: their part of the configuration; by default there is one, `rich`. `program`: another to start."""
        self.url, self.root = f"http://127.0.0.1:{port}/mcp", f"http://127.0.0.1:{port}"
        config = directory / "servers.toml"
        config.write_text(f"{auth}\n{servers or local_server('rich')}", "utf-8")
        self.log = directory / "log.txt"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(program or preloaded_bridge.command()),
                    "serve",
                    "--http",
                    f"127.0.0.1:{port}",
                    "--config",
                    str(config),
                ],
                stdout=log,
                stderr=log,
                env=home_at(directory),
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

    def ask(self, token: str | None, path: str = "/mcp", method: str = "tools/list", **params: Any) -> httpx2.Response:
        """One modern request."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        }
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
            **({"mcp-name": params["name"]} if "name" in params else {}),
            **({"authorization": f"Bearer {token}"} if token else {}),
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        return httpx2.post(self.root + path, json=body, headers=headers, trust_env=False, timeout=60)

    def tools(self, token: str) -> set[str]:
        """The names of the tools that whoever holds this token is shown."""
        return {tool["name"] for tool in self.ask(token).json()["result"]["tools"]}

    def call(self, token: str, tool: str, **arguments: Any) -> dict[str, Any]:
        """One call: its result, or its error."""
        text = self.ask(token, method="tools/call", name=tool, arguments=arguments).text
        if not text.startswith("{"):
            text = [line[6:] for line in text.splitlines() if line.startswith("data: {")][-1]
        answer = json.loads(text)
        return answer.get("result") or answer["error"]


def sign_in(page: str, who: str) -> str:
    """What a browser does: it signs in, agrees, and is sent back. Returns where to."""
    with httpx2.Client(trust_env=False, timeout=60) as browser:
        url, form = page, None
        for _ in range(20):
            parts = httpx2.URL(url)
            ours = {"origin": f"{parts.scheme}://{parts.netloc.decode()}", "sec-fetch-site": "same-origin"}
            answer = browser.get(url) if form is None else browser.post(url, data=form, headers=ours)
            form = None
            if answer.is_redirect:
                url = urljoin(url, answer.headers["location"])
                if url.startswith(CALLBACK):
                    return url
                continue
            if 'name="sub"' in answer.text:  # the page of `oidc-provider-mock`
                form = {"sub": who}
                continue
            found = re.search(r'<form[^>]*action="([^"]+)"', answer.text)
            if found is None:  # a page of the bridge that leads on to the provider
                found = re.search(r'<meta http-equiv="refresh" content="0; ?url=([^"]+)"', answer.text)
                assert found is not None, answer.text
                url = urljoin(url, unescape(found[1]))
                continue
            url = urljoin(url, unescape(found[1]))
            # Of buttons with the same name the first counts: it agrees.
            form = dict(reversed(re.findall(r'name="([^"]+)"[^>]*value="([^"]*)"', answer.text)))
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
