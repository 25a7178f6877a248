"""What the bridge says of its servers, in words; and what its failures mean for an exit code."""

from collections.abc import Mapping
from typing import Any, cast

from mcpbridge.cli.exits import TIMED_OUT, TOOL_ERROR, UNREACHABLE
from mcpbridge.downstream.failed_calls import ERROR_NAME

__all__ = ["State", "describe", "failure_code", "fault", "is_ready", "offers"]

State = Mapping[str, Any]
"""What `Bridge.status` says of one server."""

_CODES = {
    "UpstreamTimeout": TIMED_OUT,
    "UpstreamUnavailable": UNREACHABLE,
    "UpstreamResting": UNREACHABLE,
    "UpstreamGone": UNREACHABLE,
    "UpstreamHttpError": UNREACHABLE,
    "SignInNeeded": UNREACHABLE,
}


def is_ready(server: State) -> bool:
    """It can be called."""
    return server["state"] == "ready"


def describe(server: State) -> str:
    """A state with its reason, on one line; and whether calls pass, if they do not."""
    reason = str(server.get("reason") or "")
    told = " ".join(reason.split()) or str(server["state"])
    breaker = server.get("breaker") or "closed"
    return told if breaker == "closed" else f"{told}, breaker {breaker}"


def fault(server: State) -> str:
    """What is wrong with a server that is not ready, without what the bridge will do about it, on one line."""
    return " ".join(str(server.get("cause") or "").split()) or describe(server)


def offers(server: State) -> str:
    """How much of what a server offers: "13 tools, 2 prompts"."""
    counts = [(int(server.get(kind) or 0), kind) for kind in ("tools", "resources", "prompts")]
    told = [f"{count} {kind if count != 1 else kind[:-1]}" for count, kind in counts if count or kind == "tools"]
    return ", ".join(told)


def failure_code(marked: object) -> int:
    """The exit code for a failure, from the object (`_meta` or `data`) that may name it."""
    named = cast("State", marked).get(ERROR_NAME) if isinstance(marked, dict) else None
    return _CODES.get(str(named), TOOL_ERROR)
