"""The server with `share = "fleet"`: calls that come to it, and claims about its processes (issue 24).

Each bridge has a caller of its own, so that a call waits at whichever is stopped. What the processes did is in the
journal of `servers/single.py`.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from mcpbridge.fleet.servers.leases import LEASE_SECONDS, MARGIN_SECONDS
from support.fleet_checker.answers import read
from support.fleet_checker.history import PAUSES, Disruption, Request
from support.fleet_checker.talkers import PAUSE, Talker
from support.fleet_clients import in_an_envelope

if TYPE_CHECKING:
    from support.fleet_checker.run import Run
    from support.replicas import Replica

TOOL = "f__add"
TRIAL = "trial"
"""The id of calls by which the run waits for the server."""
PAST_LEASE_SECONDS = LEASE_SECONDS + MARGIN_SECONDS + 2.0
"""After which another bridge has the server of one that stands still."""
MOVE_SECONDS = PAST_LEASE_SECONDS + 10.0
"""Seconds after a disruption in which calls may fail: another bridge waits, starts it, and all connect to it."""
_LINES = {"started": 3, "beside": 3, "call": 5}
"""Words of the lines of the journal: one that a killed process did not end is left out."""


@dataclass(frozen=True)
class Process:
    """One process of the server."""

    pid: int
    began: float
    """Seconds since the start of the run."""
    is_beside: bool
    """Another lived when it was started."""
    calls: Sequence[tuple[str, float, int]] = ()
    """Id, time and number of each call that it took."""


def processes(journal: Path, start: float) -> list[Process]:
    """What the journal says, in the order of their starts. `start`: of the run, on the monotonic clock."""
    found, calls = dict[int, Process](), dict[int, list[tuple[str, float, int]]]()
    for line in journal.read_text("utf-8").splitlines():
        words = line.split()
        if len(words) != _LINES.get(words[0]):
            continue
        pid, at = int(words[1]), float(words[2]) - start
        if words[0] == "call":
            calls[pid].append((words[3], at, int(words[4])))
        else:
            calls[pid] = []
            found[pid] = Process(pid, at, words[0] == "beside", calls[pid])
    return list(found.values())


def owner_of(pid: int, owners: Mapping[int, "Replica"]) -> "Replica | None":
    """The bridge whose process has this one below it. `owners`: by process id. None: it is gone."""
    while pid > 1:
        if pid in owners:
            return owners[pid]
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1])
        except OSError:
            return None
    return None


def process_faults(
    found: Sequence[Process],
    requests: Sequence[Request],
    disruptions: Sequence[Disruption],
) -> Iterator[str]:
    """There is one process at a time, whose state lasts as long as it; a stopped bridge cannot end its own."""
    for one, other in pairwise(found):
        for id_, at, _ in one.calls:
            if at > other.began:
                yield (
                    f"a process took a call though another had followed it: {id_} at {at:.2f} s by {one.pid}, "
                    f"and {other.pid} since {other.began:.2f} s"
                )
    for one in found:
        stopped = any(
            d.kind in PAUSES and d.ended - d.began > LEASE_SECONDS and d.explains(one.began, one.began)
            for d in disruptions
        )
        if one.is_beside and not stopped:
            yield f"two processes at once: {one.pid} since {one.began:.2f} s"
        for (_, _, before), (id_, _, count) in pairwise(one.calls):
            if count != before + 1:
                yield f"a process lost its state: {id_} by {one.pid}"
    taken = {id_: (one.pid, count) for one in found for id_, _, count in one.calls}
    for request in requests:
        if request.outcome == "answered" and _state_in_answer(request) != taken.get(request.id):
            yield f"answered by another state: {request}, and {taken.get(request.id)} took it"
    yield from _moves(found, disruptions)


def _state_in_answer(request: Request) -> tuple[int, int]:
    return request.owner, int(request.detail or 0)


def _moves(found: Sequence[Process], disruptions: Sequence[Disruption]) -> Iterator[str]:
    """Each disruption ends one process at most; the first was there before the run."""
    later = [one for one in found if one.began > 0]
    if len(later) > len(disruptions):
        pids = ", ".join(f"{one.pid} at {one.began:.2f} s" for one in later)
        yield f"{len(later)} processes were started, at {len(disruptions)} disruptions: {pids}"


class SharedCaller(Talker):
    """Calls the server by way of one bridge, without a session."""

    def __init__(self, run: "Run", name: str, at: "Replica") -> None:
        super().__init__(run, name)
        self.url = at.url

    async def begin(self) -> bool:
        self.session = "none"
        return True

    async def turn(self) -> None:
        self.count += 1
        id_, began = f"{self.name}-{self.count}", self.run.now()
        headers, body = in_an_envelope("tools/call", {"name": TOOL, "arguments": {"id": id_}}, {}, id_=self.count)
        try:
            answer = await self.http.post(self.url, json=body, headers=headers)
            outcome, detail, owner = read(answer.status_code, answer.text, id_)
            if outcome == "answered":
                detail = str(count_of(answer.text))
        except httpx2.ReadTimeout as error:
            outcome, detail, owner = "hung", repr(error), 0
        except httpx2.HTTPError as error:
            outcome, detail, owner = "unknown", repr(error), 0
        self.run.talks.requests.append(Request(id_, "", outcome, began, self.run.now(), detail, owner))
        self.answered += outcome == "answered"
        self.run.changed.set()
        if outcome != "answered":
            await asyncio.sleep(PAUSE)


def count_of(text: str) -> int:
    """Which call of its process it was, as the answer says."""
    line = next((line[6:] for line in text.splitlines() if line.startswith("data: {")), text)
    return int(json.loads(json.loads(line)["result"]["content"][0]["text"])[2])
