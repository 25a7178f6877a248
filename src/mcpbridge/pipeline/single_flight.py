"""One run for all who want the same at the same time.

The run has a task of its own, so it outlives whoever came first; it is cancelled when the last of those who wait has
left. A run that turns out to be for one alone (its client is asked something, or is refused by its own limits) lets the
others go, and they run themselves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import partial

from msgspec import Raw

from mcpbridge.errors import BridgeError, CallRefused
from mcpbridge.model import Call
from mcpbridge.owned_tasks import OwnedTasks
from mcpbridge.wire.body import Body
from mcpbridge.wire.peer import Update

__all__ = ["Flight", "Flights"]


class _EndedError(BridgeError):
    """A run was cancelled while calls waited for it: the bridge stops."""


class Flight:
    """One run and those who wait for it."""

    __slots__ = ("_leader", "_outcome", "_waiting", "call", "is_personal", "on_empty")

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[Body | None], Update] = {}
        self._leader: asyncio.Future[Body | None] | None = None
        self._outcome: tuple[bytes | Raw | None, BaseException | None] | None = None
        self.is_personal = False
        """It is for the one who began it."""
        self.call: Call | None = None
        """The one that it is the run of, first of all."""
        self.on_empty: Callable[[], object] = _nothing

    def update(self, method: str, params: Raw) -> None:
        """Tell all who wait of the progress."""
        for update in tuple(self._waiting.values()):
            update(method, params)

    def be_personal(self) -> None:
        """From now on it is for the one who began it; the others are let go."""
        self.is_personal = True
        for waiting in list(self._waiting):
            if waiting is not self._leader:
                del self._waiting[waiting]
                if not waiting.done():
                    waiting.set_result(None)
        if not self._waiting:
            self.on_empty()

    def land(self, result: Body | None, error: BaseException | None = None) -> None:
        """The run is over. A result of None: each but the one who began runs by itself."""
        if self._outcome is None:
            self._outcome = result.data if result is not None else None, error
        for waiting in self._waiting:
            self._tell(waiting)

    @property
    def has_landed(self) -> bool:
        """The run is over, even if its task is not quite."""
        return self._outcome is not None

    async def wait(self, update: Update, *, leads: bool = False) -> Body | None:
        """Its result, or None if it turned out to be for another alone. Raises what the run raised."""
        waiting: asyncio.Future[Body | None] = asyncio.get_running_loop().create_future()
        if leads:
            self._leader = waiting
        self._waiting[waiting] = update
        self._tell(waiting)
        try:
            return await waiting
        finally:
            self._waiting.pop(waiting, None)
            if waiting.done() and not waiting.cancelled():
                waiting.exception()  # it was taken, or its taker has just been cancelled
            if not self._waiting:
                self.on_empty()

    def _tell(self, waiting: "asyncio.Future[Body | None]") -> None:
        """Give one who waits what came of the run, if it is over. Each may change its own."""
        if self._outcome is None or waiting.done():
            return
        data, error = self._outcome
        if error is not None:
            waiting.set_exception(error if waiting is self._leader else _another(error))
        else:
            waiting.set_result(Body(data) if data is not None else None)


class Flights(OwnedTasks):
    """The runs under way."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[Hashable, Flight] = {}

    def open(self, key: Hashable) -> Flight | None:
        """The run under this key that one may wait for; None when there is none.

        Not one that has just landed: what came of it is kept by now, or is not for who comes later.
        """
        flight = self._open.get(key)
        return None if flight is None or flight.is_personal or flight.has_landed else flight

    async def lead(
        self, key: Hashable, run: Callable[[Flight], Awaitable[Body]], update: Update, call: Call | None = None
    ) -> Body:
        """Begin a run and wait for it. It lands by itself with what `run` returns, unless that lands it before.

        `call`: the one that begins it, for those who wait with it.
        """
        flight = Flight()
        flight.call = call
        result: list[Body] = []
        task = self.spawn(_fly(flight, run, result))
        if task is None:  # nobody would own it
            return await run(flight)
        self._open[key] = flight
        task.add_done_callback(partial(self._landed, key, flight))
        flight.on_empty = partial(self._abandon, key, flight, task)
        landed = await flight.wait(update, leads=True)
        return landed if landed is not None else result[0]

    def _abandon(self, key: Hashable, flight: Flight, task: asyncio.Task[None]) -> None:
        """Nobody waits any more. Nor may anybody from now on: it takes a while to end."""
        self._close(key, flight)
        task.cancel()

    def _landed(self, key: Hashable, flight: Flight, task: asyncio.Task[None]) -> None:
        self._close(key, flight)
        if task.cancelled():  # perhaps before it began
            flight.land(None, _EndedError("The run that this call waited for was cancelled"))

    def _close(self, key: Hashable, flight: Flight) -> None:
        flight.on_empty = _nothing
        if self._open.get(key) is flight:
            del self._open[key]


async def _fly(flight: Flight, run: Callable[[Flight], Awaitable[Body]], result: list[Body]) -> None:
    try:
        result.append(await run(flight))
    except CallRefused as refused:  # it ran nowhere, and the limits of the others may be other ones
        flight.be_personal()
        flight.land(None, refused)
    except Exception as error:  # noqa: BLE001 - it goes to those who wait, whatever it is
        flight.land(None, error)
    else:
        flight.land(None if flight.is_personal else result[0])


def _another(error: BaseException) -> BaseException:
    """The same error for one more, who may note something on it, and whose frames it will carry."""
    if not isinstance(error, BridgeError):
        return error
    copy = error.__class__.__new__(error.__class__)
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.facts = dict(error.facts)
    copy.__cause__ = error.__cause__
    return copy.with_traceback(error.__traceback__)


def _nothing() -> None:
    """There is nothing to cancel any more."""
