"""How many processes a server has, counted in /proc: one for all clients, or one for each project (issue 7)."""

import asyncio
import shlex
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.upstream.session.asking_history import ENOUGH
from support.harness import Place, eventually, python_server
from support.rpc import HttpClient, envelope

MANY = 10
NOTHING: dict[str, Any] = {}
FORMS: dict[str, Any] = {"elicitation": {}}
KINDS: list[dict[str, Any]] = [NOTHING, {"roots": {}}, FORMS, {"elicitation": {"form": {}, "url": {}}, "roots": {}}]
EVERYTHING: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


@asynccontextmanager
async def clients(first: HttpClient, count: int) -> AsyncGenerator[list[HttpClient]]:
    """So many clients of one bridge."""
    async with AsyncExitStack() as stack:
        more = [HttpClient(first.url, first.command) for _ in range(count - 1)]
        yield [first, *[await stack.enter_async_context(client) for client in more]]


def processes(place: Place, words: str) -> list[int]:
    """The processes with these words in their command lines, of what the bridge has started."""
    return [pid for pid, line in place.survivors().items() if words in line and "parent_death_main.py" not in line]


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}, "sampling": {}, "roots": {}}], ids=["none", "all"])
async def test_ten_clients_at_once_share_one_process_of_each_server(place: Place, capabilities: dict[str, Any]) -> None:
    """Servers of both eras, and clients of both; all of them declare the same."""
    servers = {"old": python_server("plain"), "new": python_server("modern")}

    async def use(client: HttpClient) -> None:
        await client.initialize(**capabilities)
        await client.tools_with("old__echo")
        await client.tools_with("new__echo")

    async def modern(client: HttpClient) -> None:
        meta = envelope(**{"io.modelcontextprotocol/clientCapabilities": capabilities})
        params = {"name": "new__echo", "arguments": {"text": "x"}, "_meta": meta}
        assert (await client.request("tools/call", params)).text == "x"

    async with place.http_bridge(servers) as first, clients(first, MANY) as all_of_them:
        await asyncio.gather(*map(use, all_of_them))
        for client in all_of_them:  # one by one: a legacy server that can ask has to know whom (see the next test)
            assert (await client.call("old__echo", text="here")).text == "here"
        await asyncio.gather(
            *(client.call("new__echo", text="here") for client in all_of_them), *map(modern, all_of_them)
        )
        assert len(processes(place, "plain.py")) == 1
        assert len(processes(place, "modern.py")) == 1


async def test_a_legacy_server_that_can_ask_has_a_process_for_each_kind_of_client(place: Place) -> None:
    """What a session declares holds for all its calls (MCP 2025-11-25, Lifecycle); who must not ask needs one."""
    servers = {"asks": python_server("plain"), "never": python_server("rich", questions="never")}
    async with place.http_bridge(servers) as first, clients(first, 3) as all_of_them:
        for client, capabilities in zip(all_of_them, [NOTHING, FORMS, NOTHING], strict=True):
            await client.initialize(**capabilities)
            await client.tools_with("never__echo")
            assert (await client.call("asks__echo", text="x")).text == "x"
            assert (await client.call("never__echo", text="x")).text == "x"
        assert len(processes(place, "plain.py")) == 2, "one for each kind"
        assert len(processes(place, "rich.py")) == 1


async def test_ten_clients_that_can_be_asked_share_a_server_that_is_only_starting(place: Place) -> None:
    """Nobody opens another one meanwhile: it would be up later still (a cold start; issue 7)."""

    async def use(client: HttpClient) -> None:
        await client.initialize(**FORMS)
        await client.tools_with("old__echo", within=20)
        for number in range(3):
            assert (await client.call("old__echo", text=f"{number}", within=20)).text == f"{number}"

    plain = python_server("plain")
    words = f"sleep 0.7; exec {shlex.join([plain['command'], *plain['args']])}"  # more than a held session is worth
    for _ in ("what it offers is not known", "it is known"):
        servers = {"old": {"command": "sh", "args": ["-c", words]}}
        async with place.http_bridge(servers) as first, clients(first, MANY) as all_of_them:
            await asyncio.gather(*map(use, all_of_them))
            assert len(processes(place, "plain.py")) == 1


