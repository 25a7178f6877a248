"""Several bridges on one channel to a server: each message finds its way back (issue 24)."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import pytest
from msgspec import Raw

from mcpbridge.base.errors import Overloaded, UpstreamGone
from mcpbridge.base.process.process import ProcessSpec
from mcpbridge.fleet.servers import process as shared_process
from mcpbridge.fleet.servers.process import SharedProcess, line_of
from mcpbridge.protocol.jsonrpc import Frame, decode_frame
from mcpbridge.protocol.transport import Outgoing, Receiver
from mcpbridge.upstream.transports.stdio import StdioTransport

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class Wire:
    """A transport that keeps what it is sent."""

    kind = "stdio"

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.is_open = False
        self.refuses = 0
        """Messages that it does not take from now on, as where the program does not read."""

    @asynccontextmanager
    async def connect(self, receiver: Receiver) -> AsyncGenerator["Wire"]:
        self.is_open = True
        try:
            yield self
        finally:
            self.is_open = False

    def send(self, message: Outgoing) -> None:
        if self.refuses:
            self.refuses -= 1
            raise Overloaded("it does not read")
        self.sent.append(json.loads(message.data))

    def withdraw(self, id_: bytes) -> bool:
        return False

    def negotiated(self, version: str) -> None: ...

    def last_words(self) -> str:
        return ""


class Bridge:
    """One of those that share it."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.reason = ""

    def take(self, frame: Frame) -> None:
        self.heard.append(json.loads(line_of(frame)))

    def spoiled(self, id_: bytes, reason: str) -> None:
        self.heard.append({"spoiled": int(id_)})

    def closed(self, reason: str) -> None:
        self.reason = reason


@pytest.fixture
async def shared() -> AsyncGenerator[tuple[SharedProcess, Wire, list[Bridge], list[int]]]:
    wire = Wire()
    process = SharedProcess("x", 1, wire, monotonic() + 1000)  # type: ignore[arg-type] - it is one
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.run)
            await process.started()
            bridges = [Bridge(), Bridge()]
            yield process, wire, bridges, [process.attach(one) for one in bridges]
            process.end("the test is over")
    assert not wire.is_open


Shared = tuple[SharedProcess, Wire, list[Bridge], list[int]]


def send(process: SharedProcess, number: int, **message: Any) -> None:
    process.send(number, json.dumps({"jsonrpc": "2.0", **message}).encode())


def says(process: SharedProcess, **message: Any) -> None:
    process.frame(decode_frame(json.dumps({"jsonrpc": "2.0", **message}).encode()), b"")


