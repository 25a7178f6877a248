"""A client for the HTTP API of a running bridge.

`async with ApiClient("http://127.0.0.1:8808", token=TOKEN) as api`
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, Self, cast
from urllib.parse import quote

import httpx2

from mcpbridge.base.errors import BridgeError

Section = Literal["servers", "tools"]
Keep = bool | Literal["file"]
"""How long a change lasts: as long as the bridge, in its store (True), or in the configuration file."""

_HERE = ("localhost", "127.0.0.1", "::1")


class ApiProblem(BridgeError):
    """The admin API refused a request. `code` is `invalid`, `forbidden`, `unknown`, `exists` or `failed`."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class ApiClient:
    """Manages servers and tools of a bridge while it runs.

    A table is what the configuration file has below `[servers.NAME]` or `[tools.NAME]`; what is run on the machine of
    the bridge (`command`, `function`, …) is refused. What is changed outlives the bridge, in its store, unless `keep`
    is false, or `"file"`: then it is written into the configuration file.

    Cancelling a method ends the waiting alone: what the bridge was asked by then, it does to its end.
    """

    def __init__(self, url: str, *, token: str = "", timeout: float = 60.0) -> None:
        """`url`: where the bridge serves HTTP, without a path; `token`: one with `admin = true`."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
        """Where the bridge is."""
        is_here = httpx2.URL(self.url).host in _HERE  # the token then is no business of a proxy
        self._http = httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=timeout, trust_env=not is_here)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    # -- looking

    async def tools(self, query: str = "", *, server: str = "", limit: int = 5000) -> list[dict[str, Any]]:
        """What is known of each tool, of those that a boolean query holds for (`tag:nlp OR server:github`)."""
        asked = {"query": query, "limit": str(limit), **({"server": server} if server else {})}
        return (await self._ask("GET", "/api/tools", params=asked))["tools"]

    async def tool(self, name: str) -> dict[str, Any]:
        """One tool, by id or name; of one in `[tools.NAME]` also its settings."""
        return await self._ask("GET", _path("tools", name))

    async def servers(self) -> list[dict[str, Any]]:
        """How each server is."""
        return (await self._ask("GET", "/api/servers"))["servers"]

    async def server(self, name: str) -> dict[str, Any]:
        """How one server is, and its settings."""
        return await self._ask("GET", _path("servers", name))

    async def definitions(self, server: str) -> list[dict[str, Any]]:
        """What a server lists: each definition as it was sent (`sent`), and as clients are given it (`given`)."""
        return (await self._ask("GET", f"{_path('servers', server)}/definitions"))["definitions"]

    async def health(self) -> dict[str, Any]:
        """What the last looks found."""
        return await self._ask("GET", "/api/health")

    async def check(self, name: str) -> dict[str, Any]:
        """Look now whether a server, a backend or a tool works."""
        return await self._ask("POST", f"/api/health/{quote(name)}")

    # -- changing

    async def add(
        self, section: Section, name: str, table: Mapping[str, Any], *, replace: bool = False, keep: Keep = True
    ) -> dict[str, Any]:
        """Add a server or tool; `replace`: also in the place of one with this name."""
        kept = _keep_parameter(keep)
        if replace:
            return await self._ask("PUT", _path(section, name), params=kept, json=dict(table))
        return await self._ask("POST", f"/api/{section}", params=kept, json={"name": name, **table})

    async def remove(self, section: Section, name: str, *, keep: Keep = True) -> dict[str, Any]:
        """Take a server or tool out; with `"file"` out of the configuration file."""
        return await self._ask("DELETE", _path(section, name), params=_keep_parameter(keep))

    async def enable(self, section: Section, name: str, *, keep: Keep = True) -> dict[str, Any]:
        """Switch one on; a single tool of a server by its id, `server/tool`, with the section `tools`."""
        return await self._ask("PATCH", _path(section, name), params=_keep_parameter(keep), json={"enabled": True})

    async def disable(self, section: Section, name: str, *, keep: Keep = True) -> dict[str, Any]:
        """Switch one off; as `enable`."""
        return await self._ask("PATCH", _path(section, name), params=_keep_parameter(keep), json={"enabled": False})

    async def command(self, name: str, command: str, data: Mapping[str, Any] | None = None) -> Any:
        """Have a backend do a management command (`warmup`, `reindex`); returns what came of it."""
        path = f"{_path('tools', name)}/commands/{quote(command, safe='')}"
        return (await self._ask("POST", path, json=dict(data or {})))["result"]

    async def _ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        try:
            answer = await self._http.request(method, path, **more)
        except httpx2.HTTPError as error:
            raise ApiProblem(0, "unreachable", f"{self.url} does not answer: {error}") from error
        try:
            value: object = answer.json()
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ApiProblem(answer.status_code, "failed", f"the bridge answered with HTTP {answer.status_code}")
        document = cast("dict[str, Any]", value)
        if answer.is_error:
            wrong = document.get("error")
            error_object = cast("dict[str, Any]", wrong) if isinstance(wrong, dict) else {"message": str(wrong)}
            raise ApiProblem(
                answer.status_code, str(error_object.get("code", "failed")), str(error_object.get("message", ""))
            )
        return document


def _path(section: Section, name: str) -> str:
    return f"/api/{section}/{quote(name, safe='/' if section == 'tools' else '')}"


def _keep_parameter(keep: Keep) -> dict[str, str]:
    return {"keep": keep} if isinstance(keep, str) else {} if keep else {"keep": "false"}
