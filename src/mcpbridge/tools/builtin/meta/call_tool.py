"""`call_tool`: calls any tool by its name, listed or not.

The front takes the call that stands in its arguments for the call itself (`downstream/calls.py`), so that policy,
approval, progress, questions, tasks and errors are those of a direct call. Here is how its arguments are read.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.core.call_settings import CallSettings
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT, decode_fields
from mcpbridge.tools.builtin.builtin import UNTREATED
from mcpbridge.tools.builtin.meta.definitions import CALL_TOOL

_NAMES = ("name", "tool", "tool_name")
_ARGUMENTS = ("arguments", "args", "parameters", "params", "input")
"""Models often take another word than the one they are told."""


Within = Callable[[Call, str, Raw], Awaitable[Body]]
"""Makes a call within another: of the tool of this name, with these arguments."""


class CallTool:
    """The tool."""

    def __init__(self, within: Within) -> None:
        """`within`: how the call is made where rules are about `call_tool` itself, which the outer call has to obey."""
        self._within = within

    @property
    def definition(self) -> dict[str, Any]:
        """See `Builtin`."""
        return CALL_TOOL

    @property
    def treatment(self) -> CallSettings:
        """See `Builtin`."""
        return UNTREATED

    async def run(self, call: Call) -> Body:
        """See `Builtin`. Only calls that no front has unwrapped come here.

        Raises:
            ArgumentsRefused: no tool is named.
        """
        name, arguments = inner_call(call.params)
        if bytes(arguments)[:1] != b"{":
            arguments = _object_in_text(arguments)
        if arguments is None:
            raise ArgumentsRefused(f"The arguments of {name[:100]} must be a JSON object")
        return await self._within(call, name, arguments)


def inner_call(params: Body) -> tuple[str, Raw]:
    """Name and arguments of the call in the params of a call of `call_tool`; the arguments are any JSON value.

    Members beside `name` count as arguments where `arguments` is left out.

    Raises:
        ArgumentsRefused: no tool is named.
    """
    outer = params.inner("arguments")
    if outer is None:
        said = params.get("arguments")
        outer = Body((_object_in_text(said) if said is not None else None) or EMPTY_OBJECT)
    members: Mapping[str, Raw] = outer.fields
    key = next((key for key in _NAMES if bytes(members.get(key, b""))[:1] == b'"'), None)
    name = outer.text(key) if key is not None else ""
    if not name:
        raise ArgumentsRefused("call_tool needs the `name` of a tool, which find_tools finds, and its `arguments`")
    given = next((word for word in _ARGUMENTS if word in members), None)
    rest = {word: value for word, value in members.items() if word not in (key, given)}
    if given is None:
        return name, Raw(_joined(rest))
    if rest:
        stray = ", ".join(sorted(rest))[:200]
        raise ArgumentsRefused(f"call_tool takes `name` and `arguments`: {stray} belongs into `arguments`")
    value = members[given]
    return name, Raw(EMPTY_OBJECT) if bytes(value) == b"null" else value


def _object_in_text(said: Raw) -> Raw | None:
    """The object that a JSON string holds as text, as models sometimes send it."""
    try:
        inside = msgspec.json.decode(said, type=str).strip().encode()
        decode_fields(inside)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return Raw(inside)


def _joined(members: Mapping[str, Raw]) -> bytes:
    body = Body()
    for name, value in members.items():
        body.put(name, value)
    return bytes(body.data)
