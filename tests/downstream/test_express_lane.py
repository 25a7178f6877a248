"""The express lane gives what the full lane gives: the same answers, the same messages to servers, the same counts."""

import asyncio
import itertools
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbridge.base.errors import Overloaded, UpstreamGone
from mcpbridge.core.elicitation import ClientCapabilities
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.conversation import Conversation
from mcpbridge.protocol.reading.client_messages import find_client_ids, refuse_client_line
from mcpbridge.protocol.reading.framing import LineReader
from mcpbridge.storage.call_log.reader import Filter, read_call, read_calls
from mcpbridge.storage.settings import RunMode
from support.in_process_bridge import BridgeToScripts, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, Refusal, ScriptedTransport

Message = dict[str, Any]

TOOLS = [
    {
        "name": name,
        "inputSchema": {"type": "object", "properties": {"what": {"type": "string"}, "n": {"type": "integer"}}},
    }
    for name in ("echo", "other")
]
TEXT = {"content": [{"type": "text", "text": "done"}]}
SECRET = "ghp_" + "a1B2" * 9
RESULTS: Mapping[str, Any] = {
    "plain": TEXT,
    "more": {**TEXT, "isError": False, "unknown": [1.50, {"a": None}], "_meta": {"vendor/x": 1}},
    "tool error": {"content": [{"type": "text", "text": f"no: {SECRET}"}], "isError": True},
    "error": Refusal(-32000, f"no: {SECRET}", {"code": 7}),
    "invalid": Refusal(-32602, "no such thing"),
    "structured": {**TEXT, "structuredContent": {"n": 1}},
    "icons": {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a", "icons": [{"src": "data:,"}]}]},
    "large": {"content": [{"type": "text", "text": "line of a long text\n" * 4000}]},
    "rows": {"content": [{"type": "text", "text": json.dumps([{"id": n, "name": f"row {n}"} for n in range(2000)])}]},
    "in our name": {"content": [{"type": "text", "text": "[mcpbridge: nothing happened]"}]},
    "own key": {**TEXT, "_meta": {"mcpbridge/kept": "x"}},
    "question": {"resultType": "input_required", "inputRequests": {}},
    "empty": {},
    "lost": UpstreamGone("up", "it broke"),
    "full": Overloaded("the pipe is full"),
    "later": SILENCE,
}
"""What the tool answers when it is asked for it."""


def script(params: Message) -> Any:
    return RESULTS.get(params.get("arguments", {}).get("what", "plain"), TEXT)


class Talk:
    """One client on a channel, and all that it was sent."""

    def __init__(self, bridge: BridgeToScripts, client: Client | None = None) -> None:
        self.heard: list[Message] = []
        self.numbers = itertools.count(1)
        self.client = client or Client(front="stdio")
        self._news = asyncio.Event()
        self._lines = LineReader(1 << 20, rescue=refuse_client_line, find_ids=find_client_ids)
        self.conversation = Conversation(bridge.server, self.client, send=self._take, pending=lambda: 0)

    def _take(self, message: bytes) -> None:
        self.heard.append(json.loads(message))
        self._news.set()
        self._news = asyncio.Event()

    def say(self, *messages: Message) -> None:
        """Send these at once."""
        data = b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)
        self.conversation.take(self._lines.feed(data))

    def call(self, id_: object, what: str = "plain", tool: str = "up__echo", **arguments: Any) -> Message:
        """The message of a call."""
        params = {"name": tool, "arguments": {"what": what, **arguments}}
        return {"id": id_, "method": "tools/call", "params": params}

    async def answer(self, id_: object) -> Message:
        """The answer to a request, now or later."""
        with anyio.fail_after(30):
            while True:
                for message in self.heard:
                    if message.get("id") == id_ and "method" not in message:
                        return message
                await self._news.wait()

    async def begin(self, version: str = "2025-06-18", capabilities: Message | None = None) -> None:
        """Introduce itself, and call each tool once, so that its plan is there."""
        hello = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": {"name": "talk"}}
        self.say({"id": "hello", "method": "initialize", "params": hello})
        await self.answer("hello")
        self.say({"method": "notifications/initialized"})
        for tool in ("up__echo", "up__other"):
            self.say(self.call(f"warm {tool}", tool=tool))
            await self.answer(f"warm {tool}")


