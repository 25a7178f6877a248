"""How the bridges of a fleet are: a row for each, all of them together, and what their servers were called."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from mcpbridge.app.console.context import ConsoleContext
from mcpbridge.app.fleet.desk import Pulse
from mcpbridge.storage.call_log.query import LogQuery, write_query
from mcpbridge.storage.call_log.reader import Filter, Row

_WINDOW = 60.0
"""Seconds that rates are of, if somebody has looked for so long."""
_SHORTEST = 0.9
"""Seconds that a rate is of at least."""
_SUMS = ("running", "called", "errors", "clients")


class FleetOverview:
    """What the overview says of the bridges of a fleet; empty where there is none."""

    def __init__(self, console: ConsoleContext) -> None:
        self._console = console
        self._counted: dict[str, deque[tuple[float, int]]] = {}
        """By the id of a bridge, when it was asked, and its calls so far."""

    async def pulses(self) -> Sequence[Pulse]:
        """What each bridge says of itself. Cancelling is safe."""
        if self._console.fleet is None or not self._console.in_fleet:
            return ()
        found = await self._console.fleet.pulses(of_others=False)
        now, known = time.monotonic(), {one.id for one in found if one.counts}
        self._counted = {id_: counted for id_, counted in self._counted.items() if id_ in known}
        for one in found:
            if one.counts:
                counted = self._counted.setdefault(one.id, deque())
                counted.append((now, one.counts["called"]))
                while len(counted) > 2 and now - counted[1][0] > _WINDOW:
                    counted.popleft()
        return found

    def values(self, pulses: Sequence[Pulse]) -> dict[str, Any]:
        """`bridges`: a row for each; `together`: their sums; `elsewhere`: by server, calls and failures at others."""
        members = {one["id"]: one for one in self._console.status().get("fleet", {}).get("bridges", ())}
        rows = [self._row(one, members.get(one.id)) for one in pulses]
        answering = [row for row in rows if not row["problem"]]
        rates = [row["rate"] for row in answering if row["rate"] is not None]
        together = {name: sum(row[name] for row in answering) for name in _SUMS}
        elsewhere: dict[str, list[int]] = {}
        for one in pulses:
            if one.id in members and not members[one.id]["is_this"]:
                for server, (calls, errors) in one.counts.get("servers", {}).items():
                    sums = elsewhere.setdefault(server, [0, 0])
                    sums[0], sums[1] = sums[0] + calls, sums[1] + errors
        return {
            "bridges": rows,
            "together": {**together, "rate": sum(rates) if rates else None, "silent": len(rows) - len(answering)},
            "elsewhere": elsewhere,
        }

    def _row(self, pulse: Pulse, member: Mapping[str, Any] | None) -> dict[str, Any]:
        known = member or {"version": "", "since": "", "draining": False, "same_settings": True, "is_this": False}
        counts = {name: pulse.counts.get(name, 0) for name in _SUMS}
        return {**known, **counts, "name": pulse.bridge, "problem": pulse.problem, "rate": self._rate(pulse.id)}

    def _rate(self, id_: str) -> float | None:
        """Calls a second; None: nobody has looked for long enough."""
        counted = self._counted.get(id_)
        if not counted or counted[-1][0] - counted[0][0] < _SHORTEST:
            return None
        return max(0, counted[-1][1] - counted[0][1]) / (counted[-1][0] - counted[0][0])

    async def minutes(self, since: float) -> Sequence[Row]:
        """What the bridges that answer have counted minute by minute of each server; see `read_minutes`."""
        if self._console.fleet is None or not self._console.in_fleet:
            return ()
        query = write_query(LogQuery("minutes", Filter(since=since), by=["server"]))
        answers = await self._console.fleet.ask(query, anew=False)
        return [row for one in answers for row in one.rows]
