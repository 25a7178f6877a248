"""`run_code`: runs a program that the model wrote and that calls tools. The model sees only what the program returns.

Each call goes the way of a direct one: permissions, approval, limits and log are the same. A failed program gives a
result with `isError`, so that the model reads why. A program gets the data of a tool's result where there is data, else
its text.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import ArgumentsRefused, BridgeError, UnknownName, UpstreamAnswered
from mcpbridge.base.log import get_logger
from mcpbridge.catalog.settings import CodeSettings
from mcpbridge.catalog.signatures.python_stubs import Callee, names_of, signature
from mcpbridge.core.call_settings import CallSettings
from mcpbridge.core.elicitation import Elicitor, ElicitorWrapper, Question
from mcpbridge.core.model import BRIDGE, Call, Tool
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import decode_array, decode_text, encode
from mcpbridge.results.header_line import defused
from mcpbridge.sandbox.python.program import CallFailed, ProgramClock, ProgramLimits, ProgramResult, Programs, Value

_NOTHING = b"null"
_MOST_BLOCKS = 20


class _Block(msgspec.Struct):
    type: object = ""
    text: Raw = Raw()


class _Error(msgspec.Struct):
    message: str = ""


_decode_block = msgspec.json.Decoder(_Block).decode
_decode_error = msgspec.json.Decoder(_Error).decode


def value_of(result: Body) -> Value:
    """Its `structuredContent`; else its text, parsed where that is a JSON object or array; else its content blocks.

    Raises:
        CallFailed: it says that the call failed.
    """
    content = result.get("content")
    blocks = _blocks(content)
    if bytes(result.get("isError") or b"") == b"true":
        raise CallFailed(_text_of(blocks) or "the tool failed and gave no reason")
    structured = result.get("structuredContent")
    if structured is not None and bytes(memoryview(structured)[:4]) != _NOTHING:
        return Value(structured)
    if not blocks:
        return Value(_NOTHING)
    if len(blocks) == 1 and (text := _text(blocks[0])) is not None:
        return Value(text, is_text_of_json=True)
    return Value(content or _NOTHING)


def text_of_error(error: bytes) -> str:
    """What a server says in a JSON-RPC error."""
    try:
        message = _decode_error(error).message
    except (msgspec.DecodeError, RecursionError):
        message = ""
    return message or "the server answered with an error"


def _blocks(content: Raw | None) -> list[Raw]:
    if content is None or bytes(memoryview(content)[:1]) != b"[":
        return []
    try:
        return decode_array(content)
    except (msgspec.DecodeError, RecursionError):
        return []


def _text(block: Raw) -> Raw | None:
    """The text of a text block, as JSON."""
    try:
        decoded = _decode_block(block)
    except (msgspec.DecodeError, RecursionError):
        return None
    is_text = decoded.type == "text" and bytes(memoryview(decoded.text)[:1]) == b'"'
    return decoded.text if is_text else None


def _text_of(blocks: list[Raw]) -> str:
    """All texts, one after the other."""
    texts: list[str] = []
    for block in blocks[:_MOST_BLOCKS]:
        text = _text(block)
        try:
            texts.append(decode_text(text) if text is not None else "")
        except msgspec.DecodeError:
            continue
    return "\n".join(text for text in texts if text)


log = get_logger("mcpbridge.code")

NAME = "run_code"

CallTool = Callable[[Call, str, Raw], Awaitable[Body]]
"""Calls a tool by wire name within a call, with these arguments (an object); gives its whole result."""

Find = Callable[[Call, str], Callee | None]
"""The tool that whoever makes a call may call by this name; None: there is none, or several."""

_TREATMENT = CallSettings(read_only=True, idempotent=False, call_timeout=3600, max_call_timeout=7200)
"""Nothing happens but by the calls that a program makes, and each of these is judged by itself. How long it may take
the section `code` says."""

_LONGEST_ERROR, _MOST_NAMES = 4000, 1000

_DEFINITION: dict[str, Any] = {
    "name": NAME,
    "title": "Run a program that calls tools",
    "description": (
        "Run Python that calls tools: `r = await server__tool(arg=…)`, or `await call_tool('name', {…})`; "
        "asyncio.gather for several at once. JSON results come parsed; a failed call raises RuntimeError. Answers with "
        "the last expression (or `return`) and what is printed. describe_tools tells signatures. Not there: files, "
        "network, yield, inheritance, del, other modules than json, re, math, datetime, collections, itertools, "
        "functools, asyncio."
    ),
    "inputSchema": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
}
"""Every token of it is in every conversation."""


class RunCode:
    """The tool. `close` at the end."""

    definition, treatment = _DEFINITION, _TREATMENT

    def __init__(self, settings: CodeSettings, *, find: Find, call_tool: CallTool) -> None:
        """`find` looks a tool up as the client of the call may call it; `call_tool` makes a call within that one."""
        self._settings, self._find, self._call_tool = settings, find, call_tool
        self._programs = Programs()

    async def run(self, call: Call) -> Body:
        """See `Builtin`. Cancelled, the program ends, and so do its calls."""
        code = _code_of(call)
        if not code.strip():
            return _result(ProgramResult(error="There is no program: give it as `code`"))
        outer = list(_outer_tools(call))
        if any(tool.server == BRIDGE and tool.name == NAME for tool in outer):
            return _result(ProgramResult(error=f"A program cannot start another: {NAME} is for the client alone"))
        settings = self._settings
        watch = ProgramClock(computing=settings.timeout, altogether=settings.total_timeout)
        limits = ProgramLimits(settings.timeout, settings.max_memory << 20, settings.max_calls, settings.max_parallel)
        owner = call.caller.principal or call.caller.session.id
        elicitor, update = call.client, call.update
        asking = call.client = _Asking(elicitor, watch)
        call.update = _Updates(update)
        try:
            tools = _Tools(call, self._find, self._call_tool)
            is_nested = any(tool.server != BRIDGE for tool in outer)  # not in `call_tool` alone, as clients can call it
            ended = await self._programs.run(code, tools, limits=limits, watch=watch, owner=owner, is_nested=is_nested)
        finally:
            call.update = update
            if call.client is asking:
                call.client = elicitor
        call.note("program_calls", ended.calls)
        return _result(ended)

    async def close(self) -> None:
        """End the programs that run, and their processes."""
        await self._programs.close()


class _Asking(ElicitorWrapper):
    """Whoever is behind a program's calls: its time stands still while they are asked something.

    A modern client can be asked by the answer to the call of the program alone, so the calls within are answered here,
    and do not relay what their servers ask (`relays`).
    """

    __slots__ = ("_elicitor", "_watch")

    def __init__(self, elicitor: Elicitor, watch: ProgramClock) -> None:
        self._elicitor, self._watch = elicitor, watch

    @property
    def elicitor(self) -> Elicitor:
        """The one behind it."""
        return self._elicitor

    @property
    def relays(self) -> bool:
        """No: the result of a call within is not the answer to the client."""
        return False

    async def ask(self, question: Question) -> Raw:
        """Ask; see `Elicitor`."""
        with self._watch.asking():
            return await self._elicitor.ask(question)


class _Updates:
    """What a client hears of all calls within: the progress of each counts on from the one before (spec, progress)."""

    __slots__ = ("_steps", "_update")

    def __init__(self, update: Callable[[str, Raw], None]) -> None:
        self._update, self._steps = update, 0

    def __call__(self, method: str, params: Raw) -> None:
        """Pass one notification on."""
        if method == "notifications/progress":
            try:
                body = Body(params)
                body.put("progress", self._steps + 1)
                body.drop("total")
                params = Raw(body.data)
                self._steps += 1
            except msgspec.DecodeError:
                return
        self._update(method, params)


class _Tools:
    """The tools of one program."""

    def __init__(self, call: Call, find: Find, call_tool: CallTool) -> None:
        self._call, self._find, self._call_tool = call, find, call_tool
        self._known: dict[str, Callee | None] = {}

    def has(self, name: str) -> bool:
        """See `Toolbox`."""
        return self._callee(name) is not None

    async def call(self, name: str, arguments: Raw, positional: int) -> Value:
        """See `Toolbox`."""
        callee = self._callee(name)
        if callee is None:
            raise CallFailed(f"there is no tool {name[:100]!r}; find_tools lists those that exist", "NameError")
        if positional:
            raise CallFailed(f"arguments need their names: {signature(callee)}", "TypeError")
        if self._call.wants_progress:
            told = {"progress": 0, "message": f"calling {callee.wire}"}
            self._call.update("notifications/progress", Raw(encode(told)))
        try:
            result = await self._call_tool(self._call, callee.wire, _named(callee, arguments))
            value = value_of(result)
        except ArgumentsRefused as refused:
            raise CallFailed(f"{refused.full_message()}\n{signature(callee)}"[:_LONGEST_ERROR], "TypeError") from None
        except UpstreamAnswered as answered:
            raise CallFailed(text_of_error(answered.error)[:_LONGEST_ERROR]) from None
        except BridgeError as error:
            kind = "NameError" if isinstance(error, UnknownName) else "RuntimeError"
            raise CallFailed(error.full_message()[:_LONGEST_ERROR], kind) from None
        except CallFailed as failed:
            raise CallFailed(str(failed)[:_LONGEST_ERROR], failed.kind) from None
        except Exception as error:
            log.error("a call made by a program failed unexpectedly", tool=callee.wire, exc_info=error)
            raise CallFailed(f"{callee.wire} failed in the bridge; its log has the details") from None
        return value

    def _callee(self, name: str) -> Callee | None:
        """The tool as it was when the program first named it. Whether it may be called is looked at with each call."""
        if name not in self._known:
            if len(self._known) >= _MOST_NAMES:
                self._known.clear()
            self._known[name] = self._find(self._call, name)
        return self._known[name]


def _named(callee: Callee, arguments: Raw) -> Raw:
    """The arguments under their own names, where Python has others."""
    names = names_of(callee.schema)
    if not names:
        return arguments
    body = Body(arguments)
    fields = {names.get(name, name): value for name, value in body.fields.items()}
    return Raw(encode(fields)) if fields.keys() != body.fields.keys() else arguments


def _code_of(call: Call) -> str:
    arguments = call.params.inner("arguments")
    try:
        return _unfenced(arguments.text("code")) if arguments is not None else ""
    except (KeyError, msgspec.DecodeError):
        return ""


def _unfenced(code: str) -> str:
    """Without the fence that models put around programs."""
    text = code.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") + 1 : -3]
    return code


def _outer_tools(call: Call) -> Iterator[Tool]:
    """The tools in whose calls this one is made, from the inside out."""
    outer = call.within
    while outer is not None:
        if outer.tool is not None:
            yield outer.tool
        outer = outer.within


def _result(ended: ProgramResult) -> Body:
    """What was printed, and then the value or the error, each a block of its own."""
    texts = [ended.printed] if ended.printed else []
    if ended.error:
        made = f"\nCalls made by then: {ended.calls}." if ended.calls else ""
        texts.append(f"{ended.error}{made}")
    elif ended.text:
        texts.append(ended.text)
    if not texts:
        texts.append("The program ended; it said nothing: print something, or end with an expression.")
    result: dict[str, Any] = {"content": [{"type": "text", "text": defused(text)} for text in texts]}
    if ended.error:
        result["isError"] = True
    return Body(encode(result))
