"""The overview: servers as cards, who is connected, what waits for a person, what was saved today, and the doctor."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, cast

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.admin.stats import savings_of
from mcpbridge.app.console.call_history import CallHistory
from mcpbridge.app.console.context import ConsoleContext
from mcpbridge.app.console.doctor_findings import DoctorFindings
from mcpbridge.app.console.guard import PREFIX
from mcpbridge.app.console.pages.fleet_overview import FleetOverview
from mcpbridge.app.console.pages.sparkline import polyline
from mcpbridge.base.errors import StoreFailed
from mcpbridge.pipeline.observability.metrics import Durations

T = TypeVar("T")

_MINUTES = 60
"""Minutes that the small charts and the rates are of."""
_HISTORY_FRESH = 15.0
"""Seconds for which one reading of the call log serves all pages; it gets new sums once a minute."""
_MEMORY_FRESH = 10.0
_SAVINGS_FRESH = 5.0
_PULSES_FRESH = 1.0
_SHOWN = 10
"""Waiting approvals, and open sessions, that are listed."""


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/` and its parts."""
    overview = _Overview(console)
    return [
        Route("/", overview.page, methods=["GET"]),
        Route("/parts/overview", overview.cards, methods=["GET"]),
        Route("/parts/doctor", overview.doctor, methods=["GET"]),
        Route("/doctor", overview.examine, methods=["POST"]),
    ]


class _Fresh(Generic[T]):
    """A value that is computed again when it is older than so many seconds; pages that ask meanwhile share it."""

    def __init__(self, seconds: float, compute: Callable[[], Awaitable[T]]) -> None:
        self._seconds, self._compute = seconds, compute
        self._lock = asyncio.Lock()
        self._known: tuple[float, T] | None = None

    async def __call__(self) -> T:
        """The value."""
        async with self._lock:
            if self._known is None or time.monotonic() - self._known[0] > self._seconds:
                self._known = time.monotonic(), await self._compute()
            return self._known[1]


class _Overview:
    def __init__(self, console: ConsoleContext) -> None:
        self._console, self._history = console, CallHistory(console.bridge)
        self._findings = DoctorFindings(
            console.bridge, console.redact, changed=partial(console.live.announce, "doctor")
        )
        console.at_end.append(self._findings.end)
        self._fleet = FleetOverview(console)
        self._pulses = _Fresh(_PULSES_FRESH, self._fleet.pulses)
        self._rates = _Fresh(_HISTORY_FRESH, self._read_rates)
        self._memory = _Fresh(_MEMORY_FRESH, self._measure)
        self._savings = _Fresh(_SAVINGS_FRESH, self._read_savings)
        self._rendering = asyncio.Lock()
        self._rendered: tuple[Mapping[str, Any], bytes] | None = None
        """The cards, and the status that they show; every change makes another one."""

    async def page(self, request: Request) -> Response:
        """The whole page. The first time that somebody who may have the doctor look opens it, the doctor does."""
        if request.state.visitor.visit.may_change and not self._findings.has_looked:
            self._findings.examine()
        return self._console.page(request, "overview.html", **await self._values(), doctor=self._findings)

    async def cards(self, request: Request) -> Response:
        """All but the doctor, again. Pages that ask for the same state get the same."""
        status = self._console.status()
        async with self._rendering:
            if self._rendered is None or self._rendered[0] is not status:
                values = await self._values()
                part = self._console.part(request, "parts/overview_cards.html", state=status, **values)
                self._rendered = status, bytes(part.body)
            return HTMLResponse(self._rendered[1])

    async def doctor(self, request: Request) -> Response:
        """What the doctor found."""
        return self._console.part(request, "parts/doctor.html", doctor=self._findings)

    async def examine(self, request: Request) -> Response:
        """Have the doctor look again; it goes on behind the page."""
        self._findings.examine()
        if "hx-request" in request.headers:
            return self._console.part(request, "parts/doctor.html", doctor=self._findings)
        return RedirectResponse(f"{PREFIX}/#doctor", 303)

    async def _values(self) -> dict[str, Any]:
        status, bridge = self._console.status(), self._console.bridge
        waiting = await bridge.approvals.pending()
        rates, memory = await self._rates(), await self._memory()
        fleet = self._fleet.values(await self._pulses()) if self._console.in_fleet else _NO_FLEET
        daemon = cast("Mapping[str, Any]", status.get("daemon") or {})
        sessions: Sequence[Mapping[str, Any]] = ()
        if not daemon.get("clients"):
            found = await self._history.sessions(limit=_SHOWN)
            sessions = [one for one in found if "ended" not in one]
        return {
            "servers": [
                _card(_with_others(server, fleet["elsewhere"]), rates.get(server["name"]), memory, status)
                for server in status["servers"]
            ],
            "bridges": fleet["bridges"],
            "together": fleet["together"],
            "clients": list(daemon.get("clients") or ()),
            "sessions": sessions,
            "savings": await self._savings(),
            "approvals": [one.request for one in waiting[:_SHOWN]],
            "approvals_total": len(waiting),
            "running": fleet["together"].get("running", len(bridge.running_calls())),
            "connected": fleet["together"].get("clients", status["clients"]),
            "now": time.time(),
        }

    async def _read_rates(self) -> Mapping[str, "_Rates"]:
        """By server, what was counted of the last minutes."""
        since = time.time() - _MINUTES * 60
        try:
            if self._console.in_fleet:
                rows = await self._fleet.minutes(since)
            else:
                rows = await self._history.minutes(since, by=("server",))
        except StoreFailed:
            return {}  # the banner says what is wrong with the disk
        rates: dict[str, _Rates] = {}
        for row in rows:
            rates.setdefault(row["server"], _Rates(since)).include(row)
        return rates

    async def _measure(self) -> Mapping[str, int]:
        """By server, bytes that its processes hold."""
        upstreams = [one for one in self._console.bridge.pool.everyone() if hasattr(one.transport, "memory")]
        found = await asyncio.gather(*(cast("Any", one.transport).memory() for one in upstreams))
        held: dict[str, int] = {}
        for upstream, size in zip(upstreams, found, strict=True):
            held[upstream.name] = held.get(upstream.name, 0) + (size or 0)
        return held

    async def _read_savings(self) -> Mapping[str, Any]:
        """What was saved today, by each means."""
        bridge = self._console.bridge
        return await savings_of(bridge.results.ledger, bridge.list_ledger, config=bridge.settings.source)