def server(version: str = "2025-11-25") -> ScriptedTransport:
    hello = {**LEGACY_SERVER["initialize"], "protocolVersion": version}
    return ScriptedTransport(
        {**LEGACY_SERVER, "initialize": hello, "tools/list": {"tools": TOOLS}, "tools/call": script}
    )


async def turns(number: int = 20) -> None:
    """Let the loop turn: what is due is done."""
    for _ in range(number):
        await asyncio.sleep(0)


# -- what every step does, in both lanes alike


Step = Callable[[Talk, ScriptedTransport, BridgeToScripts], Awaitable[object]]


def calls(*whats: str, at_once: bool = True) -> Step:
    async def step(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
        messages = [talk.call(next(talk.numbers), what) for what in whats]
        for part in [messages] if at_once else [[one] for one in messages]:
            talk.say(*part)
        for message, what in zip(messages, whats, strict=True):
            if what != "later":
                await talk.answer(message["id"])
        await turns()

    return step


async def answer_late(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
    """The last call that waits gets its answer."""
    for asked in reversed(up.asked("tools/call")):
        if asked["params"].get("arguments", {}).get("what") == "later" and up.line.is_open:
            up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {**TEXT, "late": asked["id"]}})
            break
    await turns()


def cancel(reason: str) -> Step:
    async def step(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
        waiting = [one["id"] for one in asked_ids(talk, bridge)]
        if waiting:
            talk.say({"method": "notifications/cancelled", "params": {"requestId": waiting[-1], "reason": reason}})
        await turns()

    return step


def asked_ids(talk: Talk, bridge: BridgeToScripts) -> Sequence[Message]:
    running = [call for call in bridge.server.running_calls if call.caller is talk.client]
    return [{"id": json.loads(bytes(call.asked_as))} for call in running]


async def look(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
    """Somebody looks at what runs."""
    bridge.running_calls()
    await turns()


async def log(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
    """The server logs while calls run, and asks for a sign of life."""
    if up.line.is_open:
        up.line.says("notifications/message", level="info", data="working")
        up.line.gives({"jsonrpc": "2.0", "id": "ping", "method": "ping"})
    await turns()


ODD: Sequence[Message] = (
    {"name": "up__echo", "arguments": {"what": "plain"}, "_meta": {"progressToken": 5, "x": 1}},
    {"_meta": {}, "name": "up__echo", "arguments": {"what": "plain"}},
    {"_meta": {"vendor/x": [1.50, {"a": None}]}, "arguments": {"what": "more"}, "name": "up__echo"},
    {"name": "up__echo", "arguments": {"what": "tool error"}, "_meta": {"progressToken": None, "traceparent": "00-x"}},
    {"name": "up__echo", "arguments": {}, "_meta": {"mcpbridge/run": "r", "mcpbridge/results": "whole"}},
    {"name": "up__echo", "arguments": {}, "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "t"}}},
    {"name": "up__echo", "arguments": {}, "_meta": 5},
    {"name": "up__echo", "arguments": {}, "task": {}},
    {"name": "up__echo", "arguments": {}, "inputResponses": {}},
    {"name": "up__echo", "arguments": '{"what": "plain"}'},
    {"name": "up__echo", "arguments": {"n": "7"}},
    {"name": "up__echo", "arguments": {"n": "seven"}},
    {"name": "up/echo", "arguments": {}},
    {"name": "up__echo"},
    {"name": "up__nothing", "arguments": {}},
    {"arguments": {}},
)


async def strange(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
    """Requests that are not plain, between others."""
    for number, params in enumerate(ODD):
        id_ = f"strange {number} {next(talk.numbers)}"
        talk.say({"id": id_, "method": "tools/call", "params": params})
        await talk.answer(id_)


def with_meta(call: Message, **meta: object) -> Message:
    """The message of a call that has a progress token, and keys of others."""
    params = {**call["params"], "_meta": {"progressToken": f"of {call['id']}", "vendor/x": [1.5], **meta}}
    return {**call, "params": params}


async def progress(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
    """A call whose server reports more progress than the client hears at once."""
    id_ = next(talk.numbers)
    talk.say(with_meta(talk.call(id_, "later"), traceparent=f"00-{'1' * 32}-{'2' * 16}-01"))
    await turns()
    asked = up.asked("tools/call")[-1]
    token = asked["params"].get("_meta", {}).get("progressToken")
    if token is not None and up.line.is_open:
        for number in range(21):
            up.line.says("notifications/progress", progressToken=token, progress=number, message="on the way")
        up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": TEXT})
    await turns()


async def ask(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
    """The server asks during a call; a client that can be asked answers."""
    id_ = next(talk.numbers)
    talk.say(talk.call(id_, "later"))
    await turns()
    before = len(talk.heard)
    if up.line.is_open:
        up.line.gives({"jsonrpc": "2.0", "id": f"ask {id_}", "method": "elicitation/create", "params": QUESTION})
    await turns()
    for message in talk.heard[before:]:
        if message.get("method") == "elicitation/create":
            talk.say({"id": message["id"], "result": {"action": "accept", "content": {"n": id_}}})
    await turns()


QUESTION = {"message": "How many?", "requestedSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}}


async def relist(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
    """The server's list changes while calls run; what follows sees the new one."""
    if up.line.is_open:
        up.line.says("notifications/tools/list_changed")
    await turns()


STEPS: Mapping[str, Step] = {
    **{what: calls(what) for what in RESULTS},
    "several": calls("plain", "more", "tool error", "plain", "large", "plain"),
    "one by one": calls("plain", "plain", "error", "plain", at_once=False),
    "many": calls(*["plain"] * 40),
    "many later": calls(*["later"] * 3),
    "answer late": answer_late,
    "cancel": cancel("a person wanted that"),
    "time out": cancel("Request timed out"),
    "look": look,
    "log": log,
    "strange": strange,
    "relist": relist,
    "progress": progress,
    "ask": ask,
}


FORM = ClientCapabilities.declared({"elicitation": {}}, "2025-11-25")


def becomes_quiet(bridge: BridgeToScripts) -> None:
    """From now on the server is one that never asked, so that calls of clients that can be asked take no turns."""
    history = bridge.pool.upstreams["up"].declared.history
    history.quiet = FORM
    for follower in history.followers:
        follower.history_changed()


async def outcome(
    steps: Sequence[str],
    versions: tuple[str, str],
    *,
    is_express: bool,
    asking: str = "",
    mode: RunMode = "embedded",
    **sections: Any,
) -> Message:
    """What a client, the server and the counts say after these steps.

    `asking`: the client can be asked, by a server over HTTP (`http`), or one that never did so far (`quiet`).
    """
    up = server(versions[1])
    up.kind = "streamable-http" if asking == "http" else "stdio"
    sections = {"results": {"threshold": 2000}, "store": {"kind": "memory"}, **sections}
    async with bridged({"up": up}, servers={"up": {"call_timeout": 60}}, mode=mode, **sections) as bridge:
        bridge.server.express.is_open = is_express
        bridge.catalog.settle()  # else the client may hear of the first list, or not
        talk = Talk(bridge)
        await talk.begin(versions[0], {"elicitation": {}} if asking else {})
        if asking == "quiet":
            becomes_quiet(bridge)
        for name in steps:
            await STEPS[name](talk, up, bridge)
            bridge.catalog.settle()  # a tool that gave much is listed with a hint about that, some time later
        with anyio.move_on_after(0.05):
            await talk.conversation.finish(0.02)
        talk.conversation.close()
        await turns()
        counts = {
            key: (total.outcomes, total.refused, total.failed, total.rewritten, total.bytes_in, total.bytes_out)
            for key, total in bridge.metrics.by_tool().items()
        }
        upstream = bridge.pool.upstreams["up"]
        limiter = upstream.requests.limiter
        left = len(upstream.running), limiter.free == limiter.slots, bridge.server.express.count(talk.client)
        # When a list is asked for anew depends on the turns of the loop, of which the lanes take different numbers.
        # So do the ids of requests to the server, which name their progress.
        sent = [(one.get("method"), without_token(one.get("params")), one.get("result")) for one in up.line.heard]
        apart = ("tools/list", "notifications/cancelled")
        requests = [[one for one in sent if one[0] not in apart], [one for one in sent if one[0] == "tools/list"]]
        # Who leaves withdraws all calls in one turn; which of them the server hears of first is left to the loop.
        requests.append(sorted((one for one in sent if one[0] == "notifications/cancelled"), key=str))
        answers = {json.dumps(one["id"]): stable(one) for one in talk.heard if "method" not in one}
        others = [stable(one) for one in talk.heard if "method" in one]
        return {"answers": answers, "others": others, "requests": requests, "counts": counts, "left": left}


def without_token(params: Message | None) -> str:
    """Params without the value of their progress token."""
    return re.sub(r'("progressToken": )[^,}]+', r"\1TOKEN", json.dumps(params))


def stable(message: Message) -> str:
    """A message without what is random: the handles of kept results, and the ids of questions."""
    message = {**message, "id": "ID"} if "method" in message and "id" in message else message
    return re.sub(r"[a-zA-Z2-7]{26}", "HANDLE", json.dumps(message))


VERSIONS = st.sampled_from([("2025-11-25", "2025-11-25"), ("2025-06-18", "2025-11-25"), ("2024-11-05", "2025-06-18")])


ASKING = st.sampled_from(["", "http", "quiet"])


@given(steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=8), versions=VERSIONS, asking=ASKING)
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_both_lanes_give_the_same(steps: list[str], versions: tuple[str, str], asking: str) -> None:
    express = asyncio.run(outcome(steps, versions, is_express=True, asking=asking))
    full = asyncio.run(outcome(steps, versions, is_express=False, asking=asking))
    assert express["answers"] == full["answers"]
    assert express == full


async def recorded(steps: Sequence[str], versions: tuple[str, str], folder: Path, *, is_express: bool) -> Message:
    """The same of a user's own bridge, which records calls, and its records."""
    files = {"store": {"path": str(folder / "store.db")}, "call_log": {"path": str(folder / "calls.db")}}
    found = await outcome(steps, versions, is_express=is_express, mode="own", **files)
    file = folder / "calls.db"
    rows = [read_call(file, row["uid"]) for row in read_calls(file, Filter(), limit=1000)]
    return {**found, "records": sorted(json.dumps(record(row or {}), sort_keys=True) for row in rows)}


def record(row: Mapping[str, Any]) -> Message:
    """A record without times and what is random. Its stages lie within the call, and each within those around it."""
    assert row["uid"]
    came, left = 0.0, float("inf")
    for _, began, ended in row["stages"]:  # in milliseconds, outermost first
        assert came <= began <= ended <= left, row["stages"]
        came, left = began, ended
    stages = [name for name, _, _ in row["stages"]]
    chance = ("at", "seconds", "uid", "stages", "session", "handle", "id", "running")
    kept = {name: value for name, value in row.items() if name not in chance}
    kept["result"] = {name: value for name, value in row.get("result", {}).items() if name != "sha256"}
    kept["facts"] = {name: value for name, value in row.get("facts", {}).items() if name != "waited"}
    return json.loads(stable({**kept, "stages": stages}))


FEW = sorted({*STEPS} - {"many"})
"""So few calls that all are recorded: of more, how many the history takes depends on the time."""


@given(steps=st.lists(st.sampled_from(FEW), min_size=1, max_size=6), versions=VERSIONS)
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
def test_both_lanes_record_the_same(steps: list[str], versions: tuple[str, str]) -> None:
    """Issue 20: each call's arguments, stages, results and outcome; recorded calls take the express lane too."""
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        express = asyncio.run(recorded(steps, versions, Path(one), is_express=True))
        full = asyncio.run(recorded(steps, versions, Path(other), is_express=False))
    assert express["records"] == full["records"]
    assert express == full


@pytest.mark.parametrize("what", RESULTS)
async def test_each_kind_of_result_is_recorded_the_same(what: str, tmp_path: Path) -> None:
    steps, versions = [what, "answer late", "cancel", "plain"], ("2025-06-18", "2025-11-25")
    for name in ("express", "full"):
        (tmp_path / name).mkdir()
    express = await recorded(steps, versions, tmp_path / "express", is_express=True)
    assert express == await recorded(steps, versions, tmp_path / "full", is_express=False)
    assert len(express["records"]) >= 4


@pytest.mark.parametrize("what", RESULTS)
async def test_each_kind_of_result_is_the_same_in_both_lanes(what: str) -> None:
    steps, versions = [what, "answer late", "plain"], ("2025-06-18", "2025-11-25")
    express = await outcome(steps, versions, is_express=True)
    assert express == await outcome(steps, versions, is_express=False)
    assert express["left"][0] == express["left"][2] == 0


@pytest.mark.parametrize(
    "answer",
    [
        {"result": "a text"},
        {"result": None},
        {"result": [1]},
        {},
        {"result": TEXT, "error": None},
        {"result": TEXT, "error": {"code": 1, "message": "x"}},
        {"error": {"code": 1, "message": "x"}},
        {"error": "x"},
    ],
    ids=json.dumps,
)
@pytest.mark.parametrize("spelled", [int, str, float])
async def test_each_shape_of_answer_is_the_same_in_both_lanes(answer: Message, spelled: Callable[[Any], Any]) -> None:
    async def answer_in(*, is_express: bool) -> Message:
        up = server()
        async with bridged({"up": up}) as bridge:
            bridge.server.express.is_open = is_express
            talk = Talk(bridge)
            await talk.begin()
            talk.say(talk.call(1, "later"))
            await turns()
            up.line.gives({"jsonrpc": "2.0", "id": spelled(up.asked("tools/call")[-1]["id"]), **answer})
            up.line.gives(
                {"jsonrpc": "2.0", "id": up.asked("tools/call")[-1]["id"], "result": {**TEXT, "second": True}}
            )
            found = await talk.answer(1)
            await turns()
            talk.conversation.close()
            assert len(up.lines) == 1
            return found

    assert await answer_in(is_express=True) == await answer_in(is_express=False)


# -- the lane itself


async def test_a_plain_call_takes_it_and_needs_no_task() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        before = asyncio.all_tasks()
        talk.say(talk.call(1, "later"))
        assert [*bridge.server.express.calls[talk.client]] == [b"1"]
        assert asyncio.all_tasks() == before
        assert talk.conversation.running == 1
        asked = up.asked("tools/call")[-1]
        up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": TEXT})
        assert talk.heard[-1] == {"jsonrpc": "2.0", "id": 1, "result": TEXT}
        assert talk.conversation.running == 0
        talk.conversation.close()


async def test_a_recorded_call_takes_it_too(tmp_path: Path) -> None:
    files = {"store": {"path": str(tmp_path / "store.db")}, "call_log": {"path": str(tmp_path / "calls.db")}}
    up = server()
    async with bridged({"up": up}, mode="own", **files) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        before = asyncio.all_tasks()
        talk.say(talk.call(1, "later"))
        assert [*bridge.server.express.calls[talk.client]] == [b"1"]
        assert asyncio.all_tasks() == before
        [call] = bridge.recorder.running()
        assert call.recorded is not None
        assert (call.recorded.stage, call.recorded.sent_at >= call.recorded.began) == ("server", True)
        up.line.gives({"jsonrpc": "2.0", "id": up.asked("tools/call")[-1]["id"], "result": TEXT})
        assert talk.heard[-1]["result"] == TEXT
        assert not bridge.recorder.running()
        talk.conversation.close()
    [newest] = read_calls(tmp_path / "calls.db", Filter(), limit=1)
    whole = read_call(tmp_path / "calls.db", newest["uid"])
    assert whole
    assert whole["stages"][-1][0] == "server"


async def test_progress_of_a_call_on_it_comes_before_the_answer() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        talk.say(with_meta(talk.call(1, "later")))
        assert [*bridge.server.express.calls[talk.client]] == [b"1"]
        asked = up.asked("tools/call")[-1]
        assert asked["params"]["_meta"] == {"progressToken": asked["id"], "vendor/x": [1.5]}
        heard = len(talk.heard)
        for number in range(40):
            up.line.says("notifications/progress", progressToken=asked["id"], progress=number)
        assert bridge.server.express.count(talk.client) == 1
        up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": TEXT})
        *news, answer = talk.heard[heard:]
        assert answer == {"jsonrpc": "2.0", "id": 1, "result": TEXT}
        assert {one["params"]["progressToken"] for one in news} == {"of 1"}
        assert [one["params"]["progress"] for one in news][-1] == 39, "the last word is not held back"
        talk.conversation.close()


@pytest.mark.parametrize("way", ["http", "quiet"])
@pytest.mark.parametrize("end", ["answer", "cancel", "close"])
async def test_a_client_that_can_be_asked_has_it_and_is_asked_during_a_call(way: str, end: str) -> None:
    up = server()
    up.kind = "streamable-http" if way == "http" else "stdio"
    async with bridged({"up": up}) as bridge:
        talk = Talk(bridge)
        await talk.begin(capabilities={"elicitation": {}})
        if way == "quiet":
            becomes_quiet(bridge)
        talk.say(talk.call(1, "later"), talk.call(2, "later"))
        assert [*bridge.server.express.calls[talk.client]] == [b"1", b"2"]
        first, second = up.asked("tools/call")[-2:]
        up.line.gives({"jsonrpc": "2.0", "id": second["id"], "result": TEXT})
        up.line.gives({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": QUESTION})
        await turns()
        assert talk.heard[-2]["id"] == 2
        asked = talk.heard[-1]
        assert (asked["method"], asked["params"]["message"]) == ("elicitation/create", "[up] How many?")
        if end == "answer":
            talk.say({"id": asked["id"], "result": {"action": "accept", "content": {"n": 3}}})
            assert (await up.answer("q"))["result"] == {"action": "accept", "content": {"n": 3}}
            up.line.gives({"jsonrpc": "2.0", "id": first["id"], "result": TEXT})
            assert (await talk.answer(1))["result"] == TEXT
        elif end == "cancel":
            talk.say({"method": "notifications/cancelled", "params": {"requestId": 1}})
            assert "over" in (await up.answer("q"))["error"]["message"]
            await up.hears("notifications/cancelled")
        else:
            talk.conversation.close()
            assert "error" in await up.answer("q")
        await turns()
        upstream = bridge.pool.upstreams["up"]
        assert not upstream.running
        assert upstream.requests.limiter.free == upstream.requests.limiter.slots
        talk.conversation.close()


async def test_a_call_that_waits_for_an_answer_of_its_client_has_its_time_stopped() -> None:
    up = server()
    up.kind = "streamable-http"
    async with bridged({"up": up}, servers={"up": {"call_timeout": 0.3}}) as bridge:
        talk = Talk(bridge)
        await talk.begin(capabilities={"elicitation": {}})
        talk.say(talk.call(1, "later"))
        assert bridge.server.express.count(talk.client) == 1
        up.line.gives({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": QUESTION})
        await turns()
        with anyio.move_on_after(0.6):
            await talk.answer(1)
            raise AssertionError(talk.heard)
        talk.say({"id": talk.heard[-1]["id"], "result": {"action": "decline"}})
        assert (await up.answer("q"))["result"] == {"action": "decline"}
        assert "no answer within" in json.dumps(await talk.answer(1)), "from now on it counts again"
        talk.conversation.close()


async def test_it_is_not_overtaken_by_what_came_later() -> None:
    """A call that is not plain begins in the next turn of the loop: plain ones behind it wait for that."""
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        first = talk.call(1, n=1)
        first["params"]["_meta"] = {"mcpbridge/run": "one"}
        talk.say(first, talk.call(2, n=2), talk.call(3, n=3))
        await talk.answer(3)
        assert [one["params"]["arguments"]["n"] for one in up.asked("tools/call")[-3:]] == [1, 2, 3]
        talk.conversation.close()


async def test_an_id_that_is_still_being_answered_is_refused_in_either_lane() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        talk.say(talk.call(7, "later"))
        talk.say(talk.call(7))
        refused = await talk.answer(7)
        assert "still being answered" in refused["error"]["message"]
        bridge.running_calls()  # now it continues in a task
        await turns()
        talk.say(talk.call(7))
        await turns()
        assert [one for one in talk.heard if one.get("id") == 7][1]["error"] == refused["error"]
        talk.conversation.close()


@pytest.mark.parametrize("way", ["close", "cancel", "finish"])
async def test_the_server_hears_of_calls_that_nobody_waits_for(way: str) -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        talk.say(talk.call(1, "later"), talk.call(2, "later"))
        asked = [one["id"] for one in up.asked("tools/call")[-2:]]
        if way == "close":
            talk.conversation.close()
        elif way == "cancel":
            talk.conversation.cancel()
        else:
            await talk.conversation.finish(0)
        await up.hears("notifications/cancelled", 2)
        assert [one["params"]["requestId"] for one in up.asked("notifications/cancelled")] == asked
        await turns()
        upstream = bridge.pool.upstreams["up"]
        assert not upstream.running
        assert not bridge.server.running_calls
        assert upstream.requests.limiter.free == upstream.requests.limiter.slots
        talk.conversation.close()


async def test_a_server_that_dies_fails_the_call_at_once() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        talk.say(talk.call(1, "later"))
        up.line.ends("it crashed")
        assert "it crashed" in json.dumps(await talk.answer(1))
        talk.conversation.close()


async def test_its_deadline_is_that_of_the_server() -> None:
    up = server()
    async with bridged({"up": up}, servers={"up": {"call_timeout": 0.2}}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        talk.say(talk.call(1, "later"))
        assert "0.2 s" in json.dumps(await talk.answer(1))
        await up.hears("notifications/cancelled")
        talk.conversation.close()


async def test_calls_at_once_beyond_the_slots_wait_in_order() -> None:
    up = server()
    async with bridged({"up": up}, servers={"up": {"max_concurrent": 2}}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        talk.say(*[talk.call(number, "later") for number in range(1, 6)])
        await turns()
        assert len(up.asked("tools/call")) == 2 + 2  # two at the beginning
        for number in range(5):
            asked = up.asked("tools/call")[2 + number]
            up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {**TEXT, "n": number}})
            await turns()
        assert [(await talk.answer(number + 1))["result"]["n"] for number in range(5)] == [*range(5)]
        talk.conversation.close()


@pytest.mark.parametrize(
    ("sections", "capabilities"),
    [
        ({"calls": {"rate_limit": "1000/s"}}, {}),
        ({"call_log": {"enabled": True}}, {}),
        ({}, {"elicitation": {}}),
        ({}, {"sampling": {}, "roots": {}}),
    ],
)
async def test_what_is_configured_or_can_be_asked_keeps_calls_in_the_full_lane(
    sections: Message, capabilities: Message, tmp_path: Any
) -> None:
    up = server()
    if "call_log" in sections:
        sections = {"call_log": {**sections["call_log"], "path": str(tmp_path / "calls.db")}}
    async with bridged({"up": up}, **sections) as bridge:
        talk = Talk(bridge)
        await talk.begin(capabilities=capabilities)
        talk.say(talk.call(1, "later"))
        assert bridge.server.express.count(talk.client) == 0
        talk.conversation.close()
