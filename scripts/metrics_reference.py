"""Write the table of metrics into docs/reference/metrics.md, from a document of `/metrics`.

    python scripts/metrics_reference.py            write the table anew
    python scripts/metrics_reference.py --check    exit with 1 if it is not what would be written

The table is between `<!-- metrics -->` and `<!-- end -->`; the rest of the page is written by people. It is read off
what a bridge would serve that has counted one call of each kind, so a new metric comes along by itself.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcpbridge.app.admin.prometheus import exposition
from mcpbridge.app.fleet.metrics import FleetNumbers, add_fleet
from mcpbridge.pipeline.observability.metrics import Metrics

PAGE = Path(__file__).resolve().parents[1] / "docs/reference/metrics.md"

_BLOCK = re.compile(r"(<!-- metrics -->\n).*?(<!-- end -->)", re.DOTALL)


class Example:
    """A bridge that has counted something of everything."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        series = self.metrics.series("files", "files/read", "tools/call", "cursor")
        series.ended("ok", 0.03, 0.02, 9, 4001)
        series.went_wrong("refused", "NotPermitted")
        series.went_wrong("failed", "UpstreamTimeout")
        series.took_note({"approval": "once by ann"})
        series.rewrote("preview", came=900, sent=100, stored=890)

    def status(self) -> Mapping[str, Any]:
        """Of one server, which was looked at."""
        server = {"name": "files", "transport": "stdio", "state": "ready", "running": 1, "braked": "", "restarts": 4}
        health = [{"name": "files", "kind": "server", "ok": True}]
        return {"version": "1", "uptime_s": 1, "clients": 1, "servers": [server], "health": health}


FLEET = FleetNumbers(
    name="bridge-1",
    id="0123456789",
    members=3,
    draining=0,
    other_settings=0,
    is_draining=False,
    has_lease=True,
    lease_age=0.5,
    sessions=1,
    links=2,
    unreachable=0,
    forwarded={"answered": 1},
    taken_over=1,
    handed_on=1,
    store_failures=1,
    bounds=(0.001,),
    round_trips=[1, 1],
    round_trip_seconds=0.0003,
)
"""A bridge of a fleet."""


def table() -> str:
    """A row for each metric: its name, kind and labels, and what it counts."""
    text = exposition(Example(), more=lambda: lambda page: add_fleet(page, FLEET))[0].decode()
    rows = ["| metric | kind | labels | |", "|---|---|---|---|"]
    for name, meaning, kind in re.findall(r"^# HELP (\S+) (.+)\n# TYPE \1 (\w+)$", text, re.MULTILINE):
        [labels, *_] = re.findall(rf"^{name}(?:_bucket)?(?:\{{(.*)\}})? \S+$", text, re.MULTILINE)
        names = ", ".join(f"`{label}`" for label in re.findall(r'(\w+)="', labels) if label != "le")
        rows.append(f"| `{name}` | {kind} | {names} | {meaning} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    """Write the page, or compare it."""
    text = PAGE.read_text("utf-8")
    fresh = _BLOCK.sub(lambda found: f"{found[1]}{table()}{found[2]}", text)
    if sys.argv[1:] == ["--check"]:
        if text == fresh:
            return 0
        print(f"{PAGE.name} is not what `/metrics` serves: run `make docs`", file=sys.stderr)
        return 1
    PAGE.write_text(fresh, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
