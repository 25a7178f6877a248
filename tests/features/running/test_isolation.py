"""Several clients of one bridge, which know nothing of one another (issue 2, Front)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from support.harness import Place, eventually, python_server
from support.rpc import HttpClient, Message, Reply


@asynccontextmanager
async def two_clients(place: Place) -> AsyncIterator[tuple[HttpClient, HttpClient]]:
    """Two sessions with one bridge."""
    async with (
        place.http_bridge({"rich": python_server("rich")}) as first,
        HttpClient(first.url, first.command) as second,
    ):
        for client in (first, second):
            await client.initialize()
            await client.tools_with("rich__echo")
        yield first, second


async def post(client: HttpClient, id_: object, tool: str, meta: Message | None = None, **arguments: object) -> Reply:
    """A call with an id of the test's choice."""
    params = {"name": tool, "arguments": arguments, "_meta": meta or {}}
    return await client.exchange({"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}, 60)


async def test_the_same_ids_at_the_same_time_get_everyone_its_own_answer(place: Place) -> None:
    """CVE-2026-25536: an id that two clients used gave one the other's answer."""
    async with two_clients(place) as clients:
        calls = [
            asyncio.create_task(post(client, id_, "rich__echo", text=f"{name}/{id_}"))
            for name, client in zip("ab", clients, strict=True)
            for id_ in range(50, 90)
        ]
        replies = await asyncio.gather(*calls)
        expected = [f"{name}/{id_}" for name in "ab" for id_ in range(50, 90)]
        assert [reply.text for reply in replies] == expected
        assert [reply.message["id"] for reply in replies] == [*range(50, 90)] * 2


async def test_the_same_progress_token_reaches_its_own_caller_only(place: Place) -> None:
    async with two_clients(place) as (first, second):
        await asyncio.gather(
            post(first, 60, "rich__work", {"progressToken": 1}, steps=3),
            post(second, 60, "rich__work", {"progressToken": 1}, steps=7),
        )
        for client, steps in ((first, 3), (second, 7)):
            seen = [m["params"] for m in client.arrived if m["method"] == "notifications/progress"]
            assert {params["total"] for params in seen} == {steps}


async def test_nobody_cancels_a_call_of_another(place: Place) -> None:
    async with two_clients(place) as (first, second):
        held = asyncio.create_task(post(first, 60, "rich__hold"))

        async def journal() -> list[Message]:
            return json.loads((await second.call("rich__journal")).text)

        await eventually(journal, lambda sent: any(m.get("params", {}).get("name") == "hold" for m in sent))
        await second.tell("notifications/cancelled", requestId=60)
        assert not [m for m in await journal() if m.get("method") == "notifications/cancelled"]
        assert (await second.call("rich__release")).text == "1"
        assert (await held).text == "released"


async def test_a_subscription_of_one_is_not_heard_by_the_other(place: Place) -> None:
    async with two_clients(place) as (first, second), first.listening(), second.listening():
        await first.request("resources/subscribe", {"uri": "memo://one"})
        await second.request("resources/subscribe", {"uri": "memo://two"})
        for uri in ("memo://one", "memo://two"):
            await second.call("rich__touch", uri=uri)
        for client, uri in ((first, "memo://one"), (second, "memo://two")):
            await client.notice("notifications/resources/updated", lambda params, uri=uri: params["uri"] == uri)
            heard = [m["params"]["uri"] for m in client.arrived if m["method"] == "notifications/resources/updated"]
            assert set(heard) == {uri}


async def test_a_session_ends_with_its_own_client_only(place: Place) -> None:
    async with two_clients(place) as (first, second):
        response = await first.http.delete(first.url, headers=first.session)
        assert response.status_code in (200, 204)
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        gone = await first.http.post(first.url, json=ping, headers=first.headers(ping))
        assert gone.status_code == 404
        assert (await second.call("rich__echo", text="still here")).text == "still here"
