"""What this bridge answers when it is asked, by itself or by another one of its fleet, for its records and counts.

Whoever may not see all asks with `LogQuery.whose`, and gets what that allows here, as at a bridge without a fleet.
"""

import os
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args
from uuid import getnode

import anyio.to_thread
import msgspec

from mcpbridge.app.admin.stats import stats_of
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.core.recording import RunningCall
from mcpbridge.fleet.call_logs import Found
from mcpbridge.library.bridge import Bridge
from mcpbridge.pipeline.observability.metrics import Total
from mcpbridge.storage.call_log.query import LogQuery, OfProcess, answer_query, read_query
from mcpbridge.storage.call_log.usage import COUNTED

_CALLS = 500
"""Calls under way that one answer has."""


async def own_records(bridge: Bridge, document: object) -> Found | None:
    """The answer to a query as JSON values; None: it is not understood.

    Raises:
        StoreFailed: the file cannot be read.
    """
    query = read_query(document)
    if query is None:
        return None
    if query.what in get_args(OfProcess):
        return Found([await _of_process(bridge, query)])
    log = bridge.audit
    log.write_soon()
    rows = await anyio.to_thread.run_sync(answer_query, log.path, query)
    if query.what == "usage":
        rows = [_masked(bridge, row) for row in rows]
    return Found(rows, _file(str(log.path)))


async def _of_process(bridge: Bridge, query: LogQuery) -> dict[str, Any]:
    calls = bridge.running_calls()
    if query.what == "under_way":
        if query.whose is not None:
            calls = [call for call in calls if call.principal in query.whose.principals]
        return {"calls": [msgspec.to_builtins(call) for call in calls[:_CALLS]]}
    if query.what == "pulse":
        return _pulse(bridge, calls)
    await bridge.results.ledger.flush()  # who asks reads it in the store
    await bridge.list_ledger.flush()
    return _masked(bridge, _stats(bridge))


def _pulse(bridge: Bridge, calls: Sequence[RunningCall]) -> dict[str, Any]:
    """What pages look at every second, to see whether something has changed; it reads no file."""
    log, metrics = bridge.audit, bridge.metrics
    log.write_soon()  # whoever looks asks for the calls next
    of_servers: dict[str, list[int]] = {}
    for series in metrics:
        if series.method not in COUNTED:
            continue
        counts = of_servers.setdefault(series.server, [0, 0])
        counts[0], counts[1] = counts[0] + series.calls, counts[1] + series.errors
    return {
        "calls": metrics.total_calls(),
        "called": sum(calls for calls, _ in of_servers.values()),
        "errors": sum(errors for _, errors in of_servers.values()),
        "running": len(calls),
        "stages": [[call.uid, call.stage] for call in calls[:_CALLS]],
        "clients": bridge.server.clients,
        "written": [log.calls_written, log.events_written],
        "servers": of_servers,
    }


def _stats(bridge: Bridge) -> Mapping[str, Any]:
    """As `stats_of`, with what latencies are computed from."""
    document, totals = stats_of(bridge.metrics), bridge.metrics.by_tool()
    return {**document, "tools": [{**row, "buckets": _buckets(totals, row)} for row in document["tools"]]}


def _buckets(totals: Mapping[tuple[str, str, str], Total], row: Mapping[str, Any]) -> Sequence[int]:
    return totals[row["server"], row["tool"], row["method"]].durations.buckets


def _masked(bridge: Bridge, row: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(row)
    return bridge.redact.values_of(plain) if isinstance(bridge.redact, Redactor) else plain


def _file(path: str) -> str:
    """What tells this file from all others, on any machine; empty: there is none yet."""
    try:
        found = Path(path).stat()
    except OSError:
        return ""
    return sha256(f"{_machine()} {found.st_dev} {found.st_ino}".encode()).hexdigest()[:16]


@cache
def _machine() -> str:
    """The same in all containers of a machine, whose files have other devices unless they share them."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
    except OSError:
        return f"{os.uname().nodename} {getnode()}"
