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
from itertools import chain
from pathlib import Path
from typing import Any

import httpx2

from support.fleet_checker.answers import read
from support.fleet_checker.delays import measure
from support.fleet_checker.disruptions import CALLS_BETWEEN, KINDS, disrupt, lapses
from support.fleet_checker.exchanges import approval_faults, budget_faults, exchange_faults, rate_faults
from support.fleet_checker.history import (
    Delays,
    Disruption,
    Kind,
    Outcome,
    Request,
    faults,
    late_faults,
    unexplained_faults,
)
from support.fleet_checker.summary import document, progress_line, table
from support.fleet_checker.talkers import (
    BURST,
    MOST_CALLS,
    RATE,
    RATE_SECONDS,
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
from support.fleet_clients import HEADERS, INITIALIZE, PREFIX, REVISION, message
from support.partitions import Network, network, redis_on, why_not
from support.redis_server import Server
from support.replicas import OTHER_TOKEN, Fleet, fleet, until

ONCE = Path(__file__).parents[2] / "servers" / "once.py"
WITNESS = ONCE.with_name("witness.py")
TOOL = "s__once"
BROKEN = Path(__file__).parent / "broken_bridge.py"
_SIZE = 3
"""Bridges of the fleet."""
_PATIENCE = 90.0
"""Seconds after which an answer counts as never coming."""
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
    net: Network | None = None
    """Where the bridges and the Redis server are, in this order; None: there can be no partitions."""
    requests: list[Request] = field(default_factory=list[Request])
    disruptions: list[Disruption] = field(default_factory=list[Disruption])
    disrupted: set[str] = field(default_factory=set[str])
    """The bridges that do not answer now, since something is done to them."""
    made: list[str] = field(default_factory=list[str])
    """Ids that the servers were called with."""
    rated: list[float] = field(default_factory=list[float])
    """When the tool with a rate was called, in seconds."""
    talks: Talks = field(default_factory=Talks)
    delays: Delays = field(default_factory=Delays)
    held: int = 0
    """Calls that were to be under way at a disruption."""
    missing: list[str] = field(default_factory=list[str])
    """What had to happen in the end, and did not."""
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

    async def calls(self, count: int) -> None:
        """Wait until so many more calls have ended, well or not."""
        goal = len(self.requests) + count
        async with asyncio.timeout(_PATIENCE * 2):
            while len(self.requests) < goal:
                self.changed.clear()
                await self.changed.wait()

    def everything(self) -> list[Request]:
        """All calls that have ended."""
        return [*self.requests, *self.talks.requests]

    def claims(self) -> dict[str, list[str]]:
        """What does not hold, by what is claimed."""
        talks, done, everything = self.talks, self.disruptions, self.everything()

        def of(letter: str) -> list[Request]:
            return [one for one in talks.requests if one.id.startswith(letter)]

        # A bridge that does not reach the store has its part of the rate, the others all of it.
        outages = sum(1 if one.kind == "store" else 1 / 2 for one in done if one.reaches_no_store)
        return {
            "each call is made once, or fails with what is known; sessions have one bridge": faults(
                everything, self.made, done
            ),
            "all clients are served in the end": self.missing,
            "nothing fails without a disruption": [*unexplained_faults(everything, done, self.delays)],
            "what cannot be passed on fails within a second": [*late_faults(everything, done, self.delays)],
            "questions, progress and subscriptions reach their callers alone": [
                *exchange_faults(talks.exchanges, talks.heard, talks.touches, done)
            ],
            "approvals count once": [*approval_faults(of("a"), self.made, talks.decisions, done)],
            "budgets hold": [*budget_faults(of("b"), self.made, MOST_CALLS)],
            "rates hold": [*rate_faults(self.rated, BURST, RATE_SECONDS, outages)],
        }

    def faults(self) -> list[str]:
        """What does not hold."""
        return [*chain.from_iterable(self.claims().values())]

    def excused(self) -> list[str]:
        """What would be a fault if a bridge that alone does not reach the store knew that it is alone."""
        hung = [str(one) for one in self.everything() if one.outcome == "hung"]
        silent = [f"not heard of: {one}" for one in self.talks.touches if not one.was_heard]
        return [one for one in (*hung, *silent) if not any(one in fault for fault in self.faults())]

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


class Caller:
    """A client that calls without end, one call after the other."""

    def __init__(self, run: Run, number: int, *, has_session: bool) -> None:
        self._run, self._number, self._has_session = run, number, has_session
        self.name = f"c{number}"
        self._random = random.Random(f"{run.random.random()}")
        self._session = ""
        self.answered = 0

    async def calls(self) -> None:
        """Call until the run is over."""
        limits = httpx2.Limits(max_keepalive_connections=2)
        async with httpx2.AsyncClient(trust_env=False, timeout=_PATIENCE, limits=limits) as http:
            count = 0
            while not self._run.is_over:
                if self._has_session and not self._session and not await self._begin(http):
                    await asyncio.sleep(0.1)
                    continue
                count += 1
                outcome = await self._call(http, f"c{self._number}-{count}")
                if outcome != "answered":
                    await asyncio.sleep(self._random.uniform(0.05, 0.3))  # as a client that heeds Retry-After

    async def _begin(self, http: httpx2.AsyncClient) -> bool:
        try:
            answer = await http.post(self._run.found.url, json=INITIALIZE, headers=HEADERS)
            if answer.status_code != 200:
                return False
            self._session = answer.headers["mcp-session-id"]
            ready = message("notifications/initialized", None)
            headers = {**HEADERS, "mcp-session-id": self._session}
            await http.post(self._run.found.url, json=ready, headers=headers)
        except httpx2.HTTPError:
            pass
        return bool(self._session)

    async def _call(self, http: httpx2.AsyncClient, id_: str) -> Outcome:
        run, began = self._run, self._run.now()
        outcome, detail, owner = await self._outcome(http, id_)
        run.requests.append(Request(id_, self._session, outcome, began, run.now(), detail, owner))
        if outcome == "answered":
            self.answered += 1
        if "initialize a new one" in detail:
            self._session = ""
        run.changed.set()
        return outcome

    async def _outcome(self, http: httpx2.AsyncClient, id_: str) -> tuple[Outcome, str, int]:
        arguments = {"id": id_, "seconds": round(self._random.uniform(0, 0.02), 4)}
        params: dict[str, Any] = {"name": TOOL, "arguments": arguments}
        headers = {**HEADERS, "mcp-session-id": self._session}
        if not self._has_session:
            params["_meta"] = {PREFIX + "protocolVersion": REVISION, PREFIX + "clientCapabilities": {}}
            more = {"mcp-protocol-version": REVISION, "mcp-method": "tools/call", "mcp-name": TOOL}
            headers = {**HEADERS, **more}
        number = int(id_.rpartition("-")[2])  # one whose outcome is unknown may still be under way
        body = message("tools/call", number, **params)
        try:
            answer = await http.post(self._run.found.url, json=body, headers=headers)
        except httpx2.ReadTimeout as error:
            return "hung", str(error), 0
        except httpx2.HTTPError as error:
            return "unknown", repr(error), 0
        return read(answer.status_code, answer.text)


async def check(run: Run, kinds: Sequence[Kind], *, seconds: float = 0, callers: int = 6) -> None:
    """Let clients call while the fleet is disrupted in these ways, then until all of them are answered again.

    `seconds`: continue until then, with a kill each half minute and another disruption after it, in an order that is
    drawn. Half of the clients have sessions.
    """
    all_callers = [Caller(run, number, has_session=number % 3 != 2) for number in range(callers)]
    talkers = _talkers(run)
    tasks = [asyncio.create_task(one.calls()) for one in all_callers]
    tasks += [asyncio.create_task(one.talks()) for one in [*talkers, Approver(run)]]
    tasks.append(asyncio.create_task(measure(run)))
    try:
        await run.calls(CALLS_BETWEEN)
        for kind in kinds:
            await disrupt(run, kind)
            await run.calls(CALLS_BETWEEN)
        drawn = _drawn(run.random)
        while (began := run.now()) < seconds:
            await disrupt(run, "kill")
            await run.calls(CALLS_BETWEEN)
            await disrupt(run, next(drawn))
            await run.calls(CALLS_BETWEEN)
            await asyncio.sleep(min(began + _PERIOD, seconds) - run.now())
        everybody = [*all_callers, *talkers]
        await _until(run, lambda: [f"{name} has never met its rate" for name in _without_limit(talkers)])
        run.is_ending = True
        await asyncio.sleep(max((one.over for one in run.disruptions), default=0) - run.now())
        goals = {one: one.answered + (3 if isinstance(one, Caller) else 1) for one in everybody if _is_due(one)}

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
        async with asyncio.timeout(_PATIENCE):
            while missing():
                run.changed.clear()
                await run.changed.wait()
    except TimeoutError:
        run.missing += missing()


def _drawn(by: random.Random) -> Iterator[Kind]:
    """All disruptions but kills, over and over, each time in another order."""
    others = [kind for kind in KINDS if kind != "kill"]
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
        *(AskedInRounds(run, f"m{number}") for number in range(2)),
        *(Follower(run, f"p{number}") for number in range(2)),
        *(Subscriber(run, f"s{number}") for number in range(2)),
        *(ToolCaller(run, f"a{number}", "approved") for number in range(2)),
        ToolCaller(run, "b0", "counted", OTHER_TOKEN, pause=0.05),
        *(RatedCaller(run, f"r{number}", first) for number, first in enumerate(run.found.replicas)),
    ]


