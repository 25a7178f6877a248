"""The eight scenes of the demo. Each shows what it does, checks that it holds, and counts the tokens it saves."""

import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, cast

import anyio
from mcp_types import CallToolResult, Tool

from mcpbridge.app.demo.bill import Bill, count_tokens
from mcpbridge.app.demo.cast import Cast, ToolCall
from mcpbridge.app.demo.connection import Connected, definition_tokens, text_of
from mcpbridge.app.demo.question import Question
from mcpbridge.app.demo.servers.orders_data import Order
from mcpbridge.app.demo.terminal import Screen
from mcpbridge.protocol.jsonrpc import encode

LARGE = 100_000
"""Characters that the large result has at least."""
_PREVIEW = 2_000
"""Characters that a client gets of it at most."""
_ROWS = 3
"""Rows that the follow-up question asks for."""
_BACK_WITHIN = 30.0
"""Seconds in which a killed server is expected back."""


class SceneFailed(Exception):
    """What a scene says did not happen."""


def expect(holds: object, what: str) -> None:
    """Continue if it holds.

    Raises:
        SceneFailed: it does not.
    """
    if not holds:
        raise SceneFailed(what)


@dataclass(slots=True)
class Show:
    """What the scenes of one run share."""

    cast: Cast
    bridge: Connected
    without: Mapping[str, Sequence[Tool]]
    """What each server lists to a client without a bridge."""
    question: Question
    """Answers what the bridge asks."""
    screen: Screen
    bill: Bill
    large_result: dict[str, str] = field(default_factory=dict[str, str])
    """The handle and the original of the large result, by these names."""


Scene = Callable[[Show], Awaitable[str]]
"""Plays a scene and returns a line of what just happened.

Raises:
    SceneFailed: it does not hold.
"""


async def one_list(show: Show) -> str:
    """Five servers, one list."""
    before = [tool for tools in show.without.values() for tool in tools]
    sizes = ", ".join(f"{name} {len(tools)}" for name, tools in show.without.items())
    item = show.bill.add(
        "list of tools", without=definition_tokens(before), through=definition_tokens(show.bridge.tools)
    )
    show.bill.facts.update(tools_without=len(before), tools_with=len(show.bridge.tools))
    names = ", ".join(tool.name for tool in show.bridge.tools)
    show.screen.pair("servers", f"{sizes} tools")
    for name, tools, tokens in (
        ("without bridge", len(before), item.without),
        ("with bridge", len(show.bridge.tools), item.through),
    ):
        show.screen.pair(name, f"{tools:>3} tools in the list, {tokens:>6,} tokens (estimated)", "bold")
    show.screen.pair("the list", names)
    expect(show.cast.found_call.server in show.without, f"the server {show.cast.found_call.server} is missing")
    expect({"find_tools", "call_tool", "recall"} <= {tool.name for tool in show.bridge.tools}, "the list is not short")
    expect(item.through < item.without, "the bridge's list is the longer one")
    return f"A client sees one server, and a list that is {_share(item.without, item.through)} shorter."


async def find(show: Show) -> str:
    """A tool is found by what it does."""
    show.screen.pair("find", f'"{show.cast.request}"', "bold")
    found = text_of(await show.bridge.call(ToolCall("find_tools", {"query": show.cast.request, "limit": 3})))
    item = show.bill.add("a search", without=0, through=count_tokens(found))
    show.bill.facts["search_tokens"] = item.through
    first = found.partition("\n")[0]
    show.screen.pair("first of them", first)
    expect(
        first.startswith(f"{show.cast.found_call.tool}("), f"{show.cast.found_call.tool} is not the first that is found"
    )
    result = _succeeded(await show.bridge.call(show.cast.found_call))
    show.screen.pair("call", _call_text(show.cast.found_call))
    answer = show.cast.answer(result)
    expect(answer, f"the answer is not in the result: {result}")
    show.screen.pair("answer", answer, "bold")
    total = sum(map(len, show.without.values()))
    return f"Found among {total} tools by words, not by name, and called."


