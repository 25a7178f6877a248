"""The state of servers in words, as `status`, `check` and other commands show it, and what is missing of them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mcpbridge.app.cli.output import visible
from mcpbridge.app.exit_codes import UNREACHABLE

if TYPE_CHECKING:
    from mcpbridge.library.bridge import Bridge

_SEPARATORS = ("/", ".", "__")
"""What can be between a server's name and a tool's."""

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


def absent(bridge: "Bridge", *, only_servers: bool = False, server: str = "") -> dict[str, Any]:
    """What is missing from what is shown: servers, and tables of `[tools]` and packs that do not work.

    `failure` if nothing of what is configured works. `only_servers`: nothing but what servers have was asked for;
    `server`: what this one has. Built-in tools that lack something are no news: `check` and `status` report them.
    """
    status = bridge.status()
    servers: list[State] = [
        one for one in status["servers"] if one["state"] != "disabled" and server in ("", one["name"])
    ]
    backends: list[State] = [] if only_servers else status["backends"]
    missing = [one for one in servers if not _works(one)]
    failed = [one for one in backends if one["state"] != "ready"]
    notes = [f"{one['name']} {'does not work now' if one['tools'] else 'is missing'}: {fault(one)}" for one in missing]
    notes += [visible(f"{one['name']} is missing: {one['reason'] or 'it is starting'}") for one in failed]
    if (error := status["config_error"]) is not None:
        notes.insert(0, f"the configuration is wrong, and the one before stays in effect: {error['message']}")
    notes += changed_definitions(bridge, server)
    lacking = {tool["name"] for tool in status["inactive"]}
    has_own = not only_servers and any(name not in lacking for name in bridge.settings.builtin.enable)
    document: dict[str, Any] = {"notes": notes}
    if (missing or failed) and len(missing) == len(servers) and len(failed) == len(backends) and not has_own:
        what = "no server could be reached" if missing else "no tool works"
        document["failure"] = {"code": UNREACHABLE, "message": what, "advice": "`mcpbridge check` shows more."}
    return document


def _works(server: State) -> bool:
    """It is up, is started by the first call, or starts while its tools are known from before."""
    return server["state"] in ("ready", "idle") or (server["state"] == "starting" and bool(server["tools"]))


def owners_absent(bridge: "Bridge", tool: str) -> dict[str, Any]:
    """What does not work that could have a tool of this name, which is not there; `failure` if nothing works.

    Where its name says whose it is, nothing is said of others; the answer to the call says why that one fails.
    """
    from mcpbridge.core.model import BUILTIN, TOOLS  # not for commands that ask a daemon

    singles = {*bridge.backends.names(), *bridge.settings.builtin.enable}
    owners = (*singles, *bridge.settings.servers)
    is_told = tool.startswith(tuple(owner + separator for owner in owners for separator in _SEPARATORS))
    if is_told or tool.removeprefix(f"{TOOLS}/").removeprefix(f"{BUILTIN}/") in singles:
        return {"notes": []}
    return absent(bridge)


def changed_definitions(bridge: "Bridge", server: str = "", tool: str = "") -> list[str]:
    """A line for each server with definitions that changed and that nobody agreed to; one for a single tool."""
    notes: list[str] = []
    for name in (server,) if server else (*bridge.settings.servers, *bridge.backends.names()):
        found = [one for one in bridge.pins.findings(name) if not tool or (one.kind, one.name) == ("tools", tool)]
        if found:
            what = f"the tool {tool}" if tool else f"{len(found)} definition{'s' * (len(found) > 1)}"
            notes.append(visible(f"{name}: {what} changed, and nobody agreed to that: `mcpbridge lock diff {name}`"))
    return notes
