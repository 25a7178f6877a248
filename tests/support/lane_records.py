"""What both lanes record of calls; see `lane_steps.py`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from mcpbridge.storage.call_log.reader import Filter, read_call, read_calls
from support.lane_steps import Message, ModernTalk, Talk, outcome, stable

VERSIONS = st.sampled_from(
    [
        *[("2025-11-25", "2025-11-25"), ("2025-06-18", "2025-11-25"), ("2024-11-05", "2025-06-18")],
        *[("2025-11-25", "2026-07-28"), ("2025-06-18", "2026-07-28"), ("2024-11-05", "2026-07-28")],
    ]
)
MODERN_CLIENTS = [("2026-07-28", "2026-07-28"), ("2026-07-28", "2025-11-25"), ("2026-07-28", "2024-11-05")]


def talk_of(versions: tuple[str, str]) -> type[Talk]:
    """The client of this revision."""
    return ModernTalk if versions[0] >= "2026-07-28" else Talk


async def recorded(
    steps: Sequence[str],
    versions: tuple[str, str],
    folder: Path,
    *,
    is_express: bool,
    enabled: bool | None = None,
    settings: Message | None = None,
) -> Message:
    """The same of a user's own bridge, which records calls, and its records. `enabled`: of the call log."""
    files: dict[str, Any] = {
        "store": {"path": str(folder / "store.db")},
        "call_log": {"path": str(folder / "calls.db"), **({} if enabled is None else {"enabled": enabled})},
    }
    found = await outcome(
        steps, versions, is_express=is_express, mode="own", client=talk_of(versions), settings=settings, **files
    )
    file = folder / "calls.db"
    rows = [read_call(file, row["uid"]) for row in read_calls(file, Filter(), limit=1000)]
    return {**found, "records": sorted(json.dumps(record(row or {}), sort_keys=True) for row in rows)}


def record(row: Mapping[str, Any]) -> Message:
    """A record without times and what is random. Its stages lie within the call, and each within those around it."""
    assert row["uid"]
    came, left = 0.0, float("inf")
    for _, began, ended in row["stages"]:  # in milliseconds, outermost first
        assert came <= began <= ended <= left, row["stages"]
        came, left = began, ended
    stages = [name for name, _, _ in row["stages"]]
    chance = ("at", "seconds", "uid", "stages", "session", "handle", "id", "running")
    kept = {name: value for name, value in row.items() if name not in chance}
    kept["result"] = {name: value for name, value in row.get("result", {}).items() if name != "sha256"}
    kept["facts"] = {name: value for name, value in row.get("facts", {}).items() if name != "waited"}
    return json.loads(stable({**kept, "stages": stages}))
