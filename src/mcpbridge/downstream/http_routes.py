"""Which path is which endpoint: the merged one, those of single servers, and those of profiles. Pure.

An endpoint is a server of its own: what a client may see there is settled by the path alone, and a session that was
opened at one of them does not exist at the others.
"""

from collections.abc import Callable, Collection

from mcpbridge.downstream.http_exchange import MERGED, Endpoint, Kind, Refused
from mcpbridge.downstream.settings import HttpSettings

__all__ = ["Routes"]

_SERVERS = "/servers/"
_PROFILES = "/p/"


class Routes:
    """The paths of all endpoints."""

    def __init__(
        self,
        settings: HttpSettings,
        views: Callable[[], Collection[str]],
        profiles: Callable[[], Collection[str]] = tuple,
        backends: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`views` tells the servers that have endpoints of their own now, `profiles` the profiles.

        `backends`: those whose tools come as a server's do, and that have none.
        """
        self._views, self._profiles, self._backends = views, profiles, backends
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
        if path.startswith(_SERVERS):
            kind, name = self._named(path, _SERVERS, "server", self._views())
            return Endpoint(kind, name)
        if path.startswith(_PROFILES):
            kind, name = self._named(path, _PROFILES, "profile", self._profiles())
            return Endpoint(kind, "", name)
        raise Refused(404, f"Nothing is here; MCP is served at {self._path}")

    def _named(self, path: str, begin: str, what: str, names: Collection[str]) -> tuple[Kind, str]:
        name, _, rest = path.removeprefix(begin).partition("/")
        if what == "server" and name not in names and name in self._backends():
            hint = f'a profile serves it alone: [profiles.NAME] servers = ["{name}"], at {_PROFILES}NAME/mcp'
            raise Refused(404, f"{name!r} is of [tools] or a pack, no server with an endpoint of its own; {hint}")
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise Refused(404, f"No {what} is called {name[:64]!r}; known: {known}")
        kind = self._kinds.get(rest.removesuffix("/"))
        if kind is None:
            ways = ", ".join(f"{begin}{name}/{way}" for way in self._kinds)
            raise Refused(404, f"Nothing is here; {what} {name!r} is served at {ways}")
        return kind, name
