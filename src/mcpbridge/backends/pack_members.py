"""What a pack is, and its tools, looked at."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from mcpbridge.backends.contexts import Init
from mcpbridge.backends.function_tool import FunctionTool, tool_of
from mcpbridge.backends.outputs import Misshapen, json_of
from mcpbridge.backends.signatures import Unusable, decoded
from mcpbridge.backends.templates import TemplateFailed, filled, places_of
from mcpbridge.wire.frame import EMPTY_OBJECT

__all__ = ["Member", "Members", "Pack", "PackTool", "looked_at"]


class PackTool(Struct, frozen=True, kw_only=True):
    """One tool of a pack. What is left out is told by the function: its signature, its docstring."""

    function: Callable[..., Any]
    name: str = ""
    """Left out: the function's own."""
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    """Of what clients give. With an `input`, left out: an object with what that names."""
    output_schema: dict[str, Any] | None = None
    event_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] = {}
    input: dict[str, Any] | None = None
    """The template of the function's arguments, filled from those that clients give. Left out: these as they are."""
    output: Any = None
    """The template of the result, filled from what the function returns. Left out: that as it is."""
    context_init: Init | None = None
    """Makes the first value of each run, where the function takes a `Context[...]`. Left out: its type's defaults."""


class Pack(Struct, frozen=True, kw_only=True):
    """Tools that belong together."""

    name: str
    tools: Sequence[PackTool | Callable[..., Any]]
    """Functions stand for tools of which nothing more is said."""
    description: str = ""
    commands: Mapping[str, Callable[..., Any]] = {}
    """Management commands by name; each is called with its data, an object, and returns a JSON value."""
    check: Callable[[], Any] | None = None
    """Says whether it works: raises, or returns False or a text. None: it works whenever it is there."""


class Member(Struct, frozen=True):
    """A tool of a pack that was looked at."""

    tool: FunctionTool
    input: Mapping[str, Any] | None

    def arguments(self, raw: Raw | None) -> bytes | None:
        """What the function gets for what a client gave; None: the same.

        Raises:
            TemplateFailed: what the template names is not there.
        """
        if self.input is None:
            return None
        return json_of(filled(self.input, decoded(EMPTY_OBJECT if raw is None else bytes(raw))))


class Members(Struct, frozen=True):
    """A pack that was looked at."""

    pack: Pack
    by_name: Mapping[str, Member]


def looked_at(pack: Pack) -> Members:
    """Look at every tool of a pack.

    Raises:
        Unusable: one of them cannot be a tool; names it.
    """
    members: dict[str, Member] = {}
    for one in pack.tools:
        tool = one if isinstance(one, PackTool) else PackTool(function=one)
        name = tool.name or str(getattr(tool.function, "__name__", ""))
        if not name or name in members:
            raise Unusable(f"'{name}' of the pack '{pack.name}': every tool needs a name of its own")
        try:
            members[name] = _member(name, tool)
        except (Unusable, TemplateFailed) as error:
            raise Unusable(f"'{name}' of the pack '{pack.name}': {error}") from error
    return Members(pack, members)


def _member(name: str, tool: PackTool) -> Member:
    places_of(tool.output)  # a template that is none is told now
    said = replace(tool, input_schema=None) if tool.input is not None else tool
    made = tool_of(name, tool.function, said, context_init=tool.context_init)
    definition = dict(made.definition)
    if tool.input is not None:
        definition["inputSchema"] = tool.input_schema or _schema_of(tool.input)
    if tool.output is None:
        return Member(replace(made, definition=definition), tool.input)
    if tool.output_schema is None:  # what the function returns is not what comes out
        definition.pop("outputSchema", None)
        made = replace(made, output_check=None)
    return Member(replace(made, definition=definition, shape=partial(_shaped, tool.output)), tool.input)


def _shaped(template: object, value: object) -> object:
    try:
        return filled(template, msgspec.json.decode(json_of(value)))
    except TemplateFailed as error:
        raise Misshapen(f"the template of its result cannot be filled: {error}") from error


def _schema_of(template: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of what a template of arguments names, of which only the names are known."""
    needed: dict[str, bool] = {}
    for path, is_needed in places_of(template).items():
        name = path.partition(".")[0]
        if name:
            needed[name] = needed.get(name, False) or is_needed
    schema: dict[str, Any] = {"type": "object", "properties": {name: {} for name in sorted(needed)}}
    required = sorted(name for name, is_needed in needed.items() if is_needed)
    return {**schema, "required": required} if required else schema
