"""The parts of the HTTP API about servers and tools: what there is, what comes and goes, and whether it works.

Nothing here can add or change what is run on this machine: see `engine/registry/http_rules.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mcpbridge.app.admin.errors import Problem
from mcpbridge.app.admin.result_routes import Endpoint
from mcpbridge.base.errors import BridgeError, ConfigError, StoreFailed, UnknownName
from mcpbridge.base.masking.known_values import known_only, masked
from mcpbridge.catalog.search.query_filters import QueryProblem
from mcpbridge.config.needs_restart import Reloaded
from mcpbridge.engine.registry.http_rules import RegistryProblem, Section, refuse_over_http
from mcpbridge.engine.registry.registry import Keep
from mcpbridge.engine.registry.rules import settings_as_json
from mcpbridge.library.bridge import Bridge

ReadObject = Callable[[Request], Any]
"""Reads the JSON object of a request; a coroutine."""

_MOST = 5000


def registry_routes(bridge: Bridge, guarded: Callable[[Endpoint], Endpoint], read: ReadObject) -> list[Route]:
    """`/api/tools`, `/api/servers`, `/api/health`."""
    routes = _Routes(bridge, read)
    made: list[tuple[str, Callable[..., Any], list[str]]] = [
        ("/api/tools", routes.list_tools, ["GET"]),
        ("/api/tools", routes.add("tools"), ["POST"]),
        ("/api/tools/{name}/commands/{command}", routes.command, ["POST"]),
        ("/api/tools/{name:path}", routes.show_tool, ["GET"]),
        ("/api/tools/{name:path}", routes.put("tools"), ["PUT"]),
        ("/api/tools/{name:path}", routes.switch("tools"), ["PATCH"]),
        ("/api/tools/{name:path}", routes.remove("tools"), ["DELETE"]),
        ("/api/servers", routes.list_servers, ["GET"]),
        ("/api/servers", routes.add("servers"), ["POST"]),
        ("/api/servers/{name}", routes.show_server, ["GET"]),
        ("/api/servers/{name}/definitions", routes.list_originals, ["GET"]),
        ("/api/servers/{name}", routes.put("servers"), ["PUT"]),
        ("/api/servers/{name}", routes.switch("servers"), ["PATCH"]),
        ("/api/servers/{name}", routes.remove("servers"), ["DELETE"]),
        ("/api/health", routes.health, ["GET"]),
        ("/api/health/{name:path}", routes.check, ["POST"]),
    ]
    return [Route(path, guarded(_with_problems(endpoint, bridge)), methods=methods) for path, endpoint, methods in made]


def _with_problems(endpoint: Callable[[Request], Any], bridge: Bridge) -> Endpoint:
    """Problems of the bridge, as problems of the API."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except RegistryProblem as problem:
            code, told = problem.code, str(problem)
        except (QueryProblem, ConfigError) as error:
            code, told = "invalid", str(error)
        except UnknownName as error:
            code, told = "unknown", error.full_message()
        except StoreFailed as error:
            way_out = "nothing was changed (`keep=false` does without the store)"
            if bridge.settings.fleet.listen is not None:
                way_out = (
                    "nothing was changed yet. It may take effect when the store answers: look before you repeat it"
                )
            code, told = "failed", f"{error}; {way_out}"
        except BridgeError as error:
            code, told = "failed", error.full_message()
        raise Problem(code, bridge.redact(told))

    return answer


