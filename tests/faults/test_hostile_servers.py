"""One thing goes wrong at one server: its own caller gets a clear error in time, and nobody else notices."""

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from faults.hostile_cases import CASES, DEADLINE, SERVED, START, Case
from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from support.in_process_bridge import Ear

PROGRAM = str(Path(__file__).parents[1] / "servers" / "hostile.py")
WELL = "hostile and well"


def server(moment: str, fault: str, **settings: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", "-S", PROGRAM, moment, fault], **settings}


def text_of(answer: dict[str, Any]) -> str:
    if "error" in answer:
        return answer["error"]["message"]
    return answer["result"]["content"][0]["text"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_a_fault_of_a_server_ends_in_a_clear_error_for_its_caller_alone(case: Case) -> None:
    """Times of the server's are far away unless the case is about them: what comes at all has not waited for them."""
    times = {
        "call_timeout": 0.5 if case.within == DEADLINE else 60,
        "init_timeout": 0.5 if case.within == START else 60,
        "queue_timeout": 60,
    }
    servers = {"bad": server(case.moment, case.fault, **times), "good": server("never", "silent")}
    settings = Settings.model_validate(
        {"servers": servers, "results": {"strategy": "off"}, "limits": {"max_frame": "1MB"}}
    )
    answers: dict[str, str] = {}
    with anyio.fail_after(45):
        async with Bridge(settings) as bridge:
            ear = Ear(bridge.server)
            await ear.initialize()
            good = bridge.pool.upstreams["good"].connection
            while not good.has_settled:
                await good.stepped()
            bridge.catalog.flush()
            listed = [tool["name"] for tool in (await ear.ask("tools/list"))["result"]["tools"]]
            assert "good__work" in listed
            if case.outcome == SERVED or case.moment == "tools/call":

                async def call(name: str, id_: bytes) -> None:
                    answers[name] = text_of(await ear.ask("tools/call", {"name": f"{name}__work"}, id_=id_))

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call, "bad", b"2")
                    tasks.start_soon(call, "good", b"3")
            else:
                bad = bridge.pool.upstreams["bad"].connection
                while not bad.status.reason:
                    await bad.stepped()
                answers["bad"] = bad.status.reason
                answers["good"] = text_of(await ear.ask("tools/call", {"name": "good__work"}, id_=b"3"))
    assert (WELL if case.outcome == SERVED else case.outcome) in answers["bad"]
    assert answers["good"] == WELL