class _Rates:
    """What was counted of one server, minute by minute."""

    def __init__(self, since: float) -> None:
        self._first = int(since // 60) + 1
        self.calls = [0] * _MINUTES
        self.errors = 0
        self.durations = Durations()

    def include(self, row: Mapping[str, Any]) -> None:
        """Add the sums of one minute."""
        place = int(row["at"] // 60) - self._first
        if 0 <= place < _MINUTES:
            self.calls[place] += row["calls"]
        self.errors += row["errors"]
        for number, count in enumerate(row["buckets"][: len(self.durations.buckets)]):
            self.durations.buckets[number] += count

    @property
    def total(self) -> int:
        """Calls in all."""
        return sum(self.calls)


_TONES = {"ready": "good", "idle": "good", "starting": "info", "disabled": "off", "stopped": "off", "waiting": "info"}


_NO_FLEET: Mapping[str, Any] = {"bridges": (), "together": {}, "elsewhere": {}}


def _with_others(server: Mapping[str, Any], elsewhere: Mapping[str, Sequence[int]]) -> Mapping[str, Any]:
    """A server with its calls at all bridges; all else is what this bridge knows."""
    if server["name"] not in elsewhere:
        return server
    calls, errors = elsewhere[server["name"]]
    return {**server, "calls": server.get("calls", 0) + calls, "errors": server.get("errors", 0) + errors}


def _card(
    server: Mapping[str, Any], rates: _Rates | None, memory: Mapping[str, int], status: Mapping[str, Any]
) -> dict[str, Any]:
    """One server. Rate and latency are of the last hour, where it is recorded and anything was called."""
    is_recent = rates is not None and rates.total > 0
    minutes = max(status["uptime_s"] / 60, 1 / 60)
    return {
        **server,
        "tone": _TONES.get(server["state"], "bad"),
        "per_minute": rates.total / min(_MINUTES, max(minutes, 1)) if rates else server.get("calls", 0) / minutes,
        "latency": rates.durations.summary() if rates and is_recent else server.get("latency") or {},
        "is_recent": is_recent,
        "memory": memory.get(server["name"]) or None,
        "spark": polyline(rates.calls) if rates and is_recent else "",
        "busiest": max(rates.calls) if rates else 0,
    }
