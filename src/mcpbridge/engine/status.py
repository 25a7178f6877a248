"""The status of a running bridge as JSON values: what `mcpbridge status` shows, and the order of its fields.

The states of a server are decided in `upstream/supervisor.py`.
"""

import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from anyio import move_on_after

from mcpbridge.base.version import __version__
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.engine.pins.enforcement import PinEnforcement
from mcpbridge.engine.state import EngineState
from mcpbridge.pipeline.observability.metrics import Metrics
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Upstream
from mcpbridge.upstream.transports.stdio import StdioTransport

if TYPE_CHECKING:  # few bridges have roles, or quotas
    from mcpbridge.pipeline.roles.break_glass import RoleGrant
    from mcpbridge.storage.quotas import Used


class EngineStatus(EngineState):
    """The part of an `Engine` that says how it is."""

    async def settled(self, timeout: float) -> bool:  # noqa: ASYNC109 - the caller's patience, not a deadline of the work
        """Wait until every upstream is ready or has failed once, at most `timeout` seconds. False when time was up.

        Cancelling is safe: they start all the same.
        """
        with move_on_after(timeout):
            await self.registry.loaded.wait()  # it may bring upstreams
        began = time.monotonic()
        done = await self.pool.settled(timeout)
        with move_on_after(max(0.0, timeout - (time.monotonic() - began))):
            await self.startup.settled()
        self.catalog.flush()
        return done

    @property
    def has_settled(self) -> bool:
        """Every upstream was ready or had failed once, or `bridge.startup_wait` was over; true from then on."""
        if not self._has_settled:
            is_late = time.monotonic() - self._started >= self.settings.bridge.startup_wait
            self._has_settled = is_late or self._upstream_events.settled >= self.pool.upstreams.keys()
        return self._has_settled

    def status(self) -> dict[str, Any]:
        """The state of everything, as JSON values."""
        snapshot, metrics = self.catalog.snapshot, self.metrics if self.settings.observe.metrics else None
        return {
            "name": self.settings.bridge.name,
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._started, 1),
            "config": self.settings.source,
            "clients": self.server.clients,
            "servers": _server_statuses(self.pool, self.pins, self.settings.servers, snapshot, metrics),
            "backends": self.backends.status(),
            "builtin": list(dict.fromkeys(self.settings.builtin.enable)),
            "inactive": self._generation.builtins.inactive(),
            "sandbox": self._sandboxes.status(self.settings),
            "health": [checkup.as_json() for checkup in self.health_checks.checkups()],
            "added": self.registry.status(),
            "dropped": _dropped(snapshot),
            "warnings": [str(one) for one in self._generation.unmatched.unmatched()],
            "needs_restart": list(self._needs_restart),
            "call_log": self._call_log_status(),
            "lock": self.pins.lock.status(),
            "audit": self.trail.status(),
            "break_glass": [
                {
                    "user": one.principal,
                    "role": one.role,
                    "reason": one.reason,
                    "by": one.by,
                    "since": _iso(one.since),
                    "until": _iso(one.until),
                }
                for one in self.break_glass_grants()
            ],
            "storage_problems": self._storage_problems(),
            "config_error": dict(self.config_error) if self.config_error is not None else None,
        }

    async def used_quotas(self, now: float) -> "Sequence[Used]":
        """What is used of the quotas of roles; nothing where no role has one. Cancelling is safe.

        Raises:
            StoreFailed: the file with it cannot be used.
        """
        if not any(role.quota for role in self.settings.roles):
            return ()
        return await self._shared.calls.quota_store.used(now)

    def break_glass_grants(self) -> "Sequence[RoleGrant]":
        """The roles that people have taken for a time and have still, the oldest first."""
        roles = self._generation.policy.roles
        return roles.break_glass.now(time.time()) if roles is not None else ()

    def _call_log_status(self) -> dict[str, Any]:
        recorded = self.recorder.recorded
        file = str(self.audit.path) if recorded.grade != "off" else ""
        return {"calls": recorded.grade, "content": recorded.content, "file": file}

    def _storage_problems(self) -> list[str]:
        """Why something that should outlive its call may be lost: a full disk, a directory that cannot be written."""
        return [*self.store.problems(), *self.audit.problems(), *self.trail.problems()]


def _server_statuses(
    pool: Pool,
    pins: PinEnforcement,
    configured: Mapping[str, ServerSettings],
    snapshot: Snapshot,
    metrics: Metrics | None,
) -> list[dict[str, Any]]:
    """Every server, by name; also those that the configuration leaves out. `metrics` None: calls are not counted."""
    servers = [
        _server_status(upstream, snapshot, metrics)
        | {"instances": pool.instances(upstream.name), **pins.status(upstream.name)}
        for upstream in pool.upstreams.values()
    ]
    servers += [
        {"name": name, "state": "disabled", "reason": "disabled = true in the configuration"}
        for name, settings in configured.items()
        if settings.disabled
    ]
    return sorted(servers, key=lambda server: server["name"])


def _dropped(snapshot: Snapshot) -> list[dict[str, Any]]:
    """What servers offer and clients do not see, or not in full, and why."""
    return [
        {"server": lost.server, "kind": lost.kind, "name": lost.name, "reason": lost.reason}
        for lost in snapshot.dropped
    ]


def _server_status(upstream: Upstream, snapshot: Snapshot, metrics: Metrics | None) -> dict[str, Any]:
    transport, is_idle = upstream.transport, upstream.status.state == "idle"
    is_ready = upstream.status.state == "ready"
    protocol = upstream.version if upstream.session is not None or is_idle else ""
    status: dict[str, Any] = {
        "name": upstream.name,
        "state": upstream.status.state,
        **({"uptime_s": round(time.monotonic() - upstream.connection.since, 1)} if is_ready else {}),
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
        "braked": upstream.braked,
        "questions_refused": upstream.declared.question_limits.refused,
    }
    if isinstance(transport, StdioTransport):
        if tier := getattr(transport, "tier", ""):
            status["sandbox"] = tier
        if (egress := getattr(transport, "egress", None)) is not None:
            status["egress"] = {"connections": egress.connections, "refused": dict(egress.refused)}
        status |= {"pid": transport.pid, "stderr": transport.stderr_lines[-10:]}
    return status


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


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
