"""The servers: their state, output and history; adding one, editing servers.toml with a diff, start, stop."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.client_config.discover.discovered_servers import Problem
from mcpbridge.app.console.call_history import CallHistory
from mcpbridge.app.console.context import ConsoleContext, in_thread
from mcpbridge.app.console.drafts import Draft, Drafts
from mcpbridge.app.console.guard import PREFIX, form_of
from mcpbridge.app.console.pages.calls.event_words import tone_of, words_of
from mcpbridge.app.console.pages.scanner_findings import scanner_findings
from mcpbridge.app.console.pages.server_forms import FoundHere, found_in_clients, table_of, take_over
from mcpbridge.app.console.pages.server_sign_in import SignInPages
from mcpbridge.base.errors import BridgeError, ConfigError, StoreFailed
from mcpbridge.config.edit_servers_toml import put_table, remove_table, switch
from mcpbridge.config.origins import Value, effective_values
from mcpbridge.engine.registry.http_rules import RegistryProblem, refuse_over_http
from mcpbridge.engine.registry.rules import settings_as_json
from mcpbridge.storage.call_log.reader import Filter
from mcpbridge.upstream.supervisor import Upstream
from mcpbridge.upstream.transports.stdio import KEPT_LINE_LENGTH, StdioTransport

_EVENTS = 50
"""Events of a server that its page shows."""
_LINES = 200
"""Lines of its output that are shown."""
_LOCAL_ONLY = (
    "What runs on this machine is decided by a person at this machine: sign in by `mcpbridge ui` to add or edit it."
)


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/servers` and below."""
    sign_ins = SignInPages(console)
    pages = _Pages(console, sign_ins)
    return [
        Route("/servers", pages.listed, methods=["GET"]),
        Route("/configuration/new", pages.new, methods=["GET"]),
        Route("/configuration/new", pages.add, methods=["POST"]),
        Route("/configuration/import", pages.take_over, methods=["POST"]),
        Route("/configuration/file", pages.file, methods=["GET"]),
        Route("/configuration/file", pages.edit_file, methods=["POST"]),
        Route("/configuration/drafts/{draft}", pages.draft, methods=["GET"]),
        Route("/configuration/drafts/{draft}/write", pages.write, methods=["POST"]),
        Route("/configuration/drafts/{draft}/undo", pages.undo, methods=["POST"]),
        Route("/servers/{name}", pages.one, methods=["GET"]),
        Route("/servers/{name}/state", pages.state, methods=["GET"]),
        Route("/servers/{name}/findings", pages.findings, methods=["GET"]),
        Route("/servers/{name}/output", pages.output, methods=["GET"]),
        Route("/servers/{name}/history", pages.history, methods=["GET"]),
        *sign_ins.routes(),
        Route("/servers/{name}/{action}", pages.act, methods=["POST"]),
    ]