async def test_equal_ids_are_told_apart_and_answers_come_in_any_order(shared: Shared) -> None:
    process, wire, bridges, numbers = shared
    for number in numbers:
        send(process, number, id=7, method="tools/call", params={"of": number})
    first, second = wire.sent
    assert first["id"] != second["id"]
    says(process, id=second["id"], result={"for": second["params"]["of"]})
    says(process, id=first["id"], error={"code": 1, "message": "no"})
    says(process, id=first["id"], result={"again": True})
    assert bridges[0].heard == [{"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "no"}}]
    assert bridges[1].heard == [{"jsonrpc": "2.0", "id": 7, "result": {"for": numbers[1]}}]


async def test_the_handshake_is_made_once_also_while_it_is_under_way(shared: Shared) -> None:
    process, wire, bridges, numbers = shared
    for number in numbers:
        send(process, number, id=1, method="initialize", params={})
    assert len(wire.sent) == 1
    says(process, id=wire.sent[0]["id"], result={"protocolVersion": "x"})
    for number in numbers:
        send(process, number, method="notifications/initialized")
    late = Bridge()
    send(process, process.attach(late), id=3, method="initialize", params={})
    assert [one["method"] for one in wire.sent] == ["initialize", "notifications/initialized"]
    assert [one.heard[-1]["result"] for one in (*bridges, late)] == [{"protocolVersion": "x"}] * 3
    assert late.heard[0]["id"] == 3


async def test_progress_subscriptions_and_cancellation_name_the_request_that_each_side_knows(shared: Shared) -> None:
    process, wire, bridges, numbers = shared
    for number in numbers:
        send(process, number, id=5, method="tools/call", params={"_meta": {"progressToken": 5}})
    first, second = (one["id"] for one in wire.sent)
    assert [one["params"]["_meta"]["progressToken"] for one in wire.sent] == [first, second]
    says(process, method="notifications/progress", params={"progressToken": second, "progress": 1})
    says(process, method="notifications/resources/updated", params={"uri": "x", "_meta": {SUBSCRIPTION: first}})
    assert bridges[1].heard[0]["params"]["progressToken"] == 5
    assert bridges[0].heard[0]["params"]["_meta"] == {SUBSCRIPTION: 5}
    assert (len(bridges[0].heard), len(bridges[1].heard)) == (1, 1)
    send(process, numbers[1], method="notifications/cancelled", params={"requestId": 5})
    assert wire.sent[-1]["params"]["requestId"] == second
    send(process, numbers[1], method="notifications/cancelled", params={"requestId": 99})
    assert len(wire.sent) == 3, "nobody else's request is cancelled"
    says(process, id=second, result={})
    says(process, method="notifications/tools/list_changed")
    assert [one.heard[-1]["method"] for one in bridges] == ["notifications/tools/list_changed"] * 2
    assert len(bridges[1].heard) == 2, "an answer to what was cancelled is nobody's"


async def test_a_question_goes_to_one_and_only_its_answer_counts(shared: Shared) -> None:
    process, wire, bridges, numbers = shared
    says(process, id="q", method="ping")
    assert [len(one.heard) for one in bridges] == [1, 0]
    send(process, numbers[1], id="q", result={"from": "the other"})
    assert wire.sent == []
    send(process, numbers[0], id="q", result={})
    assert wire.sent == [{"jsonrpc": "2.0", "id": "q", "result": {}}]
    says(process, id="r", method="roots/list")
    process.detach(numbers[0])
    assert wire.sent[-1]["id"] == "r"
    assert wire.sent[-1]["error"]["message"] == "who was asked has left"


async def test_a_resource_is_unsubscribed_from_when_no_bridge_wants_it_any_more(shared: Shared) -> None:
    process, wire, bridges, (first, second) = shared

    def answered() -> list[str]:
        methods = [one["method"] for one in wire.sent]
        for one in wire.sent:
            says(process, id=one["id"], result={})
        wire.sent.clear()
        return methods

    for number in (first, second):
        send(process, number, id=1, method="resources/subscribe", params={"uri": "a"})
    assert answered() == ["resources/subscribe"] * 2
    send(process, second, id=2, method="resources/unsubscribe", params={"uri": "a"})
    assert answered() == [], "the first one wants it still"
    assert bridges[1].heard[-1] == {"jsonrpc": "2.0", "id": 2, "result": {}}
    send(process, first, id=2, method="resources/unsubscribe", params={"uri": "a"})
    assert answered() == ["resources/unsubscribe"]
    send(process, second, id=3, method="resources/subscribe", params={"uri": "b"})
    says(process, id=wire.sent[-1]["id"], error={"code": -32002, "message": "no such resource"})
    wire.sent.clear()
    for number in (first, second):
        send(process, number, id=4, method="resources/subscribe", params={"uri": "c"})
    send(process, second, id=5, method="resources/subscribe", params={"uri": "d"})
    answered()
    process.detach(second)
    assert [(one["method"], one["params"]) for one in wire.sent] == [("resources/unsubscribe", {"uri": "d"})]


async def test_the_server_has_the_least_severe_log_level_that_a_bridge_wants(shared: Shared) -> None:
    process, wire, bridges, (first, second) = shared

    def levels() -> list[object]:
        return [one["params"]["level"] for one in wire.sent if one["method"] == "logging/setLevel"]

    send(process, first, id=1, method="logging/setLevel", params={"level": "warning"})
    send(process, second, id=1, method="logging/setLevel", params={"level": "error"})
    assert levels() == ["warning"]
    assert bridges[1].heard == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    send(process, second, id=2, method="logging/setLevel", params={"level": "debug"})
    send(process, first, id=2, method="logging/setLevel", params={"level": "emergency"})
    assert levels() == ["warning", "debug"]
    process.detach(second)
    assert levels() == ["warning", "debug", "emergency"]
    # What the server refused, it is asked for again.
    says(process, id=wire.sent[0]["id"], error={"code": 1, "message": "not now"})
    send(process, first, id=3, method="logging/setLevel", params={"level": "emergency"})
    assert levels() == ["warning", "debug", "emergency", "emergency"]
    send(process, first, id=4, method="logging/setLevel", params={"level": "odd"})
    assert levels()[-1] == "odd", "the server says what is wrong with it"


async def test_a_listen_stream_does_not_keep_the_process_busy_and_its_end_concerns_one(shared: Shared) -> None:
    process, wire, bridges, numbers = shared
    for number in numbers:
        send(process, number, id="listen-1", method="subscriptions/listen", params={})
    assert process.is_idle
    send(process, numbers[0], id=2, method="tools/call", params={})
    assert not process.is_idle
    says(process, id=wire.sent[-1]["id"], result={})
    assert process.is_idle
    says(process, method="notifications/cancelled", params={"requestId": wire.sent[0]["id"]})
    assert bridges[0].heard[-1]["params"] == {"requestId": "listen-1"}
    assert bridges[1].heard == []
    # What it asked itself, it takes back from whom it asked.
    says(process, id="q", method="ping")
    says(process, method="notifications/cancelled", params={"requestId": "q"})
    assert bridges[0].heard[-1]["params"] == {"requestId": "q"}
    says(process, method="notifications/cancelled", params={"requestId": 999})
    assert bridges[1].heard == []


async def test_what_a_bridge_has_open_is_cancelled_when_it_leaves(shared: Shared) -> None:
    process, wire, bridges, (first, second) = shared
    send(process, second, id=1, method="initialize", params={})
    send(process, first, id=1, method="initialize", params={})
    send(process, first, id=2, method="tools/call", params={})
    send(process, second, id=2, method="tools/call", params={})
    send(process, second, id="l", method="subscriptions/listen", params={})
    handshake, kept, *left = (one["id"] for one in wire.sent)
    wire.sent.clear()
    process.detach(second)
    assert [(one["method"], one["params"]["requestId"]) for one in wire.sent] == [
        ("notifications/cancelled", id_) for id_ in left
    ]
    says(process, id=handshake, result={"protocolVersion": "x"})
    says(process, id=kept, result={})
    assert [one["id"] for one in bridges[0].heard] == [1, 2], "what others wait for is not"


async def test_a_bridge_that_leaves_while_the_process_does_not_read_wants_nothing_any_more(shared: Shared) -> None:
    process, wire, _, (first, second) = shared
    for uri in ("a", "b"):
        send(process, second, id=uri, method="resources/subscribe", params={"uri": uri})
    send(process, first, id=1, method="resources/subscribe", params={"uri": "a"})
    send(process, first, id=2, method="logging/setLevel", params={"level": "error"})
    send(process, second, id=2, method="logging/setLevel", params={"level": "info"})
    for one in list(wire.sent):
        says(process, id=one["id"], result={})
    send(process, second, id=3, method="tools/call", params={})
    wire.sent.clear()
    wire.refuses = 1
    process.detach(second)
    assert [one["method"] for one in wire.sent] == ["resources/unsubscribe", "logging/setLevel"], "what it takes"
    send(process, first, id=4, method="resources/unsubscribe", params={"uri": "a"})
    assert wire.sent[-1]["params"] == {"uri": "a"}


async def test_a_log_level_that_the_process_did_not_take_is_sent_again(shared: Shared) -> None:
    process, wire, _, (first, second) = shared
    for number, level in ((first, "error"), (second, "info")):
        send(process, number, id=2, method="logging/setLevel", params={"level": level})
        says(process, id=wire.sent[-1]["id"], result={})
    wire.sent.clear()
    wire.refuses = 1
    process.detach(second)
    assert wire.sent == []
    send(process, first, id=3, method="logging/setLevel", params={"level": "error"})
    assert [one["params"] for one in wire.sent] == [{"level": "error"}]


async def test_whoever_waited_for_a_subscription_in_vain_has_none(shared: Shared) -> None:
    process, wire, _, (first, second) = shared
    send(process, first, id=1, method="resources/subscribe", params={"uri": "a"})
    send(process, first, method="notifications/cancelled", params={"requestId": 1})
    send(process, second, id=1, method="resources/subscribe", params={"uri": "a"})
    says(process, id=wire.sent[-1]["id"], result={})
    send(process, second, id=2, method="resources/unsubscribe", params={"uri": "a"})
    assert wire.sent[-1]["method"] == "resources/unsubscribe"


async def test_nothing_passes_once_the_lease_is_over(shared: Shared) -> None:
    """By the clock alone: as after a pause of the whole bridge, nothing has run meanwhile."""
    process, wire, bridges, numbers = shared
    send(process, numbers[0], id=1, method="tools/call", params={})
    process.valid_until = monotonic()
    says(process, id=wire.sent[0]["id"], result={"late": True})
    assert bridges[0].heard == []
    assert "lease" in bridges[0].reason
    with pytest.raises(UpstreamGone, match="lease"):
        send(process, numbers[1], id=2, method="tools/call", params={})
    assert len(wire.sent) == 1


async def test_the_process_ends_with_the_last_that_uses_it(shared: Shared) -> None:
    process, wire, _, numbers = shared
    process.detach(numbers[0])
    assert wire.is_open
    assert process.is_valid
    process.spoiled([b"77"], "odd", b"")
    send(process, numbers[1], id=4, method="tools/call", params={})
    process.spoiled([str(wire.sent[0]["id"]).encode()], "odd", b"")
    process.detach(numbers[1])
    assert not process.is_valid


async def test_a_log_message_reaches_no_bridge_whose_client_would_read_another_clients(shared: Shared) -> None:
    process, wire, bridges, numbers = shared
    message = {"method": "notifications/message", "params": {"level": "info", "data": "the salary of ann"}}
    says(process, **message)
    assert [len(one.heard) for one in bridges] == [1, 1], "it is of no call"
    send(process, numbers[0], id=1, method="tools/call", params={})
    says(process, **message)
    assert [len(one.heard) for one in bridges] == [2, 1], "it is of that call"
    send(process, numbers[1], id=1, method="tools/call", params={})
    says(process, **message)
    assert [len(one.heard) for one in bridges] == [2, 1], "nobody knows of which it is"
    says(process, id=wire.sent[0]["id"], result={})
    says(process, **message)
    assert [len(one.heard) for one in bridges] == [3, 2]
    assert bridges[0].heard[-1] == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_what_was_sent_as_the_bridge_was_stopped_is_not_written_after_its_lease(tmp_path: Path) -> None:
    """A message is written a turn after it was sent; meanwhile another bridge may have started a process of its own."""
    taken = tmp_path / "taken"
    taken.touch()
    program = f"import sys\nfor line in sys.stdin:\n    with open({str(taken)!r}, 'a') as file: file.write(line)"
    transport = StdioTransport("x", ProcessSpec(sys.executable, ("-c", program), {}), max_bytes=1 << 20)
    process, bridge = SharedProcess("x", 1, transport, monotonic() + 1000), Bridge()
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.run)
            await process.started()
            number = process.attach(bridge)
            send(process, number, id=1, method="tools/call", params={"text": "in time"})
            while "in time" not in taken.read_text():
                await anyio.sleep(0.01)
            send(process, number, id=2, method="tools/call", params={"text": "too late"})
            process.valid_until = monotonic()  # as after a stop, before anything else has its turn
    assert bridge.reason == "its bridge could not keep its lease"
    assert "too late" not in taken.read_text()


async def test_a_process_that_nobody_came_to_use_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_process, "_UNUSED_SECONDS", 0.001)
    process = SharedProcess("x", 1, Wire(), monotonic() + 1000)  # type: ignore[arg-type] - it is one
    with anyio.fail_after(60):
        await process.run()
    assert process.reason == "no bridge uses it"


def test_a_message_is_one_line_of_json() -> None:
    assert json.loads(line_of(Frame(id=Raw(b"1"), error=Raw(b'{"code":1}')))) == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": 1},
    }


async def test_what_the_process_did_not_take_is_not_under_way(shared: Shared) -> None:
    process, wire, bridges, numbers = shared
    wire.refuses = 2
    with pytest.raises(Overloaded):
        send(process, numbers[0], id=1, method="initialize", params={})
    with pytest.raises(Overloaded):
        send(process, numbers[0], id=2, method="tools/call", params={})
    says(process, method="notifications/message", params={"level": "info", "data": "of no call"})
    assert [one.heard[-1]["params"]["data"] for one in bridges] == ["of no call"] * 2
    send(process, numbers[1], id=1, method="initialize", params={})
    [asked] = wire.sent
    says(process, id=asked["id"], result={"protocolVersion": "x"})
    assert [len(one.heard) for one in bridges] == [1, 2], "the first was refused, and does not wait"
