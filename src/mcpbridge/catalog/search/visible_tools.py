"""What one caller may find: the tools, a ranker over them, and a few words on what there is."""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Protocol

from msgspec import Struct

from mcpbridge.catalog.name_index import NameIndex, Names
from mcpbridge.catalog.search.ranker import Ranker
from mcpbridge.catalog.tool_names import bare_names
from mcpbridge.core.model import Call, Tool


class Findable(Tool, Protocol):
    """A tool that may be found. See `ToolRef` for the fields."""

    @property
    def published(self) -> bytes: ...  # noqa: D102 - as in `ToolRef`
    @property
    def app_only(self) -> bool: ...  # noqa: D102 - as in `ToolRef`
    @property
    def task_support(self) -> str: ...  # noqa: D102 - as in `ToolRef`


class VisibleTools(Struct, frozen=True, dict=True):
    """One caller's view of the catalog at one moment. What it works out is kept, so one may serve many calls."""

    tools: Mapping[str, Findable]
    """What the caller may call, by wire name; those for apps only are not found all the same."""
    ranker: Callable[[str], Awaitable[Ranker]]
    """The ranker of a catalog that has these tools, by `Findable.id`; it may have others. It is asked for with the
    query, of which it may want to know beforehand."""
    map_of: Callable[[], str] = str
    """What there is, in a line or two; empty: nobody says."""

    @cached_property
    def by_id(self) -> Mapping[str, Findable]:
        """The tools that can be found, by `server/tool`."""
        return {tool.id: tool for tool in self.tools.values() if not tool.app_only}

    @cached_property
    def map(self) -> str:
        """What `map_of` says; made when it is first asked for."""
        return self.map_of()

    @cached_property
    def wires_by_function(self) -> Mapping[str, str]:
        """Wire names by the names of the functions that the tools are in programs, where these are others."""
        from mcpbridge.catalog.signatures.python_stubs import wires_by_name  # for programs, which few write

        return wires_by_name(wire for wire, tool in self.tools.items() if not tool.app_only)

    @cached_property
    def _names(self) -> "NameIndex[Findable]":
        found = {tool.wire: tool for tool in self.by_id.values()}
        servers = {tool.server for tool in found.values()}

        def names_of(tool: Findable) -> Names:
            name = tool.id.partition("/")[2]
            return Names(tool.server, name, bare_names(tool.server, name, servers))

        return NameIndex("tool", found, names_of)

    def find(self, name: str) -> Findable:
        """The tool of this name: its wire name, `server/tool`, `server.tool`, or a bare name that is unique.

        Raises:
            UnknownName: there is none that can be found, or several; it says which names would do.
        """
        tool = self.tools.get(name)
        return self._names.find(name) if tool is None or tool.app_only else tool


Look = Callable[[Call], Awaitable[VisibleTools]]
"""What who makes a call may find, once the servers had time to start."""
