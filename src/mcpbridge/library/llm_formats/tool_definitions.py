"""The tools of a catalog as a model API takes them. Pure."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, Protocol

from msgspec.structs import replace

from mcpbridge.base.errors import FormatError
from mcpbridge.core.tool_calls_and_results import ToolCall
from mcpbridge.library.llm_formats import anthropic, gemini, openai_chat, openai_responses
from mcpbridge.library.llm_formats.gemini import gemini_schema
from mcpbridge.library.llm_formats.messages import Format, Message, name_in
from mcpbridge.library.llm_formats.schemas.from_strict import unstricted
from mcpbridge.library.llm_formats.schemas.parts import Unsayable
from mcpbridge.library.llm_formats.schemas.plain import PROPERTY_NAME, plain_schema
from mcpbridge.library.llm_formats.schemas.strict import Strict, strict_form
from mcpbridge.library.llm_formats.schemas.strict_limits import ANTHROPIC, OPENAI, Spent, refuse_too_large, spending

Strictness = bool | Literal["auto"]
"""Strict where that can be (True), nowhere (False), or only where no rule of the schema is lost by it ("auto")."""

MOST_TOOLS = 128
"""That OpenAI takes in one request."""
LONGEST_DESCRIPTION = 1024
"""Characters that OpenAI's chat completions take of a tool."""


class Described(Protocol):
    """A tool as far as models see it."""

    @property
    def name(self) -> str:
        """Its wire name."""
        ...

    @property
    def description(self) -> str:
        """What it is for."""
        ...

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of its arguments."""
        ...

    @property
    def definition(self) -> Mapping[str, Any]:
        """All of it, as MCP's `tools/list` shows it."""
        ...


class Offered(list[Message]):
    """Tools in one format: JSON objects, to be handed to the API as they are."""

    format: Format
    names: Mapping[str, str]
    """The wire name of each tool, by its name in the format."""
    not_strict: Mapping[str, str]
    """Why a tool is not strict though that was asked for, by its name in the format."""

    def __init__(
        self, tools: Iterable[Message], api: Format, by_name: Mapping[str, Described], not_strict: Mapping[str, str]
    ) -> None:
        super().__init__(tools)
        self.format = api
        self.names = MappingProxyType({name: tool.name for name, tool in by_name.items()})
        self.not_strict = MappingProxyType(dict(not_strict))
        self._by_name = by_name

    def restored(self, calls: Iterable[ToolCall[Any, Any]]) -> list[ToolCall[Any, Any]]:
        """Calls as the model wrote them, under wire names, and without nulls that mean "not given" in a strict call.

        A tool that was not offered keeps the name that it was called by.
        """
        return [self._restored(call) for call in calls]

    def _restored(self, call: ToolCall[Any, Any]) -> ToolCall[Any, Any]:
        tool = self._by_name.get(call.name)
        if tool is None:
            return call
        arguments = call.arguments if call.problem else unstricted(call.arguments, tool.input_schema)
        return replace(call, name=tool.name, arguments=arguments)


def tools_in(api: Format, tools: Iterable[Described], *, strict: Strictness = False) -> Offered:
    """The tools as the format has them; a tool that is there twice is offered once.

    Raises:
        FormatError: they are more than the API takes.
    """
    by_name: dict[str, Described] = {}
    for tool in tools:
        by_name.setdefault(name_in(api, tool.name), tool)
    if api in ("openai", "openai-responses") and len(by_name) > MOST_TOOLS:
        raise FormatError(
            f"OpenAI takes {MOST_TOOLS} tools in a request, and these are {len(by_name)}: "
            'say what they are for (`tools="…"`), name some (`tools=[…]`), or let the model find them'
            ' (`tools=["mcpbridge/find_tools", "mcpbridge/call_tool"]`)'
        )
    offering = _Offering(api, strict)
    listed = [offering.tool(name, tool) for name, tool in by_name.items()]
    return Offered(listed, api, by_name, offering.not_strict)


def _mcp(tool: Described) -> Message:
    listed = dict(tool.definition)
    return {**listed, "name": tool.name, "inputSchema": listed.get("inputSchema") or dict(tool.input_schema)}


class _Offering:
    """The tools of one request on their way."""

    def __init__(self, api: Format, strict: Strictness) -> None:
        self._api: Format = api
        self._strict = strict
        self._spent = Spent()
        self.not_strict: dict[str, str] = {}

    def tool(self, name: str, tool: Described) -> Message:
        """One tool as the format lists it."""
        form = self._strict_form(name, tool.input_schema) if self._strict else None
        match self._api:
            case "openai":
                schema = form.schema if form else plain_schema(tool.input_schema)
                return openai_chat.tool(name, _shortened(tool.description), schema, form is not None)
            case "openai-responses":
                schema = form.schema if form else plain_schema(tool.input_schema)
                return openai_responses.tool(name, tool.description, schema, form is not None)
            case "anthropic":
                schema = form.schema if form else plain_schema(tool.input_schema)
                return anthropic.tool(name, tool.description, schema, form is not None)
            case "gemini":
                return gemini.tool(name, tool.description, gemini_schema(tool.input_schema))
            case "mcp":
                return _mcp(tool)

    def _strict_form(self, name: str, schema: Mapping[str, Any]) -> Strict | None:
        try:
            if self._api in ("gemini", "mcp"):
                raise Unsayable("is in a format that has no strict tools")
            form = strict_form(schema, ANTHROPIC if self._api == "anthropic" else OPENAI)
            if self._strict == "auto" and form.dropped:
                raise Unsayable(f"has rules that strict schemas do not: {', '.join(form.dropped)}")
            if self._api == "anthropic":
                odd = [one for one in form.schema["properties"] if not PROPERTY_NAME.match(one)]
                if odd:
                    raise Unsayable(f"has a property `{odd[0]}`, a name that Anthropic does not take")
                self._spent = self._spent.with_tool(spending(form.schema))
            else:
                refuse_too_large(form.schema)
        except Unsayable as why:
            self.not_strict[name] = str(why)
            return None
        except (RecursionError, TypeError, ValueError):
            self.not_strict[name] = "is no schema that can be read"
            return None
        return form


def _shortened(description: str) -> str:
    if len(description) <= LONGEST_DESCRIPTION:
        return description
    cut = description[: LONGEST_DESCRIPTION - 2]
    head = cut.rsplit(None, 1)[0]
    return f"{head if len(head) > LONGEST_DESCRIPTION // 2 else cut} …"
