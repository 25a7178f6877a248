"""A run of the checker: clients call, the fleet is disrupted, and the history is looked through.

    PYTHONPATH=tests python -m support.fleet_checker.run --seed 7 --seconds 600

Each run prints its seed; the same seed draws the same disruptions in the same order. How they fall between calls
depends on the machine. Where there are network namespaces, each bridge is on a host of its own, and so is the Redis
server, so that the links between them can be cut.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from support.fleet_checker.claims import claims
from support.fleet_checker.delays import measure
from support.fleet_checker.disruptions import CALLS_BETWEEN, KINDS, disrupt, lapses
from support.fleet_checker.equal_calls import EqualCaller, Ran, runs
from support.fleet_checker.history import Delays, Disruption, Kind, Request
from support.fleet_checker.one_process import TOOL as SHARED_TOOL
from support.fleet_checker.one_process import TRIAL, Process, SharedCaller, processes
from support.fleet_checker.plain_calls import Caller, Pace
from support.fleet_checker.servers import servers
from support.fleet_checker.summary import document, progress_line, table
from support.fleet_checker.talkers import (
    PATIENCE,
    RULES,
    Approver,
    Asked,
    AskedInRounds,
    Follower,
    RatedCaller,
    Subscriber,
    Talker,
    Talks,
)
from support.fleet_checker.talkers import Caller as ToolCaller
from support.fleet_clients import in_an_envelope
from support.partitions import Network, network, redis_on, why_not
from support.redis_server import Server
from support.replicas import OTHER_TOKEN, Fleet, fleet, until

BROKEN = Path(__file__).parent / "broken_bridge.py"
_SIZE = 3
"""Bridges of the fleet."""
_BETWEEN_SECONDS = 1.0
"""Seconds of calls between two disruptions, if they are paced."""
RATE_IN_TESTS = 40.0
"""Plain calls a second in a short run: the machine has other tests to run."""
_PERIOD = 30.0
"""Seconds from one kill to the next in a long run; another disruption follows each."""
_PROGRESS = 10.0
"""Seconds between two lines of a long run."""


@dataclass
class Run:
    """One run."""

    found: Fleet
    redis: Server
    random: random.Random
    journal: Path
    """What the witnesses were called with."""
    single: Path
    """What the processes did of the server that the fleet shares."""
    pace: Pace = field(default_factory=lambda: Pace(0))
    net: Network | None = None
    """Where the bridges, a server over HTTP and the Redis server are, in this order; None: nothing can be cut."""
    requests: list[Request] = field(default_factory=list[Request])
    disruptions: list[Disruption] = field(default_factory=list[Disruption])
    disrupted: set[str] = field(default_factory=set[str])
    """The bridges that do not answer now, since something is done to them."""
    made: list[str] = field(default_factory=list[str])
    """Ids that the servers were called with."""
    processes: list[Process] = field(default_factory=list[Process])
    """Those of the server that the fleet shares."""
    ran: list[Ran] = field(default_factory=list[Ran])
    """Runs of the tool that is cached."""
    rated: list[float] = field(default_factory=list[float])
    """When the tool with a rate was called, in seconds."""
    talks: Talks = field(default_factory=Talks)
    delays: Delays = field(default_factory=Delays)
    held: int = 0
    """Calls that were to be under way at a disruption."""
    missing: list[str] = field(default_factory=list[str])
    """What had to happen in the end, and did not."""
    clients: int = 0
    """Those that must be answered in the end."""
    ending_at: float = 0
    """When nothing more was done to the fleet, in seconds."""
    is_ending: bool = False
    """Nothing more is done to the fleet."""
    is_over: bool = False
    start: float = field(default_factory=time.monotonic)
    began_at: float = field(default_factory=time.time)
    """The same as `start`, in seconds since 1970."""
    seconds: float = 0
    """How long it was, once it is over."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def now(self) -> float:
        return time.monotonic() - self.start

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something until it ends, or the run does."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def calls(self) -> None:
        """Wait until some more calls have ended, well or not."""
        count = max(CALLS_BETWEEN, int(_BETWEEN_SECONDS * self.pace.rate))
        goal = len(self.requests) + count
        async with asyncio.timeout(PATIENCE * 2):
            while len(self.requests) < goal:
                self.changed.clear()
                await self.changed.wait()

    def everything(self) -> list[Request]:
        """All calls that have ended."""
        return [*self.requests, *self.talks.requests]

    def faults(self) -> list[str]:
        """What does not hold."""
        return [fault for claim in claims(self) for fault in claim.faults]

    def report(self) -> str:
        """How it was, in a line."""
        outcomes = Counter(one.outcome for one in self.requests)
        done = Counter(one.kind for one in self.disruptions)
        talks = Counter(f"{one.id[0]} {one.outcome}" for one in self.talks.requests)
        talks.update(touches=len(self.talks.touches), decisions=len(self.talks.decisions))
        return (
            f"{len(self.requests)} calls {dict(outcomes)}, {dict(talks)}, disruptions {dict(done)}, {self.now():.0f} s"
        )

    def whole(self) -> str:
        """All that happened, in order."""
        events = sorted([*self.everything(), *self.disruptions], key=lambda one: one.began)
        return "\n".join(map(str, events))


