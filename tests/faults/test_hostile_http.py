"""One thing goes wrong at a server on the network: its own caller gets a clear error in time, and nobody else notices.

The server is on real sockets of the test's own process, and says each byte of its answers.
"""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import anyio
import pytest

from faults.hostile_cases import DEADLINE, SERVED, START
from faults.hostile_http_cases import (
    CONNECT_CASES,
    HTTP_CASES,
    READY,
    RESTARTED,
    RETRYING,
    SECONDS_5,
    SECONDS_10,
    SSE_CASES,
    WS_CASES,
    WebCase,
)
from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from mcpbridge.upstream.supervisor import Upstream
from mcpbridge.upstream.transports import remote, streamable_http
from support.in_process_bridge import Ear
from support.upstreams.hostile_http import SECRET, TEXT, hostile_http
from support.upstreams.hostile_sse import hostile_sse
from support.upstreams.hostile_ws import hostile_ws


class Hostile(Protocol):
    """A server that goes wrong until `is_well`."""

    url: str
    is_well: bool
    calls: int
    strikes: int
    struck: Any


def _text(answer: dict[str, Any]) -> str:
    return answer["error"]["message"] if "error" in answer else answer["result"]["content"][0]["text"]


def _kind(answer: dict[str, Any]) -> str:
    return answer.get("result", {}).get("_meta", {}).get("mcpbridge/error", "")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Callable[[WebCase], None]:
    """Shortens the time that a case is about; all others stay far away."""

    def shorten(case: WebCase) -> None:
        if case.within == SECONDS_10:
            monkeypatch.setattr(remote, "CONNECT_TIMEOUT", 0.5)
        if case.within == SECONDS_5:
            monkeypatch.setattr(streamable_http, "_ERROR_SECONDS", 0.2)
            monkeypatch.setattr(streamable_http, "_INTRODUCTION_SECONDS", 0.2)

    return shorten


@pytest.mark.parametrize("case", [*HTTP_CASES, *CONNECT_CASES], ids=lambda case: case.id)
async def test_a_fault_over_streamable_http(
    case: WebCase, quick: Callable[[WebCase], None], capsys: pytest.CaptureFixture[str]
) -> None:
    quick(case)
    await _try(case, hostile_http(case.moment, case.fault), capsys)


@pytest.mark.parametrize("case", SSE_CASES, ids=lambda case: case.id)
async def test_a_fault_over_sse(
    case: WebCase, quick: Callable[[WebCase], None], capsys: pytest.CaptureFixture[str]
) -> None:
    quick(case)
    await _try(case, hostile_sse(case.moment, case.fault), capsys, transport="sse")


@pytest.mark.parametrize("case", WS_CASES, ids=lambda case: case.id)
async def test_a_fault_over_websocket(
    case: WebCase, quick: Callable[[WebCase], None], capsys: pytest.CaptureFixture[str]
) -> None:
    quick(case)
    await _try(case, hostile_ws(case.moment, case.fault), capsys)


async def _try(
    case: WebCase,
    opened: AbstractAsyncContextManager[Hostile],
    capsys: pytest.CaptureFixture[str],
    **settings: Any,
) -> None:
    """Times of the server's are far away unless the case is about them: what comes at all has not waited for them."""
    settings |= {
        "headers": {"X-Api-Key": SECRET},
        "call_timeout": 0.5 if case.within == DEADLINE else 60,
        "init_timeout": 0.5 if case.within == START else 60,
        "queue_timeout": 60,
    }
    with anyio.fail_after(50):
        async with opened as bad, hostile_http("never", "silent") as good:
            servers = {"bad": {"url": bad.url, **settings}, "good": {"url": good.url}}
            sections = {"servers": servers, "results": {"strategy": "off"}, "limits": {"max_frame": "1MB"}}
            async with Bridge(Settings.model_validate(sections)) as bridge:
                ear = Ear(bridge.server)
                await ear.initialize()
                text = ""
                listed = [tool["name"] for tool in (await ear.ask("tools/list"))["result"]["tools"]]
                assert "good__work" in listed
                upstream = bridge.pool.upstreams["bad"]
                if case.moment == "GET":
                    await bad.struck.wait()
                if case.outcome == SERVED or case.moment == "tools/call":
                    await _calls(case, ear, bad, upstream)
                else:
                    await _starts(case, ear, bad, upstream)
                if case.recovers:
                    bad.is_well = True
                for _ in range(case.recovers):
                    text = await _call_again(ear, upstream)
                assert not case.recovers or text == TEXT
            assert bad.strikes or case.moment == "connect"
    written = capsys.readouterr()
    assert SECRET not in written.out + written.err


async def _calls(case: WebCase, ear: Ear, bad: Hostile, upstream: Upstream) -> None:
    """The call to the faulty server comes to what the case says, and the one to the other server is served."""
    answers: dict[str, dict[str, Any]] = {}
    connection = upstream.connection
    while connection.session is None:
        await connection.stepped()

    async def call(name: str, id_: bytes) -> None:
        answers[name] = await ear.ask("tools/call", {"name": f"{name}__work"}, id_=id_)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, "bad", b"2")
        tasks.start_soon(call, "good", b"3")
    assert (TEXT if case.outcome == SERVED else case.outcome) in _text(answers["bad"]).replace("\ufffd", "o")
    assert _kind(answers["bad"]) == case.error
    if case.error == "UpstreamGone":
        assert ("The server is being restarted" in _text(answers["bad"])) == (case.status == RESTARTED)
    if case.error == "UpstreamGone" or case.outcome in {"HTTP 500", "HTTP 502", "HTTP 504"}:
        assert "Check whether the action took effect" in _text(answers["bad"])
    assert SECRET not in json.dumps(answers["bad"])
    assert _text(answers["good"]) == TEXT
    assert bad.calls == case.arrivals
    while case.status == RESTARTED and upstream.restarts == 0:
        await connection.stepped()
    if case.status == READY and not case.fault.startswith(("stream: answers, and", "answers, and closes")):
        assert connection.status.state == "ready"


async def _starts(case: WebCase, ear: Ear, bad: Hostile, upstream: Upstream) -> None:
    """It does not become ready, and its status says why."""
    connection = upstream.connection
    assert case.status == RETRYING
    while connection.status.state != "retrying":
        await connection.stepped()
    assert case.outcome in connection.status.reason
    assert connection.state_text.startswith("retrying in ")
    assert SECRET not in connection.status.reason
    assert _text(await ear.ask("tools/call", {"name": "good__work"}, id_=b"3")) == TEXT
    assert bad.calls == case.arrivals


async def _call_again(ear: Ear, upstream: Upstream) -> str:
    """Call the server that is well again, once it is ready."""
    connection = upstream.connection
    while connection.session is None:
        connection.poke()
        await connection.stepped()
    return _text(await ear.ask("tools/call", {"name": "bad__work"}, id_=b"4"))


async def test_a_server_that_says_when_to_come_back_is_left_alone_until_then() -> None:
    """It said 7 s; by itself the bridge would try again within 0.5 s."""
    with anyio.fail_after(50):
        async with hostile_http("all", "status 429 with Retry-After") as bad:
            settings = Settings.model_validate({"servers": {"bad": {"url": bad.url}}})
            async with Bridge(settings) as bridge:
                connection = bridge.pool.upstreams["bad"].connection
                while connection.status.state != "retrying":
                    await connection.stepped()
                assert connection.status.next_at > connection._loop.time() + 5
