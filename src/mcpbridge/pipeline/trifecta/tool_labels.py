"""Which labels a tool has: what is set, else what is known of its server, else what it says of itself. Pure.

Of a tool about which nothing is known the worst is assumed, since nobody switches this on who would rather not know:
one that seems to read may read private data and what strangers wrote, and may send something out with its request,
such as in an address that it fetches; any other may send something out.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.call_settings import CallSettings, Labels
from mcpbridge.core.model import BRIDGE, BUILTIN, Tool
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.upstream.settings import ServerSettings

if TYPE_CHECKING:  # the table is loaded where sessions are watched
    from mcpbridge.pipeline.trifecta.known_servers import KnownServer

NONE: Labels = frozenset()
_READS: Labels = frozenset({"private", "untrusted"})
_WRITES: Labels = frozenset({"sends"})
_ALL = _READS | _WRITES


class ToolLabels:
    """The labels of all tools, by one reading of the settings."""

    def __init__(
        self,
        sources: Mapping[str, OfferSettings],
        calls: CallSettings,
        options_of: Callable[[Tool], CallOptions],
        *,
        is_own_function: Callable[[Tool], bool] = lambda tool: False,
    ) -> None:
        """`is_own_function`: a tool is a function of whoever runs the bridge, who can label it."""
        self._sources, self._calls, self._options_of = sources, calls, options_of
        self._is_own_function = is_own_function
        self._servers: dict[str, KnownServer | None] = {}

    def of(self, tool: Tool) -> Labels:
        """The labels of a tool."""
        source = self._sources.get(tool.server)
        own = source.tool.get(tool.name) if source is not None else None
        for level in (own, source, self._calls):
            if level is not None and level.labels is not None:
                return frozenset(level.labels)
        if tool.server == BRIDGE or self._is_own_function(tool):
            return NONE
        if tool.server == BUILTIN:
            from mcpbridge.pipeline.trifecta.known_servers import OWN_TOOLS

            return OWN_TOOLS.get(tool.name, NONE)
        options = self._options_of(tool)
        reads = options.effect == "read" or options.seems_read
        known = self._known(tool.server)
        if known is not None:
            return known.reads if reads else known.writes
        if tool.hints.open_world is False and source is not None and source.trusted:
            return frozenset({"private"}) if reads else NONE
        return _ALL if reads else _WRITES  # what only reads may still fetch an address, and send something with it

    def of_server(self, server: str) -> Labels:
        """What its resources and prompts may hold."""
        source = self._sources.get(server)
        if source is not None and source.labels is not None:
            return frozenset(source.labels) & _READS
        known = self._known(server)
        return known.reads & _READS if known is not None else _READS

    def of_kept(self, tool: str, noted: Collection[str] | None) -> Labels:
        """What a kept result of a tool may hold: `noted` when it came; None: nobody looked, so what its server may."""
        if noted is not None:
            return frozenset(label for label in _READS if label in noted)
        server, _, name = tool.partition("/")
        source = self._sources.get(server)
        own = source.tool.get(name) if source is not None else None
        if own is not None and own.labels is not None:
            return frozenset(own.labels) & _READS
        return NONE if server == BRIDGE else self.of_server(server)

    def _known(self, server: str) -> "KnownServer | None":
        if server not in self._servers:
            from mcpbridge.pipeline.trifecta.known_servers import known_server

            settings = self._sources.get(server)
            self._servers[server] = (
                known_server(settings.command, settings.args, settings.image, settings.url)
                if isinstance(settings, ServerSettings)
                else None
            )
        return self._servers[server]
