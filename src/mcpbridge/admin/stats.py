"""What is counted of calls, per tool, as JSON values: for `mcpbridge stats`."""

import os
from collections.abc import Mapping
from typing import Any

from mcpbridge.pipeline.metrics import Metrics, Total
from mcpbridge.results.tokens import estimated_tokens

__all__ = ["stats_of"]


def stats_of(metrics: Metrics) -> dict[str, Any]:
    """Every tool that was called, and every method of requests that call none, the most called first.

    Tokens are estimates, and named so; `latency` in seconds is estimated within buckets.
    """
    rows = [_told(key, whole) for key, whole in metrics.by_tool().items()]
    return {"pid": os.getpid(), "tools": sorted(rows, key=lambda row: (-row["calls"], row["tool"], row["method"]))}


def _told(key: tuple[str, str, str], whole: Total) -> Mapping[str, Any]:
    server, tool, method = key
    return {
        "server": server,
        "tool": tool,
        "method": method,
        "calls": whole.calls,
        "errors": whole.errors,
        "outcomes": whole.outcomes,
        "refused": whole.refused,
        "failed": whole.failed,
        "approvals": whole.approvals,
        "latency": whole.durations.summary(),
        "seconds": round(whole.durations.seconds, 6),
        "server_seconds": round(whole.upstream.seconds, 6),
        "bytes_in": whole.bytes_in,
        "bytes_out": whole.bytes_out,
        "tokens_in_estimated": estimated_tokens(whole.bytes_in),
        "tokens_out_estimated": estimated_tokens(whole.bytes_out),
        "retries": whole.retries,
        "cache_hits": whole.cache_hits,
        "coerced": whole.coerced,
        "rewritten": whole.rewritten,
        "rewritten_tokens_estimated": whole.tokens,
    }
