"""Equal calls of a cached tool, at all bridges at the same time: they run once (issue 24).

Each bridge may run a call by itself while the store, which says who else does, cannot be reached. What ran is in the
journal of `servers/slow_reads.py`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from support.fleet_checker.answers import read
from support.fleet_checker.history import PAUSES, Delays, Disruption, Request
from support.fleet_checker.talkers import PAUSE, Talker
from support.fleet_clients import in_an_envelope

if TYPE_CHECKING:
    from support.fleet_checker.run import Run
    from support.replicas import Replica

TOOL = "k__read"
_AWAY_SECONDS = 8.0
"""Seconds after an outage in which a bridge may still take the store for lost: it pauses before it tries again."""
_SLOW_SECONDS = 2.0
"""The same after a delay of the machine, in which it waited in vain for an answer or two."""


@dataclass(frozen=True)
class Ran:
    """One run of the tool."""

    id: str
    began: float
    ended: float


def runs(journal: Path, start: float) -> list[Ran]:
    """What the journal says. `start`: of the run of the checker, on the monotonic clock."""
    words = [line.split() for line in journal.read_text("utf-8").splitlines()]
    return [Ran(one[0], float(one[1]) - start, float(one[2]) - start) for one in words if len(one) == 3]


def run_faults(
    ran: Iterable[Ran], requests: Iterable[Request], disruptions: Sequence[Disruption], delays: Delays
) -> Iterator[str]:
    """No two runs of the same call overlap, while all bridges reach the store; and what is answered has run."""
    by_id = defaultdict[str, list[Ran]](list)
    for one in ran:
        by_id[one.id].append(one)
    for id_, own in by_id.items():
        for one, other in pairwise(sorted(own, key=lambda it: it.began)):
            if other.began < one.ended and not _is_excused(one, disruptions, delays):
                yield (
                    f"ran twice at the same time: {id_}, {one.began:.2f}–{one.ended:.2f} s and "
                    f"{other.began:.2f}–{other.ended:.2f} s"
                )
    for request in requests:
        if request.outcome in ("hung", "wrong"):
            yield f"neither answered nor `not sent` nor `outcome unknown`: {request}"
        elif request.outcome == "answered" and request.id.partition("@")[0] not in by_id:
            yield f"answered, but never run: {request}"


def _is_excused(one: Ran, disruptions: Sequence[Disruption], delays: Delays) -> bool:
    """A bridge may have run it by itself: it does not reach the store, or waited for an answer in vain."""
    late = delays.longest(one.began - _AWAY_SECONDS, one.ended)
    return any(
        d.began <= one.ended and one.began <= d.ended + late + (_SLOW_SECONDS if d.kind == "slow" else _AWAY_SECONDS)
        for d in disruptions
        if d.reaches_no_store or d.kind in PAUSES
    )


class EqualCaller(Talker):
    """Makes each call at all bridges at once."""

    def __init__(self, run: "Run", name: str) -> None:
        super().__init__(run, name)

    async def begin(self) -> bool:
        self.session = "none"
        return True

    async def turn(self) -> None:
        self.count += 1
        id_ = f"{self.name}-{self.count}"
        outcomes = await asyncio.gather(*(self._ask(id_, one) for one in self.run.found.replicas))
        self.answered += all(outcomes)
        self.run.changed.set()
        await asyncio.sleep(PAUSE)

    async def _ask(self, id_: str, replica: "Replica") -> bool:
        began = self.run.now()
        headers, body = in_an_envelope("tools/call", {"name": TOOL, "arguments": {"id": id_}}, {}, id_=self.count)
        try:
            answer = await self.http.post(replica.url, json=body, headers=headers)
            outcome, detail, owner = read(answer.status_code, answer.text, id_)
        except httpx2.ReadTimeout as error:
            outcome, detail, owner = "hung", repr(error), 0
        except httpx2.HTTPError as error:
            outcome, detail, owner = "unknown", repr(error), 0
        name = f"{id_}@{replica.name}"
        self.run.talks.requests.append(Request(name, "", outcome, began, self.run.now(), detail, owner))
        return outcome == "answered"
