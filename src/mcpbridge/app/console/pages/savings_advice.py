"""What to do about the tools whose definitions or results cost most tokens. Pure."""

from collections.abc import Mapping
from typing import Any

from mcpbridge.catalog.settings import ExposeSettings
from mcpbridge.catalog.slim.levels import LEVELS

_WORTH_IT = 0.3
"""What part of a definition a shorter form must save to be recommended."""
_LARGE = 1000
"""Tokens of one result from which a preview is recommended."""
_OFTEN = 20
"""Calls from which a cache is recommended."""
NOTHING = "nothing stands out"
"""Where there is nothing to do."""


def advice_on_definition(cost: Mapping[str, Any], expose: ExposeSettings) -> str:
    """What makes this definition cheaper, as the bridge is configured now. `cost`: its tokens by level."""
    level = expose.slim or "tidy"
    sent = cost["sent"]
    listed = sent if level == "off" else cost[level]
    if expose.mode == "search":
        return f"nothing: clients find it by search and are not listed it (in a list: {listed:,})"
    if LEVELS.index(level) < LEVELS.index("slim") and sent - cost["slim"] > sent * _WORTH_IT:
        return f'expose.slim = "slim" lists it in {cost["slim"]:,} tokens'
    if level == "slim" and listed - cost["signatures"] > listed * _WORTH_IT:
        return f'expose.slim = "signatures" lists it in {cost["signatures"]:,} tokens in place of {listed:,}'
    return 'list it no more (expose.hide), or let models find it (expose.mode = "search")'


def advice_on_results(row: Mapping[str, Any]) -> str:
    """What makes the results of this tool cheaper. `row`: its tokens, of so many calls."""
    calls = max(row["calls"], 1)
    if row["recalled"] > row["saved"] > 0:
        return "its kept results are asked for again and again: a larger results.budget may save calls"
    if (row["shown"] + row["recalled"]) / calls > _LARGE:
        return "its results are shown nearly whole: a smaller results.threshold for this tool makes previews of them"
    if row["calls"] > _OFTEN:
        return 'it is called often: a cache for this tool (cache = "60s") spares the same results'
    return NOTHING
