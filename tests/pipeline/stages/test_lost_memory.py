"""A server that the fleet has once has lost its memory: each client that has used it hears so once (issue 24)."""

import json
from typing import Any

import pytest
from msgspec import Raw

from mcpbridge.base.errors import StoreFailed
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.context import Session
from mcpbridge.core.model import BRIDGE, Call, CallHandler
from mcpbridge.pipeline.stages import lost_memory
from mcpbridge.pipeline.stages.lost_memory import LostMemory
from mcpbridge.protocol.body import Body
from support.upstreams.scripted_upstream import call_of

LOOK = ToolRef("up", "look", "up__look", "up/look", b"{}", b"{}", b"{}", {})
OTHER = ToolRef("other", "look", "other__look", "other/look", b"{}", b"{}", b"{}", {})
RUN_CODE = ToolRef(BRIDGE, "run_code", "run_code", "bridge/run_code", b"{}", b"{}", b"{}", {})
RESULT = b'{"content":[{"type":"text","text":"seen"}]}'


class Fleet:
    """Knows the processes, as the records of a fleet do."""

    def __init__(self) -> None:
        self.number, self.is_away, self.asked = 1, False, 0
        self.last = dict[tuple[str, str], int]()

    def epoch(self, server: str) -> int:
        return self.number

    async def used(self, server: str, client: str, epoch: int) -> int:
        self.asked += 1
        if self.is_away:
            raise StoreFailed("no answer")
        before = self.last.get((server, client), 0)
        self.last[server, client] = max(before, epoch)
        return before


def bridge(fleet: Fleet) -> LostMemory:
    """A bridge of the fleet, which has the server `up` once."""
    memory = LostMemory()
    memory.configure({"up"})
    memory.join(fleet)
    return memory


class Of:
    """A client."""

    principal = name = version = view = profile_name = address = ""
    identity = None

    def __init__(self, name: str) -> None:
        self.info = dict[str, Any]()
        self.session = Session(name=name)


async def answer(_: Call) -> Body:
    return Body(RESULT)


async def servers_of(memory: LostMemory, call: Call, tool: ToolRef = LOOK, proceed: CallHandler = answer) -> list[str]:
    """The servers that the result names, to programs and to models."""
    stage = memory.stage(tool, CallOptions())
    assert stage is not None
    result: dict[str, Any] = json.loads((await stage(call, proceed)).data)
    named: list[str] = result.get("_meta", {}).get("mcpbridge/lostMemory", [])
    assert len(result["content"]) == 1 + len(named)
    return named


async def test_one_result_says_so_in_the_whole_fleet() -> None:
    fleet = Fleet()
    here, there = bridge(fleet), bridge(fleet)
    first, second = Of("first"), Of("second")
    assert await servers_of(here, call_of(caller=first)) == []
    fleet.number = 2
    assert await servers_of(there, call_of(caller=first)) == ["up"]
    for memory in (there, here, there):
        assert await servers_of(memory, call_of(caller=first)) == []
        assert await servers_of(memory, call_of(caller=second)) == []
    assert fleet.asked == 5, "the records are asked once for each client, process and bridge"
    # The records may lose what they know: the bridge knows what it has seen.
    fleet.last.clear()
    fleet.number = 3
    assert await servers_of(here, call_of(caller=second)) == ["up"]


async def test_while_the_records_are_away_nothing_is_said_and_it_is_later() -> None:
    fleet = Fleet()
    memory, client = bridge(fleet), Of("client")
    await servers_of(memory, call_of(caller=client))
    fleet.number, fleet.is_away = 2, True
    assert await servers_of(memory, call_of(caller=client)) == []
    fleet.is_away = False
    assert await servers_of(memory, call_of(caller=client)) == ["up"]


async def test_a_use_is_written_down_again_before_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    memory, client = bridge(fleet), Of("client")
    for _ in range(2):
        await servers_of(memory, call_of(caller=client))
    assert fleet.asked == 1
    monkeypatch.setattr(lost_memory, "_RENEW_SECONDS", 0.0)
    await servers_of(memory, call_of(caller=client))
    assert fleet.asked == 2


async def test_what_a_program_calls_is_said_in_the_result_of_the_program() -> None:
    """The program's code gets the results as they are; so does code of the user's own, whose client hears it later."""
    fleet = Fleet()
    memory, client = bridge(fleet), Of("client")
    await servers_of(memory, call_of(caller=client))
    fleet.number = 2
    own = call_of(caller=client, tool=OTHER)
    assert await servers_of(memory, call_of(caller=client, within=own)) == []

    async def program(outer: Call) -> Body:
        for _ in range(2):
            assert await servers_of(memory, call_of(caller=client, within=outer)) == []
        return Body(RESULT)

    assert await servers_of(memory, call_of(caller=client, tool=RUN_CODE), RUN_CODE, program) == ["up"]
    assert await servers_of(memory, call_of(caller=client)) == []
    assert await servers_of(memory, call_of(caller=client, tool=RUN_CODE), RUN_CODE) == []


async def test_results_that_are_none_yet_say_nothing() -> None:
    """What asks the client something first, and a task."""
    fleet = Fleet()
    memory, client = bridge(fleet), Of("client")
    await servers_of(memory, call_of(caller=client))
    fleet.number = 2

    async def asks(_: Call) -> Body:
        return Body(b'{"resultType":"input_required","inputRequests":{},"content":[{"type":"text","text":"?"}]}')

    assert await servers_of(memory, call_of(caller=client), proceed=asks) == []
    assert await servers_of(memory, call_of(caller=client)) == ["up"]


async def test_a_plain_call_needs_no_task_unless_there_is_something_to_say() -> None:
    fleet = Fleet()
    memory, client = bridge(fleet), Of("client")
    stage: Any = memory.stage(LOOK, CallOptions())
    assert not stage.express_end(call_of(caller=client), Raw(RESULT), 0.0)
    await servers_of(memory, call_of(caller=client))
    assert stage.express_end(call_of(caller=client), Raw(RESULT), 0.0)
    fleet.number = 2
    assert not stage.express_end(call_of(caller=client), Raw(RESULT), 0.0)


async def test_it_costs_nothing_without_such_a_server_and_nothing_is_said_outside_of_a_fleet() -> None:
    memory = LostMemory()
    assert memory.stage(LOOK, CallOptions()) is None
    memory.configure({"up"})
    assert memory.stage(OTHER, CallOptions()) is None
    assert await servers_of(memory, call_of()) == []