class _Pages:
    def __init__(self, console: ConsoleContext, sign_ins: SignInPages) -> None:
        self._console, self._drafts = console, Drafts(console)
        self._history = CallHistory(console.bridge)
        self._sign_ins = sign_ins

    # -- looking

    async def listed(self, request: Request) -> Response:
        """All servers, and what can be done about them."""
        values: dict[str, Any] = {"servers": self._console.status()["servers"]}
        if "hx-request" in request.headers:
            return self._console.part(request, "parts/servers_table.html", **values)
        return self._console.page(request, "servers.html", **values)

    async def one(self, request: Request) -> Response:
        """One server."""
        name = request.path_params["name"]
        values = {**await self._values(name), **self._output(name), **await self._happened(name)}
        values |= {"values": await self._written(name), "findings": await scanner_findings(self._console, name)}
        return self._console.page(request, "server.html", **values)

    async def state(self, request: Request) -> Response:
        """What changes of one while it is looked at."""
        return self._console.part(request, "parts/server_state.html", **await self._values(request.path_params["name"]))

    async def findings(self, request: Request) -> Response:
        """What the scanner finds in its texts."""
        found = await scanner_findings(self._console, request.path_params["name"])
        return self._console.part(request, "parts/findings.html", findings=found)

    async def output(self, request: Request) -> Response:
        """The last lines that it wrote to standard error."""
        return self._console.part(request, "parts/server_output.html", **self._output(request.path_params["name"]))

    async def history(self, request: Request) -> Response:
        """What happened to it."""
        values = await self._happened(request.path_params["name"])
        return self._console.part(request, "parts/server_history.html", **values)

    async def _values(self, name: str) -> dict[str, Any]:
        bridge = self._console.bridge
        server = next((one for one in self._console.status()["servers"] if one["name"] == name), None)
        settings = bridge.settings.servers.get(name)
        if server is None or settings is None:
            raise HTTPException(404, f"No server is called {name[:60]!r}.")
        upstream = bridge.pool.upstreams.get(name)
        return {
            "server": server,
            "settings": settings_as_json(settings, bridge.redact),
            "capabilities": upstream.capabilities if upstream is not None else {},
            "instructions": upstream.instructions if upstream is not None else "",
            **await self._sign_ins.values(name),
            "runs": upstream is not None and upstream.session is not None,
            "is_url": settings.url is not None,
            "health": [one.as_json() for one in bridge.health_checks.checkups() if one.name == name],
        }

    async def _written(self, name: str) -> list[Value]:
        """What the file says of it, as the page of the settings shows it; nothing where the file is no TOML."""
        try:
            document = tomllib.loads(await self._drafts.text())
        except (ConfigError, tomllib.TOMLDecodeError):
            return []
        bridge, prefix = self._console.bridge, f"servers.{name}."
        values = effective_values(bridge.settings, document, bridge.redact)
        return [replace(one, key=one.key.removeprefix(prefix)) for one in values if one.key.startswith(prefix)]

    def _output(self, name: str) -> dict[str, Any]:
        """The lines of all its processes, also of those that are gone; None: the bridge sees none of it."""
        transports = [one.transport for one in self._console.bridge.pool.everyone() if one.name == name]
        found = [one.stderr_between(0, math.inf) for one in transports if isinstance(one, StdioTransport)]
        lines = sorted(line for lines in found for line in lines)[-_LINES:] if found else None
        return {"lines": lines, "longest": KEPT_LINE_LENGTH}

    async def _happened(self, name: str) -> dict[str, Any]:
        """The newest events of this server, newest first; none where nothing is recorded, or the log cannot be read."""
        try:
            rows = await self._history.events(Filter(server=name), limit=_EVENTS, kinds=("server.",))
        except StoreFailed:
            rows = ()
        values = {"happened": [*reversed(rows)], "history": self._history}
        return {**values, "tone_of": tone_of, "words_of": words_of}

    # -- acting

    async def act(self, request: Request) -> Response:
        """Start, stop or restart a server, switch it on or off, or take it out of the file."""
        name, action = request.path_params["name"], request.path_params["action"]
        visit = request.state.visitor.visit
        try:
            if action in ("enable", "disable"):
                if action == "enable":  # as over the API: what the file switches off is this user's to switch on
                    self._require_local(visit.is_local)
                draft = await self._drafts.make(
                    f"{name} is switched {'on' if action == 'enable' else 'off'}",
                    lambda text: switch(text, "servers", name, on=action == "enable"),
                )
                await self._drafts.write(draft.id)
                return self._done(request, name)
            if action == "remove":
                self._require_local(visit.is_local)
                draft = await self._drafts.make(
                    f"{name} is taken out", lambda text: remove_table(text, "servers", name)
                )
                return self._to_draft(draft)
            upstream = self._console.bridge.pool.upstreams.get(name)
            if upstream is None:
                raise ConfigError(f"{name} is switched off")
            return self._act_on(request, upstream, action)
        except BridgeError as error:
            return self._refused(request, error)

    def _act_on(self, request: Request, upstream: Upstream, action: str) -> Response:
        if action == "start":
            upstream.start()
        elif action == "stop":
            upstream.stop()
        elif action == "restart":
            upstream.restart()
        else:
            raise HTTPException(404, "There is no such action.")
        return self._done(request, upstream.name)

    def _done(self, request: Request, name: str) -> Response:
        self._console.forget_status()
        self._console.live.announce("servers")
        return RedirectResponse(f"{PREFIX}/servers/{name}", 303)

    # -- servers.toml

    async def new(self, request: Request) -> Response:
        """The form for another server, and those that the clients of this machine have."""
        return self._console.page(request, "server_new.html", **await self._new_values(request))

    async def _new_values(self, request: Request) -> dict[str, Any]:
        found: list[FoundHere] = []
        problems: list[Problem] = []
        if request.state.visitor.visit.is_local:
            found, problems = await in_thread(found_in_clients)
        known = self._console.bridge.settings.servers
        found = [one for one in found if one.name not in known]
        return {"found": found, "unreadable": problems, "form": {}, "problem": ""}

    async def add(self, request: Request) -> Response:
        """Show what servers.toml would be with it."""
        form = await form_of(request)
        name = str(form.get("name", "")).strip()
        try:
            table = table_of(form)
            if not request.state.visitor.visit.is_local:
                _refuse_here(table)
            draft = await self._drafts.make(f"{name} is added", lambda text: put_table(text, "servers", name, table))
        except BridgeError as error:
            values = {**await self._new_values(request), "form": _texts(form), "problem": _reason(error)}
            return self._console.page(request, "server_new.html", 422, **values)
        return self._to_draft(draft)

    async def take_over(self, request: Request) -> Response:
        """Show what servers.toml would be with a server that a client has."""
        form = await form_of(request)
        name, client, file = (str(form.get(key, "")) for key in ("name", "client", "file"))
        try:
            self._require_local(request.state.visitor.visit.is_local)
            path = self._drafts.path or Path("servers.toml")
            taken = await in_thread(lambda: take_over(name, client, file, path))
            what = f"{name} is taken over from a client"
            draft = await self._drafts.make(what, taken.edit, notes=taken.notes, prepare=taken.prepare)
        except BridgeError as error:
            return self._refused(request, error)
        return self._to_draft(draft)

    async def file(self, request: Request) -> Response:
        """servers.toml, to be edited as it is."""
        try:
            self._require_local(request.state.visitor.visit.is_local)
            values: dict[str, Any] = {"text": await self._drafts.text(), "path": str(self._drafts.path), "problem": ""}
        except BridgeError as error:
            return self._refused(request, error)
        return self._console.page(request, "servers_file.html", **values)

    async def edit_file(self, request: Request) -> Response:
        """Show what changes, or what is wrong with it."""
        form = await form_of(request)
        text = str(form.get("text", "")).replace("\r\n", "\n")
        try:
            self._require_local(request.state.visitor.visit.is_local)
            draft = await self._drafts.make("servers.toml is edited", lambda _: text)
        except BridgeError as error:
            values: dict[str, Any] = {"text": text, "path": str(self._drafts.path), "problem": _reason(error)}
            return self._console.page(request, "servers_file.html", 422, **values)
        return self._to_draft(draft)

    def _to_draft(self, draft: Draft) -> Response:
        return RedirectResponse(f"{PREFIX}/configuration/drafts/{draft.id}", 303)

    async def draft(self, request: Request) -> Response:
        """What a draft changes; once it is written, that it is."""
        found = self._drafts.find(request.path_params["draft"])
        if found is None:
            raise HTTPException(404, "This change is not there any more: make it again.")
        draft, is_written = found
        template = "written.html" if is_written else "draft.html"
        return self._console.page(request, template, draft=draft, path=str(self._drafts.path))

    async def write(self, request: Request) -> Response:
        """Write a draft that was looked at."""
        try:
            return self._to_draft(await self._drafts.write(request.path_params["draft"]))
        except BridgeError as error:
            return self._refused(request, error, 409)

    async def undo(self, request: Request) -> Response:
        """Take a change back."""
        try:
            await self._drafts.undo(request.path_params["draft"])
        except BridgeError as error:
            return self._refused(request, error, 409)
        return RedirectResponse(f"{PREFIX}/servers", 303)

    def _require_local(self, is_local: bool) -> None:
        if not is_local:
            raise ConfigError(_LOCAL_ONLY)

    def _refused(self, request: Request, error: BridgeError, status: int = 422) -> Response:
        return self._console.page(request, "error.html", status, problem=_reason(error), code=status)


def _reason(error: BridgeError) -> str:
    advice = getattr(error, "advice", "")
    return f"{error} {advice}".strip() if advice else str(error)


def _refuse_here(table: Mapping[str, Any]) -> None:
    """Raise unless the table could come over the API as well: who is elsewhere decides nothing about this machine."""
    try:
        refuse_over_http("servers", table)
    except RegistryProblem as problem:
        raise ConfigError(f"{problem}. {_LOCAL_ONLY}") from None


def _texts(form: FormData) -> dict[str, str]:
    return {name: value for name, value in form.multi_items() if isinstance(value, str)}
