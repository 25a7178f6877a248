"""The call logs of all bridges of a fleet, by way of one that runs on this machine."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from mcpbridge.app.admin.control_client import Document
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.output import note, visible
from mcpbridge.app.cli.running_bridges import RunningBridge, survey
from mcpbridge.app.exit_codes import UNREACHABLE, USAGE
from mcpbridge.storage.call_log.query import LogQuery, write_query
from mcpbridge.storage.call_log.reader import Row

_PATIENCE = 15.0
"""Seconds: the bridge that is asked gives the others less."""


class FleetLog:
    """What the bridges have recorded. Each question goes to all of them."""

    def __init__(self, running: RunningBridge, only: str = "") -> None:
        """`only`: the name or id of the one bridge whose calls are wanted."""
        self._running, self._only = running, only
        self._after: Mapping[str, int] = {}
        self._missing: set[str] = set()

    @staticmethod
    def find(config: Path | None, only: str = "") -> "FleetLog | None":
        """By way of a bridge with this configuration; None: none of a fleet runs here."""
        members = [one for one in survey(config).bridges if one.status.get("fleet")]
        return FleetLog(members[0], only) if members else None

    def read(self, query: LogQuery, *, is_next: bool = False) -> Sequence[Row]:
        """The newest rows, oldest first. `is_next`: only those since the last look at the same.

        A bridge that does not say what it has is noted, once for each reason.
        """
        after = dict(self._after) if is_next else dict[str, int]()
        answer = self._running.ask(
            "fleet.log", patience=_PATIENCE, query=dict(write_query(query)), after=after, bridge=self._only
        )
        if "error" in answer:
            self._fail(answer)
        if query.what in ("calls", "events"):
            self._after = {**self._after, **cast("Mapping[str, int]", answer["after"])}
        for one in cast("Sequence[Mapping[str, Any]]", answer["missing"]):
            text = f"what the bridge {one['bridge']} has recorded is missing here: {one['reason']}"
            if text not in self._missing:
                self._missing.add(text)
                note(visible(text))
        rows = cast("Sequence[Row]", answer["rows"])
        return rows if is_next else rows[-query.limit :]

    def _fail(self, answer: Document) -> None:
        if answer.get("code") == "unknown":
            fail(USAGE, str(answer["error"]), "`mcpbridge fleet members` lists all.")
        if answer.get("code") == "unsupported":
            fail(UNREACHABLE, f"process {self._running.pid} is of an older release", "Restart it, or add --here.")
        fail(UNREACHABLE, str(answer["error"]), "With --here, the file of this machine is read.")
