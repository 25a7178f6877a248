"""What clients do in the tests of both lanes, and what comes of it: see `downstream/express_lane.py`."""

import asyncio
import itertools
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import anyio

from mcpbridge.base.errors import Overloaded, UpstreamGone
from mcpbridge.core.elicitation import ClientCapabilities
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.conversation import Conversation
from mcpbridge.protocol.meta import PREFIX
from mcpbridge.protocol.reading.client_messages import find_client_ids, refuse_client_line
from mcpbridge.protocol.reading.framing import LineReader
from mcpbridge.storage.settings import RunMode
from support.harness import eventually
from support.in_process_bridge import BridgeToScripts, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, MODERN_SERVER, SILENCE, Refusal, ScriptedTransport

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
    "secret": {"content": [{"type": "text", "text": f"take {SECRET}, write to ada@example.com, and call 7 times"}]},
    "list": {**TEXT, "structuredContent": [1]},
    "strange kind": {**TEXT, "resultType": "riddle"},
    "question": {"resultType": "input_required", "inputRequests": {}},
    "empty": {},
    "lost": UpstreamGone("up", "it broke"),
    "full": Overloaded("the pipe is full"),
    "later": SILENCE,
}
"""What the tool answers when it is asked for it."""


def script(params: Message) -> Any:
    return RESULTS.get(params.get("arguments", {}).get("what", "plain"), TEXT)


AROUND = {"resultType": "complete", "ttlMs": 5, "_meta": {f"{PREFIX}serverInfo": {"name": "up"}, "vendor/y": 1}}
"""What a modern server puts around some of its results."""


def modern_script(params: Message) -> Any:
    """The same of a modern server, which asks back at times."""
    if params.get("arguments", {}).get("what") == "ask back" and "inputResponses" not in params:
        asked = {"q": {"method": "elicitation/create", "params": {"mode": "form", **QUESTION}}}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": "state"}
    result = script(params)
    return {**AROUND, **cast("Message", result)} if isinstance(result, dict) and result else cast("object", result)


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

    async def end(self) -> None:
        """Leave, soon after the last word."""
        ending = asyncio.create_task(self.conversation.finish(0.02))
        await asyncio.wait([ending], timeout=0.05)
        ending.cancel()
        # No cancel scope around it: what it gathers is cancelled as well, and either may come out of it.
        await asyncio.wait([ending])
        self.conversation.close()

    async def begin(self, version: str = "2025-06-18", capabilities: Message | None = None) -> None:
        """Introduce itself, and call each tool once, so that its plan is there."""
        hello = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": {"name": "talk"}}
        self.say({"id": "hello", "method": "initialize", "params": hello})
        await self.answer("hello")
        self.say({"method": "notifications/initialized"})
        for tool in ("up__echo", "up__other"):
            self.say(self.call(f"warm {tool}", tool=tool))
            await self.answer(f"warm {tool}")


class ModernTalk(Talk):
    """One client of 2026-07-28: each of its requests says who sends it."""

    def __init__(self, bridge: BridgeToScripts) -> None:
        super().__init__(bridge)
        self.envelope: Message = {}

    def say(self, *messages: Message) -> None:
        """Send these at once, each with its envelope."""
        super().say(*map(self._in_envelope, messages))

    def _in_envelope(self, message: Message) -> Message:
        params: Message = message.get("params", {})
        said = params.get("_meta", {})
        if "method" not in message or "id" not in message or not isinstance(said, dict):
            return message
        return {**message, "params": {**params, "_meta": {**self.envelope, **cast("Message", said)}}}

    async def begin(self, version: str = "", capabilities: Message | None = None) -> None:
        """Call each tool once, so that its plan is there."""
        self.envelope = envelope(capabilities)
        for tool in ("up__echo", "up__other"):
            self.say(self.call(f"warm {tool}", tool=tool))
            await self.answer(f"warm {tool}")


def envelope(capabilities: Message | None = None) -> Message:
    """What a request of 2026-07-28 says of its client."""
    return {
        f"{PREFIX}protocolVersion": "2026-07-28",
        f"{PREFIX}clientCapabilities": capabilities or {},
        f"{PREFIX}clientInfo": {"name": "talk", "version": "1"},
    }


def server(version: str = "2025-11-25") -> ScriptedTransport:
    if version >= "2026-07-28":
        return ScriptedTransport({**MODERN_SERVER, "tools/list": {"tools": TOOLS}, "tools/call": modern_script})
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
    """The last call that waits gets its answer.

    The result of one that its client stopped waiting for is written to the store, which takes as long as the disk does.
    """

    async def running() -> int:
        return talk.conversation.running

    upstream = bridge.pool.upstreams["up"]
    at_server, answering = len(upstream.running), talk.conversation.running
    for asked in reversed(up.asked("tools/call")):
        if asked["params"].get("arguments", {}).get("what") == "later" and up.line.is_open:
            up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {**TEXT, "late": asked["id"]}})
            break
    await turns()
    if answering and len(upstream.running) < at_server:  # of clients over HTTP the requests are not counted here
        await eventually(running, lambda now: now < answering)
    await turns()


