"""The audit log in effect, for parts that live longer than the settings; and which events go into it.

Each reading of the settings has its own `AuditLog`, held by its lease, or none. Calls go to that of the settings under
which they began; what else happens goes to the one in effect.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mcpbridge.base.errors import BridgeError, CallRefused, UnknownName
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call, Caller, Tool
from mcpbridge.engine.leases import Lease
from mcpbridge.pipeline.permissions.policy import Policy
from mcpbridge.storage.audit.settings import AuditSettings

if TYPE_CHECKING:  # loaded where calls are audited
    from mcpbridge.storage.audit.log import AuditLog

AUDITED = frozenset(
    {
        "session.began",
        "session.ended",
        "config.reloaded",
        "config.refused",
        "call.cancelled",
        "server.definition_changed",
    }
)
"""Events of the timeline that go into the audit log. States of servers are left out."""

SIGNED_IN, UNKNOWN_TOOL, REPLACED = "sign_in", "call.unknown_tool", "audit.replaced"
REFUSED = "call.refused"
"""A call of a tool that is held or whose server is not there: what is refused otherwise has the line of a call."""
LOCK_WRITTEN, LOCK_APPROVED = "lock.written", "lock.approved"
"""Somebody agreed to all that servers show, or to something of one server."""
ROLE_TAKEN = "role.taken"
"""Somebody took a role of `break_glass` for a time."""

_LONGEST_TOOL = 1000
"""Characters of a tool's name that wait to be written; the log masks secrets, and keeps fewer."""


class AuditTrail:
    """The log in effect."""

    def __init__(self) -> None:
        self.log: AuditLog | None = None
        """None: nothing is audited."""

    def replace(self, log: "AuditLog | None") -> None:
        """Another one is in effect from now on, or none."""
        before, self.log = self.log, log
        if before is not None and before is not log:
            before.append_event(REPLACED, {"detail": "switched off" if log is None else "its settings have changed"})

    def note(self, kind: str, facts: Mapping[str, object]) -> None:
        """Something has happened that goes into the log, if there is one."""
        if self.log is not None:
            self.log.append_event(kind, facts)

    def note_event(self, kind: str, facts: Mapping[str, object]) -> None:
        """Something has happened that may go into it."""
        if self.log is not None and kind in AUDITED:
            self.log.append_event(kind, facts)

    def note_unplanned(self, caller: Caller, tool: str, refused: BridgeError) -> None:
        """A call has ended before it met a plan, which would have made its line. `tool`: as the client wrote it."""
        if self.log is None:
            return
        outcome = "refused" if isinstance(refused, CallRefused) else "failed"
        facts = {"client": caller.name, "principal": caller.principal, "tool": tool[:_LONGEST_TOOL], "outcome": outcome}
        facts |= {"address": caller.address, "session": caller.session.id}
        if (identity := caller.identity) is not None:
            facts |= {"user": identity.name, "oauth_client": identity.client_id}
        if isinstance(refused, UnknownName):
            self.note(UNKNOWN_TOOL, facts)
        else:
            self.note(REFUSED, {**facts, "error": type(refused).__name__, "detail": str(refused)[:_LONGEST_TOOL]})

    def status(self) -> dict[str, Any] | None:
        """How the log is, as JSON values; None: there is none."""
        return self.log.status() if self.log is not None else None

    def problems(self) -> list[str]:
        """Why it is not what it should be, if it is not."""
        return self.log.problems() if self.log is not None else []


def audit_log(settings: AuditSettings, lease: Lease, redact: Callable[[str], str]) -> "AuditLog | None":
    """The log that these settings ask for, held by the lease."""
    if not settings.enabled:
        return None
    from mcpbridge.storage.audit.log import AuditLog

    return lease.hold("audit", settings, lambda: AuditLog(settings, redact=redact), run=AuditLog.running)


def rules_of(policy: Policy) -> Callable[[Tool, CallOptions], Callable[[Call], str]]:
    """What says which rule decided about a call."""
    from mcpbridge.pipeline.stages.permission import deciding_rule

    def rule_of(tool: Tool, options: CallOptions) -> Callable[[Call], str]:
        return deciding_rule(policy, tool, options)

    return rule_of


def roles_of(policy: Policy) -> Callable[[Tool, CallOptions], Callable[[Call], str]]:
    """What says which role opened a tool to its caller."""
    from mcpbridge.pipeline.stages.permission import opening_role

    def role_of(tool: Tool, options: CallOptions) -> Callable[[Call], str]:
        return opening_role(policy, tool, options)

    return role_of
