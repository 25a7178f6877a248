"""The servers: their state, output and history; adding one, editing servers.toml with a diff, start, stop, sign-in."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.console.call_history import CallHistory
from mcpbridge.app.console.context import ConsoleContext, form_of, in_thread
from mcpbridge.app.console.drafts import Drafts
from mcpbridge.app.console.guard import PREFIX
from mcpbridge.app.console.pages.server_forms import FoundHere, found_in_clients, import_edit, table_of
from mcpbridge.base.errors import BridgeError, ConfigError, StoreFailed
from mcpbridge.config.edit_servers_toml import put_table, remove_table, switch
from mcpbridge.engine.registry.http_rules import RegistryProblem, refuse_over_http
from mcpbridge.engine.registry.rules import settings_as_json
from mcpbridge.storage.call_log.reader import Filter, Row
from mcpbridge.upstream.auth.challenge import Challenge
from mcpbridge.upstream.auth.context import Page
from mcpbridge.upstream.supervisor import Upstream

_EVENTS = 50
"""Events of a server that its page shows."""
_LOCAL_ONLY = (
    "What runs on this machine is decided by a person at this machine: sign in by `mcpbridge ui` to add or edit it."
)


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/servers` and below."""
    pages = _Pages(console)
    return [
        Route("/servers", pages.listed, methods=["GET"]),
        Route("/servers/new", pages.new, methods=["GET"]),
        Route("/servers/new", pages.add, methods=["POST"]),
        Route("/servers/import", pages.take_over, methods=["POST"]),
        Route("/servers/file", pages.file, methods=["GET"]),
        Route("/servers/file", pages.edit_file, methods=["POST"]),
        Route("/servers/drafts/{draft}/write", pages.write, methods=["POST"]),
        Route("/servers/drafts/{draft}/undo", pages.undo, methods=["POST"]),
        Route("/servers/{name}", pages.one, methods=["GET"]),
        Route("/servers/{name}/state", pages.state, methods=["GET"]),
        Route("/servers/{name}/{action}", pages.act, methods=["POST"]),
    ]


