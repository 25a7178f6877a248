"""The proof of issue 23: three people with different groups work at once, each through a real sign-in.

Chromium signs them in at the certified `oidc-provider`; the clients are those of the SDKs for Python and TypeScript.
For each person, server and tool the list, the search and the call agree. Then the provider dies, and returns.
"""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from mcp import ClientSession
from msgspec import Struct

from support.console import ARGUMENTS, PATIENCE
from support.ports import free_port
from support.real_sign_in import (
    CALLBACK,
    CHROMIUM,
    NODE,
    Bridge,
    Kept,
    Provider,
    needs_provider,
    session,
    sign_in,
    until,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [needs_provider, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: `make browser`")]

SERVERS = {
    "github": ("get_issue", "create_issue", "delete_repository"),
    "mail": ("get_message", "send_message"),
    "wiki": ("get_page", "write_page"),
}
ROLES = """
[[roles]]
name = "engineering"
groups = "anns"
servers = ["github", "wiki"]
deny = "github/delete_*"

[[roles]]
name = "sales"
groups = "bobs"
servers = "mail"
tools = "wiki/get_*"

[[roles]]
name = "outside"
groups = ["eves", "guests"]
tools = "wiki/get_*"
"""
MAY = {
    "ann": {"github/get_issue", "github/create_issue", "wiki/get_page", "wiki/write_page"},
    "bob": {"mail/get_message", "mail/send_message", "wiki/get_page"},
    "eve": {"wiki/get_page"},
}
ALL = {f"{server}/{tool}" for server, tools in SERVERS.items() for tool in tools}


def wire_name(name: str) -> str:
    return name.replace("/", "__")


class Person(Struct):
    """One person, who has signed in."""

    name: str
    kept: Kept
    listed: set[str]
    """Names of tools, as `server/tool`."""
    called: dict[str, str]
    """What a call of each tool of all brought: `ran TOOL`, or the error."""
    found: set[str] = set()
    """Names of tools that a search shows."""

    @property
    def token(self) -> str:
        assert self.kept.tokens is not None
        return self.kept.tokens.access_token


_LOOK_MS = 10_000
"""How long a page of the bridge has to come; whoever looks looks again."""


class Desk:
    """One Chromium for all, in a thread of its own; each sign-in has cookies of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._stack = ExitStack()
        self._browser: Browser = self._thread.submit(self._open).result(PATIENCE / 1000)

    def sign_in(self, page: str, who: str) -> str:
        """Agree, sign in at the provider, agree there; returns where the client is sent back to."""
        return self._thread.submit(self._sign_in, page, who).result(PATIENCE * 4 / 1000)

    def look_at(self, page: str) -> str:
        """Agree, and return what the page says then."""
        return self._thread.submit(self._look_at, page).result(PATIENCE * 2 / 1000)

    def end(self) -> None:
        self._thread.submit(self._stack.close).result(PATIENCE / 1000)
        self._thread.shutdown()

    def _open(self) -> "Browser":
        from playwright.sync_api import sync_playwright

        playwright = self._stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        self._stack.callback(browser.close)
        return browser

    def _sign_in(self, page: str, who: str) -> str:
        context = self._browser.new_context()
        try:
            tab = context.new_page()
            tab.set_default_timeout(PATIENCE)
            tab.route(f"{CALLBACK}*", lambda route: route.fulfill(body="thanks"))
            tab.goto(page)
            tab.get_by_role("button", name="Sign in and let it in").click()
            tab.fill("input[name=login]", who)
            tab.fill("input[name=password]", "any")
            tab.click("button[type=submit]")
            with tab.expect_request(lambda request: request.url.startswith(CALLBACK)) as sent_back:
                tab.click("button[type=submit]")
            return sent_back.value.url
        finally:
            context.close()

    def _look_at(self, page: str) -> str:
        from playwright.sync_api import TimeoutError as TakesTooLong

        context = self._browser.new_context()
        try:
            tab = context.new_page()
            tab.set_default_timeout(_LOOK_MS)
            tab.goto(page)
            tab.get_by_role("button", name="Sign in and let it in").click()
            return tab.locator("main").inner_text()
        except TakesTooLong:  # it was sent on to the provider, which is gone: Chromium shows a page of its own
            return ""
        finally:
            context.close()


class World(Struct):
    provider: Provider
    bridge: Bridge
    start_bridge: Callable[[], Bridge]
    """Another one of the same place."""
    desk: Desk
    people: dict[str, Person] = {}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory, port = tmp_path_factory.mktemp("three"), free_port()
    root = f"http://127.0.0.1:{port}"
    provider = Provider([], bridges={"front": f"{root}/oauth/callback"})
    auth = (
        f'[auth]\nresource = "{root}/mcp"\n[auth.sign_in]\nissuer = "{provider.url}"\nclient_id = "front"\n'
        f'client_secret = "front-secret"\nscopes = ["openid", "email", "groups"]\n'
        '[expose]\nmode = "all"\n[expose.clients.raw]\nmode = "search"\n'
    )
    office = Path(__file__).parents[1] / "servers" / "office.py"
    servers = "".join(
        f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = {json.dumps([str(office), *tools])}\n'
        for name, tools in SERVERS.items()
    )
    with ExitStack() as stack:
        provider.start()
        stack.callback(provider.kill)
        desk = Desk()
        stack.callback(desk.end)

        def start() -> Bridge:
            return Bridge(directory, port, auth, servers + ROLES)

        world = World(provider, start(), start, desk)
        stack.callback(lambda: world.bridge.end())  # noqa: PLW0108 - it may be another one by then
        yield world


@asynccontextmanager
async def by_python(world: World, who: str) -> AsyncIterator[tuple[ClientSession, Kept]]:
    kept = Kept()
    async with session(world.bridge.url, who, kept, world.desk.sign_in) as opened:
        yield opened, kept


async def looks_around(world: World, who: str, everybody: asyncio.Barrier) -> Person:
    """With the SDK for Python. Nobody looks before all are in."""
    async with by_python(world, who) as (opened, kept):
        await everybody.wait()
        listed = {tool.name.replace("__", "/", 1) for tool in (await opened.list_tools()).tools}
        called: dict[str, str] = {}
        for name in sorted(ALL):
            try:
                answer = await opened.call_tool(wire_name(name), {})
                called[name] = answer.content[0].text if answer.content else ""  # type: ignore[union-attr] - text
            except Exception as error:  # noqa: BLE001 - whatever the client makes of a refusal
                called[name] = str(error)
        await everybody.wait()
        return Person(who, kept, listed, called)


async def looks_around_with_typescript(world: World, who: str, everybody: asyncio.Barrier) -> Person:
    names = json.dumps([wire_name(name) for name in sorted(ALL)])
    program = [str(shutil.which("node")), str(NODE / "sdk_client.mjs"), world.bridge.url, names]
    client = await asyncio.create_subprocess_exec(
        *program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=1 << 20
    )
    try:
        assert client.stdin is not None
        assert client.stdout is not None
        page = json.loads(await client.stdout.readline())["page"]
        back = await asyncio.to_thread(world.desk.sign_in, page, who)
        await everybody.wait()
        client.stdin.write(f"{back}\n".encode())
        seen = json.loads(await client.stdout.readline())
        await everybody.wait()
    finally:
        if client.returncode is None:
            client.kill()
        await client.wait()
    kept = Kept()
    kept.tokens = seen_tokens(seen)
    listed = {name.replace("__", "/", 1) for name in seen["tools"]}
    return Person(who, kept, listed, {name.replace("__", "/", 1): text for name, text in seen["calls"].items()})


def seen_tokens(seen: dict[str, Any]) -> Any:
    from mcp.shared.auth import OAuthToken

    return OAuthToken.model_validate(seen["tokens"])


async def everybody(world: World) -> dict[str, Person]:
    """The three, at once; the first who asks has them sign in."""
    if not world.people:
        barrier = asyncio.Barrier(3)
        async with asyncio.timeout(240), asyncio.TaskGroup() as tasks:
            working = [
                tasks.create_task(looks_around(world, "ann", barrier)),
                tasks.create_task(looks_around(world, "bob", barrier)),
                tasks.create_task(looks_around_with_typescript(world, "eve", barrier)),
            ]
        for one in working:
            world.people[one.result().name] = one.result()
    return world.people


def search(bridge: Bridge, token: str) -> set[str]:
    """All names that searches for each tool of all show."""
    found: set[str] = set()
    for name in sorted(ALL):
        text = json.dumps(bridge.call(token, "find_tools", query=name.replace("/", " ").replace("_", " ")))
        found |= {one for one in ALL if wire_name(one) in text or one in text}
    return found


async def test_list_search_and_call_agree_for_everybody(world: World) -> None:
    people = await everybody(world)
    table: dict[tuple[str, str], tuple[bool, bool, bool]] = {}
    for who, person in people.items():
        person.found = await asyncio.to_thread(search, world.bridge, person.token)
        for name in sorted(ALL):
            has_run = person.called[name] == f"ran {name.partition('/')[2]}"
            table[who, name] = name in person.listed, name in person.found, has_run
    assert table == {(who, name): (name in MAY[who],) * 3 for who in MAY for name in sorted(ALL)}
    for who, person in people.items():
        refused = {text for name, text in person.called.items() if name not in MAY[who]}
        assert all("Unknown tool" in text for text in refused), refused


async def test_a_session_of_somebody_is_nobody_elses(world: World) -> None:
    people = await everybody(world)
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "mine", "version": "1"}}
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}
    headers = {"accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(trust_env=False, timeout=60, headers=headers) as http:
        ann, bob = ({"authorization": f"Bearer {people[who].token}"} for who in ("ann", "bob"))
        opened = await http.post(world.bridge.url, json=body, headers=ann)
        mine = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert (await http.post(world.bridge.url, json=listing, headers={**mine, **ann})).status_code == 200
        assert (await http.post(world.bridge.url, json=listing, headers={**mine, **bob})).status_code == 404


async def test_the_provider_dies_and_returns(world: World) -> None:
    """Tokens work on, also over a restart. Renewals are to come again, and the page says what is wrong."""
    people = await everybody(world)
    kept = people["ann"].kept
    assert kept.tokens is not None
    assert kept.information is not None
    client = kept.information.client_id or ""
    refresh = {"grant_type": "refresh_token", "refresh_token": kept.tokens.refresh_token or "", "client_id": client}
    query = {
        "response_type": "code",
        "client_id": client,
        "redirect_uri": CALLBACK,
        "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
        "code_challenge_method": "S256",
    }
    page = str(httpx2.URL(f"{world.bridge.root}/oauth/authorize", params=query))

    def tokens_work() -> bool:
        answers = [world.bridge.call(person.token, "wiki__get_page") for person in people.values()]
        return all(answer.get("content", [{}])[0].get("text") == "ran get_page" for answer in answers)

    def renew() -> httpx2.Response:
        return httpx2.post(f"{world.bridge.root}/oauth/token", data=refresh, trust_env=False, timeout=60)

    world.provider.kill()
    assert await asyncio.to_thread(tokens_work)
    said = "cannot be asked at the moment"
    await asyncio.to_thread(until, lambda: said in world.desk.look_at(page), "the page says so", 120)
    log = world.bridge.log.read_text("utf-8")
    await asyncio.to_thread(world.bridge.end)
    world.bridge = await asyncio.to_thread(world.start_bridge)  # it has asked nobody yet
    await asyncio.to_thread(until, tokens_work, "what was given works on", 120)
    answer = await asyncio.to_thread(renew)
    assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable"), answer.text
    assert int(answer.headers["retry-after"]) > 0
    world.provider.start()
    answer = await asyncio.to_thread(renew)  # this provider keeps sign-ins in memory, so it has forgotten them
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant"), answer.text
    assert "code=" in await asyncio.to_thread(sign_in, page, "bob")
    log += world.bridge.log.read_text("utf-8")
    for person in people.values():
        assert person.token not in log
