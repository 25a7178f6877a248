"""A bridge over HTTP for several holders of tokens, each with a client and a browser of their own."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import httpx2

from mcpbridge.app.connections.desk import ConnectionsDesk
from mcpbridge.app.console.desk import ConsoleDesk
from mcpbridge.app.daemon.process import serve_over_http
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.schema import Settings
from mcpbridge.downstream.http.server import bind_port
from mcpbridge.library.bridge import Bridge
from mcpbridge.upstream.auth.context import Show

__all__ = ["MODERN", "Member", "Team", "team"]

MODERN = "2026-07-28"
Document = dict[str, Any]


def token_of(name: str) -> str:
    return f"token-of-{name}-{hashlib.sha256(name.encode()).hexdigest()[:24]}"


@dataclass
class Member:
    """One holder of a token."""

    name: str
    origin: str
    can_open: bool = False
    """The client opens pages when it is asked to."""
    token: str = ""
    """What its client sends; empty: its own of `http.tokens`."""
    extensions: Document = field(default_factory=dict[str, Any])
    """Those that its client declares."""
    http: httpx2.AsyncClient = field(init=False)
    browser: httpx2.AsyncClient = field(init=False)

    def __post_init__(self) -> None:
        self.token = self.token or token_of(self.name)
        self.http = httpx2.AsyncClient(timeout=60, trust_env=False)
        self.browser = httpx2.AsyncClient(timeout=60, trust_env=False)

    async def ask(self, method: str, **params: Any) -> Document:
        """One modern request; the whole answer."""
        capabilities: Document = {"elicitation": {"url": {}, "form": {}}} if self.can_open else {}
        if self.extensions:
            capabilities["extensions"] = self.extensions
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        headers = {
            "accept": "application/json, text/event-stream",
            "authorization": f"Bearer {self.token}",
            "mcp-protocol-version": MODERN,
            "mcp-method": method,
            **({"mcp-name": params["name"]} if "name" in params else {}),
            **({"mcp-name": params["uri"]} if "uri" in params else {}),
        }
        response = await self.http.post(f"{self.origin}/mcp", json=message, headers=headers)
        text = response.text
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            text = [line[6:] for line in text.splitlines() if line.startswith("data: {")][-1]
        return httpx2.Response(200, text=text).json()

    async def call(self, tool: str, **arguments: Any) -> Document:
        """One call of a tool; its result."""
        return (await self.ask("tools/call", name=tool, arguments=arguments))["result"]

    async def enter(self) -> None:
        """Sign in to the pages about accounts."""
        answer = await self._post("/connections/enter", {"token": self.token, "next": ""})
        assert answer.status_code == 303, answer.text

    async def get(self, path: str) -> httpx2.Response:
        """A page, as a browser asks for it that follows a link."""
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        return await self.browser.get(path if "://" in path else f"{self.origin}{path}", headers=headers)

    async def follow(self, link: str) -> httpx2.Response:
        """Open a link to connect an account, sign in at the provider, and come back."""
        provider = await self.get(await self.go_on(link))
        assert provider.status_code == 302, provider.text
        return await self.get(provider.headers["location"])

    async def go_on(self, link: str) -> str:
        """Open a link to connect an account and agree; the address at the provider that the browser goes on to."""
        asked = await self.get(link)
        assert asked.status_code == 200, asked.text
        onward = await self.agree(asked)
        assert onward.status_code == 200, onward.text
        return re.findall(r'<a href="([^"]+)">go on', unescape(onward.text))[0]

    async def agree(self, page: httpx2.Response) -> httpx2.Response:
        """Press the one button of a page that is not for signing out."""
        [form] = [one for one in re.findall(r"<form.*?</form>", page.text, re.DOTALL) if "/sign-out" not in one]
        [path] = re.findall(r'action="([^"]+)"', form)
        return await self._post(unescape(path), dict(re.findall(r'name="([^"]+)" value="([^"]*)"', unescape(form))))

    async def press(self, path: str, **values: str) -> httpx2.Response:
        """Send a form of the page of connections."""
        page = (await self.get("/connections")).text
        form_token = re.findall(r'name="form_token" value="([^"]+)"', page)[0]
        return await self._post(path, {"form_token": form_token, **values})

    async def connect(self, server: str) -> httpx2.Response:
        """Connect an account from the page."""
        page = unescape((await self.get("/connections")).text)
        [link] = re.findall(rf'href="(/connections/{server}/start[^"]*)"', page)
        return await self.follow(link)

    async def _post(self, path: str, form: Mapping[str, str]) -> httpx2.Response:
        headers = {"origin": self.origin, "sec-fetch-site": "same-origin"}
        return await self.browser.post(f"{self.origin}{path}", data=dict(form), headers=headers)


@dataclass
class Team:
    """The bridge, and those who use it."""

    bridge: Bridge
    origin: str
    desk: ConnectionsDesk
    members: dict[str, Member]

    def __getitem__(self, name: str) -> Member:
        return self.members[name]


@asynccontextmanager
async def team(
    servers: Document, *names: str, show: Show | None = None, manifest: Any = None, **sections: Any
) -> AsyncIterator[Team]:
    """A bridge for these holders of tokens."""
    names = names or ("alice", "bob")
    tokens = [{"name": name, "sha256": hashlib.sha256(token_of(name).encode()).hexdigest()} for name in names]
    http = {"tokens": tokens, **sections.pop("http", {})}
    settings = Settings.model_validate({"servers": servers, "http": http, **sections})
    redact = Redactor()
    async with Bridge(settings, redact=redact, show=show, manifest=manifest, mode="served") as bridge:
        with bind_port(settings.http, host="127.0.0.1", port=0, oauth=settings.auth) as at:
            desk = ConnectionsDesk(bridge)
            console = ConsoleDesk(bridge, redact, facts=lambda: {"front": at.origin}, reload=None)
            ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            serving = asyncio.ensure_future(serve_over_http(bridge, at, ready.set_result, console, desk))
            await asyncio.wait([serving, ready], return_when=asyncio.FIRST_COMPLETED)
            members = {name: Member(name, at.origin) for name in names}
            try:
                yield Team(bridge, at.origin, desk, members)
            finally:
                for member in members.values():
                    await member.http.aclose()
                    await member.browser.aclose()
                serving.cancel()
                await asyncio.wait([serving])


def link_in(text: str) -> str:
    """The address that a text names."""
    [link] = set(re.findall(r"http://[^\s\"<>)]+/start\?ask=[\w-]+", text))
    assert urlsplit(link).hostname == "127.0.0.1"
    return link