class _Pages:
    def __init__(self, console: ConsoleContext) -> None:
        self._console, self._drafts = console, Drafts(console)
        self._history = CallHistory(console.bridge)
        self._sign_ins: dict[str, tuple[asyncio.Task[None], asyncio.Future[Page]]] = {}

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
        return self._console.page(request, "server.html", **await self._values(name))

    async def state(self, request: Request) -> Response:
        """What changes of one while it is looked at."""
        return self._console.part(request, "parts/server_state.html", **await self._values(request.path_params["name"]))

    async def _values(self, name: str) -> dict[str, Any]:
        bridge = self._console.bridge
        server = next((one for one in self._console.status()["servers"] if one["name"] == name), None)
        settings = bridge.settings.servers.get(name)
        if server is None or settings is None:
            raise HTTPException(404, f"No server is called {name[:60]!r}.")
        upstream = bridge.pool.upstreams.get(name)
        authorization = bridge.authorization(name)
        return {
            "server": server,
            "settings": settings_as_json(settings, bridge.redact),
            "capabilities": upstream.capabilities if upstream is not None else {},
            "instructions": upstream.instructions if upstream is not None else "",
            "can_sign_in": authorization is not None,
            "signed_in": authorization is not None and bool(authorization.account.token),
            "runs": upstream is not None and upstream.session is not None,
            "is_url": settings.url is not None,
            "history": await self._events(name),
            "health": [one.as_json() for one in bridge.health_checks.checkups() if one.name == name],
        }

    async def _events(self, name: str) -> list[Row]:
        """The newest events of this server, newest first; none where nothing is recorded, or the log cannot be read."""
        try:
            return [*reversed(await self._history.events(Filter(server=name), limit=_EVENTS, kinds=("server.",)))]
        except StoreFailed:
            return []

    # -- acting

    async def act(self, request: Request) -> Response:
        """Start, stop or restart a server, switch it on or off, sign in or out, or take it out of the file."""
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
                return self._console.page(request, "draft.html", draft=draft, path=str(self._drafts.path))
            upstream = self._console.bridge.pool.upstreams.get(name)
            if upstream is None:
                raise ConfigError(f"{name} is switched off")
            return await self._act_on(request, upstream, action)
        except BridgeError as error:
            return self._refused(request, error)

    async def _act_on(self, request: Request, upstream: Upstream, action: str) -> Response:
        if action == "start":
            upstream.start()
        elif action == "stop":
            upstream.stop()
        elif action == "restart":
            upstream.restart()
        elif action == "sign-in":
            return await self._sign_in(request, upstream)
        elif action == "sign-out":
            authorization = self._console.bridge.authorization(upstream.name)
            if authorization is not None:
                await authorization.account.sign_out()
        else:
            raise HTTPException(404, "There is no such action.")
        return self._done(request, upstream.name)

    async def _sign_in(self, request: Request, upstream: Upstream) -> Response:
        """Show where to sign in; the authorization server's answer comes back to this machine.

        It is a link and no redirect: a browser follows no form to another origin here (`form-action`).
        """
        name = upstream.name
        authorization = self._console.bridge.authorization(name)
        if authorization is None:
            raise ConfigError(f"{name} is not a server to sign in to")
        account, settings = authorization.account, upstream.settings
        shown: asyncio.Future[Page] = asyncio.get_running_loop().create_future()

        async def show(page: Page) -> bool:
            if not shown.done():
                shown.set_result(page)
            return True

        async def sign_in() -> None:
            try:
                challenge = await account.knock(settings.headers, is_sse=settings.kind == "sse")
                await account.sign_in(challenge or Challenge(), show)
                upstream.start()
            except BridgeError as error:
                if not shown.done():
                    shown.set_exception(error)
            finally:
                self._sign_ins.pop(name, None)
                self._console.live.announce("servers")

        if name not in self._sign_ins:
            self._sign_ins[name] = asyncio.create_task(sign_in()), shown
        page = await asyncio.wait_for(asyncio.shield(self._sign_ins[name][1]), 60)
        at = urlsplit(page.url)
        if at.scheme not in ("http", "https"):
            raise ConfigError("the address of the sign-in page is no web address")
        return self._console.page(request, "sign_in_upstream.html", name=name, url=page.url, host=at.netloc)

    def _done(self, request: Request, name: str) -> Response:
        self._console.forget_status()
        self._console.live.announce("servers")
        return RedirectResponse(f"{PREFIX}/servers/{name}", 303)

    # -- servers.toml

    async def new(self, request: Request) -> Response:
        """The form for another server, and those that the clients of this machine have."""
        found: list[FoundHere] = await in_thread(found_in_clients) if request.state.visitor.visit.is_local else []
        known = self._console.bridge.settings.servers
        values: dict[str, Any] = {"found": [one for one in found if one.name not in known], "form": {}, "problem": ""}
        return self._console.page(request, "server_new.html", **values)

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
            values: dict[str, Any] = {"found": [], "form": _texts(form), "problem": _reason(error)}
            return self._console.page(request, "server_new.html", 422, **values)
        return self._console.page(request, "draft.html", draft=draft, path=str(self._drafts.path))

    async def take_over(self, request: Request) -> Response:
        """Show what servers.toml would be with a server that a client has."""
        name = str((await form_of(request)).get("name", ""))
        try:
            self._require_local(request.state.visitor.visit.is_local)
            edit = await in_thread(lambda: import_edit(name, self._drafts.path or Path("servers.toml")))
            draft = await self._drafts.make(f"{name} is taken over from a client", edit)
        except BridgeError as error:
            return self._refused(request, error)
        return self._console.page(request, "draft.html", draft=draft, path=str(self._drafts.path))

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
        return self._console.page(request, "draft.html", draft=draft, path=str(self._drafts.path))

    async def write(self, request: Request) -> Response:
        """Write a draft that was looked at."""
        try:
            draft = await self._drafts.write(request.path_params["draft"])
        except BridgeError as error:
            return self._refused(request, error, 409)
        return self._console.page(request, "written.html", draft=draft, state=self._console.status())

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