def checked(
    directory: Path, seed: int, kinds: Sequence[Kind], *, seconds: float = 0, broken: str = "", is_shown: bool = False
) -> Run:
    """A whole run. `broken`: the rules that its bridges do not keep, with commas. `is_shown`: it prints how it goes."""
    made = directory / "made.txt"
    journal = directory / "journal.txt"
    journal.touch()
    servers = "".join(
        f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = ["{server}", "{file}"]\n{more}'
        for name, server, file, more in (
            ("s", ONCE, made, ""),
            ("q", WITNESS, journal, 'question_rate = "1000/s"\n'),
            ("w", WITNESS, journal, ""),
            ("rated", WITNESS, journal, f'rate_limit = "{RATE}"\n'),
        )
    )
    program = [str(BROKEN), broken] if broken else None
    lasting = ("--appendonly", "yes", "--appendfsync", "always")
    with nullcontext() if why_not() else network(_SIZE + 1) as net:
        redis = redis_on(net.hosts[-1], directory / "redis", *lasting) if net else Server(directory / "redis", *lasting)
        redis.start()
        try:
            with fleet(directory, redis, size=_SIZE, servers=RULES + servers, program=program, net=net) as found:
                run = Run(found, redis, random.Random(seed), journal, net)
                until(lambda: _answers(found), "the tool is there")
                asyncio.run(_check(run, kinds, seconds=seconds, is_shown=is_shown))
        finally:
            redis.kill()
    called = [line.split() for line in journal.read_text("utf-8").splitlines()]
    run.made = [*made.read_text("utf-8").split(), *(id_ for id_, _ in called)]
    run.rated = [float(at) for id_, at in called if id_.startswith("r")]
    run.disruptions += [*lapses(run), *run.delays.stalls()]
    return run


