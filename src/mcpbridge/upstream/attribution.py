"""Whose something is that a server says without naming a call: a log message, a question.

It belongs to a call that runs there, if no other can have caused it. A call that was given up may still run at the
server for a while; what comes then may be of that one, and is put to nobody else.
"""

import asyncio

from mcpbridge.interaction import Asker
from mcpbridge.model import Call

__all__ = ["Attribution"]

STRAY_SECONDS = 10.0
"""Seconds after a call was given up during which what the server says may still be of that call."""


class Attribution:
    """The calls that run on one instance, and the last one that was given up."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self.running: dict[Call, None] = {}
        """Oldest first."""
        self._stray_until = float("-inf")
        self._stray_home: object = None
        """Whose call was given up last."""

    def given_up(self, call: Call) -> None:
        """Nobody waits for this call any more, but the server may still be at it."""
        self._stray_until, self._stray_home = self._clock() + STRAY_SECONDS, call.client.home

    def is_strange_to(self, client: Asker) -> bool:
        """The server may still be at a call that another client gave up: what it asks now may be of that one."""
        return self._clock() < self._stray_until and self._stray_home != client.home

    def askable(self, others: list[Call] | None = None) -> list[Call]:
        """The calls that a question may be of which names none: those that run, or these others.

        None when one is of a client that is strange to the server.
        """
        calls = list(self.running) if others is None else others
        return [] if any(self.is_strange_to(call.client) for call in calls) else calls

    @property
    def only_one(self) -> Call | None:
        """The call that whatever comes now is of, or the newest of the one client whose it is; None: cannot be told."""
        calls = list(self.running)
        owner = calls[0].client.owner if calls else None
        is_one_clients = owner is not None and all(call.client.owner is owner for call in calls)
        return calls[-1] if len(calls) == 1 or is_one_clients else None

    @property
    def may_be_stray(self) -> bool:
        """What comes now may be of a call that was given up."""
        return self._clock() < self._stray_until
