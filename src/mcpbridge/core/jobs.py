"""Work that outlives the request that began it: its owner, who waits for it, its outcome, and how long it is known.

Five parts of the bridge have such work: calls whose client stopped waiting, calls that wait until their client
answers a question, one run that several callers share, tasks of servers, and paused calls that a person answers. What
a job means is left to them. This module alone creates jobs, runs them, waits for them, forgets them in time and
cancels them.

The life of a job::

    add ──► (start: a task does the work) ──► finish | fail, once ──► forget
      │                                                                 ▲
      └── forget_in: known for so many seconds more, unless `keep` ─────┘

Whoever waits is woken when there is an outcome. `on_deserted` is called when nobody waits for a job any more, so that
work for nobody ends. A table has one timer, whatever the number of its jobs.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any, Generic, TypeVar

from mcpbridge.base.background_tasks import OwnedTasks


class Job:
    """One piece of work. Parts of the bridge add what they know of it in a subclass."""

    __slots__ = ("_outcome", "_waiting", "expires", "id", "key", "on_deserted", "on_expired", "owner", "task")

    def __init__(self, owner: str = "", key: Hashable = None, id: str = "") -> None:  # noqa: A002 - what it is
        self.id = id
        """Names it to whoever comes back; empty: nobody can."""
        self.owner = owner
        """The principal, or the session, that it is counted for."""
        self.key = key
        """What is the same for the same work; several jobs may have one key."""
        self.expires = inf
        """Loop time when it is forgotten."""
        self.task: asyncio.Task[Any] | None = None
        """Does the work; None: it is done elsewhere."""
        self.on_deserted: Callable[[], object] | None = None
        """Called when the last of those who waited has left, and there is no outcome."""
        self.on_expired: Callable[[], object] | None = None
        """Called when its time is over, instead of forgetting it."""
        self._outcome: tuple[Any, BaseException | None] | None = None
        self._waiting: dict[asyncio.Future[None], bool] = {}

    def __repr__(self) -> str:
        state = "open" if self._outcome is None else "failed" if self._outcome[1] else "finished"
        return f"<{type(self).__name__} {self.id or self.key!r} of {self.owner!r}, {state}, {self.waiting} waiting>"

    @property
    def is_done(self) -> bool:
        """There is an outcome, even if its task is not quite at its end."""
        return self._outcome is not None

    @property
    def waiting(self) -> int:
        """How many wait for it now."""
        return len(self._waiting)

    def finish(self, result: Any) -> None:
        """Give it a result; nothing if it has an outcome already."""
        self._settle(result, None)

    def fail(self, error: BaseException) -> None:
        """Let it fail; nothing if it has an outcome already."""
        self._settle(None, error)

    def result(self) -> Any:
        """The result of a job that is done.

        Raises:
            BaseException: what it failed with.
        """
        assert self._outcome is not None, "there is no outcome yet"
        result, error = self._outcome
        if error is not None:
            raise error
        return result

    async def wait(self, seconds: float | None = None, *, to_the_end: bool = False) -> bool:
        """Wait for an outcome, `seconds` at most. False: there is none yet; `wake` was called, or the time is up.

        `to_the_end`: `wake` is for others. Cancelling takes nothing from the job; it may find itself deserted.
        """
        if self._outcome is not None:
            return True
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting[waiter] = to_the_end
        timer = loop.call_later(seconds, _set, waiter) if seconds is not None else None
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            del self._waiting[waiter]
            if not self._waiting and self._outcome is None and self.on_deserted is not None:
                self.on_deserted()
        return self.is_done

    def wake(self) -> None:
        """Let those who wait look again, but the ones who wait to the end."""
        for waiter, to_the_end in self._waiting.items():
            if not to_the_end:
                _set(waiter)

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self._outcome is None:
            self._outcome = result, error
            for waiter in self._waiting:
                _set(waiter)


J = TypeVar("J", bound=Job)


class Jobs(Generic[J]):
    """The jobs of one kind. False when there are none, which costs one look."""

    def __init__(self, *, per_owner: int = 0, cancels_by_hand: bool = False) -> None:
        """`per_owner`: jobs of one owner after which `has_room` says no; 0: any number.

        `cancels_by_hand`: whoever has the table ends the tasks that `under_way` names; `running` need not be entered.
        """
        self._per_owner, self._cancels_by_hand = per_owner, cancels_by_hand
        self._ids: dict[str, J] = {}
        self._keys: dict[Hashable, list[J]] = {}
        self.all: dict[J, None] = {}
        """Every job, oldest first; only to be looked at. For those who must know whether there is any in no time."""
        self._counts = Counter[str]()
        self._due: list[tuple[float, int, J]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = OwnedTasks()
        self._loose: set[asyncio.Task[None]] = set()
        """The tasks that are cancelled by hand."""

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[J]:
        """Oldest first; jobs may come and go meanwhile."""
        return iter(list(self.all))

    def __contains__(self, job: object) -> bool:
        return job in self.all

    def __repr__(self) -> str:
        return f"<Jobs: {len(self)} known, {len(self.under_way())} running, {len(self._counts)} owners>"

    def statistics(self) -> dict[str, int]:
        """How many jobs are known, run, are done, and are waited for."""
        return {
            "known": len(self),
            "running": len(self.under_way()),
            "done": sum(job.is_done for job in self.all),
            "waiting": sum(job.waiting for job in self.all),
        }

    # -- the table

    def add(self, job: J) -> J:
        """Know a job from now on."""
        self.all[job] = None
        self._counts[job.owner] += 1
        if job.id:
            self._ids[job.id] = job
        if job.key is not None:
            self._keys.setdefault(job.key, []).append(job)
        return job

    def get(self, id_: str) -> J | None:
        """The job of this id."""
        return self._ids.get(id_)

    def find(self, key: Hashable) -> J | None:
        """The oldest job of this key."""
        return next(iter(self.same(key)), None)

    def same(self, key: Hashable) -> Sequence[J]:
        """The jobs of this key, oldest first."""
        return self._keys.get(key, ())

    def of(self, owner: str) -> list[J]:
        """The jobs of one owner, oldest first."""
        return [job for job in self.all if job.owner == owner] if self._counts[owner] else []

    def has_room(self, owner: str) -> bool:
        """Whether this owner may have one more."""
        return not self._per_owner or self._counts[owner] < self._per_owner

    def hand_over(self, job: J, owner: str) -> None:
        """Count a job for somebody else from now on."""
        if job in self.all:
            self._discount(job)
            self._counts[owner] += 1
        job.owner = owner

    def forget(self, job: J) -> None:
        """Forget a job; its task, if it has one, continues. Does nothing if the job is not known."""
        job.expires = inf
        if job not in self.all:
            return
        del self.all[job]
        self._discount(job)
        if self._ids.get(job.id) is job:
            del self._ids[job.id]
        if (jobs := self._keys.get(job.key)) is not None and job in jobs:
            jobs.remove(job)
            if not jobs:
                del self._keys[job.key]
        if not self.all and self._due:  # nothing is left that a timer would be for
            self._stop_timer()

    def _discount(self, job: J) -> None:
        self._counts[job.owner] -= 1
        if not self._counts[job.owner]:
            del self._counts[job.owner]

    # -- the time that it is known

    def forget_in(self, job: J, seconds: float) -> None:
        """Forget a job after so many seconds, or call its `on_expired`; a later call sets another time."""
        loop = asyncio.get_running_loop()
        job.expires = loop.time() + seconds
        if len(self._due) > 2 * len(self.all) + _SLACK:  # most are of jobs that are forgotten, and would hold them
            self._due = [entry for entry in self._due if entry[2].expires == entry[0]]
            heapify(self._due)
        heappush(self._due, (job.expires, next(self._order), job))
        if self._timer is None or self._timer.when() > job.expires:
            self._arm(loop)

    def keep(self, job: J) -> None:
        """Do not forget a job by time any more."""
        job.expires = inf

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._due[0][0], self._expire, loop) if self._due else None

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time() + _RESOLUTION
        while self._due and self._due[0][0] <= now:
            when, _, job = heappop(self._due)
            if job.expires != when:  # it was kept, forgotten, or has another time by now
                continue
            job.expires = inf
            if job.on_expired is not None:
                job.on_expired()
            else:
                self.forget(job)
        self._arm(loop)

    # -- the work

    def running(self) -> AbstractAsyncContextManager[None]:
        """Jobs can be started meanwhile; leaving cancels their tasks and waits for their end."""
        return self._tasks.running()

    def start(self, job: J, work: Coroutine[Any, Any, Any]) -> bool:
        """Have a task do the work of a job, which is its outcome. False: nothing is run any more; nothing was begun.

        Cancelled before its end, it fails with `CancelledError`.
        """
        running = _run(job, work)
        if self._cancels_by_hand:
            task = asyncio.get_running_loop().create_task(running)
            self._loose.add(task)
            task.add_done_callback(self._loose.discard)
        elif (task := self._tasks.spawn(running)) is None:
            work.close()
            return False
        job.task = task
        task.add_done_callback(lambda _: (work.close(), job.fail(asyncio.CancelledError())))  # perhaps before it began
        return True

    def cancel(self, job: J) -> None:
        """Forget a job and cancel its task. Whoever waits gets its outcome as soon as the task has ended."""
        self.forget(job)
        if job.task is not None:
            job.task.cancel()

    def under_way(self) -> set[asyncio.Task[None]]:
        """The tasks that have not ended."""
        return self._tasks.under_way() | self._loose

    def clear(self) -> None:
        """Forget all jobs, and stop the timer. Tasks continue."""
        for job in self:
            self.forget(job)
        self._stop_timer()

    def _stop_timer(self) -> None:
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_SLACK = 64
"""Times of forgotten jobs that are left in the heap before it is made anew."""
_RESOLUTION = 0.002
"""Seconds: timers of event loops count in whole milliseconds, and may be that much early."""


async def _run(job: Job, work: Coroutine[Any, Any, Any]) -> None:
    try:
        job.finish(await work)
    except Exception as error:  # noqa: BLE001 - it goes to those who wait, whatever it is
        job.fail(error)


def _set(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
