"""What must work in every cell of the matrix, each as one short conversation.

An operation of which a revision or a pairing knows nothing checks what is promised instead: that a client is never sent
what it did not declare, and that the caller is told.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from matrix.cells import MODERN, Cell
from matrix.client import Client
from support.harness import eventually
from support.rpc import Refused

__all__ = ["HEAVY_OPERATIONS", "LARGE", "LAST_OPERATIONS", "OPERATIONS", "Operations", "Stage", "fresh_stamp"]

Message = dict[str, Any]

LARGE = 20 * 2**20
"""Characters of the large result."""


@dataclass(frozen=True)
class Stage:
    """One cell, set up: a client in conversation with a bridge that has the cell's server behind it."""

    cell: Cell
    client: Client
    state: Path
    """Where the server writes down what it does."""
    stamp: str
    """Of this stage alone."""

    def name(self, tool: str) -> str:
        """A tool or prompt of this server, as clients see it."""
        return f"{self.cell.server}__{tool}"

    def uri(self, path: str) -> str:
        """A resource of this server."""
        return f"memo://{self.cell.server}/{path}"

    async def call(self, tool: str, meta: Message | None = None, **arguments: Any) -> Message:
        """Call a tool of this server."""
        return await self.client.call(self.name(tool), meta=meta, **arguments)

    def is_older_than(self, revision: str) -> bool:
        """Whether the client's revision came before another."""
        return self.cell.revision < revision


async def list_tools(stage: Stage) -> None:
    """All pages; what no revision knows survives; one definition that is wrong costs that tool alone."""
    tools = {tool["name"]: tool for tool in await stage.client.everything("tools/list", "tools")}
    echo = tools[stage.name("echo")]
    assert echo["invented"] == {"deep": [None, 1]}, echo
    assert echo["inputSchema"]["properties"]["text"]["x-vendor"] == 1, echo
    assert stage.name("broken") not in tools
    assert stage.name("touch") in tools


async def call_a_tool(stage: Stage) -> None:
    """Arguments reach the server as they are: nulls, big integers, order."""
    given = {"z": None, "text": "ä\u2028", "a": {"n": 12345678901234567890, "none": [None]}}
    said = _text(await stage.call("echo", **given))
    assert json.loads(said) == given, said
    assert said.index('"z"') < said.index('"text"') < said.index('"a"'), said


async def unknown_result_fields(stage: Stage) -> None:
    """What no revision knows comes back as it is."""
    result = await stage.call("odd")
    assert result["content"][0]["shade"] == {"of": [1, None]}, result
    assert {"type": "hologram", "data": "AAAA", "depth": 3} in result["content"], result
    assert result["invented"] == {"number": 12345678901234567890, "nothing": None}, result
    assert result["_meta"]["vendor.example/key"] == {"kept": True, "null": None}, result


async def structured_content(stage: Stage) -> None:
    """As it is for clients that know it; as text for all."""
    result = await stage.call("structured")
    assert json.loads(_text(result)) == {"answer": 42}, result
    if not stage.is_older_than("2025-06-18"):
        assert result["structuredContent"] == {"answer": 42}, result
    assert ("resultType" in result) == stage.client.is_modern, result


async def prompts(stage: Stage) -> None:
    """Listed and got."""
    names = [prompt["name"] for prompt in await stage.client.everything("prompts/list", "prompts")]
    assert stage.name("greet") in names
    got = await stage.client.request("prompts/get", {"name": stage.name("greet"), "arguments": {"who": "Ada"}})
    assert got["messages"][0]["content"]["text"] == "Greet Ada."


async def resources(stage: Stage) -> None:
    """Listed and read, those of templates too; an unknown one is refused as the revision has it."""
    uris = [resource["uri"] for resource in await stage.client.everything("resources/list", "resources")]
    assert stage.uri("note") in uris
    templates = await stage.client.everything("resources/templates/list", "resourceTemplates")
    assert stage.uri("page/{number}") in [template["uriTemplate"] for template in templates]
    for path in ("note", "page/7"):
        [contents] = (await stage.client.request("resources/read", {"uri": stage.uri(path)}))["contents"]
        assert contents["text"] == f"content of {stage.uri(path)}"
    with pytest.raises(Refused) as refused:
        await stage.client.request("resources/read", {"uri": stage.uri("page/missing")})
    assert refused.value.code == (-32602 if stage.client.is_modern else -32002), refused.value


