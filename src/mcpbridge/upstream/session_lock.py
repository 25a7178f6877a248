"""One client at a time on a session whose questions name no call.

A legacy server on a plain channel asks without saying for which call. So while a call of a client that can be asked
runs there, calls of other such clients wait. Calls of the same client run side by side: whichever of them a question
is for, it goes to the same person. Whether a session needs this lock is decided in `session/declared`.
"""

import asyncio
from collections import deque
from contextlib import suppress

from mcpbridge.base.errors import Overloaded


class SessionLock:
    """Who may use the session now. Every `enter` needs one `leave`."""

    def __init__(self, name: str, *, places: int, patience: float) -> None:
        """`places`: calls that may wait; `patience`: seconds that each may."""
        self._name, self._places, self._patience = name, places, patience
        self._owner: object = None
        self._home: object = None
        self._inside = 0
        self._change: asyncio.Event | None = None
        """Made only while somebody waits for the next call to be over."""
        self._queue: deque[tuple[object, object, asyncio.Future[None]]] = deque()

    def __repr__(self) -> str:
        return f"<SessionLock {self._name!r} {self._inside} calls inside, {len(self._queue)} waiting>"

    def blocks(self, owner: object) -> bool:
        """Calls of another client run."""
        return bool(self._inside) and self._owner is not owner

    async def left(self, seconds: float) -> bool:
        """Return when a call is over. False: none was within so many seconds."""
        change = self._change = self._change or asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await change.wait()
        return change.is_set()

    def try_enter(self, owner: object, *, is_asked: bool, home: object = None) -> bool:
        """Come in if only this client's calls run, and nobody else waits for them to be over.

        `is_asked`: this client is being asked something by this session right now. Then its calls go first, since the
        answer may depend on them (sampling that uses the same server's tools). `home`: where the session is kept for
        one home, calls of that home count as this client's for that.
        """
        if not self._inside or (self._owner is owner and (is_asked or not self._queue)):
            self._owner, self._home = owner, home
            self._inside += 1
            return True
        if is_asked and home is not None and home == self._home:
            self._inside += 1
            return True
        return False

    async def enter(self, owner: object, *, is_asked: bool, home: object = None, patience: float | None = None) -> None:
        """Wait until only this client's calls run; see `try_enter`. `patience` in seconds, if it is not the usual one.

        Raises:
            Overloaded: too many wait, or the wait took too long.
        """
        if self.try_enter(owner, is_asked=is_asked, home=home):
            return
        if len(self._queue) >= self._places:
            raise Overloaded(f"Server '{self._name}' is busy with another client's calls, and {self._places} wait")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = owner, home, turn
        patience = self._patience if patience is None else max(0.0, patience)
        self._queue.append(entry)
        try:
            async with asyncio.timeout(patience):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.leave()  # admitted in the very turn that ended the wait
            elif entry in self._queue:
                self._queue.remove(entry)
            if isinstance(error, TimeoutError):
                raise Overloaded(
                    f"Server '{self._name}' was busy for {patience:.3g} s with calls of another client, "
                    "which it may ask questions"
                ) from None
            raise

    def leave(self) -> None:
        """A call is over; when it was the last one, the client that waits longest comes in with all its calls."""
        self._inside -= 1
        if self._change is not None:
            self._change.set()
            self._change = None
        if self._inside:
            return
        self._owner = self._home = None
        waiting = list(self._queue)
        self._queue.clear()
        for owner, home, turn in waiting:
            if turn.done():
                continue
            if not self._inside or self._owner is owner:
                self._owner, self._home = owner, home
                self._inside += 1
                turn.set_result(None)
            else:
                self._queue.append((owner, home, turn))