async def _check(run: Run, kinds: Sequence[Kind], *, seconds: float, is_shown: bool) -> None:
    showing = asyncio.create_task(_show(run)) if is_shown else None
    try:
        await check(run, kinds, seconds=seconds)
    finally:
        if showing is not None:
            showing.cancel()


async def _show(run: Run) -> None:
    while True:
        since = run.now()
        await asyncio.sleep(_PROGRESS)
        print(progress_line(run, since), flush=True)


def _answers(found: Fleet) -> bool:
    return all(httpx2.get(f"{one.root}/healthz/ready", trust_env=False).status_code == 200 for one in found.replicas)


def main() -> int:
    """Run it, and say what does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--broken", default="", help="rules to leave out, with commas: see `broken_bridge.py`")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    options = parser.parse_args()
    print(f"seed {options.seed}{f', without partitions: {why_not()}' if why_not() else ''}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fleet-") as directory:
        run = checked(Path(directory), options.seed, (), seconds=options.seconds, broken=options.broken, is_shown=True)
    claims = run.claims()
    found = [*chain.from_iterable(claims.values())]
    if found:
        print(run.whole())
    print(table(run, claims))
    if options.json:
        options.json.write_text(json.dumps(document(run, claims, options.seed), indent=1) + "\n", "utf-8")
    print("\n".join(found) or "all claims hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
