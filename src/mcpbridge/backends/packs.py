"""Packs: modules that bring several tools at once, with templates of what those take and give, and commands.

A pack is made in Python and named in the configuration (`packs = ["weather", "pkg.mod:pack"]`): a plain name is an
entry point of the group `mcpbridge.packs`, anything else an object in a module, installed or beside the configuration.
Nothing is loaded that is not named. Its tools come as those of a server do: `weather/forecast`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Self, cast

import msgspec

from mcpbridge.backends.backend import Health, Surroundings
from mcpbridge.backends.outputs import failure, json_of
from mcpbridge.backends.pack_members import Members, Pack, PackTool, looked_at
from mcpbridge.backends.pack_names import pack_name
from mcpbridge.backends.python_backend import PythonBackend
from mcpbridge.backends.python_names import NotImportable, import_object
from mcpbridge.backends.settings import BackendSettings
from mcpbridge.backends.signatures import Unusable
from mcpbridge.backends.templates import TemplateFailed
from mcpbridge.errors import BridgeError, ConfigError, UnknownName, UpstreamError
from mcpbridge.model import Call
from mcpbridge.wire.body import Body

__all__ = ["GROUP", "Pack", "PackBackend", "PackTool", "pack_name"]

GROUP = "mcpbridge.packs"
"""The group of entry points that packs are found in."""


class PackBackend(PythonBackend[Members]):
    """The tools of one pack. Meets `Backend`; `call.target` tells which tool."""

    kind: Literal["pack"] = "pack"

    def __init__(self, reference: str, around: Surroundings | None = None, *, name: str | None = None) -> None:
        """`reference`: as in `packs` of the configuration. `name`: of the backend; left out, as `pack_name`."""
        super().__init__(name or pack_name(reference), BackendSettings(), around, source=reference)

    @classmethod
    def of(cls, pack: Pack) -> Self:
        """A pack of the program itself.

        Raises:
            ConfigError: it cannot be used; says why.
        """
        made = cls(pack.name, name=pack.name)
        try:
            made._given = made._made = looked_at(pack)
        except Unusable as error:
            raise ConfigError(str(error), key=pack.name) from error
        return made

    def _bring_in(self, directory: Path) -> Members:
        return looked_at(_loaded(self._source, directory))

    def _tools_of(self, made: Members) -> Sequence[Mapping[str, Any]]:
        return [member.tool.definition for member in made.by_name.values()]

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
            raise UpstreamError(self._name, f"the command '{name}' failed: {self._invoker.told(error)}") from error


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