async def test_clients_of_all_kinds_share_a_server_that_is_known_not_to_ask(place: Place) -> None:
    servers = {"old": python_server("plain")}
    async with place.http_bridge(servers) as client:
        await client.initialize(**EVERYTHING)
        await client.tools_with("old__echo")
        for _ in range(ENOUGH):
            await client.call("old__echo", text="x")

    async def use(client: HttpClient, capabilities: dict[str, Any]) -> None:
        await client.initialize(**capabilities)
        await client.tools_with("old__echo")
        calls = (client.call("old__echo", text=f"{number}") for number in range(5))
        assert [reply.text for reply in await asyncio.gather(*calls)] == [f"{number}" for number in range(5)]

    async with place.http_bridge(servers) as first, clients(first, MANY) as all_of_them:
        await asyncio.gather(*(use(client, KINDS[n % len(KINDS)]) for n, client in enumerate(all_of_them)))
        assert len(processes(place, "plain.py")) == 1


async def test_a_server_that_was_thought_not_to_ask_and_asks_keeps_clients_apart_from_then_on(place: Place) -> None:
    servers = {"up": python_server("asking", "legacy")}
    form: dict[str, Any] = {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}
    asks: dict[str, Any] = {"id": "q", "method": "elicitation/create", "params": form}
    plain: list[Any] = [{"answer": {"content": [{"type": "text", "text": "quiet"}]}}]
    asking: list[Any] = [{"send": asks}, {"await": ["q"]}]

    async with place.http_bridge(servers) as first, clients(first, 3) as (one, two, three):
        for client, capabilities in zip((one, two, three), (FORMS, FORMS, NOTHING), strict=True):
            await client.initialize(**capabilities)
            await client.tools_with("up__play")
        for _ in range(ENOUGH):
            assert (await one.call("up__play", steps=plain)).text == "quiet"
    async with place.http_bridge(servers) as first, clients(first, 3) as (one, two, three):
        for client, capabilities in zip((one, two, three), (FORMS, FORMS, NOTHING), strict=True):
            await client.initialize(**capabilities)
            await client.tools_with("up__play")
            assert (await client.call("up__play", steps=plain)).text == "quiet"
        assert len(processes(place, "asking.py")) == 1
        for client in (two, one, two):
            seen = len(client.arrived)
            calling = asyncio.create_task(client.call("up__play", steps=asking, within=20))
            question = await client.notice("elicitation/create", after=seen, within=10)
            answer: dict[str, Any] = {
                "jsonrpc": "2.0",
                "id": question["id"],
                "result": {"action": "accept", "content": {}},
            }
            await client.http.post(client.url, json=answer, headers=client.headers(answer))
            assert not (await calling).failed
        assert (await three.call("up__play", steps=plain)).text == "quiet"
        # One that may ask, one that may not, and one ahead, for which nobody waits.
        await eventually(lambda: asyncio.to_thread(processes, place, "asking.py"), lambda found: len(found) == 3)


async def test_a_project_is_a_process_however_many_clients_work_in_it(place: Place) -> None:
    server = python_server("plain", env={"ROOT": "${PROJECT_ROOT}"})
    folders = [place.folder / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()

    async def use(client: HttpClient, folder: Path) -> None:
        await client.initialize(roots={})
        listing = asyncio.create_task(client.tools_with("up__echo"))
        calling = asyncio.create_task(answer_roots(client, folder))
        await listing
        assert (await client.call("up__echo", text="here")).text == "here"
        calling.cancel()

    http = {"projects": [str(place.folder)]}
    async with place.http_bridge({"up": server}, http=http) as first, clients(first, 6) as all_of_them:
        assert not processes(place, "plain.py"), "it waits for a project"
        await use(first, folders[0])
        await asyncio.gather(*(use(client, folders[n % 2]) for n, client in enumerate(all_of_them[1:])))
        found = [Path(f"/proc/{pid}/cwd").readlink() for pid in processes(place, "plain.py")]
        assert sorted(found) == folders


async def test_a_client_that_has_no_project_is_told_so(place: Place) -> None:
    waiting = python_server("plain", env={"ROOT": "${PROJECT_ROOT}"})
    async with place.http_bridge({"up": waiting, "ok": python_server("plain")}) as client:
        await client.initialize()
        tools = await client.tools_with("ok__echo")
        assert not [tool for tool in tools if tool.startswith("up__")]
        reply = await client.call("up__echo", text="x")
        assert "works in a project" in reply.text


async def answer_roots(client: HttpClient, folder: Path) -> None:
    """Tell the bridge where this client works, as often as it asks."""
    seen = 0
    while True:
        asked = await client.notice("roots/list", after=seen, within=30)
        seen = client.arrived.index(asked, seen) + 1
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": [{"uri": folder.as_uri()}]}}
        response = await client.http.post(client.url, json=answer, headers=client.headers(answer))
        assert response.status_code == 202
