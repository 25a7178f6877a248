"""What a bridge that was no member of its fleet for a while does not know: which of its sessions it still has.

Until the records have said that, requests of all of them wait. Two bridges that answer for one session would each take
what the other one waits for, such as the answer to a question.

A bridge whose lease has ended asks the others. If one of them still renews its own, the others take the sessions of
this one by now, so it steps back as in a drain. If the records are away for the others as well, nobody takes anything,
and all continue.
"""

import asyncio
from collections.abc import Iterable, Sequence
from enum import Enum

from msgspec import Struct

from mcpbridge.downstream.http.exchange import Refused
from mcpbridge.downstream.http.readiness import SOON
from mcpbridge.downstream.http.sessions import Sessions

_SURE_SECONDS = 0.75
"""How long a request waits until it is known whether its session is still here."""
_CERTAIN_SECONDS = 2.75
"""Age of a lease that other members renew each second, after which those that renewed theirs reach what we do not."""
_FRESH_SECONDS = 1.25
"""Age of theirs: a beat, and how long it may take."""


class Absence(Enum):
    """Why another member does not say how old its lease is."""

    GONE = "gone"
    """Its machine says that nothing listens there."""
    SILENT = "silent"
    """It may be well, and out of our reach."""


class OtherLease(Struct, frozen=True):
    """What another member says of its lease."""

    age: float
    """Seconds since it was renewed."""
    is_settling: bool
    """The records were away for all a moment ago: for some seconds nobody takes a session."""


def is_cut_off(age: float, others: Sequence[OtherLease | Absence]) -> bool:
    """Whether others may reach the records while this bridge does not. `age`: seconds since its lease was renewed.

    Where nobody answers that may be well, the records may be away, or all of them are out of reach: the latter counts.
    """
    said = [one for one in others if isinstance(one, OtherLease)]
    if any(one.age <= _FRESH_SECONDS and not one.is_settling for one in said):
        return age >= _CERTAIN_SECONDS
    return not said and Absence.SILENT in others


class Lapses:
    """The times that this bridge was no member, or may have been none."""

    def __init__(self) -> None:
        self.count = 0
        self._is_sure = asyncio.Event()
        self._is_sure.set()

    def __repr__(self) -> str:
        return f"<Lapses: {self.count}, {'sure' if self._is_sure.is_set() else 'unsure'} of the sessions>"

    def begin(self, sessions: Sessions, own: Iterable[bytes]) -> None:
        """Others may have these by now."""
        self.count += 1
        sessions.unsure.update(own)
        if sessions.unsure:
            self._is_sure.clear()

    def end(self, sessions: Sessions, count: int) -> bool:
        """Those that are still there are this bridge's, unless there was another lapse since there were so many."""
        if count != self.count:
            return False
        sessions.unsure.clear()
        self._is_sure.set()
        return True

    async def until_sure(self) -> None:
        """Wait for that.

        Raises:
            Refused: it is not known in time.
        """
        try:
            async with asyncio.timeout(_SURE_SECONDS):
                await self._is_sure.wait()
        except TimeoutError as error:
            text = (
                "not sent: this bridge was no member of its fleet for a while, and the fleet's records cannot be "
                "reached, so another bridge may have this session"
            )
            raise Refused(503, text, headers=SOON) from error