def cancel(reason: str) -> Step:
    async def step(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
        waiting = [one["id"] for one in asked_ids(talk, bridge)]
        if waiting:
            talk.say({"method": "notifications/cancelled", "params": {"requestId": waiting[-1], "reason": reason}})
        await turns()

    return step


def asked_ids(talk: Talk, bridge: BridgeToScripts) -> Sequence[Message]:
    running = [
        call
        for call in bridge.server.running_calls
        if isinstance(call.caller, Client) and talk.client in (call.caller, call.caller.channel)
    ]
    return [{"id": json.loads(bytes(call.asked_as))} for call in running]


async def look(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
    """Somebody looks at what runs."""
    bridge.running_calls()
    await turns()


async def log(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
    """The server logs while calls run, and asks for a sign of life."""
    if up.line.is_open:
        up.line.says("notifications/message", level="info", data="working for ada@example.com")
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


async def ask_back(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
    """A modern server wants an answer before the result; a client of a session that can be asked gives one."""
    id_ = next(talk.numbers)
    before = len(talk.heard)
    talk.say(talk.call(id_, "ask back"))
    await turns()
    for message in talk.heard[before:]:
        if message.get("method") == "elicitation/create":
            talk.say({"id": message["id"], "result": {"action": "accept", "content": {"n": id_}}})
    await talk.answer(id_)
    await turns()


async def relist(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
    """The server's list changes while calls run, and one that is answered then waits for the new one.

    The list is in force at the end: announcements within a twentieth of a second are one look, those of two steps would
    be one or two as fast as the machine is.
    """
    if up.line.is_open:
        id_ = next(talk.numbers)
        up.line.says("notifications/tools/list_changed")
        talk.say(talk.call(id_))
        await talk.answer(id_)
        await bridge.pool.upstreams["up"].listings.relisting.in_force()
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
    "ask back": ask_back,
}


STAGES: Mapping[str, tuple[Message, Message]] = {
    "rate limit": ({"calls": {"rate_limit": "7/day"}}, {"rate_limit": "9/day"}),
    "rate limit of a tool": ({}, {"tool": {"echo": {"rate_limit": "4/day"}}}),
    "calls of a conversation": ({"calls": {"max_calls": 6}}, {}),
    "calls in a row": ({"calls": {"max_chain": 5, "chain_pause": "1 h"}}, {}),
    "deadline": ({}, {"tool": {"echo": {"call_timeout": 40}}}),
    "retry": (
        {},
        {
            "trusted": True,
            "tool": {"echo": {"read_only": True, "retry": {"tries": 3, "backoff": 0.001, "max_backoff": 0.001}}},
        },
    ),
    "slots of a client": ({"calls": {"max_per_client": 30}}, {}),
    "slots of a tool": ({}, {"tool": {"echo": {"max_concurrent": 30}}}),
    "one change at a time": ({}, {"side_effects": "serial"}),
    "denied to others": ({"permissions": [{"clients": ["somebody"], "permission": "deny"}]}, {}),
    "denied": ({"permissions": [{"clients": ["talk"], "tools": ["up/other"], "permission": "deny"}]}, {}),
    "denied by arguments": (
        {"permissions": [{"tools": ["up/*"], "when": "has(args.what) && args.what == 'more'", "permission": "deny"}]},
        {},
    ),
    "redacted": ({}, {"redact": ["secrets"]}),
    "redacted, also what is sent": ({}, {"redact": ["secrets", "pii"], "redact_arguments": ["secrets"]}),
    "approved by arguments": (
        {
            "permissions": [
                {"tools": ["up/*"], "when": "has(args.what) && args.what == 'never'", "permission": "require_approval"}
            ]
        },
        {},
    ),
}
"""What can be configured of calls: sections, and keys of the server. No call waits for a person, or long for a slot."""


def together(*names: str) -> tuple[Message, Message]:
    """The same for several at once."""
    sections: Message = {}
    server: Message = {}
    for name in names:
        for into, more in zip((sections, server), STAGES[name], strict=True):
            for key, value in more.items():
                into[key] = merged(into.get(key), value)
    return sections, server


def merged(known: Any, value: Any) -> Any:
    """Both settings: tables with the keys of both, lists one behind the other."""
    if isinstance(known, dict):
        first, second = cast("Message", known), cast("Message", value)
        return {**first, **{key: merged(first.get(key), more) for key, more in second.items()}}
    return [*cast("list[object]", known), *value] if isinstance(known, list) else value


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
    client: Callable[[BridgeToScripts], Talk] = Talk,
    known: Mapping[str, Step] = STEPS,
    settings: Message | None = None,
    **sections: Any,
) -> Message:
    """What a client, the server and the counts say after these steps.

    `asking`: the client can be asked, by a server over HTTP (`http`), or one that never did so far (`quiet`).
    `known`: the steps by name. `settings`: those of the server, besides its usual ones.
    """
    up = server(versions[1])
    up.kind = "streamable-http" if asking == "http" else "stdio"
    sections = {"results": {"threshold": 2000}, "store": {"kind": "memory"}, **sections}
    async with bridged(
        {"up": up}, servers={"up": {"call_timeout": 60, **(settings or {})}}, mode=mode, **sections
    ) as bridge:
        bridge.server.express.is_open = is_express
        bridge.catalog.settle()  # else the client may hear of the first list, or not
        talk = client(bridge)
        await talk.begin(versions[0], {"elicitation": {}} if asking else {})
        if asking == "quiet":
            becomes_quiet(bridge)
        for name in steps:
            await known[name](talk, up, bridge)
            bridge.catalog.settle()  # a tool that gave much is listed with a hint about that, some time later
        await talk.end()
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
    """A message without what is random: handles of kept results, ids of questions, sealed states, and placeholders.

    Nor how many whole seconds are left until something may be tried again: a few milliseconds make them one less.
    """
    message = {**message, "id": "ID"} if "method" in message and "id" in message else message
    text = re.sub(r"(?<=:)[0-9a-f]{16}(?=\\u203a)", "PLACEHOLDER", json.dumps(message))
    text = re.sub(r'("requestState": ")[^"]+', r"\1STATE", text)
    text = re.sub(r'((?:mcpbridge/retryAfter": |left alone for |Try again in ))\d+', r"\1SECONDS", text)
    return re.sub(r"[a-zA-Z2-7]{26}", "HANDLE", text)
