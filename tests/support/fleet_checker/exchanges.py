"""What clients hear besides answers, what people decide, and what is counted: claims about these (issue 24).

The id of a call begins with the name of its caller: `ann-7` is the seventh call of `ann`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from support.fleet_checker.history import Disruption, Request

_TOLERANCE = 0.02
"""What a rate may be exceeded by."""
APPROVAL_SECONDS = 30
"""How long a call waits for a yes."""
_BEFORE = 10.0
"""Seconds after a disruption in which something may still be lost by it."""


@dataclass(frozen=True)
class Exchange:
    """What came to the caller of one call until its answer."""

    id: str
    asked: tuple[str, ...] = ()
    """The ids that the questions were of."""
    said: str = ""
    """The word that was answered."""
    got: str | None = None
    """The word that the answer to the call has; None: there was no answer."""
    progress: tuple[tuple[str, int], ...] = ()
    """The id that each was of, and how far it was."""
    is_lost: bool = False
    """The bridge said that it knows of no call that waits."""
    is_repeated: bool = False
    """What it was continued with was good for a second time."""
    began: float = 0
    ended: float = 0


@dataclass(frozen=True)
class Heard:
    """What a client heard on a stream that is for no call."""

    by: str
    what: str
    of: str
    """The id of a call; the URI of what was subscribed to."""


@dataclass(frozen=True)
class Touch:
    """A resource changed that a client has subscribed to, while its stream was open."""

    by: str
    was_heard: bool
    """Else the stream remained open all the time, and nothing came."""
    at: float
    began: float = 0
    """When it was to change."""


@dataclass(frozen=True)
class Decision:
    """What somebody said to a call that waits for approval, at one or more bridges at a time."""

    id: str
    approval: str
    is_yes: bool
    taken: int
    """Bridges that took it."""
    unknown: int
    """Bridges that may have taken it: their answers were lost."""
    at: float


def exchange_faults(
    exchanges: Sequence[Exchange], heard: Sequence[Heard], touches: Sequence[Touch], disruptions: Sequence[Disruption]
) -> Iterator[str]:
    """Questions, progress and subscriptions."""
    for one in exchanges:
        for of in {*one.asked, *(of for of, _ in one.progress)} - {one.id}:
            yield f"heard what is another call's: {of} during {one.id}"
        if len(one.asked) > 1:
            yield f"asked {len(one.asked)} times: {one.id}"
        if one.got is not None and one.asked and one.got != one.said:
            yield f"released by another answer: {one.id} {one.said!r} {one.got!r}"
        if one.got and not one.asked:
            yield f"answered without a question: {one.id} {one.got!r}"
        steps = [step for _, step in one.progress]
        if any(before >= after for before, after in pairwise(steps)):
            yield f"progress that does not grow: {one.id} {steps}"
        if one.is_repeated:
            yield f"released twice: {one.id}"
        if one.is_lost and not any(d.began <= one.ended and d.ended >= one.began - _BEFORE for d in disruptions):
            yield f"lost without a reason: {one.id}"
    for it in heard:
        if it.what != "update" and _caller(it.of) != it.by:
            yield f"heard what is another client's: {it.what} of {it.of} at {it.by}"
        if it.what == "update" and it.of != it.by:
            yield f"heard of what it has not subscribed to: {it.of} at {it.by}"
    for touch in touches:
        if not touch.was_heard:
            yield f"a subscription has ended: {touch.by} at {touch.at:.2f} s"


def approval_faults(
    requests: Iterable[Request], made: Iterable[str], decisions: Sequence[Decision], disruptions: Sequence[Disruption]
) -> Iterator[str]:
    """Nothing is made without a yes, a yes is heard once, and it releases the call, wherever that waits."""
    decided = defaultdict[str, list[Decision]](list)
    for one in decisions:
        decided[one.approval].append(one)
    for approval, own in decided.items():
        if (taken := sum(one.taken for one in own)) > 1:
            when = ", ".join(f"{one.at:.2f} s (taken by {one.taken})" for one in own if one.taken)
            yield f"decided {taken} times: {own[0].id}, approval {approval}, at {when}"
    times = Counter(made)
    for request in requests:
        own = [one for one in decisions if one.id == request.id]
        if times[request.id] and not any(one.is_yes and (one.taken or one.unknown) for one in own):
            yield f"made without a yes: {request}"
        if times[request.id] and any(not one.is_yes and one.taken for one in own):
            yield f"made after a no: {request}"
        # A store that is away while a call waits makes that fail: closed, though somebody has agreed.
        is_calm = not any(d.began <= request.ended and d.ended >= request.began - _BEFORE for d in disruptions)
        had_time = request.ended - request.began < APPROVAL_SECONDS / 2
        if is_calm and had_time and request.outcome == "refused" and any(one.is_yes and one.taken for one in own):
            yield f"refused, though there was a yes: {request}"


def budget_faults(requests: Iterable[Request], made: Iterable[str], most: int) -> Iterator[str]:
    """No conversation makes more calls than it may."""
    times = Counter(made)
    counts = Counter[str]()
    for request in requests:
        counts[request.session] += times[request.id]
    for session, count in counts.items():
        if count > most:
            yield f"a budget of {most} was exceeded: {count} calls of {session[:8]}"


def rate_faults(times: Iterable[float], burst: int, seconds: float, outages: float) -> Iterator[str]:
    """At no time more calls than `burst`, and one each `seconds` since.

    `outages`: while the store is away each bridge has its part of the rate, so that there may be one more
    burst in all; while one bridge alone does not reach it, that bridge has its part, which is less than half.
    """
    own = sorted(times)
    for first, start in enumerate(own):
        for last in range(first, len(own)):
            count, may_be = last - first + 1, burst * (1 + outages) + (own[last] - start) / seconds
            if count > may_be * (1 + _TOLERANCE) + 1:
                yield f"a rate was exceeded: {count} calls within {own[last] - start:.2f} s, {may_be:.1f} were due"
                return


def _caller(id_: str) -> str:
    return id_.rpartition("-")[0]