async def check(run: Run, kinds: Sequence[Kind], *, seconds: float, callers: int) -> None:
    """Let clients call while the fleet is disrupted in these ways, then until all of them are answered again.

    `seconds`: continue until then, with a kill each half minute and another disruption after it, in an order that is
    drawn. Two in three clients have sessions.
    """
    all_callers = [Caller(run, number, has_session=number % 3 != 2) for number in range(callers)]
    talkers = _talkers(run)
    tasks = [asyncio.create_task(one.calls()) for one in all_callers]
    tasks += [asyncio.create_task(one.talks()) for one in [*talkers, Approver(run)]]
    tasks.append(asyncio.create_task(measure(run)))
    try:
        await run.calls()
        for kind in kinds:
            await disrupt(run, kind)
            await run.calls()
        drawn = _drawn(run.random)
        while (began := run.now()) < seconds:
            await disrupt(run, "kill")
            await run.calls()
            await disrupt(run, next(drawn))
            await run.calls()
            await asyncio.sleep(min(began + _PERIOD, seconds) - run.now())
        run.ending_at = run.now()
        everybody = [*all_callers, *talkers]
        await _until(run, lambda: [f"{name} has never met its rate" for name in _without_limit(talkers)])
        run.is_ending = True
        run.ending_at = run.ending_at or run.now()
        await asyncio.sleep(max((one.over for one in run.disruptions), default=0) - run.now())
        goals = {one: one.answered + (3 if isinstance(one, Caller) else 1) for one in everybody if _is_due(one)}
        run.clients = len(goals)

        def unanswered() -> list[str]:
            return [f"{one.name} is not answered in the end" for one, goal in goals.items() if one.answered < goal]

        await _until(run, unanswered)
    finally:
        run.is_over, run.seconds = True, run.now()
        await asyncio.gather(*tasks)
        for task in run.tasks:
            task.cancel()
        await asyncio.gather(*run.tasks, return_exceptions=True)


async def _until(run: Run, missing: Callable[[], list[str]]) -> None:
    """Wait until nothing is missing; what is after a long time does not hold."""
    try:
        async with asyncio.timeout(PATIENCE):
            while missing():
                run.changed.clear()
                await run.changed.wait()
    except TimeoutError:
        run.missing += missing()


def _drawn(by: random.Random) -> Iterator[Kind]:
    """All disruptions but kills, over and over, each time in another order."""
    others: list[Kind] = [kind for kind in KINDS if kind != "kill"]
    while True:
        yield from by.sample(others, len(others))


def _without_limit(talkers: Sequence[Talker]) -> list[str]:
    """Those that have a rate and were never refused."""
    return [one.name for one in talkers if isinstance(one, RatedCaller) and not one.has_met_limit]


def _is_due(one: Caller | Talker) -> bool:
    """Whether it calls until it is answered at the end: of those with a rate the first does."""
    return not isinstance(one, RatedCaller) or one.name == "r0"


