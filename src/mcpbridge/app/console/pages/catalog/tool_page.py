"""One tool: its definition as sent, as slimmed and as each client sees it; what switches, pins and hides it."""

import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.admin.catalog_rows import definition_of_off, description_of, switched_off, tool_of
from mcpbridge.app.admin.errors import STATUS_OF, Problem
from mcpbridge.app.admin.tool_switches import set_listing, switch_tool
from mcpbridge.app.admin.tool_views import (
    ANY_CLIENT,
    ClientView,
    client_view,
    forms_of,
    known_clients,
    listing_of,
    search_line,
)
from mcpbridge.app.console.context import ConsoleContext, in_thread
from mcpbridge.app.console.guard import form_of
from mcpbridge.app.console.pages.catalog.try_tool import TryTool, tool_address
from mcpbridge.app.console.pages.scanner_findings import scanner_findings
from mcpbridge.app.console.sign_in import Visit
from mcpbridge.catalog.slim.levels import LEVELS, Level
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.config.edit_servers_toml import Listing
from mcpbridge.core.model import BRIDGE, BUILTIN
from mcpbridge.results.token_count import counter

_LEVELS: Mapping[Level, str] = {
    "off": "As the server sent it",
    "tidy": "Tidied",
    "slim": "Slim",
    "skeleton": "Skeleton",
    "signatures": "Signature",
}


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/catalog/tool` and its parts; what changes a tool."""
    pages = _Tools(console)
    return [
        Route("/catalog/tool", pages.page, methods=["GET"]),
        Route("/catalog/parts/form", pages.form, methods=["GET"]),
        Route("/catalog/parts/client", pages.client, methods=["GET"]),
        Route("/catalog/parts/clients", pages.clients, methods=["GET"]),
        Route("/catalog/switch", pages.switch, methods=["POST"]),
        Route("/catalog/listing", pages.listing, methods=["POST"]),
    ]


class _Tools:
    def __init__(self, console: ConsoleContext) -> None:
        self._console = console
        self._try = TryTool(console)

    async def page(self, request: Request) -> Response:
        """The whole page."""
        console, bridge = self._console, self._console.bridge
        id_ = request.query_params.get("id", "")
        ref = tool_of(bridge, id_)
        if ref is None:
            return await self._off_page(request, id_)
        pinned, globs = listing_of(bridge, ref.id)
        return console.page(
            request,
            "catalog/tool.html",
            ref=ref,
            address=tool_address(ref.id),
            description=description_of(ref.definition),
            is_own=ref.server in (BRIDGE, BUILTIN),
            listing=pinned,
            globs=globs,
            findings=await scanner_findings(console, ref.server, ref.name),
            search_line=search_line(ref),
            search_tokens=self._count(search_line(ref)),
            **await self._forms(request, ref),
            **await self._client(request, ref),
            **self._try.values(request, ref),
        )

    async def _off_page(self, request: Request, id_: str) -> Response:
        """Of a tool that is switched off there is its definition, if its server runs, and the switch."""
        bridge = self._console.bridge
        off = next((one for one in switched_off(bridge) if "/".join(one) == id_), None)
        if off is None:
            raise HTTPException(404, "There is no such tool, or not any more.")
        definition = definition_of_off(bridge, *off)
        return self._console.page(
            request, "catalog/tool_off.html", id=id_, server=off[0], name=off[1], definition=definition
        )

    async def form(self, request: Request) -> Response:
        """The definition as slimmed to another level."""
        ref = self._tool(request)
        return self._console.part(request, "catalog/slimmed.html", ref=ref, **await self._forms(request, ref))

    async def client(self, request: Request) -> Response:
        """The tool as another client sees it."""
        ref = self._tool(request)
        return self._console.part(request, "catalog/client.html", ref=ref, **await self._client(request, ref))

    async def clients(self, request: Request) -> Response:
        """What each client makes of it, in a table."""
        ref, views = self._tool(request), list[ClientView]()
        for name, title in self._known().items():
            views.append(await client_view(self._console.bridge, ref, name, title, self._count))
            await asyncio.sleep(0)  # calls go on in between
        return self._console.part(request, "catalog/clients.html", ref=ref, views=views)

    # -- changing

    async def switch(self, request: Request) -> Response:
        """On or off."""
        form = await form_of(request)
        id_, on = str(form.get("id", "")), form.get("on") == "1"
        visit: Visit = request.state.visitor.visit
        with _refusing():
            await switch_tool(self._console.bridge, id_, on=on, by=f"console:{visit.by}", is_local=visit.is_local)
        return self._changed(id_)

    async def listing(self, request: Request) -> Response:
        """Pinned, hidden, or neither."""
        form = await form_of(request)
        id_, listing = str(form.get("id", "")), _LISTINGS.get(str(form.get("listing", "")))
        with _refusing():
            if listing is None or tool_of(self._console.bridge, id_) is None:
                raise Problem("unknown", "there is no such tool, or no such way to list it")
            await set_listing(self._console.bridge, self._console.reload, id_, listing)
        return self._changed(id_)

    def _changed(self, id_: str) -> Response:
        """Every page is told; this one is shown anew."""
        self._console.forget_status()
        self._console.live.announce("catalog", "servers")
        return RedirectResponse(tool_address(id_), 303)

    # -- parts

    def _tool(self, request: Request) -> ToolRef:
        ref = tool_of(self._console.bridge, request.query_params.get("id", ""))
        if ref is None:
            raise HTTPException(404, "There is no such tool any more.")
        return ref

    async def _forms(self, request: Request, ref: ToolRef) -> dict[str, Any]:
        said = request.query_params.get("level", "slim")
        level = next((one for one in LEVELS if one == said), "slim")
        forms = await in_thread(lambda: forms_of(ref, self._count))
        return {
            "forms": forms,
            "levels": _LEVELS,
            "chosen": next(one for one in forms if one.level == level),
            "sent_tokens": forms[0].tokens,
        }

    async def _client(self, request: Request, ref: ToolRef) -> dict[str, Any]:
        known = self._known()
        said = request.query_params.get("client", next(iter(known)))
        client = said if said in known else ANY_CLIENT
        view = await client_view(self._console.bridge, ref, client, known[client], self._count)
        return {"clients": known, "view": view}

    def _known(self) -> Mapping[str, str]:
        status = self._console.status()
        daemon: Mapping[str, Any] = status.get("daemon") or {}
        return known_clients(self._console.bridge, [str(one["name"])[:200] for one in daemon.get("clients") or ()])

    def _count(self, text: str) -> int:
        return counter(self._console.bridge.settings.results.tokenizer)(text)


_LISTINGS: Mapping[str, Listing] = {"pin": "pin", "hide": "hide", "auto": "auto"}


@contextmanager
def _refusing() -> Generator[None]:
    """What cannot be done is a page that says why."""
    try:
        yield
    except Problem as problem:
        raise HTTPException(STATUS_OF[problem.code], str(problem)) from problem
