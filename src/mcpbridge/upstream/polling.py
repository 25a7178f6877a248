"""When to look again at a list whose changes its server does not announce; pure.

By the time that the server says its list stays fresh (`ttlMs`), with jitter, so that many bridges do not ask at once
(MCP 2026-07-28, Caching, Freshness Calculation). That is a hint for caches and no wish to be asked so often, hence the
bounds.
"""

__all__ = ["wait_before_looking"]

SHORTEST = 60.0
"""Seconds; never more often than that, whatever the server says."""
UNSAID = 300.0
"""Seconds, where it says nothing or that the list is stale at once, which is no time to go by."""
LONGEST = 24 * 3600.0
"""Seconds."""
JITTER = 0.25
"""Share of the wait that is added at random, at most."""


def wait_before_looking(ttl_ms: int | None, chance: float) -> float:
    """Seconds to wait. `ttl_ms` is the server's hint, None when there is none; `chance` is from 0 to 1, at random."""
    seconds = min(max(ttl_ms / 1000, SHORTEST), LONGEST) if ttl_ms else UNSAID
    return seconds * (1 + JITTER * chance)