def _talkers(run: Run) -> list[Talker]:
    """The first letter of a name says what is claimed of the calls."""
    return [
        *(Asked(run, f"q{number}") for number in range(2)),
        *(AskedInRounds(run, f"m{number}", tool) for number, tool in enumerate(("q__ask", "n__ask"))),
        *(Follower(run, f"p{number}") for number in range(2)),
        *(Subscriber(run, f"s{number}") for number in range(2)),
        *(ToolCaller(run, f"a{number}", "approved") for number in range(2)),
        ToolCaller(run, "b0", "counted", OTHER_TOKEN, pause=0.05),
        *(RatedCaller(run, f"r{number}", first) for number, first in enumerate(run.found.replicas)),
        *(SharedCaller(run, f"f{number}", at) for number, at in enumerate(run.found.replicas)),
        EqualCaller(run, "k0"),
    ]


def checked(
    directory: Path,
    seed: int,
    kinds: Sequence[Kind],
    *,
    seconds: float = 0,
    rate: float = RATE_IN_TESTS,
    callers: int = 6,
    broken: str = "",
    is_shown: bool = False,
) -> Run:
    """A whole run. `broken`: the rules that its bridges do not keep, with commas. `is_shown`: it prints how it goes.

    `rate`: calls a second that the plain clients offer together; 0: each calls as soon as it was answered.
    """
    program = [str(BROKEN), broken] if broken else None
    lasting = ("--appendonly", "yes", "--appendfsync", "always")
    with nullcontext() if why_not() else network(_SIZE + 2) as net:
        redis = redis_on(net.hosts[-1], directory / "redis", *lasting) if net else Server(directory / "redis", *lasting)
        redis.start()
        try:
            with (
                servers(directory, net.hosts[_SIZE] if net else None) as behind,
                fleet(directory, redis, size=_SIZE, servers=RULES + behind.config, program=program, net=net) as found,
            ):
                until(lambda: _answers(found), "the tools are there")
                run = Run(found, redis, random.Random(seed), behind.journal, behind.single, Pace(rate), net)
                asyncio.run(_check(run, kinds, seconds=seconds, callers=callers, is_shown=is_shown))
        finally:
            redis.kill()
    called = [line.split() for line in behind.journal.read_text("utf-8").splitlines()]
    run.processes, run.ran = processes(behind.single, run.start), runs(behind.reads, run.start)
    run.made = [*behind.made.read_text("utf-8").split(), *(id_ for id_, _ in called)]
    run.made += [id_ for one in run.processes for id_, _, _ in one.calls if id_ != TRIAL]
    run.rated = [float(at) for id_, at in called if id_.startswith("r")]
    run.disruptions += [*lapses(run), *run.delays.stalls()]
    return run


async def _check(run: Run, kinds: Sequence[Kind], *, seconds: float, callers: int, is_shown: bool) -> None:
    showing = asyncio.create_task(_show(run)) if is_shown else None
    try:
        await check(run, kinds, seconds=seconds, callers=callers)
    finally:
        if showing is not None:
            showing.cancel()


async def _show(run: Run) -> None:
    while True:
        since = run.now()
        await asyncio.sleep(_PROGRESS)
        print(progress_line(run, since), flush=True)


def _answers(found: Fleet) -> bool:
    """Whether each bridge is ready, and reaches the process of the server that they share."""
    headers, body = in_an_envelope("tools/call", {"name": SHARED_TOOL, "arguments": {"id": TRIAL}}, {})
    return all(
        httpx2.get(f"{one.root}/healthz/ready", trust_env=False).status_code == 200
        and TRIAL in httpx2.post(one.url, json=body, headers=headers, trust_env=False, timeout=60).text
        for one in found.replicas
    )


def main() -> int:
    """Run it, and say what does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--rate", type=float, default=200, help="plain calls a second; 0: as many as are answered")
    parser.add_argument("--callers", type=int, default=64, help="clients that make these")
    parser.add_argument("--broken", default="", help="rules to leave out, with commas: see `broken_bridge.py`")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    options = parser.parse_args()
    print(f"seed {options.seed}{f', without partitions: {why_not()}' if why_not() else ''}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fleet-") as directory:
        run = checked(
            Path(directory),
            options.seed,
            (),
            seconds=options.seconds,
            rate=options.rate,
            callers=options.callers,
            broken=options.broken,
            is_shown=True,
        )
    looked_at = claims(run)
    found = [fault for claim in looked_at for fault in claim.faults]
    if found:
        print(run.whole())
    print(table(run, looked_at))
    if options.json:
        options.json.write_text(json.dumps(document(run, looked_at, options.seed), indent=1) + "\n", "utf-8")
    print("\n".join(found) or "all claims hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
