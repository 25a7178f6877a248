"""One rule of `permissions`, ready to be compared: with a tool, with who calls, and with the call itself."""

from msgspec import Struct

from mcpbridge.conduct import Conduct, Permission
from mcpbridge.model import Tool
from mcpbridge.policy.conditions import Condition, condition_of
from mcpbridge.policy.settings import PermissionRule
from mcpbridge.policy.tool_globs import ToolGlobs, globs

__all__ = ["Outcome", "Rule"]


class Outcome(Struct, frozen=True):
    """What is left of a rule for one tool: when it applies, and what it then says."""

    permission: Permission
    reason: str = ""
    rule: int | None = None
    """Its place in `permissions`, from 0; None: it is the `permission` of the tool itself."""
    names_callers: bool = False
    """It applies to the audiences that have its number."""
    condition: Condition | None = None
    """It applies where this holds."""
    problem: str = ""
    """Why its condition cannot be evaluated for this tool, whatever the call."""

    @property
    def is_final(self) -> bool:
        """It applies to every call that gets as far."""
        return not self.names_callers and self.condition is None


class Rule:
    """One rule."""

    def __init__(self, number: int, settings: PermissionRule) -> None:
        self.number, self.settings = number, settings
        self._tools = ToolGlobs(settings.tools) if settings.tools else None
        self._servers = globs(settings.servers) if settings.servers else None
        self._clients = globs(settings.clients) if settings.clients else None
        self._principals = globs(settings.principals) if settings.principals else None
        self._risks = frozenset(settings.risk)
        self._condition = None if settings.when is None else condition_of(settings.when)

    @property
    def names_callers(self) -> bool:
        """Whether it depends on who calls."""
        return self._clients is not None or self._principals is not None

    def is_about(self, client: str, principal: str) -> bool:
        """Whether this is one of its callers."""
        by_client = self._clients is None or self._clients.fullmatch(client) is not None
        return by_client and (self._principals is None or self._principals.fullmatch(principal) is not None)

    def covers(self, tool: Tool, conduct: Conduct) -> bool:
        """Whether it can match a call of this tool at all."""
        wanted = self.settings
        return (
            (not self._risks or conduct.risk in self._risks)
            and wanted.read_only in (None, conduct.effect == "read")
            and wanted.side_effects in (None, conduct.effect == "write")
            and wanted.destructive in (None, conduct.is_destructive)
            and wanted.idempotent in (None, conduct.is_idempotent)
            and (self._servers is None or self._servers.fullmatch(tool.server) is not None)
            and (self._tools is None or self._tools.cover(tool))
        )

    def outcome(self, condition: Condition | None, problem: str = "") -> Outcome:
        """What it says, under this much of its condition."""
        wanted = self.settings
        return Outcome(wanted.permission, wanted.reason, self.number, self.names_callers, condition, problem)

    @property
    def condition(self) -> Condition | None:
        """What a call must be like besides."""
        return self._condition
