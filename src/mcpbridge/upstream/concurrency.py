"""Keep one busy upstream from taking the whole bridge.

Each upstream has its own slots and its own queue, so a slow server delays its own callers only. A call that
cannot get a slot in time, or finds the queue full, is refused before the server sees anything of it.

One client at a time on a session whose questions name no call.

A legacy server on a plain channel asks without saying for which call. So while a call of a client that can be asked
runs there, calls of other such clients wait. Calls of the same client run side by side: whichever of them a question
is for, it goes to the same person.

Whether a server asks its clients anything, as far as its calls have shown.

Most servers of the handshake era never do. One that was told often enough that it may, and did not, is quiet in that:
clients share it whatever they can be asked, and their calls run side by side. The first question ends that for good.
What was seen is kept with what the server offers (`manifest`); where nothing is kept, nothing is concluded from it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Protocol
from weakref import WeakSet

from mcpbridge.base.errors import Overloaded
from mcpbridge.core.elicitation import ELICIT, LIST_ROOTS, NO_CAPABILITIES, SAMPLE, ClientCapabilities
from mcpbridge.core.model import Call


def takes_slot(call: Call) -> bool:
    """Not what waits by design for as long as a task runs (2025-11-25, retrieving task results)."""
    return call.method != "tasks/result"


class Gate:
    """At most `slots` calls at a time; `places` more wait in order of arrival, none longer than `patience` seconds."""

    def __init__(self, what: str, *, slots: int, places: int, patience: float) -> None:
        """`what` is it that takes only so many, as refusals name it: `Server 'x'`."""
        self._what, self._slots, self._places, self._patience = what, slots, places, patience
        self._free = slots
        self._queue: deque[asyncio.Future[None]] = deque()
        self._resting: dict[Call, int] = {}
        """Calls that lend out their slot, and for how many questions."""

    @property
    def is_busy(self) -> bool:
        """All slots are taken."""
        return self._free <= 0

    def try_enter(self) -> bool:
        """Take a slot if one is free and nobody waits; the cheap way for the usual case."""
        if self._free > 0 and not self._queue:
            self._free -= 1
            return True
        return False

    async def enter(self, patience: float | None = None) -> None:
        """Wait for a slot; `patience` in seconds, if it is not the usual one.

        Raises:
            Overloaded: the queue is full, or the wait took too long.
        """
        if len(self._queue) >= self._places:
            await asyncio.sleep(0)  # who was cancelled in this turn of the loop leaves in the next
            if self.try_enter():
                return
        if len(self._queue) >= self._places:
            raise Overloaded(f"{self._what} is busy: {_calls(self._slots)} and {self._places} wait, more are not taken")
        patience = self._patience if patience is None else max(0.0, patience)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            async with asyncio.timeout(patience):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.leave()  # the slot was handed over in the very turn that ended the wait
            elif turn in self._queue:
                self._queue.remove(turn)
            if isinstance(error, TimeoutError):
                others = "another call" if self._slots == 1 else f"{self._slots} other calls"
                raise Overloaded(f"{self._what} was busy for {round(patience, 2):g} s with {others}") from None
            raise

    def leave(self) -> None:
        """Give the slot back: to the one who waits longest, else to whoever comes."""
        while self._queue and self._free >= 0:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    @contextmanager
    def rest(self, call: Call) -> Generator[None]:
        """Lend out the slot of a call that waits for a person. It goes on at once, even if all slots are taken then.

        It is one slot, however many questions of the call wait.
        """
        questions = self._resting[call] = self._resting.get(call, 0) + 1
        if questions == 1:
            self.leave()
        try:
            yield
        finally:
            self._resting[call] -= 1
            if not self._resting[call]:
                del self._resting[call]
                self._free -= 1


def _calls(slots: int) -> str:
    return "1 call runs" if slots == 1 else f"{slots} calls run"


class WaitingRoom:
    """For those who wait for the same thing: `async with room:` around the wait. At most `places` at a time."""

    def __init__(self, what: str, *, places: int) -> None:
        """`what` is going on meanwhile, as a clause: `Server 'x' is starting`."""
        self._what, self._places = what, places
        self._taken = 0

    async def __aenter__(self) -> None:
        """Take a place.

        Raises:
            Overloaded: there is none.
        """
        if self._taken >= self._places:
            await asyncio.sleep(0)  # as above
        if self._taken >= self._places:
            raise Overloaded(f"{self._what}: {self._taken} calls wait for it, more are not taken")
        self._taken += 1

    async def __aexit__(self, *_: object) -> None:
        self._taken -= 1


class Turns:
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


ENOUGH = 10
"""Calls of tools that a server answered without a question that it could have asked, until it is taken for quiet."""

_HAS_ASKED = -1
_KINDS = {ELICIT: ("form", "url"), SAMPLE: ("sampling",), LIST_ROOTS: ("roots",)}
"""What is counted apart, by the question that it allows."""
_ALONE = frozenset({ELICIT, SAMPLE})
"""Questions to a person or a model. Roots are asked for once, most often when a session begins."""


class Follower(Protocol):
    """Who goes by the habits of a server."""

    def habits_changed(self) -> None:
        """`quiet` is another one now."""
        ...


class Habits:
    """What one server was seen to ask, over all its instances."""

    def __init__(self, counts: Mapping[str, int] | None = None, *, learns: bool = False) -> None:
        """`counts`: as kept. `learns`: it may be found to be quiet, since what it does is kept."""
        self.counts = dict(counts or {})
        """By kind of question: calls that passed without one; -1 once it has asked."""
        self.keep: Callable[[], None] = _nowhere
        """Called when `counts` are to be kept."""
        self.followers = WeakSet[Follower]()
        self.quiet = NO_CAPABILITIES
        """What it could have asked often enough, and did not."""
        self._learns = learns
        self._look()

    @property
    def has_asked(self) -> bool:
        """It asked a person or a model something."""
        return any(self.counts.get(kind) == _HAS_ASKED for method in _ALONE for kind in _KINDS[method])

    def learns_of(self, profile: ClientCapabilities) -> bool:
        """A call in a session that declared this profile may tell something new."""
        return self._learns and any(0 <= self.counts.get(kind, 0) < ENOUGH for kind in _kinds(profile))

    def passed(self, profile: ClientCapabilities) -> None:
        """A call of a tool ended well, in a session that declared this profile."""
        for kind in _kinds(profile):
            if 0 <= (count := self.counts.get(kind, 0)) < ENOUGH:
                self.counts[kind] = count + 1
        self.keep()
        self._look()

    def asked(self, method: str) -> None:
        """It asks."""
        kinds = _KINDS[method]
        if any(self.counts.get(kind) != _HAS_ASKED for kind in kinds):
            self.counts.update(dict.fromkeys(kinds, _HAS_ASKED))
            self.keep()
            self._look()

    def declared(self, profile: ClientCapabilities) -> ClientCapabilities:
        """What a session for clients of this profile declares, so that it suits as many others as can be."""
        return profile.joined(self.quiet)

    def _look(self) -> None:
        found = {kind for kind, count in self.counts.items() if count >= ENOUGH} if self._learns else set[str]()
        is_model = "sampling" in found
        quiet = NO_CAPABILITIES.joined(
            ClientCapabilities(
                form="form" in found,
                url="url" in found,
                sampling=is_model,
                sampling_tools=is_model,
                sampling_context=is_model,
                roots="roots" in found,
            )
        )
        if quiet is not self.quiet:
            self.quiet = quiet
            for follower in list(self.followers):
                follower.habits_changed()


@cache
def suits(declared: ClientCapabilities, client: ClientCapabilities, quiet: ClientCapabilities) -> bool:
    """A session that declared this may serve a client that can be asked that, at a server quiet in so much.

    It is told of nothing that the client cannot be asked but what it does not ask anyway.
    """
    is_superset = declared.joined(client) == declared
    return is_superset and declared.without(quiet) == client.without(quiet)


def _kinds(profile: ClientCapabilities) -> list[str]:
    return [kind for kinds in _KINDS.values() for kind in kinds if getattr(profile, kind)]


def _nowhere() -> None:
    """Where nothing is kept."""