class _Routes:
    def __init__(self, bridge: Bridge, read: ReadObject) -> None:
        self._bridge, self._read = bridge, read

    # -- reading

    async def list_tools(self, request: Request) -> Response:
        """Every tool; `query`: a boolean query over them, `limit`, `server`."""
        asked = request.query_params
        limit = _number(asked.get("limit", str(_MOST)))
        found = self._bridge.representations(asked.get("query", ""))
        if server := asked.get("server"):
            found = [one for one in found if one.server == server]
        return JSONResponse({"total": len(found), "tools": [one.as_json() for one in found[:limit]]})

    async def show_tool(self, request: Request) -> Response:
        """A tool by id (`server/tool`) or name; or the settings of what stands in `[tools.NAME]`."""
        name = request.path_params["name"]
        of_backend = self._bridge.settings.tools.get(name)
        found = [one for one in self._bridge.representations() if name in (one.id, one.name) or one.server == name]
        if not found and of_backend is None:
            raise RegistryProblem("unknown", f"there is no tool {name[:200]!r}")
        shown: dict[str, Any] = {"tools": [one.as_json() for one in found]}
        if of_backend is not None:
            shown["settings"] = settings_as_json(of_backend, self._bridge.redact)
            shown["registry"] = self._registry_entry("tools", name)
            shown["backend"] = next((one for one in self._bridge.backends.status() if one["name"] == name), None)
        return JSONResponse(shown)

    async def list_servers(self, request: Request) -> Response:
        """Every server and how it is; those that are switched off too."""
        return JSONResponse({"servers": self._bridge.status()["servers"]})

    async def show_server(self, request: Request) -> Response:
        """One server: how it is, what is set of it, secrets masked, and what was said of it while it runs."""
        name = request.path_params["name"]
        settings = self._bridge.registry.require("servers", name)
        standing = next((one for one in self._bridge.status()["servers"] if one["name"] == name), {"name": name})
        return JSONResponse(
            {
                **standing,
                "settings": settings_as_json(settings, self._bridge.redact),
                "registry": self._registry_entry("servers", name),
            }
        )

    async def list_originals(self, request: Request) -> Response:
        """What a server lists: each definition as it was sent, and as clients are given it."""
        name = request.path_params["name"]
        self._bridge.registry.require("servers", name)
        found = self._bridge.originals(name)
        return JSONResponse({"definitions": [msgspec.to_builtins(one) for one in found]})

    def _registry_entry(self, section: Section, name: str) -> dict[str, Any] | None:
        said = self._bridge.registry.status()
        return next((one for one in said if (one["section"], one["name"]) == (section, name)), None)

    async def health(self, request: Request) -> Response:
        """What the last looks found."""
        checks = [one.as_json() for one in self._bridge.health_checks.checkups()]
        return JSONResponse({"ok": all(one["ok"] for one in checks), "checks": checks})

    async def check(self, request: Request) -> Response:
        """Look now at a server, a backend or a tool."""
        return JSONResponse((await self._bridge.health_checks.check(request.path_params["name"])).as_json())

    async def command(self, request: Request) -> Response:
        """Have a backend do a management command (`warmup`, `reindex`); the body is its data."""
        name, command = request.path_params["name"], request.path_params["command"]
        result = await self._bridge.command(name, command, await self._read(request))
        try:
            shown = masked(result, known_only(self._bridge.redact))
            return JSONResponse({"name": name, "command": command, "result": shown})
        except (TypeError, ValueError) as error:
            raise Problem("failed", f"{command!r} of {name!r} returned what is no JSON") from error

    # -- changing

    def add(self, section: Section) -> Callable[[Request], Any]:
        """Add one: `{"name": …, …what its table has…}`."""

        async def added(request: Request) -> Response:
            table = dict(await self._read(request))
            name = table.pop("name", None)
            if not isinstance(name, str) or not name:
                raise RegistryProblem("invalid", "`name` is missing")
            done = await self._put(section, name, table, request, may_replace=False)
            return JSONResponse({"name": name, **_changes(done)}, 201)

        return added

    def put(self, section: Section) -> Callable[[Request], Any]:
        """Add one, or put it in the place of the one with this name."""

        async def put(request: Request) -> Response:
            name, table = request.path_params["name"], dict(await self._read(request))
            table.pop("name", None)
            return JSONResponse(
                {"name": name, **_changes(await self._put(section, name, table, request, may_replace=True))}
            )

        return put

    async def _put(
        self, section: Section, name: str, table: Mapping[str, Any], request: Request, *, may_replace: bool
    ) -> Reloaded:
        refuse_over_http(section, table, variables=self._bridge.settings.http.api_variables)
        self._bridge.registry.refuse_local(section, name)
        self._bridge.registry.refuse_switching_on(section, name, "")
        by, keep = _by(request), _keep(request)
        return await self._bridge.registry.put(section, name, table, may_replace=may_replace, by=by, keep=keep)

    def remove(self, section: Section) -> Callable[[Request], Any]:
        """Take one out."""

        async def removed(request: Request) -> Response:
            name, keep = request.path_params["name"], _keep(request)
            if keep == "file":
                self._bridge.registry.refuse_local(section, name, removes=True)
            done = await self._bridge.registry.remove(section, name, by=_by(request), keep=keep)
            return JSONResponse({"name": name, **_changes(done)})

        return removed

    def switch(self, section: Section) -> Callable[[Request], Any]:
        """Switch one on or off: `{"enabled": false}`; a tool of a server by its id, or as `{"tool": …}` of it."""

        async def switched(request: Request) -> Response:
            said = cast("dict[str, Any]", await self._read(request))
            on, tool = said.get("enabled"), said.get("tool", "")
            if not isinstance(on, bool) or not isinstance(tool, str) or said.keys() - {"enabled", "tool"}:
                raise RegistryProblem(
                    "invalid", 'expected {"enabled": true} or {"enabled": false}, perhaps with "tool"'
                )
            of, name, tool = self._bridge.registry.owner(section, request.path_params["name"], tool)
            if on:
                self._bridge.registry.refuse_switching_on(of, name, tool)
            keep = _keep(request)
            if keep == "file":
                what = "what is switched is not written to the file over HTTP: `mcpbridge enable` and `disable` do that"
                raise RegistryProblem("invalid", what)
            done = await self._bridge.registry.switch(of, name, on=on, tool=tool, by=_by(request), keep=keep)
            return JSONResponse({"name": request.path_params["name"], "enabled": on, **_changes(done)})

        return switched


def _changes(done: Reloaded) -> dict[str, Any]:
    return {"changed": done.to_json()}


def _by(request: Request) -> str:
    return f"api:{request.state.principal or 'admin'}"


def _keep(request: Request) -> Keep:
    """How long it lasts: beyond the bridge, in its store, unless `keep=false` or `keep=file` says otherwise."""
    said = request.query_params.get("keep", "true")
    if said not in ("true", "false", "file"):
        raise RegistryProblem("invalid", "`keep` is true, false or file")
    return "file" if said == "file" else said == "true"


def _number(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= _MOST:
        raise RegistryProblem("invalid", f"`limit` must be a number from 1 to {_MOST}")
    return int(text)
