"""Profiles: parts of the catalog under a name, as endpoints of their own (`/p/NAME/mcp`) or by `--profile`.

A profile settles what belongs to it by names and tags alone, so a tool that a server adds later belongs to it or not
without anybody asking. It is a view, no permission: who may reach the bridge may reach any of its profiles.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from mcpbridge.catalog.settings import ProfileSettings
from mcpbridge.core.model import BRIDGE, Tool
from mcpbridge.core.source_settings import OfferSettings


class Scope:
    """What belongs to one profile. One object a profile: it is compared by identity."""

    def __init__(self, name: str, settings: ProfileSettings, servers: Mapping[str, OfferSettings]) -> None:
        """`servers`: those of the configuration, for their tags."""
        self.name, self.settings = name, settings
        self._servers = servers
        self._whole: dict[str, bool] = {}
        self._tools: dict[str, bool] = {}

    def has_server(self, server: str) -> bool:
        """Whether prompts and resources of this server belong to it."""
        known = self._whole.get(server)
        if known is None:
            known = self._whole[server] = self._is_named(server) or self._is_tagged(server)
        return known

    def may_have_server(self, server: str) -> bool:
        """Whether tools of this server may belong to it."""
        tools = self.settings.tools
        own = self._servers.get(server)
        if self.has_server(server) or (own is not None and any(tool.tags for tool in own.tool.values())):
            return True
        return not self.settings.servers and any(fnmatchcase(server, glob.partition("/")[0]) for glob in tools)

    def has(self, tool: Tool) -> bool:
        """Whether this tool belongs to it; the bridge's own belong to all."""
        if tool.server == BRIDGE:
            return True
        known = self._tools.get(tool.id)
        if known is None:
            if len(self._tools) > _MOST:
                self._tools.clear()
            known = self._tools[tool.id] = self._has(tool)
        return known

    def _has(self, tool: Tool) -> bool:
        settings = self.settings
        if _matches(settings.exclude, tool.id):
            return False
        server = self._servers.get(tool.server)
        own = server.tool.get(tool.name) if server is not None else None
        if settings.tags and own is not None and any(_matches(settings.tags, tag) for tag in own.tags):
            return True
        if not self.has_server(tool.server):
            return bool(settings.tools) and not settings.servers and _matches(settings.tools, tool.id)
        return not settings.tools or _matches(settings.tools, tool.id)

    def _is_named(self, server: str) -> bool:
        return _matches(self.settings.servers, server)

    def _is_tagged(self, server: str) -> bool:
        settings = self._servers.get(server)
        return settings is not None and any(_matches(self.settings.tags, tag) for tag in settings.tags)


def scopes_of(profiles: Mapping[str, ProfileSettings], servers: Mapping[str, OfferSettings]) -> Mapping[str, Scope]:
    """The scopes of all profiles, by name."""
    return {name: Scope(name, settings, servers) for name, settings in profiles.items()}


_MOST = 100_000
"""Tools that are remembered; a server could list others forever."""


def _matches(globs: "list[str]", name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
