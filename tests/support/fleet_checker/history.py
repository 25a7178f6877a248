"""What clients of a fleet saw, and what must be true of it (issue 24).

A request is answered, or fails with an error that says `not sent` (it is safe to repeat) or `outcome unknown`. What a
balancer says, and a connection that breaks, count as unknown.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

Outcome = Literal["answered", "refused", "not sent", "unknown", "hung", "wrong"]
"""`refused`: by a rule of the bridge; `hung`: no answer came in any time; `wrong`: one that is none of these."""


@dataclass(frozen=True)
class Request:
    """One call of the tool that must not be called twice."""

    id: str
    session: str
    """Empty: it has none, as those of revision 2026-07-28."""
    outcome: Outcome
    began: float
    """Seconds since the start of the run."""
    ended: float
    detail: str = ""
    owner: int = 0
    """The process of the server that answered: another one for each bridge."""

    def __str__(self) -> str:
        return f"{self.began:8.2f}–{self.ended:.2f} s {self.id} {self.outcome} {self.owner or ''} {self.detail[:300]}"


@dataclass(frozen=True)
class Disruption:
    """What was done to the fleet meanwhile."""

    kind: str
    whom: str
    began: float
    ended: float

    @property
    def moves(self) -> int:
        """How often a session may change its bridge by it.

        One that was paused may still answer what had come to it, after another has taken its sessions.
        """
        return 3 if self.kind == "pause" else 1

    def __str__(self) -> str:
        return f"{self.began:8.2f}–{self.ended:.2f} s {self.kind} {self.whom}"


def faults(requests: Sequence[Request], made: Iterable[str], disruptions: Sequence[Disruption]) -> list[str]:
    """Which claims do not hold, and where. `made`: the ids that the server was called with, each time."""
    times = Counter(made)
    found = [f"made {count} times: {id_}" for id_, count in times.items() if count > 1]
    for request in requests:
        count = times[request.id]
        if request.outcome in ("hung", "wrong"):
            found.append(f"neither answered nor `not sent` nor `outcome unknown`: {request}")
        elif request.outcome == "answered" and count != 1:
            found.append(f"answered, but made {count} times: {request}")
        elif request.outcome in ("not sent", "refused") and count:
            found.append(f"said to be {request.outcome}, but made: {request}")
    return [*found, *_shared_sessions(requests, disruptions)]


def _shared_sessions(requests: Sequence[Request], disruptions: Sequence[Disruption]) -> Iterator[str]:
    """A session has one bridge at a time: it moves only when something was done to the fleet."""
    answered = sorted((one for one in requests if one.session and one.owner), key=lambda one: one.session)
    for session, group in groupby(answered, key=lambda one: one.session):
        own = sorted(group, key=lambda one: one.began)
        moves = sum(1 for one, other in pairwise(own) if one.owner != other.owner)
        allowed = sum(one.moves for one in disruptions if one.began <= own[-1].ended and one.ended >= own[0].began - 10)
        if moves > allowed:
            yield f"a session moved {moves} times, and at most {allowed} were due: {session[:8]}"
