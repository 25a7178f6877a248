"""Which path is which endpoint: the merged one, and those of single servers. Pure.

An endpoint is a server of its own: what a client may see there is settled by the path alone, and a session that was
opened at one of them does not exist at the others.
"""

from collections.abc import Callable, Collection

from mcpbridge.downstream.http_exchange import MERGED, Endpoint, Kind, Refused
from mcpbridge.downstream.settings import HttpSettings

__all__ = ["Routes"]

_SERVERS = "/servers/"


class Routes:
    """The paths of all endpoints."""

    def __init__(self, settings: HttpSettings, views: Callable[[], Collection[str]]) -> None:
        """`views` tells the servers that have endpoints of their own now."""
        self._views = views
        self._kinds: dict[str, Kind] = {"mcp": "mcp"}
        if settings.sse:
            self._kinds["sse"] = "sse"
        if settings.websocket:
            self._kinds["ws"] = "ws"
        self._path = settings.path
        self._merged = {f"/{name}": Endpoint(kind, "") for name, kind in self._kinds.items() if kind != "mcp"}
        self._merged |= dict.fromkeys((settings.path, settings.path.rstrip("/") + "/"), MERGED)

    def find(self, path: str) -> Endpoint:
        """The endpoint at this path. Ask only for someone who may know what is served.

        Raises:
            Refused: 404, with the paths that would work.
        """
        endpoint = self._merged.get(path)
        if endpoint is not None:
            return endpoint
        if not path.startswith(_SERVERS):
            raise Refused(404, f"Nothing is here; MCP is served at {self._path}")
        name, _, rest = path.removeprefix(_SERVERS).partition("/")
        views = self._views()
        if name not in views:
            known = ", ".join(sorted(views)) or "none"
            raise Refused(404, f"No server is called {name[:64]!r}; known: {known}")
        kind = self._kinds.get(rest.removesuffix("/"))
        if kind is None:
            ways = ", ".join(f"{_SERVERS}{name}/{way}" for way in self._kinds)
            raise Refused(404, f"Nothing is here; server {name!r} is served at {ways}")
        return Endpoint(kind, name)