async def large_result(show: Show) -> str:
    """A large result, in 2,000 characters."""
    result = await show.bridge.call(show.cast.large)
    preview = _succeeded(result)
    kept: Mapping[str, Any] = (result.meta or {}).get("mcpbridge/result") or {}
    expect(kept.get("handle"), "the result was not kept")
    original = await show.bridge.original(kept["handle"])
    show.large_result.update(handle=kept["handle"], original=original)
    expect(len(original) >= LARGE, f"the original has {len(original):,} characters only")
    expect(len(preview) <= _PREVIEW, f"the preview has {len(preview):,} characters")
    query = {"handle": kept["handle"], "where": 'state == "open" and total > 500', "sort": "-total", "limit": _ROWS}
    call = ToolCall("recall", query | {"select": "id, total"})
    answer = _succeeded(await show.bridge.call(call))
    rows = answer.splitlines()[1 : _ROWS + 1]
    expect(rows == _largest_open(show.cast.orders), f"recall answers {rows}")
    asked = count_tokens(str(encode(call.arguments), "utf-8"))
    item = show.bill.add(
        "a large result", without=count_tokens(original), through=count_tokens(preview) + asked + count_tokens(answer)
    )
    show.bill.facts.update(result_characters=len(original), preview_characters=len(preview))
    lines = preview.splitlines()
    show.screen.pair("call", _call_text(show.cast.large))
    show.screen.pair("result", f"{len(original):,} characters of JSON, which arrive as {len(preview):,}:", "bold")
    show.screen.pair("", lines[1], "dim")
    show.screen.pair("", next((line for line in lines if line.startswith("state:")), lines[2]), "dim")
    show.screen.pair("recall", f"the {_ROWS} largest where {query['where']}")
    show.screen.pair("answer", " · ".join(rows), "bold")
    return f"{item.through:,} tokens instead of {item.without:,}, the question included. The original is kept, whole."


async def handed_on(show: Show) -> str:
    """A result goes to another tool, and not through the model."""
    expect("handle" in show.large_result, "there is no kept result")
    call = show.cast.take({"$ref": show.large_result["handle"]})
    said = _succeeded(await show.bridge.call(call))
    written = show.cast.written_file.read_text("utf-8")
    expect(written == show.large_result["original"], "what was written is not what was kept")
    whole = show.cast.take(show.large_result["original"])
    item = show.bill.add(
        "by handle",
        without=count_tokens(str(encode(whole.arguments), "utf-8")),
        through=count_tokens(str(encode(call.arguments), "utf-8")),
    )
    show.screen.pair("call", _call_text(call))
    show.screen.pair("result", said)
    show.screen.pair("on the disk", f"{len(written.encode()):,} bytes, the same as the kept ones")
    show.screen.pair("tokens", f"{item.without:,} if the model writes them, {item.through:,} by handle")
    return "The model passed on a name, and the bridge the bytes."


async def arguments(show: Show) -> str:
    """Wrong arguments: one is mended, one is refused."""
    mended = await show.bridge.call(show.cast.mended)
    _succeeded(mended)
    changes: list[Mapping[str, str]] = (mended.meta or {}).get("mcpbridge/coerced") or []
    expect(changes, "nothing was mended")
    show.screen.pair("call", _call_text(show.cast.mended))
    done = ", ".join(f"{one['what']} {one['from']} to {one['to']}" for one in changes)
    show.screen.pair("mended", done, "bold")
    refused = await show.bridge.call(show.cast.refused)
    said = text_of(refused)
    expect(refused.is_error, "a wrong argument was accepted")
    expect(show.cast.fix in said, f"the refusal does not say what fits: {said}")
    show.screen.pair("call", _call_text(show.cast.refused))
    for name, line in zip(("refused", "", ""), said.splitlines(), strict=False):
        show.screen.pair(name, line, "bold" if line.startswith("-") else "")
    return "What can only mean one thing is mended; the rest is refused with what fits."


async def approval(show: Show) -> str:
    """A call that needs a yes."""
    expect(not show.cast.has_happened(), f"{show.cast.approved.tool} has been done before anybody was asked")
    show.screen.pair("call", _call_text(show.cast.approved))
    result = await show.bridge.call(show.cast.approved)
    said = text_of(result)
    expect(show.question.asked, "nobody was asked")
    if show.question.is_declined:
        show.screen.pair("result", said.partition(". ")[0], "bold")
        expect(result.is_error and not show.cast.has_happened(), "the call was made all the same")
        return "Without a yes the server saw nothing of it."
    expect(not show.question.happened_before_answer, "the call was made before the answer")
    _succeeded(result)
    show.screen.pair("result", " ".join(said.split()), "bold")
    expect(show.cast.has_happened(), "the call has had no effect")
    return "The call waited for a yes, and was made after it."


