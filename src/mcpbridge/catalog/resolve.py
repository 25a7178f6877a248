"""Which tool a `tools/call` means, and with which arguments. Decided once; no later code parses names.

1. A wire name of the catalog is that tool.
2. A name that only this client is listed is the tool it stands for.
3. An alias (`server/tool`, `server.tool`, a bare name that one server has) is its tool; see `lookup`.
4. `NAME | transform: EXPRESSION` is the tool NAME, and its result goes through the expression.
5. `call_tool` is the call in its arguments. It is unwrapped once: it cannot call itself.

Arguments that came as a string with a JSON object in it become that object. Nothing here waits, and nothing is changed:
who asks for tools of a session, or for servers that still start, resolves again with what came of it.
"""

from collections.abc import Callable, Mapping

from msgspec import Raw, Struct

from mcpbridge.base.errors import ArgumentsRefused, BadRequest, UnknownName
from mcpbridge.catalog.snapshot import Snapshot, ToolRef
from mcpbridge.core.model import BRIDGE
from mcpbridge.pipeline.validation.coercion import object_within
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import INVALID_PARAMS
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT, OBJECT_START, first_byte
from mcpbridge.sandbox.javascript.scripts import transform_suffix


class ResolvedCall(Struct, frozen=True):
    """What a `tools/call` means."""

    ref: ToolRef
    name: str
    """As the caller spelled it, without a transform."""
    arguments: Raw | None
    """The arguments for the tool; None: there are none."""
    transform: str = ""
    """The expression that stood behind the name; empty: none did."""
    was_text: bool = False
    """The arguments were a string with an object in it; `arguments` is the object."""
    was_wrapped: bool = False
    """The call stood in the arguments of `call_tool`."""
    has_wrong_arguments: bool = False
    """They are no object. The caller hears so only if it may know that there is such a tool."""


def resolve(
    catalog: Snapshot,
    *,
    name: str,
    params: Body,
    catalog_name: Callable[[str], str],
    may_unwrap: Callable[[ToolRef], bool],
    session_tools: Mapping[str, ToolRef] | None = None,
) -> ResolvedCall:
    """The call that these params of `tools/call` ask for.

    `catalog_name` gives the catalog's name for one that this client alone is listed, and any other name back.
    `may_unwrap` says whether a call of `call_tool` may stand for the call in it; False where rules are about
    `call_tool` itself. `session_tools`: tools that only this session has, asked last.

    Raises:
        UnknownName: no tool has the name, or several do. Its `name` is the one that was looked for.
        ArgumentsRefused: `call_tool` names no tool.
        BadRequest: `call_tool` calls itself.
    """
    ref, transform = catalog.by_wire.get(name), ""
    if ref is None:
        ref, name, transform = _look_up(catalog, name, catalog_name, session_tools, may_transform=True)
    arguments = params.fields.get("arguments")
    was_wrapped = ref.server == BRIDGE and ref.name == "call_tool" and may_unwrap(ref)
    if was_wrapped:
        outer = ref
        name, arguments = inner_call(params)
        ref, name, inner_transform = _look_up(catalog, name, catalog_name, session_tools, may_transform=not transform)
        transform = transform or inner_transform
        if ref.id == outer.id:
            raise BadRequest(INVALID_PARAMS, "call_tool calls other tools, not itself")
    if arguments is None or first_byte(arguments) in _OBJECT_OR_NULL:
        return ResolvedCall(ref, name, arguments, transform, was_wrapped=was_wrapped)
    inside = object_within(arguments)
    return ResolvedCall(ref, name, inside, transform, inside is not None, was_wrapped, inside is None)


def inner_call(params: Body) -> tuple[str, Raw]:
    """Name and arguments of the call in the params of a call of `call_tool`; the arguments are any JSON value.

    Members beside `name` count as arguments where `arguments` is left out.

    Raises:
        ArgumentsRefused: no tool is named.
    """
    outer = params.inner("arguments")
    if outer is None:
        given = params.get("arguments")
        outer = Body((object_within(given) if given is not None else None) or EMPTY_OBJECT)
    members: Mapping[str, Raw] = outer.fields
    name_key = next((key for key in _NAME_KEYS if bytes(members.get(key, b""))[:1] == b'"'), None)
    name = outer.text(name_key) if name_key is not None else ""
    if not name:
        raise ArgumentsRefused("call_tool needs the `name` of a tool, which find_tools finds, and its `arguments`")
    arguments_key = next((key for key in _ARGUMENTS_KEYS if key in members), None)
    rest = {key: value for key, value in members.items() if key not in (name_key, arguments_key)}
    if arguments_key is None:
        arguments = Body()
        for key, value in rest.items():
            arguments.put(key, value)
        return name, Raw(arguments.data)
    if rest:
        stray = ", ".join(sorted(rest))[:200]
        raise ArgumentsRefused(f"call_tool takes `name` and `arguments`: {stray} belongs into `arguments`")
    value = members[arguments_key]
    return name, Raw(EMPTY_OBJECT) if bytes(value) == b"null" else value


_OBJECT_OR_NULL = (OBJECT_START, (b"n",))
_NAME_KEYS = ("name", "tool", "tool_name")
_ARGUMENTS_KEYS = ("arguments", "args", "parameters", "params", "input")
"""Models often take another word than the one in the definition of `call_tool`."""


def _look_up(
    catalog: Snapshot,
    name: str,
    catalog_name: Callable[[str], str],
    session_tools: Mapping[str, ToolRef] | None,
    *,
    may_transform: bool,
) -> tuple[ToolRef, str, str]:
    """The tool of this name, the name without a transform, and the transform; by the rules at the top of the file."""
    name, transform = catalog_name(name), ""
    try:
        return catalog.tool(name), name, transform
    except UnknownName:
        suffixed = transform_suffix(name) if may_transform else None
        if suffixed is None:
            if session_tools is None or name not in session_tools:
                raise
            return session_tools[name], name, transform
    name, transform = suffixed
    ref, name, _ = _look_up(catalog, name, catalog_name, session_tools, may_transform=False)
    return ref, name, transform
