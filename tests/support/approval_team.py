"""A bridge whose calls need the approval of others: people with tokens of an issuer, and a receiver of its webhook."""

import asyncio
import concurrent.futures
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from html import unescape
from typing import Any

import httpx2

from mcpbridge.app.connections.desk import ConnectionsDesk
from mcpbridge.app.console.desk import ConsoleDesk
from mcpbridge.app.daemon.process import serve_over_http
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.schema import Settings
from mcpbridge.downstream.http.server import bind_port
from mcpbridge.library.bridge import Bridge
from support.harness import eventually, python_server
from support.ports import free_port
from support.team import Member
from support.token_issuer import Issuer, issuing

__all__ = ["WITHIN", "Office", "Person", "Place", "Receiver", "in_a_thread", "office", "receiving"]

Document = dict[str, Any]
WEBHOOK_SECRET = "a-secret-of-the-webhook"


@dataclass
class Receiver:
    """Gets messages of a webhook over a real socket."""

    url: str = ""
    statuses: list[int] = field(default_factory=list[int])
    """Of the next answers; 200 after them."""
    messages: list[tuple[dict[str, str], bytes]] = field(default_factory=list[tuple[dict[str, str], bytes]])
    """Headers and bodies, in order."""
    hold: asyncio.Event | None = None
    """Answers wait for it."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.messages.append((headers, body))
            if self.hold is not None:
                await self.hold.wait()
            status = self.statuses.pop(0) if self.statuses else 200
            writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok" % status)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def message(self, number: int = 0) -> Document:
        """The body of a message, once it came."""
        await eventually(self._length, lambda found: found > number, 30)
        return json.loads(self.messages[number][1])

    async def _length(self) -> int:
        return len(self.messages)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver that listens; a part of its path is secret."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/services/T0/B0/hidden-part-of-path"
    async with server:
        yield receiver


class Person(Member):
    """Somebody with a token of the issuer, a client and a browser."""

    async def open(self, path: str) -> httpx2.Response:
        """A page about approvals."""
        return await self.get(path)

    async def sign_in_for_approvals(self, target: str = "") -> httpx2.Response:
        """Sign in with the token."""
        return await self.send("/approvals/enter", token=self.token, next=target)

    async def send(self, path: str, **form: str) -> httpx2.Response:
        """Post a form as a page of the bridge does."""
        return await self._post(path, form)

    async def answer(self, id_: str, answer: str, **more: str) -> httpx2.Response:
        """Press a button of the page about a call."""
        page = await self.open(f"/approvals/{id_}")
        found = re.findall(r'name="form_token" value="([^"]+)"', unescape(page.text))
        return await self.send(f"/approvals/{id_}", answer=answer, form_token=found[0] if found else "", **more)


@dataclass
class Office:
    """The bridge, and those who use it."""

    bridge: Bridge
    origin: str
    issuer: Issuer
    receiver: Receiver
    people: dict[str, Person]
    revoke: Callable[[str], Any] = lambda user: None

    def __getitem__(self, name: str) -> Person:
        return self.people[name]

    def begins(self, name: str, text: str = "it") -> "asyncio.Task[Document]":
        """Somebody makes a call."""
        return asyncio.ensure_future(self.people[name].call("up__echo", text=text))

    async def waiting(self, count: int = 1) -> list[str]:
        """The ids of what waits."""

        async def look() -> list[str]:
            return [one.request.id for one in await self.bridge.approvals.pending()]

        return await eventually(look, lambda found: len(found) >= count, 30)


ROLES = [
    {"name": "staff", "groups": "staff", "servers": "up"},
    {"name": "leads", "groups": "leads", "servers": "up"},
]
PEOPLE = {
    "ann": ["staff"],
    "bob": ["staff", "leads"],
    "carol": ["leads"],
    "dave": ["staff"],
}


@asynccontextmanager
async def office(
    approve_by: Document | None = None,
    *,
    webhook: Document | None = None,
    approval: Document | None = None,
    sign_in: Document | None = None,
    roles: Document | None = None,
    server: Document | None = None,
    rule: Document | None = None,
    call_log: Document | None = None,
    store: Document | None = None,
) -> AsyncIterator[Office]:
    """A bridge of people: ann and dave are staff, carol leads, and bob is both. Every call needs a lead's approval.

    `sign_in`: people can also sign in at the bridge, by this provider. `roles`: what roles have besides, by name.
    `server`: what is set of the server besides; `rule`: in the rule that asks.
    """
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(issuing())
        receiver = await stack.enter_async_context(receiving())
        port = free_port()
        issuer.resource = f"http://127.0.0.1:{port}/mcp"
        rule = {"permission": "require_approval", "reason": "it spends money", "tools": "up/*", **(rule or {})}
        hook = {"url": receiver.url, "secret": WEBHOOK_SECRET, **(webhook or {})}
        settings = Settings.model_validate(
            {
                "servers": {"up": {**python_server("plain"), **(server or {})}},
                "auth": issuer.settings(**({"sign_in": sign_in} if sign_in else {})),
                "roles": [{**role, **(roles or {}).get(str(role["name"]), {})} for role in ROLES],
                "permissions": [{**rule, "approve_by": approve_by or {"roles": "leads"}}],
                "approval": {"webhook": hook, **(approval or {})},
                "store": store or {"kind": "memory"},
                "call_log": call_log or {},
            }
        )
        redact = Redactor({hook["url"], WEBHOOK_SECRET})
        bridge = await stack.enter_async_context(Bridge(settings, redact=redact, mode="served"))
        at = stack.enter_context(bind_port(settings.http, host="127.0.0.1", port=port, oauth=settings.auth))
        console = ConsoleDesk(bridge, redact, facts=lambda: {"front": at.origin}, reload=None)
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(serve_over_http(bridge, at, ready.set_result, console, ConnectionsDesk(bridge)))
        await asyncio.wait([serving, ready], return_when=asyncio.FIRST_COMPLETED)
        people: dict[str, Person] = {}
        for name, groups in PEOPLE.items():
            token = issuer.token(sub=name, groups=groups, email=f"{name}@example.com", email_verified=True)
            people[name] = Person(name, at.origin, token=token)
        try:
            assert await bridge.settled(60)
            yield Office(bridge, at.origin, issuer, receiver, people)
        finally:
            for person in people.values():
                await person.http.aclose()
                await person.browser.aclose()
            serving.cancel()
            await asyncio.wait([serving])


WITHIN = 60.0
"""Seconds."""


class Place:
    """An office on a loop of its own: Playwright's is the test's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, people: Office, end: Callable[[], None]) -> None:
        self._loop, self.people, self.end = loop, people, end

    def do(self, work: Any) -> Any:
        """The result of a coroutine there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN)

    def begins(self, name: str, text: str) -> "concurrent.futures.Future[Any]":
        """Somebody makes a call."""
        return asyncio.run_coroutine_threadsafe(self.people[name].call("up__echo", text=text), self._loop)

    def link(self) -> str:
        """The link of the last message."""
        number = len(self.people.receiver.messages) - 1
        message = json.loads(self.people.receiver.messages[number][1])
        return message["blocks"][1]["elements"][0]["url"]


@contextmanager
def in_a_thread(**settings: Any) -> Generator[Place]:
    """An office on a loop of its own, for tests whose own loop is another library's."""
    begun: concurrent.futures.Future[Place] = concurrent.futures.Future()

    async def run() -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with office(**settings) as people:
                begun.set_result(Place(loop, people, lambda: loop.call_soon_threadsafe(over.set) and None))
                await over.wait()
        except BaseException as error:
            if not begun.done():
                begun.set_exception(error)
            raise

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    place = begun.result(WITHIN)
    try:
        yield place
    finally:
        place.end()
        thread.join(WITHIN)
