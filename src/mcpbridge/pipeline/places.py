"""Places for calls, by what they are counted for: a tool, a client, a turn. As many run as there are slots.

Each limit has a queue of its own (`Gate`), in order of arrival and bounded. Gates are made when they are first needed
and forgotten when nobody is inside or waits, so clients that went leave nothing behind.
"""

from collections.abc import Hashable
from typing import NamedTuple

from mcpbridge.model import Call
from mcpbridge.upstream.gate import Gate

__all__ = ["Limit", "Place", "Places"]


class Limit(NamedTuple):
    """What is limited, for whom, and to how many calls at a time."""

    key: Hashable
    """Tells it from all others. A limit that is set anew is another one."""
    what: str
    """What takes only so many, for refusals: `Tool 'x/y'`."""
    slots: int


class Place(Gate):
    """The gate of one limit. `users` are inside or wait."""

    users = 0

    def __init__(self, limit: Limit, *, queued: int) -> None:
        super().__init__(limit.what, slots=limit.slots, places=queued, patience=0)
        self.key = limit.key


class Places:
    """All gates that are in use."""

    def __init__(self, *, queued: int) -> None:
        """`queued`: calls that may wait at each."""
        self.queued = queued
        """Calls that may wait at each gate that is made from now on."""
        self.held: dict[Call, list[Place]] = {}
        """The places of the calls that run."""
        self._places: dict[Hashable, Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    def use(self, limit: Limit) -> Place:
        """The gate of a limit. Whoever uses it says so with `leave` or `give_up`."""
        place = self._places.get(limit.key)
        if place is None:
            place = self._places[limit.key] = Place(limit, queued=self.queued)
        place.users += 1
        return place

    def leave(self, place: Place) -> None:
        """A call that was inside is over: the one who waits longest comes in."""
        place.leave()
        self.give_up(place)

    def give_up(self, place: Place) -> None:
        """A call does not come in."""
        place.users -= 1
        if not place.users:
            del self._places[place.key]
