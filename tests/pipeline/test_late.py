"""The book of late calls: who joins, who gets what is kept, and what is not kept."""

import asyncio
import json
from typing import Any

import pytest

from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.conduct import Conduct
from mcpbridge.downstream.channel import Client
from mcpbridge.errors import StoreFailed, UpstreamError, UpstreamTimeout
from mcpbridge.model import Call
from mcpbridge.pipeline.late import LATE_META, MAX_LATE, RESULTS, Late
from mcpbridge.storage.memory import MemoryStore
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.wire.body import Body

TOOL = ToolRef("up", "look", "up__look", "up/look", b"{}", b"{}", b"{}", {})
RESULT = {"content": [{"type": "text", "text": "at last"}]}


def book(late: Any = "keep", store: MemoryStore | None = None, lifetime: float = 60, **server: Any) -> Late:
    servers = {"up": ServerSettings.model_validate({"command": "x", **server})}
    return Late(store or MemoryStore(), servers, lambda tool: Conduct(late=late), lifetime)


def call_of(principal: str = "", client: Client | None = None, **arguments: Any) -> Call:
    params = Body(json.dumps({"name": "look", "arguments": arguments}).encode())
    call = Call("tools/call", "up", "look", params)
    call.tool, call.caller = TOOL, client or Client(principal=principal)
    return call


async def repeated(late: Late, call: Call) -> dict[str, Any]:
    """What a call gets that goes through the stage; `{"fresh": true}` if it runs anew."""
    stage = late.stage(TOOL, Conduct())
    assert stage is not None

    async def run(call: Call) -> Body:
        return Body(b'{"fresh":true}')

    return (await stage(call, run)).value()


def begin(late: Late, call: Call) -> str:
    """Its client stops waiting; returns the handle."""
    found = late.begin(call)
    assert found is not None
    return found.handle


FRESH = {"fresh": True}


async def finish(late: Late, call: Call, **result: Any) -> Any:
    return await late.finished(call, Body(json.dumps(result or RESULT).encode()))


async def test_a_kept_result_answers_the_same_call_once_and_can_be_read_until_it_expires() -> None:
    store = MemoryStore()
    late, call = book(store=store), call_of(a=1, b=[2.0])
    handle = begin(late, call)
    assert await finish(late, call) is not None
    assert await repeated(late, call_of(a=2, b=[2.0])) == FRESH
    again = call_of(b=[2.0], a=1)
    found = await repeated(late, again)
    assert found["content"] == RESULT["content"]
    assert found["_meta"][LATE_META]["handle"] == handle
    assert again.facts == {"late": handle}
    assert await repeated(late, call_of(a=1, b=[2.0])) == FRESH
    assert json.loads(await store.get(RESULTS, handle, principal="") or b"") == RESULT


async def test_the_same_call_of_another_principal_runs_anew() -> None:
    late, call = book(), call_of("alice")
    begin(late, call)
    await finish(late, call)
    assert await repeated(late, call_of("bob")) == FRESH
    assert LATE_META in (await repeated(late, call_of("alice")))["_meta"]


async def test_where_a_server_keeps_clients_apart_another_session_of_the_same_principal_runs_anew() -> None:
    late, client = book(isolation="client"), Client()
    call = call_of(client=client)
    begin(late, call)
    await finish(late, call)
    assert await repeated(late, call_of()) == FRESH
    assert "_meta" in await repeated(late, call_of(client=client))


async def test_the_same_call_joins_the_one_that_still_runs() -> None:
    late, call = book(), call_of()
    begin(late, call)
    joined = [asyncio.ensure_future(repeated(late, call_of())) for _ in range(2)]
    await asyncio.sleep(0)
    joined[0].cancel()  # it gives up too: that is no concern of the others
    await asyncio.sleep(0)
    assert await finish(late, call) is None, "who waits for it has it; nobody needs to be told"
    assert LATE_META in (await joined[1])["_meta"]
    assert await repeated(late, call_of()) == FRESH


async def test_those_that_joined_a_call_that_fails_get_its_error() -> None:
    late, call = book(), call_of()
    begin(late, call)
    joined = asyncio.ensure_future(repeated(late, call_of()))
    await asyncio.sleep(0)
    late.failed(call, UpstreamTimeout("up", 60))
    with pytest.raises(UpstreamTimeout):
        await joined
    assert await repeated(late, call_of()) == FRESH
    late.failed(call)  # what comes after that changes nothing


async def test_those_that_joined_a_call_that_is_cancelled_hear_of_it() -> None:
    late, call = book(), call_of()
    begin(late, call)
    joined = asyncio.ensure_future(repeated(late, call_of()))
    await asyncio.sleep(0)
    late.failed(call)
    with pytest.raises(UpstreamError, match="cancelled"):
        await joined


@pytest.mark.parametrize(
    "result",
    [{**RESULT, "isError": True}, {"resultType": "input_required", "requestState": "s"}, {"resultType": "task"}],
    ids=["a failure", "a question", "a task"],
)
async def test_what_is_no_success_is_not_kept(result: dict[str, Any]) -> None:
    late, call = book(), call_of()
    begin(late, call)
    assert await finish(late, call, **result) is None
    assert await repeated(late, call_of()) == FRESH


async def test_a_result_that_cannot_be_kept_changes_nothing_else() -> None:
    class Full(MemoryStore):
        async def put(self, *_: Any, **__: Any) -> str:
            raise StoreFailed("the disk is full")

    late, call = book(store=Full()), call_of()
    begin(late, call)
    assert await finish(late, call) is None
    assert await repeated(late, call_of()) == FRESH


async def test_a_kept_result_expires() -> None:
    late, call = book(lifetime=0.01), call_of()
    begin(late, call)
    await finish(late, call)
    async with asyncio.timeout(5):
        while late.known:
            await asyncio.sleep(0.01)
    assert await repeated(late, call_of()) == FRESH


async def test_a_principal_has_only_so_many_late_calls_and_the_oldest_kept_result_goes_first() -> None:
    late = book()
    calls = [call_of(number=number) for number in range(MAX_LATE)]
    for call in calls:
        begin(late, call)
    assert late.begin(call_of(number=-1)) is None
    begin(late, call_of("somebody else"))
    for call in calls[:2]:
        await finish(late, call)
    begin(late, call_of(number=-1))
    assert await repeated(late, call_of(number=0)) == FRESH
    assert LATE_META in (await repeated(late, call_of(number=1)))["_meta"]


async def test_tools_whose_late_calls_are_cancelled_have_no_stage_and_are_not_kept() -> None:
    late = book("cancel")
    assert late.begin(call_of()) is None
    assert late.stage(TOOL, Conduct(late="cancel")) is None
    assert late.stage(None, Conduct()) is None


async def test_leaving_forgets_what_was_kept() -> None:
    late, call = book(), call_of()
    begin(late, call)
    await finish(late, call)
    late.end()
    assert await repeated(late, call_of()) == FRESH
