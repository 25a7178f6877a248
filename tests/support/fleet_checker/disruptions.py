"""What is done to a fleet while its clients call (issue 24)."""

import asyncio
import re
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from mcpbridge.fleet.members import LEASE_SECONDS
from support.fleet_checker.held_calls import hold
from support.fleet_checker.history import Disruption, Kind, Parts
from support.fleet_checker.one_process import PAST_LEASE_SECONDS, owner_of, processes
from support.fleet_checker.talkers import PATIENCE
from support.partitions import Host, why_not
from support.replicas import Replica

if TYPE_CHECKING:
    from support.fleet_checker.run import Run

ALL_KINDS: tuple[Kind, ...] = ("kill", "drain", "store", "pause", "long pause", "stop", "cut")
KINDS: tuple[Kind, ...] = tuple(kind for kind in ALL_KINDS if kind != "cut" or not why_not())
"""Those that can be done here."""
CALLS_BETWEEN = 30
"""Calls between two disruptions, at least."""
_PAUSE = 5.0
"""Seconds that a bridge is paused: longer than its lease."""
_LOOK = 0.2
"""Seconds between two looks for the process of the server that the fleet shares."""
_PARTS: tuple[Parts, ...] = ("link", "store", "all")
_CUT_SECONDS = (1, 4, 8)
"""Shorter than a lease; longer; and longer than a silent connection between bridges lives."""


async def disrupt(run: "Run", kind: Kind) -> None:
    """Do something to the fleet, and undo it."""
    replica = run.random.choice(run.found.replicas)
    if kind == "long pause":
        replica = await _owner(run)
    by = run.random.choice([one for one in run.found.replicas if one is not replica])
    held = await hold(run, replica, by) if kind in ("kill", "pause", "long pause", "cut") else None
    parts: Parts = ""
    began, whom = run.now(), replica.name
    run.disrupted = {replica.name} if kind in ("kill", "stop", "pause", "long pause") else set()
    if kind == "kill":
        await asyncio.to_thread(_restart, replica, replica.kill)
    elif kind == "stop":
        await asyncio.to_thread(_restart, replica, replica.stop)
    elif kind == "store":
        whom = ""
        run.redis.kill()
        await asyncio.sleep(run.random.choice([0, 1, 5]))
        await asyncio.to_thread(run.redis.start)
    elif kind in ("pause", "long pause"):
        replica.signal(signal.SIGSTOP)
        await asyncio.sleep(_PAUSE if kind == "pause" else PAST_LEASE_SECONDS)
        replica.signal(signal.SIGCONT)
    elif kind == "drain":
        done = await asyncio.to_thread(replica.command, "fleet", "drain", "--wait", "20")
        assert done.returncode in (0, 7), done.stderr
        await run.calls()
        await asyncio.to_thread(replica.command, "fleet", "drain", "--undo")
    elif kind == "cut":
        parts, seconds = run.random.choice(_PARTS), run.random.choice(_CUT_SECONDS)
        whom += f" and {by.name}" if parts == "link" else ""
        with _cut(run, replica, by, parts):
            await asyncio.sleep(seconds)
    run.disrupted = set()
    run.disruptions.append(Disruption(kind, whom, began, run.now(), parts))
    if held is not None:
        await held.end()


async def _owner(run: "Run") -> Replica:
    """The bridge that has the process of the server that the fleet shares."""
    async with asyncio.timeout(PATIENCE):
        while True:
            owners = {one.process.pid: one for one in run.found.replicas if one.process is not None}
            for process in reversed(processes(run.single, run.start)):
                if (found := owner_of(process.pid, owners)) is not None:
                    return found
            await asyncio.sleep(_LOOK)


def _restart(replica: Replica, end: Callable[[], None]) -> None:
    end()
    replica.start()


@contextmanager
def _cut(run: "Run", replica: Replica, by: Replica, parts: Parts) -> Generator[None]:
    net = run.net
    assert net is not None
    replicas, store = run.found.replicas, net.hosts[-1]

    def at(one: Replica) -> Host:
        return net.hosts[replicas.index(one)]

    others = {"link": [at(by)], "store": [store], "all": [store, *(at(one) for one in replicas if one is not replica)]}
    cut = list[Host]()
    try:
        for other in others[parts]:
            net.cut(at(replica), other)
            cut.append(other)
        yield
    finally:
        for other in cut:
            net.mend(at(replica), other)


_LAPSED = re.compile(r"this bridge was no member of its fleet for a while")
_LAPSES: tuple[Kind, ...] = ("pause", "long pause", "store", "cut")
"""What is done to a bridge that loses its lease by it."""
_TIME = re.compile(r'"timestamp": "([^"]+)"')


def lapses(run: "Run") -> Iterator[Disruption]:
    """On a busy machine a bridge may not come to renew its lease; its sessions move then, as they should."""
    for replica in run.found.replicas:
        for line in replica.log.read_text("utf-8").splitlines():
            if _LAPSED.search(line) and (time := _TIME.search(line)):
                at = datetime.fromisoformat(time[1]).timestamp() - run.began_at
                began = at - 2 * LEASE_SECONDS
                if not any(one.explains(began, at) for one in run.disruptions if one.kind in _LAPSES):
                    yield Disruption("slow", replica.name, began, at)
