"""The call logs of all bridges of a fleet, by way of one that runs on this machine."""

from collections.abc import Mapping, Sequence
from time import time
from typing import Any, cast

from mcpbridge.app.cli.calls.fleet_member import ask_fleet
from mcpbridge.app.cli.output import note, visible
from mcpbridge.app.cli.running_bridges import RunningBridge
from mcpbridge.storage.call_log.query import LogQuery, write_query
from mcpbridge.storage.call_log.reader import Row


class FleetLog:
    """What the bridges have recorded. Each question goes to all of them."""

    look_every = 1.0
    """Seconds between two looks with `--follow`."""

    def __init__(self, running: RunningBridge, only: str = "") -> None:
        """`only`: the name or id of the one bridge whose calls are wanted."""
        self._running, self._only = running, only
        self._after: Mapping[str, int] = {}
        self._missing: set[str] = set()
        self._began = time()

    def read(self, query: LogQuery, *, is_next: bool = False) -> Sequence[Row]:
        """The newest rows, oldest first. `is_next`: only those since the last look at the same.

        A bridge that does not say what it has is noted, once for each reason. Of one that was not there at the first
        look, what it recorded before that is no news.
        """
        after = dict(self._after) if is_next else dict[str, int]()
        answer = ask_fleet(
            self._running,
            "fleet.log",
            query=dict(write_query(query)),
            after=after,
            since=self._began if is_next else None,
            bridge=self._only,
        )
        if query.what in ("calls", "events"):
            self._after = {**self._after, **cast("Mapping[str, int]", answer["after"])}
        for one in cast("Sequence[Mapping[str, Any]]", answer["missing"]):
            text = f"what the bridge {one['bridge']} has recorded is missing here: {one['reason']}"
            if text not in self._missing:
                self._missing.add(text)
                note(visible(text))
        rows = cast("Sequence[Row]", answer["rows"])
        return rows if is_next else rows[-query.limit :]
