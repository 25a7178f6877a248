"""How a running bridge stands, as JSON values: what `mcpbridge status` shows."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.config.schema import Settings
from mcpbridge.pipeline.observability.metrics import Metrics
from mcpbridge.tools.builtin.base_settings import NAMES
from mcpbridge.tools.factory import kind_of
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Upstream
from mcpbridge.upstream.transports.stdio import StdioTransport

_BUILTIN = ("code-execute", "git-cli", "gh-cli", "gws-cli")
"""Tools of the bridge's own that run programs."""


class Program(Struct, frozen=True):
    """A tool or a server whose programs belong into the sandbox."""

    name: str
    section: Literal["builtin", "tools", "servers"]
    is_apart: bool
    """Its own settings have them run outside of any."""


def programs(settings: Settings) -> Iterator[Program]:
    """Those that are enabled. Tools that judge a program's arguments by a table may run it in none (`never`)."""
    for name in dict.fromkeys(settings.builtin.enable):
        own = getattr(getattr(settings.builtin, NAMES[name], None), "sandbox", None) if name in _BUILTIN else "never"
        if own != "never":
            yield Program(name, "builtin", own == "off")
    for name, tool in settings.tools.items():
        if not tool.disabled and kind_of(tool) == "command":
            yield Program(name, "tools", getattr(tool, "sandbox", None) == "off")
    for name, server in settings.servers.items():
        if not server.disabled and server.sandbox is not None:
            yield Program(name, "servers", is_apart=False)


def outside_of_sandbox(settings: Settings) -> list[str]:
    """Names of the tools and servers whose programs run outside of any sandbox, since the settings say `"off"`."""
    return [one.name for one in programs(settings) if one.is_apart or settings.sandbox.mode == "off"]


def servers_standing(
    pool: Pool, configured: Mapping[str, ServerSettings], snapshot: Snapshot, metrics: Metrics | None
) -> list[dict[str, Any]]:
    """Every server, by name; also those that the configuration leaves out. `metrics` None: calls are not counted."""
    servers = [
        _standing(upstream, snapshot, metrics) | {"instances": pool.instances(upstream.name)}
        for upstream in pool.upstreams.values()
    ]
    servers += [
        {"name": name, "state": "disabled", "reason": "disabled = true in the configuration"}
        for name, settings in configured.items()
        if settings.disabled
    ]
    return sorted(servers, key=lambda server: server["name"])


def dropped(snapshot: Snapshot) -> list[dict[str, Any]]:
    """What servers offer and clients do not see, or not in full, and why."""
    return [
        {"server": lost.server, "kind": lost.kind, "name": lost.name, "reason": lost.reason}
        for lost in snapshot.dropped
    ]


def _standing(upstream: Upstream, snapshot: Snapshot, metrics: Metrics | None) -> dict[str, Any]:
    transport, is_idle = upstream.transport, upstream.status.state == "idle"
    protocol = upstream.version if upstream.session is not None or is_idle else ""
    standing: dict[str, Any] = {
        "name": upstream.name,
        "state": upstream.status.state,
        "reason": upstream.connection.state_text if upstream.status.reason else "",
        "cause": upstream.status.reason,
        "transport": transport.kind,
        "era": "" if not protocol else "modern" if upstream.modern else "legacy",
        "protocol": protocol,
        **_published(upstream.name, snapshot),
        "running": len(upstream.running),
        **_counted(upstream.name, metrics),
        "restarts": upstream.restarts,
        "breaker": upstream.requests.breaker_state,
    }
    if isinstance(transport, StdioTransport):
        if tier := getattr(transport, "tier", ""):
            standing["sandbox"] = tier
        standing |= {"pid": transport.pid, "stderr": transport.stderr_lines[-10:]}
    return standing


def _published(server: str, snapshot: Snapshot) -> dict[str, int]:
    """How many things of a server are listed, by kind; also those that the policy hides from some clients."""
    kinds = {
        "tools": snapshot.tools,
        "resources": snapshot.resources,
        "templates": snapshot.templates,
        "prompts": snapshot.prompts,
    }
    return {kind: sum(ref.server == server for ref in refs.values()) for kind, refs in kinds.items()}


def _counted(server: str, metrics: Metrics | None) -> dict[str, Any]:
    """Calls, errors and latency of a server since the start, if calls are counted."""
    if metrics is None:
        return {}
    whole = metrics.of_server(server)
    return {"calls": whole.calls, "errors": whole.errors, "latency": whole.durations.summary()}
