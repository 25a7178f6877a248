"""What a hook gets to know of a call, and what it may answer: nothing, other arguments, a result, or a refusal.

It is a value for functions of the program and a JSON document for all others. Functions become hooks by `before` and
`after`, and are given to `Bridge(hooks=[...])`. `Changes` keeps what hooks made of calls that their clients will come
back with, since those send again what they sent before.
"""

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, overload

import msgspec
from msgspec import Raw, Struct, field

from mcpbridge.base.errors import BridgeError, UpstreamAnswered
from mcpbridge.core.context import CallContext
from mcpbridge.core.model import Call, Tool
from mcpbridge.pipeline.hooks.settings import HookEvent, HookFailure
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.canonical_json import canonical_digest
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT, encode


class HookCall(Struct, frozen=True):
    """One call, as the hooks before this one have left it. Nothing in it changes the call: what a hook returns does."""

    event: HookEvent
    id: str
    """The same before and after one call."""
    tool: str
    """Its id: `server/tool`."""
    server: str
    name: str
    """The server's own name of the tool."""
    arguments: dict[str, Any]
    context: CallContext
    client: str
    """The client's name, as it says itself; empty for the program."""
    principal: str
    """Who was authenticated; empty for the local user."""
    result: dict[str, Any] | None = None
    """After the call, unless it failed."""
    error: Exception | None = None
    """After the call, if it failed or was refused. A result that reports a failure (`isError`) is none."""
    duration: float = 0.0
    """Seconds that the call took, after it."""
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What happened to it on its way: `cache`, `retries`, and so on."""


class Answer(Struct, frozen=True):
    """What a hook returns to give the result itself: before a call, nothing is sent then; after it, in its place."""

    result: Mapping[str, Any] | str
    """A tool result (`content`, `structuredContent`, `isError`), or a text."""


HookFunction = Callable[[HookCall], Any | Awaitable[Any]]
"""Returns None to let the call pass, an `Answer`, or (before a call) a mapping: the arguments to continue with. Raises
`HookRefused` to refuse it. A function that is not async runs on the event loop: it must not take long."""


class Hook(Struct, frozen=True):
    """A function of the program that sees calls; made by `before` and `after`."""

    event: HookEvent
    function: HookFunction
    tools: Sequence[str] = ("*",)
    servers: Sequence[str] = ("*",)
    timeout: float | None = 5.0
    """Seconds, if it is async; None: as long as it likes."""
    failure: HookFailure = "closed"
    name: str = ""

    def __call__(self, call: HookCall) -> Any:
        """The function itself, for tests of it."""
        return self.function(call)


@overload
def before(function: HookFunction, /) -> Hook: ...
@overload
def before(
    *,
    tools: str | Sequence[str] = "*",
    servers: str | Sequence[str] = "*",
    timeout: float | None = 5.0,
    failure: HookFailure = "closed",
    name: str = "",
) -> Callable[[HookFunction], Hook]: ...
def before(
    function: HookFunction | None = None,
    /,
    *,
    tools: str | Sequence[str] = "*",
    servers: str | Sequence[str] = "*",
    timeout: float | None = 5.0,
    failure: HookFailure = "closed",
    name: str = "",
) -> Hook | Callable[[HookFunction], Hook]:
    """Make a function a hook that runs before calls of these tools; it may change, answer or refuse them.

    `tools` are globs of ids (`server/tool`) or of names, `servers` of servers. With `failure="open"` a call continues
    when the function raises something else than a refusal, or takes longer than `timeout` seconds.
    """
    make = _maker("tool_call.before", tools, servers, timeout, failure, name)
    return make if function is None else make(function)


@overload
def after(function: HookFunction, /) -> Hook: ...
@overload
def after(
    *,
    tools: str | Sequence[str] = "*",
    servers: str | Sequence[str] = "*",
    timeout: float | None = 5.0,
    failure: HookFailure = "open",
    name: str = "",
) -> Callable[[HookFunction], Hook]: ...
def after(
    function: HookFunction | None = None,
    /,
    *,
    tools: str | Sequence[str] = "*",
    servers: str | Sequence[str] = "*",
    timeout: float | None = 5.0,
    failure: HookFailure = "open",
    name: str = "",
) -> Hook | Callable[[HookFunction], Hook]:
    """Make a function a hook that runs after calls of these tools, failed and refused ones too; see `before`."""
    make = _maker("tool_call.after", tools, servers, timeout, failure, name)
    return make if function is None else make(function)


def _maker(
    event: HookEvent,
    tools: str | Sequence[str],
    servers: str | Sequence[str],
    timeout: float | None,
    failure: HookFailure,
    name: str,
) -> Callable[[HookFunction], Hook]:
    def make(function: HookFunction) -> Hook:
        called = name or getattr(function, "__name__", "") or type(function).__name__
        return Hook(event, function, _several(tools), _several(servers), timeout, failure, called)

    return make


def _several(globs: str | Sequence[str]) -> Sequence[str]:
    return (globs,) if isinstance(globs, str) else tuple(globs)


class Happening(Struct, eq=False):
    """A call at the moment when its hooks run."""

    tool: Tool
    call: Call
    arguments: bytes = EMPTY_OBJECT
    """As the tool gets them, as far as that is known."""
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    result: Body | None = None
    error: Exception | None = None
    duration: float = 0.0

    def value(self, event: HookEvent) -> HookCall:
        """For a function."""
        call, tool = self.call, self.tool
        return HookCall(
            event,
            self.id,
            tool.id,
            tool.server,
            tool.name,
            msgspec.json.decode(self.arguments) or {},
            call.context,
            call.caller.name,
            call.caller.principal,
            self.result.value() if self.result is not None else None,
            self.error,
            self.duration,
            MappingProxyType(dict(call.facts or {})),
        )

    def document(self, event: HookEvent, *, content: bool) -> bytes:
        """For a program or an address; `content`: with arguments and result."""
        call, tool, context = self.call, self.tool, self.call.context
        described: dict[str, object] = {
            "event": event,
            "id": self.id,
            "tool": tool.id,
            "server": tool.server,
            "name": tool.name,
            "client": call.caller.name,
            "principal": call.caller.principal,
            "user": context.user,
            "tenant": context.tenant,
            "session": context.session.id,
            "run": context.run,
            "metadata": dict(context.metadata),
        }
        if content:
            described["arguments"] = Raw(self.arguments)
        if event == "tool_call.after":
            described["duration"] = round(self.duration, 6)
            described["facts"] = call.facts or {}
            described["is_error"] = self.error is not None or _tells_failure(self.result)
            if self.error is not None:
                described["error"] = _error_to_json(self.error, content=content)
            elif content and self.result is not None:
                described["result"] = Raw(bytes(self.result.data))
        return encode(described)


def _error_to_json(error: Exception, *, content: bool) -> dict[str, object]:
    described: dict[str, object] = {"class": type(error).__name__}
    # The message of an error of the bridge is made for those who call; that of any other may hold anything.
    described["message"] = error.full_message() if isinstance(error, BridgeError) else "an error inside the bridge"
    if content and isinstance(error, UpstreamAnswered):
        described["answer"] = Raw(bytes(error.error))
    return described


def _tells_failure(result: Body | None) -> bool:
    return result is not None and b'"isError"' in bytes(result.data) and bytes(result.get("isError") or b"") == b"true"


ChangeKey = tuple[str, str, str]

MAX_REMEMBERED, LARGEST_REMEMBERED = 1024, 64 * 1024
"""Calls, and bytes of the arguments of one. For what is not remembered its hooks are asked again."""


class Changes:
    """Arguments that hooks put in place of others, by call."""

    def __init__(self) -> None:
        self._changes: OrderedDict[ChangeKey, bytes] = OrderedDict()

    def key(self, call: Call, tool: Tool, sent: Raw | None) -> ChangeKey:
        """By what a call is known again: its session, its tool, and the arguments that its client sends."""
        return call.caller.session.id, tool.id, canonical_digest(sent)

    def of(self, key: ChangeKey) -> bytes | None:
        """The arguments to continue with; empty: those that it has. None: not known."""
        return self._changes.get(key)

    def keep(self, key: ChangeKey, arguments: bytes) -> None:
        """Remember it, if it is not too large."""
        if len(arguments) <= LARGEST_REMEMBERED:
            self._changes[key] = arguments
            self._changes.move_to_end(key)
            if len(self._changes) > MAX_REMEMBERED:
                self._changes.popitem(last=False)

    def drop(self, key: ChangeKey) -> None:
        """It is over."""
        self._changes.pop(key, None)


LARGEST_ANSWER = 1024**2
"""Bytes."""


class HookFailedError(Exception):
    """A hook could not do its work; the message says why, and nothing that the hook itself said."""


class Verdict(Struct, frozen=True):
    """What is to become of the call; at most one is set."""

    arguments: Raw | None = None
    """Those to continue with."""
    result: Body | None = None
    """The result to give."""
    refusal: str | None = None
    """Why it does not pass."""


PASS = Verdict()
"""It continues as it is."""


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    arguments: Raw = Raw()
    result: Raw = Raw()
    refuse: str | None = None


_decode = msgspec.json.Decoder(_Answer).decode


def read_answer(answer: bytes, event: HookEvent) -> Verdict:
    """The verdict that an answer is; blank lets the call pass.

    Raises:
        HookFailedError: it is none, or not one for this event.
    """
    if not answer.strip():
        return PASS
    try:
        read = _decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HookFailedError(_why(error)) from error
    given = [name for name in ("arguments", "result") if bytes(getattr(read, name))]
    given += ["refuse"] if read.refuse is not None else []
    if len(given) > 1:
        raise HookFailedError(f"it answered with `{given[0]}` and `{given[1]}`, of which only one can be")
    if read.refuse is not None:
        return Verdict(refusal=read.refuse.strip() or "it gives no reason")
    if bytes(read.result):
        return Verdict(result=result_of(read.result))
    if bytes(read.arguments):
        if event != "tool_call.before":
            raise HookFailedError("it answered with `arguments`, when the call is over")
        if not Body(read.arguments).is_object:
            raise HookFailedError("the `arguments` of its answer are no object")
        return Verdict(arguments=read.arguments)
    return PASS


def result_of(value: Raw) -> Body:
    """The tool result that a hook gives: a whole one, or a text.

    Raises:
        HookFailedError: it is neither.
    """
    data = bytes(value)
    if data[:1] == b'"':
        return Body(encode({"content": [{"type": "text", "text": Raw(data)}]}))
    result = Body(data)
    if not result.is_object or bytes(result.get("content") or b"")[:1] != b"[":
        raise HookFailedError("the `result` of its answer is no tool result: it has no list `content`")
    return result


def _why(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        return f"its answer is not as it must be: {str(error)[:200]}"
    return "its answer is no JSON"
