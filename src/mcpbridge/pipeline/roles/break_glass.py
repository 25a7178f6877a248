"""Roles that people take for a time, with a reason: who has which, and until when.

Kept in memory only. After a restart nobody has one, which is the safe side.
"""

from collections.abc import Sequence

from msgspec import Struct

LONGEST_REASON = 500
"""Characters."""
_MOST = 1000
"""Grants at a time."""


class RoleGrant(Struct, frozen=True):
    """A role that somebody has taken."""

    principal: str
    role: str
    reason: str
    since: float
    """Seconds since 1970."""
    until: float
    by: str = ""
    """Who entered it."""


class BreakGlass:
    """Who has taken which role."""

    def __init__(self) -> None:
        self.grants: dict[tuple[str, str], RoleGrant] = {}
        """By principal and role; those that are over may still be in it."""

    def take(self, grant: RoleGrant, now: float) -> None:
        """From now on. Taken again, it lasts as the newer grant says.

        Raises:
            ValueError: there are as many as may be.
        """
        self._forget(now)
        if len(self.grants) >= _MOST:
            raise ValueError(f"{_MOST} roles are taken already")
        self.grants[grant.principal, grant.role] = grant

    def give_back(self, principal: str, role: str) -> bool:
        """It is over. False: nobody of this name has it."""
        return self.grants.pop((principal, role), None) is not None

    def active_roles(self, principal: str, now: float) -> frozenset[str]:
        """The names of the roles that this principal has taken."""
        return frozenset(one.role for one in self.grants.values() if one.principal == principal and one.until > now)

    def now(self, now: float) -> Sequence[RoleGrant]:
        """Those that last, the oldest first."""
        self._forget(now)
        return sorted(self.grants.values(), key=lambda one: one.since)

    def _forget(self, now: float) -> None:
        self.grants = {key: one for key, one in self.grants.items() if one.until > now}
