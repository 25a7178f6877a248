"""Parts that run (connections, processes, tasks) and are shared between generations of the settings.

A reload builds everything anew. A running part that would come out the same is not started again: the new generation
takes a lease on it as well. It ends when the last lease is given back. Each part runs in a task of its own, since an
async context must be left in the task that entered it.
"""

import asyncio
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

from msgspec import Struct, field

from mcpbridge.base.background_tasks import own_group
from mcpbridge.base.log import get_logger

log = get_logger("mcpbridge")

_Part = TypeVar("_Part")


class Runs(Protocol):
    """A part that runs."""

    def running(self) -> AbstractAsyncContextManager[object]:
        """It may be used meanwhile; leaving ends all that it holds."""
        ...


class Closable(Protocol):
    """A part that is only to be closed."""

    async def close(self) -> None:
        """Let go of all that it holds."""
        ...


@asynccontextmanager
async def until_closed(part: Closable) -> AsyncGenerator[None]:
    """Closes the part on leaving."""
    try:
        yield
    finally:
        await part.close()


class _Held(Struct, eq=False):
    """One part."""

    kind: str
    key: object
    part: Any
    run: Callable[[Any], AbstractAsyncContextManager[object]]
    users: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)
    begun: "asyncio.Future[None] | None" = None
    """Set once it runs; None while nothing was done to run it."""
    task: "asyncio.Task[None] | None" = None
    """In which it runs."""
    ends_in: float | None = None
    """Seconds that it may take to end; then it is cancelled. None: it ends by itself."""
    ending: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """It is to end now."""
        self.over.set()
        if self.task is not None and self.ends_in is not None and self.ending is None:
            self.ending = asyncio.get_running_loop().call_later(self.ends_in, self.task.cancel)


class Leases:
    """The parts of one bridge. Its methods are called on the event loop's thread."""

    def __init__(self) -> None:
        self._held: list[_Held] = []
        self._group: asyncio.TaskGroup | None = None
        self._has_begun = False

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        state = "running" if self._group is not None else "ended" if self._has_begun else "not begun"
        counts = self.statistics()
        return f"<Leases {state}: {counts['running']} of {counts['parts']} parts run, {counts['ending']} end>"

    def __del__(self) -> None:
        if getattr(self, "_group", None) is not None:  # an error in `__init__` leaves it without
            warnings.warn(f"{self!r} was dropped while parts ran", ResourceWarning, 2, self)

    def statistics(self) -> dict[str, Any]:
        """The parts now, as JSON values: all of them, those that run, those that are ending, and all by kind."""
        return {
            "parts": len(self._held),
            "running": sum(held.begun is not None and not held.over.is_set() for held in self._held),
            "ending": sum(held.over.is_set() for held in self._held),
            "kinds": dict(Counter(held.kind for held in self._held)),
        }

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Parts may be begun meanwhile; leaving ends all of them, whoever holds them, and waits for their end."""
        async with own_group(self._end) as self._group:
            self._has_begun = True
            yield

    def _end(self) -> None:
        self._group = None
        for held in self._held:
            held.end()

    def lease(self) -> "Lease":
        """For who is built next."""
        return Lease(self)

    def find(
        self,
        kind: str,
        key: object,
        make: Callable[[], _Part],
        run: Callable[[_Part], Any],
        ends_in: float | None = None,
    ) -> tuple["_Held", _Part]:
        """The part of this kind that is made of the same, or a new one. For `Lease`."""
        for held in self._held:
            if held.kind == kind and held.key == key and not held.over.is_set():
                return held, held.part
        held = _Held(kind, key, make(), run, ends_in=ends_in)
        self._held.append(held)
        return held, held.part

    async def begin(self, held: "_Held") -> None:
        """Run a part, if it does not. For `Lease`. Raises what it fails with."""
        if held.begun is None:
            if self._group is None:
                return  # nothing runs any more
            held.begun = asyncio.get_running_loop().create_future()
            held.task = self._group.create_task(self._run(held))
        await asyncio.shield(held.begun)

    def let_go(self, held: "_Held") -> None:
        """One user less. For `Lease`."""
        held.users -= 1
        if not held.users:
            held.end()
            if held.begun is None:
                self._held.remove(held)  # it never ran

    async def _run(self, held: "_Held") -> None:
        begun = held.begun
        assert begun is not None, "`begin` made it"
        try:
            async with held.run(held.part):
                begun.set_result(None)
                await held.over.wait()
        except Exception as error:
            if begun.done():
                log.error("a component failed to stop", part=held.kind, exc_info=error)
            else:
                begun.set_exception(error)
        except asyncio.CancelledError:
            if held.over.is_set():
                log.error("a component did not stop in time", part=held.kind, seconds=held.ends_in)
            raise
        finally:
            if held.ending is not None:
                held.ending.cancel()
            if not begun.done():
                begun.cancel()
            self._held.remove(held)


class Lease:
    """The parts that one who is built holds."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._held: list[_Held] = []

    def hold(
        self,
        kind: str,
        key: object,
        make: Callable[[], _Part],
        *,
        run: Callable[[_Part], Any],
        ends_in: float | None = None,
    ) -> _Part:
        """The part of this kind that is made of this: one that is there already, else what `make` makes.

        `key` is compared; whatever `make` uses and may differ must be in it. `run` gives what it runs within.
        `ends_in`: seconds after which a part that does not end is cancelled; None: it is waited for.
        """
        held, part = self._leases.find(kind, key, make, run, ends_in)
        held.users += 1
        self._held.append(held)
        return part

    async def begin(self) -> None:
        """Return when all parts run. Raises what one of them fails with; then `end` is to be called."""
        for held in self._held:
            await self._leases.begin(held)

    def end(self) -> None:
        """Let go of all parts; those that nobody else holds end soon."""
        for held in self._held:
            self._leases.let_go(held)
        self._held.clear()