async def killed(show: Show) -> str:
    """A server is killed in the middle."""
    victim, slow = show.cast.killed, show.cast.slow
    before = _succeeded(await show.bridge.call(victim))
    process: int | None = (await show.bridge.state_of(victim.server)).get("pid")
    expect(process, f"the server {victim.server} has no process")
    steps: list[float] = []
    is_early, at_kill, back_after, again = False, 0, 0.0, ""
    is_under_way = anyio.Event()
    results: list[CallToolResult] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001 - of the SDK
        steps.append(progress)
        is_under_way.set()

    async def call_slow() -> None:
        results.append(await show.bridge.call(slow, progressed))
        is_under_way.set()

    async with anyio.create_task_group() as group:
        group.start_soon(call_slow)
        with anyio.fail_after(_BACK_WITHIN):
            await is_under_way.wait()
        is_early = not results
        if is_early:
            os.kill(process or 0, signal.SIGKILL)
            at_kill, killed_at = len(steps), anyio.current_time()
            show.screen.pair("call", f"{_call_text(slow)}: under way, step {at_kill}")
            show.screen.pair("kill -9", f"process {process}, the server {victim.server!r}", "bold red")
            again = await _answered_again(show, victim)
            back_after = anyio.current_time() - killed_at
    expect(is_early, f"{slow.tool} was answered before a server was killed")
    new = (await show.bridge.state_of(victim.server)).get("pid")
    expect(new and new != process, f"the server {victim.server} is still the process {process}")
    expect(again == before, f"the server {victim.server} answers otherwise than before")
    show.screen.pair("call", f"{_call_text(victim)}: answered after {back_after:.1f} s, by process {new}", "bold")
    finished = _succeeded(results[0])
    expect(len(steps) > at_kill, "the call of the other server had ended before")
    show.screen.pair("first call", " ".join(finished.split()), "bold")
    return f"The call to {slow.server!r} noticed nothing, and {victim.server!r} came back by itself."


async def bill(show: Show) -> str:
    """The bill of this run."""
    total, price = show.bill.total, show.bill.dollars
    for item in [*show.bill.items, total]:
        style = "bold" if item is total else ""
        show.screen.pair(item.what, f"{item.without:>7,} tokens without, {item.through:>6,} with the bridge", style)
    expect(total.through < total.without, "nothing was saved")
    saved = total.without - total.through
    show.screen.pair("price", f"${show.bill.price:g} a million tokens, assumed (--price sets it); tokens are estimated")
    return (
        f"Saved in this run: {saved:,} tokens ({_share(total.without, total.through)}), "
        f"${price(total.without):.3f} became ${price(total.through):.3f}."
    )


SCENES: Mapping[str, Scene] = {
    "Five servers, one list": one_list,
    "A tool is found by what it does": find,
    "A large result in 2,000 characters": large_result,
    "A result goes to another tool, not through the model": handed_on,
    "Wrong arguments: one mended, one refused": arguments,
    "A call that needs a yes": approval,
    "A server is killed in the middle": killed,
    "The bill": bill,
}
"""The scenes in their order, by their titles. `handed_on` needs `large_result` before it."""


async def _answered_again(show: Show, call: ToolCall) -> str:
    """The result of a call whose server was just killed. One that it was killed with may fail; then it is repeated."""
    with anyio.fail_after(_BACK_WITHIN):
        while True:
            result = await show.bridge.call(call)
            if not result.is_error:
                return text_of(result)
            await anyio.sleep(0.1)


def _largest_open(orders: Sequence[Order]) -> list[str]:
    """The rows that the follow-up question should bring, as CSV."""
    found = [one for one in orders if one["state"] == "open" and one["total"] > 500]
    found.sort(key=itemgetter("total"), reverse=True)
    return [f"{one['id']},{one['total']}" for one in found[:_ROWS]]


def _succeeded(result: CallToolResult) -> str:
    """The text of a result that is no failure."""
    said = text_of(result)
    expect(not result.is_error, said)
    return said


def _call_text(call: ToolCall) -> str:
    """A call as a person reads it; references by the beginning of their handle."""
    parts: list[str] = []
    for name, value in call.arguments.items():
        shown = str(encode(value), "utf-8")
        if isinstance(value, dict) and "$ref" in value:
            reference = cast("Mapping[str, str]", value)
            shown = f"the result {reference['$ref'][:6]}…"
        parts.append(f"{name}={shown}")
    return f"{call.tool}({', '.join(parts)})"


def _share(without: int, through: int) -> str:
    return f"{1 - through / without:.0%}"