async def completion(stage: Stage) -> None:
    """Of a prompt's argument."""
    ref = {"type": "ref/prompt", "name": stage.name("greet")}
    asked = {"ref": ref, "argument": {"name": "who", "value": "Ad"}}
    assert (await stage.client.request("completion/complete", asked))["completion"]["values"] == ["Ad1", "Ad2"]


async def unknown_method(stage: Stage) -> None:
    """Refused in the words that every revision has for it."""
    with pytest.raises(Refused) as refused:
        await stage.client.request("no/such/method", {})
    assert refused.value.code == -32601, refused.value


async def progress(stage: Stage) -> None:
    """With the client's own token, rising, and never after the answer."""
    token = f"progress-{stage.stamp}"
    await stage.call("count", meta={"progressToken": token})
    came = [message["params"] for message in stage.client.arrived if message["method"] == "notifications/progress"]
    steps = [params["progress"] for params in came if params["progressToken"] == token]
    assert steps, f"none came; others: {came[-3:]}"
    assert steps == sorted(set(steps)), steps


async def cancelling(stage: Stage) -> None:
    """Reaches the server."""
    arguments = {"name": stage.name("hold"), "arguments": {"token": stage.stamp}}
    held = stage.client.begin("tools/call", arguments)
    await _exists(stage.state / f"began-{stage.stamp}")
    await stage.client.cancel(held)
    await _exists(stage.state / f"cancelled-{stage.stamp}")


async def log_messages(stage: Stage) -> None:
    """At the level that was asked for: by the session, or by the request."""
    meta: Message = {}
    if stage.client.is_modern:
        meta["io.modelcontextprotocol/logLevel"] = "info"
    else:
        await stage.client.request("logging/setLevel", {"level": "info"})
    await stage.call("log", meta=meta, token=stage.stamp)
    heard = await stage.client.hear("notifications/message", lambda params: params["data"] == stage.stamp)
    assert stage.cell.server in heard["logger"], heard


async def form_elicitation(stage: Stage) -> None:
    """The user is asked and their answer reaches the server."""
    if stage.is_older_than("2025-06-18"):
        await _never_asked(stage, "ask_form")
        return
    assert _text(await stage.call("ask_form", token=stage.stamp)) == "accept: Ada"
    [asked] = _asked(stage, "elicitation/create")
    assert stage.cell.server in asked["params"]["message"], f"the server is not named: {asked}"
    assert asked["params"]["requestedSchema"]["required"] == ["name"], asked


async def url_elicitation(stage: Stage) -> None:
    """The address is passed on unchanged."""
    if stage.is_older_than("2025-11-25"):
        await _never_asked(stage, "ask_url")
        return
    assert _text(await stage.call("ask_url", token=stage.stamp)) == "accept"
    asked = _asked(stage, "elicitation/create")[-1]["params"]
    assert (asked["mode"], asked["url"]) == ("url", f"https://example.com/{stage.stamp}"), asked
    assert ("elicitationId" in asked) == (not stage.client.is_modern), asked


async def sampling(stage: Stage) -> None:
    """The client's model is asked and its answer reaches the server."""
    assert _text(await stage.call("ask_model", token=stage.stamp)) == "It is a bridge."
    [asked] = _asked(stage, "sampling/createMessage")
    assert asked["params"]["maxTokens"] == 100, asked


async def roots(stage: Stage) -> None:
    """Those of the client reach the server."""
    assert _text(await stage.call("ask_roots", token=stage.stamp)) == "file:///matrix"


