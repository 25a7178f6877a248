"""What the tools `brief` and `pulse` report to a caller: only what it may see, and only its own session."""

import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.search.visible_tools import VisibleTools
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.config.schema import Settings
from mcpbridge.core.model import BRIDGE, Call
from mcpbridge.core.settings_precedence import result_options
from mcpbridge.engine.generation import Generation
from mcpbridge.pipeline.observability.metrics import CountsBySession
from mcpbridge.pipeline.per_client import client_of
from mcpbridge.pipeline.stages.call_budget import BudgetState
from mcpbridge.results.kept_results import KeptResults
from mcpbridge.upstream.pool import Pool

_MOST_SERVERS, _MOST_RESULTS = 40, 1000


async def caller_status(
    call: Call,
    name: str,
    now: Generation,
    catalog: Catalog,
    pool: Pool,
    kept_results: KeptResults,
    session_counts: CountsBySession,
    budgets: BudgetState,
) -> dict[str, Any]:
    """What the tool of this name says to who calls it, by what is in effect `now`."""
    caller = call.caller
    if name == "brief":
        snapshot = catalog.view(caller.view, catalog.audience(caller.name, caller.principal, caller.identity))
        return brief(now.tool_search.visible_to(caller), snapshot, pool, now.settings)
    stored = len(await kept_results.summaries(principal=caller.principal, limit=_MOST_RESULTS))
    made = budgets.counts.of(client_of(call)).calls
    return pulse(call, session_counts, stored, now.settings, made)


def brief(visible: VisibleTools, snapshot: Snapshot, pool: Pool, settings: Settings) -> dict[str, Any]:
    """Tools by server, prompts and resources, servers that are not well, and limits, for who sees this."""
    of_server = Counter(ref.server for ref in visible.tools.values() if ref.server != BRIDGE)
    servers = [{"name": name, "tools": count} for name, count in sorted(of_server.items())[:_MOST_SERVERS]]
    unwell = [
        {"name": upstream.name, "state": upstream.status.state}
        for upstream in pool.upstreams.values()
        if upstream.status.state in ("retrying", "failed") and upstream.name in of_server
    ]
    told: dict[str, Any] = {
        "tools": of_server.total(),
        "servers": servers,
        **({"more_servers": len(of_server) - _MOST_SERVERS} if len(of_server) > _MOST_SERVERS else {}),
        "prompts": len(snapshot.prompts),
        "resources": len(snapshot.resources),
    }
    if unwell:
        told["not_available_now"] = unwell
    told["limits"] = _limits(settings)
    return told


def pulse(
    call: Call, session_counts: CountsBySession, stored: int, settings: Settings, call_count: int
) -> dict[str, Any]:
    """The state of the session of this call.

    `stored`: results that are kept for who calls. `call_count`: calls that count for `calls.max_calls`, this one too.
    """
    counts = session_counts.of(call.caller.session.id)
    status: dict[str, Any] = {
        "calls": counts.calls,
        "errors": counts.errors,
        "tokens": counts.tokens,
        "kept_results": stored,
        "seconds": round(max(0.0, time.time() - counts.began), 1),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if counts.last_error:
        status["last_error"] = counts.last_error[:200]
    if settings.calls.max_calls:
        status["calls_left"] = max(0, settings.calls.max_calls - call_count)
    return status


def _limits(settings: Settings) -> Mapping[str, object]:
    calls = settings.calls
    limits: dict[str, object] = {"calls_at_a_time": calls.batch}
    if calls.max_calls:
        limits["calls_in_all"] = calls.max_calls
    if calls.rate_limit:
        limits["rate"] = str(calls.rate_limit)
    if (options := result_options(settings.results)).strategy != "off":
        limits["characters_of_a_result"] = options.threshold
    return limits
