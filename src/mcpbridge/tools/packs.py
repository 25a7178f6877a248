"""Packs: modules that bring several tools at once, with templates of what those take and give, and commands.

A pack is made in Python and named in the configuration (`packs = ["weather", "pkg.mod:pack"]`): a plain name is an
entry point of the group `mcpbridge.packs`, anything else an object in a module, installed or beside the configuration.
Nothing is loaded that is not named. Its tools come as those of a server do: `weather/forecast`.

Templates are JSON values or texts with places that are filled from another JSON value: `{city}` is a member,
`{days.0.high}` a member of an item of a member; `{}` is the whole value, `{{` and `}}` are plain braces. A text that is
one place and nothing else becomes the value itself; in a longer text the value becomes text. There are no attributes,
calls or formats, so a template reads only what it is given. What `{name?}` names may be missing: it is null then, or no
text, and a member of it is left out.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Self, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from mcpbridge.base.errors import BridgeError, ConfigError, UnknownName, UpstreamError
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT
from mcpbridge.tools.backend import BackendContext, Health
from mcpbridge.tools.python.backend import PythonBackend
from mcpbridge.tools.python.function import FunctionTool, tool_of
from mcpbridge.tools.python.import_object import NotImportable, import_object
from mcpbridge.tools.python.output import Misshapen, failure, json_of
from mcpbridge.tools.python.run_context.context import Init
from mcpbridge.tools.python.signature import Unusable, decoded
from mcpbridge.tools.settings import BackendSettings, pack_name

_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"[^.{}?]+(\.[^.{}?]+)*\??")

_MISSING: Any = object()


class TemplateFailed(Exception):
    """A template is none, or what it needs is not there; the message says which."""


def places_of(template: object) -> dict[str, bool]:
    """The paths that a template names, and whether what they name must be there.

    Raises:
        TemplateFailed: it is none.
    """
    found: dict[str, bool] = {}
    if isinstance(template, str):
        for match in _PLACE.finditer(template):
            if match[0] not in ("{{", "}}"):
                path = _path(match)
                found[path] = found.get(path, False) or not match[0].endswith("?}")
        return found
    if isinstance(template, Mapping):
        parts = list(cast("Mapping[str, object]", template).values())
    else:
        parts = list(cast("Sequence[object]", template)) if isinstance(template, list | tuple) else []
    for part in parts:
        for path, is_needed in places_of(part).items():
            found[path] = found.get(path, False) or is_needed
    return found


def filled(template: object, value: object) -> Any:
    """The template with its places filled from `value`.

    Raises:
        TemplateFailed: it is none, or names what is not there.
    """
    found = _filled(template, value)
    return None if found is _MISSING else found


def _filled(template: object, value: object) -> Any:
    if isinstance(template, str):
        return _text(template, value)
    if isinstance(template, Mapping):
        members = cast("Mapping[str, object]", template)
        loaded = {name: _filled(member, value) for name, member in members.items()}
        return {name: member for name, member in loaded.items() if member is not _MISSING}
    if isinstance(template, list | tuple):
        items = [_filled(item, value) for item in cast("Sequence[object]", template)]
        return [item for item in items if item is not _MISSING]
    return template


def _text(template: str, value: object) -> Any:
    whole = _PLACE.fullmatch(template)
    if whole is not None and whole[0] not in ("{{", "}}"):
        return _value_at(whole, value)

    def put(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        found = _value_at(match, value)
        if found is _MISSING or found is None:
            return ""
        return found if isinstance(found, str) else msgspec.json.encode(found).decode()

    return _PLACE.sub(put, template)


def _path(match: re.Match[str]) -> str:
    written = match[1]
    if written is None or (written and not _NAME.fullmatch(written)):
        raise TemplateFailed(f"`{match[0][:60]}` is no place: write {{name}}, {{a.b}} or {{}}, and {{{{ for a brace")
    return written.removesuffix("?")


def _value_at(match: re.Match[str], value: object) -> Any:
    path = _path(match)
    for part in path.split(".") if path else ():
        if isinstance(value, Mapping):
            value = cast("Mapping[str, object]", value).get(part, _MISSING)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < 10:
            items = cast("list[object]", value)
            value = items[int(part)] if int(part) < len(items) else _MISSING
        else:
            value = _MISSING
        if value is _MISSING:
            if match[0].endswith("?}"):
                return _MISSING
            raise TemplateFailed(f"there is no `{path}`")
    return value


class PackTool(Struct, frozen=True, kw_only=True):
    """One tool of a pack. What is left out comes from the function: its signature, its docstring."""

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
    loaded = tool_of(name, tool.function, said, context_init=tool.context_init)
    definition = dict(loaded.definition)
    if tool.input is not None:
        definition["inputSchema"] = tool.input_schema or _schema_of(tool.input)
    if tool.output is None:
        return Member(replace(loaded, definition=definition), tool.input)
    if tool.output_schema is None:  # what the function returns is not what comes out
        definition.pop("outputSchema", None)
        loaded = replace(loaded, output_check=None)
    return Member(replace(loaded, definition=definition, shape=partial(_shaped, tool.output)), tool.input)


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


GROUP = "mcpbridge.packs"
"""The group of entry points that packs are found in."""


class PackBackend(PythonBackend[Members]):
    """The tools of one pack. Meets `Backend`; `call.target` names the tool."""

    kind: Literal["pack"] = "pack"

    def __init__(self, reference: str, context: BackendContext | None = None, *, name: str | None = None) -> None:
        """`reference`: as in `packs` of the configuration. `name`: of the backend; left out, as `pack_name`."""
        super().__init__(name or pack_name(reference), BackendSettings(), context, source=reference)

    @classmethod
    def of(cls, pack: Pack) -> Self:
        """A pack of the program itself.

        Raises:
            ConfigError: it cannot be used; says why.
        """
        loaded = cls(pack.name, name=pack.name)
        try:
            loaded._given = loaded._loaded = looked_at(pack)
        except Unusable as error:
            raise ConfigError(str(error), key=pack.name) from error
        return loaded

    def _bring_in(self, directory: Path) -> Members:
        return looked_at(_loaded(self._source, directory))

    def _tools_of(self, loaded: Members) -> Sequence[Mapping[str, Any]]:
        return [member.tool.definition for member in loaded.by_name.values()]

    async def run(self, call: Call) -> Body:
        """See `Backend`."""
        members = self._there(call.upstream).by_name
        member = members.get(call.target)
        if member is None:
            raise UnknownName("tool", call.target, candidates=sorted(members))
        try:
            arguments = member.arguments(call.params.get("arguments"))
        except TemplateFailed as error:
            return failure(f"The arguments of '{call.target}' are not enough: {error}")
        return await member.tool.run(call, self._invoker, arguments)

    async def check(self) -> Health:
        """See `Backend`. Asks the pack's `check`, if it has one."""
        if missing := await self._looked_at():
            return missing
        members = self._there(self._name)
        if members.pack.check is None:
            return Health(ok=True, detail=f"{len(members.by_name)} tools")
        return await self._invoker.health(members.pack.check)

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """See `Backend`."""
        commands = self._there(self._name).pack.commands
        if name not in commands:
            raise UnknownName("command", name, candidates=sorted(commands))
        try:
            found = await self._commands.value(commands[name], (dict(data),))
            return cast("object", msgspec.json.decode(json_of(found)))
        except BridgeError:
            raise
        except Exception as error:
            self._invoker.log_failure("a command failed", error, tool=self._name, command=name)
            raise UpstreamError(
                self._name, f"the command '{name}' failed: {self._invoker.describe_error(error)}"
            ) from error


def _loaded(reference: str, directory: Path) -> Pack:
    """The pack that the configuration names. Runs the user's code: not on an event loop.

    Raises:
        NotImportable, Unusable: there is none.
    """
    found = import_object(reference, directory) if ":" in reference else _entry(reference, directory)
    if isinstance(found, ModuleType):
        found = getattr(found, "pack", found)
    if not isinstance(found, Pack) and callable(found):
        try:
            found = found()
        except BaseException as error:
            raise NotImportable(f"it cannot be made: {type(error).__name__}: {str(error)[:500]}") from error
    if not isinstance(found, Pack):
        raise Unusable(f"it is no `Pack` but {type(found).__name__}")
    return found


def _entry(name: str, directory: Path) -> object:
    from importlib.metadata import entry_points

    entries = entry_points(group=GROUP)
    entry = next((one for one in entries if one.name == name), None)
    if entry is None:
        known = ", ".join(sorted({one.name for one in entries})) or "none"
        raise Unusable(f"no installed package has a pack of this name; there are: {known}")
    return import_object(entry.value if ":" in entry.value else f"{entry.value}:pack", directory)