async def list_changed(stage: Stage) -> None:
    """A new tool is announced as the era has it, and listed."""
    method = "notifications/tools/list_changed"
    tool = stage.name(f"grown-{stage.stamp}")
    before = len(stage.client.arrived)
    listening = await _listen(stage, {"toolsListChanged": True})
    await stage.call("grow", token=stage.stamp)

    async def names() -> list[str]:
        await stage.client.hear(method, lambda _: any(m["method"] == method for m in stage.client.arrived[before:]))
        return [found["name"] for found in await stage.client.everything("tools/list", "tools")]

    await eventually(names, lambda found: tool in found, within=60)
    await _stop_listening(stage, listening)


async def subscriptions(stage: Stage) -> None:
    """Who asked for a resource hears that it changed."""
    listening = await _listen(stage, {"resourceSubscriptions": [stage.uri("note")]})
    if listening is None:
        await stage.client.request("resources/subscribe", {"uri": stage.uri("note")})
    await stage.call("touch", token=stage.stamp)
    await stage.client.hear("notifications/resources/updated", lambda params: params["uri"] == stage.uri("note"))
    if listening is None:
        await stage.client.request("resources/unsubscribe", {"uri": stage.uri("note")})
    await _stop_listening(stage, listening)


async def large_result(stage: Stage) -> None:
    """20 MB arrive whole. Where client and server are of one era, and the client's revision is that era's newest."""
    newest = {"legacy": "2025-11-25", "modern": MODERN}[stage.cell.era]
    if stage.cell.revision == newest:
        result = await stage.client.call(stage.name("large"), within=90)
        assert len(_text(result)) == LARGE


Operations = dict[str, Callable[[Stage], Awaitable[None]]]

OPERATIONS: Operations = {
    "list tools": list_tools,
    "call a tool": call_a_tool,
    "unknown fields and content": unknown_result_fields,
    "structured content": structured_content,
    "prompts": prompts,
    "resources, templates": resources,
    "completion": completion,
    "an unknown method": unknown_method,
    "progress": progress,
    "log messages": log_messages,
    "elicitation by form": form_elicitation,
    "elicitation by URL": url_elicitation,
    "sampling": sampling,
    "roots": roots,
    "list_changed": list_changed,
    "subscriptions": subscriptions,
}
HEAVY_OPERATIONS: Operations = {"a result of 20 MB": large_result}
"""For one server after the other: side by side they would hold the rest up."""
LAST_OPERATIONS: Operations = {"cancelling": cancelling}
"""For when every client is through: what a server logs soon after may be of the call that was given up."""


def _text(result: Message) -> str:
    assert not result.get("isError"), f"the tool failed: {result['content']}"
    return "".join(part["text"] for part in result["content"] if part["type"] == "text")


def _asked(stage: Stage, method: str) -> list[Message]:
    """The questions that this stage's calls led to."""
    return [asked for asked in stage.client.asked if asked["method"] == method and stage.stamp in json.dumps(asked)]


async def _never_asked(stage: Stage, tool: str) -> None:
    """The client cannot be asked this: the caller is told, and nothing is sent to it."""
    token = f"{stage.stamp}-{tool}"
    try:
        result = await stage.call(tool, token=token)
    except Refused:
        pass
    else:
        assert result.get("isError"), f"it went well without asking: {result}"
    assert not any(token in json.dumps(asked) for asked in stage.client.asked), stage.client.asked


async def _exists(file: Path) -> None:
    async def look() -> bool:
        return await asyncio.to_thread(file.exists)

    try:
        await eventually(look, lambda there: there, within=60)
    except AssertionError:
        raise AssertionError(f"the server never wrote {file.name}") from None


async def _listen(stage: Stage, wanted: Message) -> int | None:
    """Open a listen stream and wait until the bridge has taken it; None in the handshake era, which has none."""
    if not stage.client.is_modern:
        return None
    id_ = stage.client.begin("subscriptions/listen", {"notifications": wanted})
    key = "io.modelcontextprotocol/subscriptionId"
    method = "notifications/subscriptions/acknowledged"
    await stage.client.hear(method, lambda params: params["_meta"][key] == id_)
    return id_


async def _stop_listening(stage: Stage, listening: int | None) -> None:
    if listening is not None:
        await stage.client.cancel(listening)


def fresh_stamp() -> str:
    """A word that no other stage has."""
    return token_hex(4)
