"""What a bridge that was no member of its fleet for a while does not know: which of its sessions it still has.

Until the records have said that, requests of all of them wait. Two bridges that answer for one session would each take
what the other one waits for, such as the answer to a question.
"""

import asyncio
from collections.abc import Iterable

from mcpbridge.downstream.http.exchange import Refused
from mcpbridge.downstream.http.sessions import Sessions

_SURE_SECONDS = 0.75
"""How long a request waits until it is known whether its session is still here."""
_SOON = ((b"retry-after", b"1"),)


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
            raise Refused(503, text, headers=_SOON) from error
