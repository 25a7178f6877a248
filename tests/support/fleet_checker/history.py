"""What clients of a fleet saw, and what must be true of it (issue 24).

A request is answered, or fails with an error that says `not sent` (it is safe to repeat) or `outcome unknown`. What a
balancer says, and a connection that breaks, count as unknown.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

from mcpbridge.fleet.members import BEAT_SECONDS, LEASE_SECONDS
from mcpbridge.fleet.records import SETTLING_SECONDS

Kind = Literal["kill", "drain", "store", "pause", "long pause", "stop", "cut", "slow"]
"""`long pause`: of the bridge that has the process of a server for the fleet, until another may have it;
`cut`: some network links pass nothing; `slow`: the machine itself keeps a bridge waiting for a second or longer."""
Parts = Literal["", "link", "store", "all"]
"""What is cut: two bridges from each other, a bridge from the server of the store, or a bridge from all of these."""
STOPPED: tuple[Kind, ...] = ("pause", "long pause")
"""A bridge is stopped for a while."""
PAUSES: tuple[Kind, ...] = (*STOPPED, "slow")
"""A bridge stands still."""
Outcome = Literal["answered", "refused", "not sent", "unknown", "hung", "wrong"]
"""`refused`: by a rule of the bridge; `hung`: no answer came in any time; `wrong`: one that is none of these."""
FAILED_CLOSED = ("ApprovalUnavailable", "LimitUnavailable", "StoreFailed")
"""Words of refusals for which there is no rule: what it would be read from is away."""
NOT_REACHED = "that has this cannot be reached"
"""Of `not sent`: the owner of a session cannot be reached, though its lease lives."""
NOT_REACHED_SECONDS = 1.0
"""After which that is known at the latest."""
_AFTER: dict[Kind, float] = {
    "kill": BEAT_SECONDS,
    "drain": BEAT_SECONDS,
    "store": SETTLING_SECONDS + 3,  # and an attempt to reach it that ends by its deadline, and a pause
    "pause": LEASE_SECONDS + BEAT_SECONDS,
    "long pause": LEASE_SECONDS + BEAT_SECONDS,
    "stop": BEAT_SECONDS,
    "cut": 5 + BEAT_SECONDS,  # what waits on a connection that broke learns so after five seconds of silence
    "slow": BEAT_SECONDS,
}
"""Seconds after a disruption in which requests may still fail by it."""


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

    kind: Kind
    whom: str
    began: float
    ended: float
    parts: Parts = ""

    @property
    def moves(self) -> int:
        """How often a session may change its bridge by it.

        One that was paused may still answer what had come to it, after another has taken its sessions.
        """
        if self.kind == "cut" and self.parts == "link":
            return 0  # all leases live
        return 3 if self.kind in PAUSES else 1

    @property
    def reaches_no_store(self) -> bool:
        """Whether some bridge does not reach the server of the store."""
        return self.kind == "store" or (self.kind == "cut" and self.parts in ("store", "all"))

    @property
    def over(self) -> float:
        """When no request fails any more that begins then."""
        return max(self.ended + _AFTER[self.kind], self.began + LEASE_SECONDS + BEAT_SECONDS)

    def explains(self, began: float, ended: float, late: float = 0) -> bool:
        """Whether a request of this time may fail by it. `late`: what the machine delays by, in seconds."""
        return self.began <= ended and began <= self.over + late

    def __str__(self) -> str:
        return f"{self.began:8.2f}–{self.ended:.2f} s {self.kind} {self.parts} {self.whom}"


class Delays:
    """For how long processes waited for the machine, as somebody measured it all along."""

    def __init__(self, measured: Sequence[tuple[float, float]] = ()) -> None:
        """`measured`: when each wait began and ended, in seconds since the start."""
        self.measured = list(measured)

    def longest(self, began: float, ended: float) -> float:
        """The longest wait that there was at this time, in seconds."""
        own = (end - start for start, end in self.measured if start <= ended and end >= began)
        return max(own, default=0.0)

    def stalls(self) -> list[Disruption]:
        """Times in which nothing ran: what a bridge waits for, a second or longer, ended meanwhile."""
        return [Disruption("slow", "the machine", *one) for one in self.measured if one[1] - one[0] > _STALL_SECONDS]


_STALL_SECONDS = 1.0
"""The shortest time that a bridge waits for a server or another bridge."""
_BALANCERS, _CHECK_SECONDS = "No server is available", 0.2
"""What the balancer says that takes all bridges for lost, and the time in which a bridge must answer its checks."""
_WAITS = 3
"""A request that cannot be passed on waits so often for a process to come: to be taken, to be given up, to be read."""


def late_faults(requests: Iterable[Request], disruptions: Sequence[Disruption], delays: Delays) -> Iterator[str]:
    """Whoever asks for a bridge that cannot be reached learns that soon, but for the time in which nothing runs."""
    for one in requests:
        if one.outcome != "not sent" or NOT_REACHED not in one.detail:
            continue
        paused = sum(
            max(0.0, min(d.ended, one.ended) - max(d.began, one.began)) for d in disruptions if d.kind in STOPPED
        )
        most = NOT_REACHED_SECONDS + _WAITS * delays.longest(one.began, one.ended) + paused
        if one.ended - one.began > most:
            yield f"`not sent` after {one.ended - one.began:.2f} s, {most:.2f} s were due: {one}"


def unexplained_faults(
    requests: Iterable[Request], disruptions: Sequence[Disruption], delays: Delays, more: float = 0
) -> Iterator[str]:
    """A request fails only if something was done to the fleet: else all of them are answered.

    `more`: seconds after a disruption in which those may still fail by it that others would not.
    """
    for one in requests:
        is_closed = one.outcome == "refused" and any(words in one.detail for words in FAILED_CLOSED)
        if one.outcome == "answered" or (one.outcome == "refused" and not is_closed):
            continue
        if _BALANCERS in one.detail and delays.longest(one.began - 1, one.ended) > _CHECK_SECONDS:
            continue  # its checks had no answer in time
        late = more + _WAITS * delays.longest(one.began, one.ended)
        if not any(d.explains(one.began, one.ended, late) for d in disruptions):
            yield f"failed, though nothing was done to the fleet: {one}"


def call_faults(requests: Iterable[Request], made: Iterable[str]) -> list[str]:
    """Where a call was made twice, or its client does not know. `made`: the ids that servers were called with."""
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
    return found


def session_faults(requests: Iterable[Request], disruptions: Sequence[Disruption]) -> Iterator[str]:
    """A session has one bridge at a time: it moves only when something was done to the fleet."""
    answered = sorted((one for one in requests if one.session and one.owner), key=lambda one: one.session)
    for session, group in groupby(answered, key=lambda one: one.session):
        own = sorted(group, key=lambda one: one.began)
        moves = sum(1 for one, other in pairwise(own) if one.owner != other.owner)
        allowed = sum(one.moves for one in disruptions if one.began <= own[-1].ended and one.ended >= own[0].began - 10)
        if moves > allowed:
            where = ", ".join(f"{one.owner} at {one.began:.2f} s" for one in _changes(own))
            yield f"a session moved {moves} times, and at most {allowed} were due: {session[:8]}, at {where}"


def _changes(requests: Sequence[Request]) -> Iterator[Request]:
    """The first of each bridge in turn."""
    yield requests[0]
    yield from (other for one, other in pairwise(requests) if one.owner != other.owner)
