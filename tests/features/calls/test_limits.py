"""How many calls run at a time, how often they may come, and how many in all: as servers and clients see it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from support.answering_clients import ACCEPT, FORM, ask, world
from support.harness import Place, eventually, python_server
from support.rpc import Client, HttpClient, Message, Refused, Reply, envelope

WRITES: Message = {"hold": {"read_only": False}}
"""For the tool of servers/plain.py that waits until it is released: it changes something."""


async def arrived(client: Client, server: str = "up") -> list[Message]:
    """The calls of `hold` that have reached the server so far."""
    journal: list[Message] = json.loads((await client.call(f"{server}__journal")).text)
    return [message for message in journal if (message.get("params") or {}).get("name") == "hold"]


async def arrive(client: Client, times: int) -> list[Message]:
    """The calls of `hold` that have reached the server, as soon as there are so many."""
    return await eventually(lambda: arrived(client), lambda found: len(found) >= times, 60)


async def released(client: Client, tasks: list["asyncio.Task[Reply]"], server: str = "up") -> list[int]:
    """Let all held calls go, again and again until these are answered; how many the server held each time."""
    counts: list[int] = []
    async with asyncio.timeout(60):
        while not all(task.done() for task in tasks):
            if count := int((await client.call(f"{server}__release")).text):
                counts.append(count)
    assert [task.result().text for task in tasks] == ["released"] * len(tasks)
    return counts


def held(
    client: Client, times: int, meta: Message | None = None, tool: str = "up__hold"
) -> "list[asyncio.Task[Reply]]":
    """So many calls that the server holds."""
    return [asyncio.create_task(client.call(tool, within=60, meta=meta)) for _ in range(times)]


async def begun(tasks: "list[asyncio.Task[Reply]]") -> "list[asyncio.Task[Reply]]":
    """These calls, written to the bridge: what is written later is read later."""
    await asyncio.sleep(0)
    return tasks


# -- at a time


async def test_a_tool_runs_only_so_often_at_a_time(place: Place) -> None:
    server = python_server("plain", tool={"hold": {"max_concurrent": 2}})
    async with place.bridge({"up": server}) as client:
        await client.initialize()
        tasks = await begun(held(client, 7))
        assert len(await arrive(client, 2)) == 2
        counts = await released(client, tasks)
        assert counts[0] == max(counts) == 2
        assert sum(counts) == 7


async def test_too_many_waiting_calls_are_refused_with_a_reason_and_the_server_sees_nothing_of_them(
    place: Place,
) -> None:
    server = python_server("plain", tool={"hold": {"max_concurrent": 1}})
    async with place.bridge({"up": server}, calls={"max_queued": 2}) as client:
        await client.initialize()
        tasks = await begun(held(client, 3))
        refused = await client.call("up__hold")
        assert refused.failed
        assert refused.text.startswith("Tool 'up/hold' (`max_concurrent`) is busy: 1 call runs and 2 wait")
        assert refused.result["_meta"]["mcpbridge/error"] == "Overloaded"
        assert await released(client, tasks) == [1, 1, 1]
        assert len(await arrived(client)) == 3


async def test_a_call_that_finds_no_place_in_its_time_is_refused_unsent(place: Place) -> None:
    """Waiting is part of the time that a call may take."""
    server = python_server("plain", tool={"echo": {"call_timeout": 0.2}})
    async with place.bridge({"up": server}, calls={"max_per_client": 1}) as client:
        await client.initialize()
        tasks = await begun(held(client, 1))
        refused = await client.call("up__echo", text="late")
        assert refused.text.startswith("This client (`calls.max_per_client`) was busy for 0.2 s with another call")
        assert "Nothing was sent" in refused.text
        await client.tell("notifications/cancelled", requestId=2)
        journal = await client.call("up__journal")
        assert "late" not in journal.text
        tasks[0].cancel()
        await asyncio.wait(tasks)


async def test_a_cancelled_call_gives_its_place_to_the_next(place: Place) -> None:
    server = python_server("plain", tool={"hold": {"max_concurrent": 1}})
    async with place.bridge({"up": server}) as client:
        await client.initialize()
        await client.tools_with("up__hold")
        first, waits, last = [
            asyncio.create_task(client.exchange(numbered(id_, "up__hold"), 10)) for id_ in (700, 701, 702)
        ]
        await arrive(client, 1)
        await client.tell("notifications/cancelled", requestId=701)
        await client.tell("notifications/cancelled", requestId=700)
        await arrive(client, 2)
        await released(client, [last])
        for task in (first, waits):
            task.cancel()
        await asyncio.wait([first, waits])
        assert len(await arrived(client)) == 2


def numbered(id_: int, tool: str) -> Message:
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": {"name": tool, "arguments": {}}}


async def test_what_changes_something_runs_one_at_a_time_for_each_client(place: Place) -> None:
    """The default; of two clients one call each."""
    async with (
        place.http_bridge({"up": python_server("plain", tool=WRITES)}) as ann,
        HttpClient(ann.url, ann.command) as bob,
    ):
        for client in (ann, bob):
            await client.initialize()
            await client.tools_with("up__hold")
        of_ann = held(ann, 3)
        await arrive(ann, 1)
        assert (await ann.call("up__echo", text="reads on")).text == "reads on"
        assert len(await arrived(ann)) == 1
        of_bob = held(bob, 3)
        await arrive(ann, 2)
        counts = await released(ann, of_ann + of_bob)
        assert max(counts) == 2
        assert sum(counts) == 6


@pytest.mark.parametrize(
    ("server", "calls"),
    [({"side_effects": "parallel"}, {}), ({}, {"side_effects": "parallel"}), ({"tool": {"hold": {}}}, {})],
    ids=["server", "everywhere", "unknown"],
)
async def test_changes_run_side_by_side_where_that_is_configured(place: Place, server: Message, calls: Message) -> None:
    """And what is not known to change anything always does."""
    settings = {"tool": WRITES, **server}
    async with place.bridge({"up": python_server("plain", **settings)}, calls=calls) as client:
        await client.initialize()
        tasks = await begun(held(client, 4))
        assert len(await arrive(client, 4)) == 4
        await released(client, tasks)


async def test_one_client_runs_only_so_many_calls_over_all_servers(place: Place) -> None:
    servers = {"up": python_server("plain"), "other": python_server("plain")}
    async with (
        place.http_bridge(servers, calls={"max_per_client": 2}) as ann,
        HttpClient(ann.url, ann.command) as bob,
    ):
        for client in (ann, bob):
            await client.initialize()
            await client.tools_with("up__hold")
            await client.tools_with("other__hold")
        tasks = held(ann, 2)
        await arrive(bob, 2)
        elsewhere = held(ann, 1, tool="other__hold")
        assert (await bob.call("other__echo", text="not held up")).text == "not held up"
        assert await arrived(bob, "other") == []
        assert sum(await released(bob, tasks)) == 2
        assert await released(bob, elsewhere, "other") == [1]


async def test_a_modern_client_is_one_client_in_all_its_requests(place: Place) -> None:
    """Revision 2026-07-28 has no sessions: who calls is told by each request."""
    async with place.http_bridge({"up": python_server("plain", tool=WRITES)}) as client:
        tasks = held(client, 3, envelope())
        others = HttpClient(client.url, client.command)
        async with others:
            await others.initialize()
            await arrive(others, 1)
            counts = await released(others, tasks)
        assert counts == [1, 1, 1]


async def test_a_call_that_asks_its_user_keeps_nobody_waiting(tmp_path: Path) -> None:
    """A person may take minutes, and an answer may need further calls."""
    servers = {"up": (["legacy"], {"tool": {"play": {"read_only": False}}})}
    async with world("stdio", tmp_path, servers, calls={"max_per_client": 1}) as around:
        person = await around.person()
        asks = person.begins("up__play", steps=ask(FORM))
        question = await person.questioned("elicitation/create")
        meanwhile = await person.begins("up__play", steps=[{"answer": {"content": [{"type": "text", "text": "done"}]}}])
        assert meanwhile.text == "done"
        assert not asks.done()
        await person.answers(question, ACCEPT)
        assert json.loads((await asks).text)


async def test_a_call_that_waits_for_a_modern_client_to_come_back_keeps_nobody_waiting(tmp_path: Path) -> None:
    """It is parked meanwhile, and goes on with the answer."""
    servers = {"up": (["legacy"], {"tool": {"play": {"read_only": False}}}), "other": ["legacy"]}
    async with world("stdio", tmp_path, servers, calls={"max_per_client": 1}) as around:
        person = await around.person(modern=True)
        params = person.params("up__play", {"steps": ask(FORM)})
        asked = (await person.client.request("tools/call", params)).result
        assert asked["resultType"] == "input_required"
        done = [{"answer": {"content": [{"type": "text", "text": "done"}]}}]
        assert (await person.begins("other__play", steps=done)).text == "done"
        (key,) = asked["inputRequests"]
        again = {**params, "requestState": asked["requestState"], "inputResponses": {key: ACCEPT}}
        assert json.loads((await person.client.request("tools/call", again)).text)


# -- one turn of a model


def batch_of(times: int, tool: str = "up__hold") -> list[Message]:
    return [numbered(100 + number, tool) for number in range(times)]


async def test_of_a_batch_five_calls_run_at_a_time_and_the_answers_keep_their_order(place: Place) -> None:
    """JSON-RPC batches of revision 2025-03-26, on standard streams."""
    async with place.bridge({"up": python_server("plain")}) as client:
        await client.initialize("2025-03-26")
        await client.tools_with("up__hold")
        members: list[Message] = [*batch_of(12), {"jsonrpc": "2.0", "id": "p", "method": "ping"}]
        await client.write(json.dumps(members).encode() + b"\n")
        answered = asyncio.create_task(client.batch(60))
        await arrive(client, 5)
        seen = await arrived(client)
        assert len(seen) == 5
        assert not [message for message in seen if "mcpbridge/turn" in json.dumps(message)]
        counts: list[int] = []
        while not answered.done():
            counts.append(int((await client.call("up__release")).text))
        assert max(counts) == 5
        assert sum(counts) == 12
        answers = await answered
        assert [answer["id"] for answer in answers] == [*range(100, 112), "p"]


async def test_of_a_batch_over_http_five_calls_run_at_a_time_and_the_answers_keep_their_order(place: Place) -> None:
    async with (
        place.http_bridge({"up": python_server("plain")}) as client,
        HttpClient(client.url, client.command) as other,
    ):
        await client.initialize("2025-03-26")
        await other.initialize()
        await other.tools_with("up__hold")
        members = [*batch_of(6), {"jsonrpc": "2.0", "id": "bad"}, *batch_of(12)[6:]]
        post = client.http.post(client.url, json=members, headers=client.headers({}))
        answered = asyncio.create_task(post)
        await arrive(other, 5)
        counts: list[int] = []
        while not answered.done():
            counts.append(int((await other.call("up__release")).text))
        assert max(counts) == 5
        assert sum(counts) == 12
        text = (await answered).text
        data = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data: [")]
        answers = json.loads(data[0] if data else text)
        ids = [answer["id"] for answer in answers if answer["id"] not in (None, "bad")]
        assert ids == [*range(100, 112)]


async def test_calls_that_name_the_same_turn_run_so_many_at_a_time_and_other_calls_as_ever(place: Place) -> None:
    async with place.bridge({"up": python_server("plain")}, calls={"batch": 2}) as client:
        await client.initialize()
        of_turn = await begun(held(client, 4, {"mcpbridge/turn": "t-1", "example.com/kept": 1}))
        seen = await arrive(client, 2)
        assert [message["params"]["_meta"] for message in seen] == [{"example.com/kept": 1}] * 2
        others = held(client, 2, {"mcpbridge/turn": "t-2"}) + held(client, 3)
        await begun(others)
        assert len(await arrive(client, 7)) == 7
        await released(client, of_turn + others)


async def test_a_program_calls_several_tools_as_one_turn() -> None:
    """`Bridge.call_tools`: results in order, a failure is the failure of one."""
    servers = {"up": python_server("plain")}
    settings = Settings.model_validate({"servers": servers, "calls": {"batch": 2, "max_queued": 1}})
    with anyio.fail_after(60):
        async with Bridge(settings) as bridge:
            assert await bridge.settled(10)

            async def release() -> int:
                result = await bridge.request("tools/call", {"name": "up__release"})
                return int(result["content"][0]["text"])

            assert await bridge.call_tools([]) == []
            echoes = [{"name": "up__echo", "arguments": {"text": str(number)}} for number in range(20)]
            calls: list[Message] = [*echoes, {"name": "up__nothing"}, {"name": "up__echo", "arguments": []}, {}]
            results = await bridge.call_tools([*calls, *echoes[:1]])
            assert [result.text for result in results[:20]] == [str(number) for number in range(20)]
            assert [result.is_error for result in results[20:]] == [True, True, True, False]
            assert "Unknown tool: up__nothing" in results[20].text
            turn = asyncio.create_task(bridge.call_tools([{"name": "up__hold"}] * 7))
            counts: list[int] = []
            while not turn.done():
                counts.append(await release())
            assert max(counts) == 2
            assert sum(counts) == 7
            assert [result.text for result in turn.result()] == ["released"] * 7
            turn = asyncio.create_task(bridge.call_tools([{"name": "up__hold"}] * 2))
            turn.cancel()
            await asyncio.wait([turn])
            assert turn.cancelled()


# -- how often


@pytest.mark.parametrize(
    ("server", "calls", "what"),
    [
        ({"tool": {"echo": {"rate_limit": "2/h"}}}, {}, "Tool 'up/echo'"),
        ({"rate_limit": "2/h"}, {}, "Server 'up'"),
        ({}, {"rate_limit": "2/h"}, "This client"),
    ],
    ids=["tool", "server", "client"],
)
async def test_who_calls_too_often_is_told_when_to_come_back(
    place: Place, server: Message, calls: Message, what: str
) -> None:
    async with place.bridge({"up": python_server("plain", **server)}, calls=calls) as client:
        await client.initialize()
        for _ in range(2):
            assert not (await client.call("up__echo", text="x")).failed
        refused = await client.call("up__echo", text="x")
        assert refused.failed
        assert refused.text.startswith(f"{what} is limited to 2/h. Nothing was sent. Try again in ")
        meta: dict[str, Any] = refused.result["_meta"]
        assert meta["mcpbridge/error"] == "RateLimited"
        assert 1 < meta["mcpbridge/retryAfter"] <= 1800


async def test_a_rate_of_clients_is_for_each_one(place: Place) -> None:
    async with (
        place.http_bridge({"up": python_server("plain")}, calls={"rate_limit": "1/h"}) as ann,
        HttpClient(ann.url, ann.command) as bob,
    ):
        for client in (ann, bob):
            await client.initialize()
            await client.tools_with("up__echo")
            assert not (await client.call("up__echo", text="x")).failed
            assert (await client.call("up__echo", text="x")).failed


async def test_reading_counts_for_the_rate_of_a_server_too(place: Place) -> None:
    async with place.bridge({"up": python_server("rich", rate_limit="2/h")}) as client:
        await client.initialize()
        await client.tools_with("up__echo")
        assert (await client.request("resources/read", {"uri": "memo://one"})).result
        assert (await client.request("prompts/get", {"name": "up__greet", "arguments": {"who": "Ada"}})).result
        with pytest.raises(Refused) as refused:
            _ = (await client.request("resources/read", {"uri": "memo://one"})).result
        assert "Server 'up' is limited to 2/h" in refused.value.message
        assert refused.value.data["mcpbridge/retryAfter"] > 1
        assert (await client.call("up__echo", text="x")).failed


# -- how many in all


async def test_a_conversation_may_make_so_many_calls(place: Place) -> None:
    async with place.bridge({"up": python_server("plain")}, calls={"max_calls": 2}) as client:
        await client.initialize()
        replies = [await client.call("up__echo", text="x") for _ in range(4)]
        assert [reply.failed for reply in replies] == [False, False, True, True]
        assert "This conversation has made as many calls as it may: 2" in replies[2].text
        assert replies[2].result["_meta"]["mcpbridge/error"] == "BudgetSpent"


async def test_so_many_calls_may_follow_one_another_in_a_run(place: Place) -> None:
    async with place.bridge({"up": python_server("plain")}, calls={"max_chain": 2}) as client:
        await client.initialize()
        together = await asyncio.gather(*(client.call("up__echo", text="x") for _ in range(5)))
        assert not any(reply.failed for reply in together)
        for run in ("a", "b"):
            replies = [await client.call("up__echo", text="x", meta={"mcpbridge/run": run}) for _ in range(3)]
            assert [reply.failed for reply in replies] == [False, False, True]
        assert "followed one another in this run as may: 2" in replies[2].text


async def test_a_call_that_asks_back_counts_once(tmp_path: Path) -> None:
    """A modern client comes back with the answers: to the bridge that is one more request, but not one more call."""
    calls = {"max_calls": 1, "max_chain": 1, "rate_limit": "1/h"}
    async with world("http", tmp_path, {"up": ["modern"]}, calls=calls) as around:
        person = await around.person(modern=True)
        assert await person.asks_on("up", True, FORM, answers=lambda _: ACCEPT) == [ACCEPT]
        assert len(around.sent("up", "tools/call")) == 2
        refused = await person.calls("up__rounds", lambda _: ACCEPT, rounds=[])
        assert refused.failed
        assert len(around.sent("up", "tools/call")) == 2


async def test_hundreds_of_calls_at_once_to_a_server_that_answers_at_once_are_all_taken(place: Place) -> None:
    """On plain defaults: what a server can take is learned, and the rest waits its turn."""
    async with place.bridge({"up": python_server("plain")}) as client:
        await client.initialize()
        await client.tools_with("up__echo")
        with anyio.fail_after(120):
            replies = await asyncio.gather(
                *(client.call("up__echo", within=120, text=f"no. {at}") for at in range(600))
            )
    assert [reply.text for reply in replies] == [f"no. {at}" for at in range(600)]
