"""The state of a server in words, as `status`, `check` and other commands show it."""

from collections.abc import Mapping
from typing import Any

State = Mapping[str, Any]
"""What `Bridge.status` says of one server."""


def is_ready(server: State) -> bool:
    """It can be called."""
    return server["state"] == "ready"


def describe(server: State) -> str:
    """A state with its reason, on one line; whether calls pass, if they do not; and what it sends too much of."""
    reason = str(server.get("reason") or "")
    parts = [" ".join(reason.split()) or str(server["state"])]
    if (breaker := server.get("breaker") or "closed") != "closed":
        parts.append(f"breaker {breaker}")
    if braked := server.get("braked"):
        parts.append(f"floods the bridge with {braked}")
    if refused := int(server.get("questions_refused") or 0):
        parts.append(f"{refused} question{'s' * (refused != 1)} to clients refused")
    return ", ".join(parts)


def fault(server: State) -> str:
    """What is wrong with a server that is not ready, without what the bridge will do about it, on one line."""
    return " ".join(str(server.get("cause") or "").split()) or describe(server)


def offers(server: State) -> str:
    """How much of what a server offers: "13 tools, 2 prompts"."""
    counts = [(int(server.get(kind) or 0), kind) for kind in ("tools", "resources", "prompts")]
    told = [f"{count} {kind if count != 1 else kind[:-1]}" for count, kind in counts if count or kind == "tools"]
    return ", ".join(told)


def describe_change(change: State) -> str:
    """What was said of one server or tool, and by whom."""
    kind, by = "server" if change["section"] == "servers" else "tool", str(change["by"])
    who = f"over the API by {by.removeprefix('api:')}" if by.startswith("api:") else f"by the {by}"
    switched = [f"switched {'off' if change['disabled'] else 'on'}"] if "disabled" in change else []
    switched += [f"{tool} switched {'off' if is_off else 'on'}" for tool, is_off in change.get("tools", {}).items()]
    done = ", ".join([*([str(change["said"])] if change["said"] != "switched" else []), *switched])
    until = "" if change["kept"] else ", until it ends"
    hidden = "; not in effect, since the configuration file has this name" if change.get("hidden") else ""
    return f"{kind} {change['name']}: {done} {who} at {change['at']}{until}{hidden}"
