"""All tools, prompts and resources, a page at a time; and the search for tools, with what made its ranking."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast
from urllib.parse import urlencode

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.admin.catalog_rows import KINDS, RowKind, RowPage, catalog_page, entry_of
from mcpbridge.app.admin.search_document import search_document
from mcpbridge.app.console.context import ConsoleContext, in_thread
from mcpbridge.app.console.guard import PREFIX
from mcpbridge.base.errors import CallRefused
from mcpbridge.catalog.slim.slim import visible
from mcpbridge.downstream.client import Client
from mcpbridge.protocol.revisions import LATEST_LEGACY
from mcpbridge.results.token_count import counter

ROWS = 100
"""Rows of one page."""
_LIMITS = (8, 16, 50)
_LONGEST_QUERY = 4000
_TITLES: Mapping[RowKind, str] = {
    "tools": "Tools",
    "prompts": "Prompts",
    "resources": "Resources",
    "templates": "Templates",
}
_KINDS: Mapping[str, RowKind] = {kind: kind for kind in KINDS}
_BAR = 100.0
"""Width of the bar of a score of 1."""


class Asked(Struct, frozen=True):
    """What the address asks for."""

    kind: RowKind
    server: str
    name: str
    page: int
    query: str
    limit: int
    profile: str

    def link(self, **other: object) -> str:
        """The address of the list with something else in it."""
        said = {"kind": self.kind, "server": self.server, "name": self.name, "page": self.page, **other}
        kept = {key: value for key, value in said.items() if value and (key, value) not in _USUAL}
        return f"{PREFIX}/catalog{'?' if kept else ''}{urlencode(kept)}"


_USUAL = (("kind", "tools"), ("page", 1), ("limit", _LIMITS[0]))


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/catalog` and its parts."""
    pages = _Lists(console)
    return [
        Route("/catalog", pages.page, methods=["GET"]),
        Route("/catalog/parts/rows", pages.rows, methods=["GET"]),
        Route("/catalog/parts/found", pages.search_results, methods=["GET"]),
        Route("/catalog/entry", pages.entry, methods=["GET"]),
    ]


class _Lists:
    def __init__(self, console: ConsoleContext) -> None:
        self._console = console

    async def page(self, request: Request) -> Response:
        asked = _asked(request)
        values = {**await self._rows(asked), **await self._search(asked)}
        return self._console.page(request, "catalog/list.html", **values)

    async def rows(self, request: Request) -> Response:
        return self._console.part(request, "catalog/rows.html", **await self._rows(_asked(request)))

    async def search_results(self, request: Request) -> Response:
        """What was found; the address of the page says from then on what for."""
        asked = _asked(request)
        answer = self._console.part(request, "catalog/found.html", **await self._search(asked))
        said = {"q": asked.query, "limit": asked.limit, "profile": asked.profile}
        query = urlencode({key: value for key, value in said.items() if value and (key, value) not in _USUAL})
        answer.headers["HX-Replace-Url"] = f"{PREFIX}/catalog{'?' if query else ''}{query}"
        return answer

    async def entry(self, request: Request) -> Response:
        """A prompt, a resource or a template: its definition."""
        kind, id_ = _kind(request), request.query_params.get("id", "")
        ref = entry_of(self._console.bridge, kind, id_) if kind != "tools" else None
        if ref is None:
            raise HTTPException(404, "The catalog has no such entry, or not any more.")
        count = counter(self._console.bridge.settings.results.tokenizer)
        return self._console.page(
            request,
            "catalog/entry.html",
            title=_TITLES[kind],
            kind=kind,
            id=id_,
            ref=ref,
            tokens=count(visible(ref.published)),
        )

    async def _rows(self, asked: Asked) -> dict[str, Any]:
        bridge = self._console.bridge
        bridge.catalog.flush()
        page: RowPage = await in_thread(
            partial(
                catalog_page,
                bridge,
                asked.kind,
                server=asked.server,
                contains=asked.name,
                start=(asked.page - 1) * ROWS,
                limit=ROWS,
                count=counter(bridge.settings.results.tokenizer),
            )
        )
        pages = max(1, -(-page.total // ROWS))
        return {
            "asked": asked,
            "rows": page,
            "kinds": [(kind, _TITLES[kind], page.counts[kind]) for kind in KINDS],
            "pages_total": pages,
            "previous": asked.link(page=asked.page - 1) if asked.page > 1 else "",
            "following": asked.link(page=asked.page + 1) if asked.page < pages else "",
            "dropped": [one for one in bridge.catalog.snapshot.dropped if one.kind == asked.kind][:ROWS],
        }

    async def _search(self, asked: Asked) -> dict[str, Any]:
        bridge = self._console.bridge
        values: dict[str, Any] = {
            "asked": asked,
            "limits": _LIMITS,
            "profiles": sorted(bridge.settings.profiles),
            "found": None,
            "problem": "",
        }
        if not asked.query.strip():
            return values
        client = Client(version=LATEST_LEGACY, profile_name=asked.profile)
        try:
            document = await search_document(
                bridge, client, asked.query, limit=asked.limit, detail="signatures", explains=True
            )
        except CallRefused as refused:
            return {**values, "problem": refused.full_message()}
        tools = cast("list[dict[str, Any]]", document["tools"] or document.get("nearest", []))
        count = counter(bridge.settings.results.tokenizer)
        values["found"] = {
            **document,
            "tools": [{**tool, "bar": _bar(tool)} for tool in tools],
            "tokens": count(document["text"]),
        }
        return values


def _asked(request: Request) -> Asked:
    said = request.query_params
    profile = said.get("profile", "")
    page, limit = said.get("page", "1"), said.get("limit", "8")
    return Asked(
        _kind(request),
        said.get("server", ""),
        said.get("name", "")[:200],
        max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 6 else 1,
        said.get("q", "")[:_LONGEST_QUERY],
        int(limit) if limit in map(str, _LIMITS) else _LIMITS[0],
        profile[:200],
    )


def _kind(request: Request) -> RowKind:
    return _KINDS.get(request.query_params.get("kind", ""), "tools")


class Segment(Struct, frozen=True):
    """A piece of the bar of a score."""

    name: str
    x: float
    width: float
    points: float


def _bar(tool: Mapping[str, Any]) -> list[Segment]:
    """The parts of a score, side by side; a tool that is named has one of its own."""
    why = tool["why"]
    if "words" not in why:
        return [Segment("named", 0.0, _BAR, 1.0)]
    parts = [
        ("words", sum(word["points"] for word in why["words"] if not word["implied"])),
        ("implied words", sum(word["points"] for word in why["words"] if word["implied"])),
        ("vectors", why["vectors"]["points"]),
        ("asked for", why["asked"]),
        ("name", why["name"]),
        ("model", why.get("model", {}).get("points", 0.0)),
        ("used before", why.get("feedback", 0.0)),
    ]
    segments: list[Segment] = []
    x = 0.0
    for name, points in parts:
        width = min(points, max(0.0, 1 - x / _BAR)) * _BAR
        if width > 0:
            segments.append(Segment(name, round(x, 2), round(width, 2), points))
            x += width
    return segments
