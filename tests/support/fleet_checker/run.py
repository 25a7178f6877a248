"""A run of the checker: clients call, the fleet is disrupted, and the history is looked through.

    PYTHONPATH=tests python -m support.fleet_checker.run --seed 7 --seconds 600

Each run prints its seed; the same seed draws the same disruptions in the same order. How they fall between calls
depends on the machine.
"""

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from support.fleet_checker.answers import read
from support.fleet_checker.exchanges import approval_faults, budget_faults, exchange_faults, rate_faults
from support.fleet_checker.history import Disruption, Outcome, Request, faults
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
    Subscriber,
    Talker,
    Talks,
)
from support.fleet_checker.talkers import Caller as ToolCaller
from support.fleet_clients import HEADERS, INITIALIZE, PREFIX, REVISION, message
from support.redis_server import Server
from support.replicas import OTHER_TOKEN, Fleet, Replica, fleet, until

ONCE = Path(__file__).parents[2] / "servers" / "once.py"
WITNESS = ONCE.with_name("witness.py")
TOOL = "s__once"
BROKEN = Path(__file__).parent / "broken_bridge.py"
KINDS = ("kill", "drain", "store", "pause", "stop")
_PATIENCE = 90.0
"""Seconds after which an answer counts as never coming."""
_CALLS_BETWEEN = 30
"""Calls between two disruptions."""
_PAUSE = 5.0
"""Seconds that a bridge is paused: longer than its lease."""


@dataclass
class Run:
    """One run."""

    found: Fleet
    redis: Server
    random: random.Random
    requests: list[Request] = field(default_factory=list[Request])
    disruptions: list[Disruption] = field(default_factory=list[Disruption])
    made: list[str] = field(default_factory=list[str])
    """Ids that the servers were called with."""
    rated: list[float] = field(default_factory=list[float])
    """When the tool with a rate was called, in seconds."""
    talks: Talks = field(default_factory=Talks)
    is_over: bool = False
    start: float = field(default_factory=time.monotonic)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def now(self) -> float:
        return time.monotonic() - self.start

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something until it ends, or the run does."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def faults(self) -> list[str]:
        """What does not hold."""
        talks, done = self.talks, self.disruptions

        def of(letter: str) -> list[Request]:
            return [one for one in talks.requests if one.id.startswith(letter)]

        return [
            *faults([*self.requests, *talks.requests], self.made, done),
            *exchange_faults(talks.exchanges, talks.heard, talks.touches, done),
            *approval_faults(of("a"), self.made, talks.decisions, done),
            *budget_faults(of("b"), self.made, MOST_CALLS),
            *rate_faults(self.rated, BURST, RATE_SECONDS, sum(1 for one in done if one.kind == "store")),
        ]

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
        events = sorted([*self.requests, *self.talks.requests, *self.disruptions], key=lambda one: one.began)
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


async def disrupt(run: Run, kind: str) -> None:
    """Do something to the fleet, and undo it."""
    replica = run.random.choice(run.found.replicas)
    began = run.now()
    if kind == "kill":
        await asyncio.to_thread(_restart, replica, replica.kill)
    elif kind == "stop":
        await asyncio.to_thread(_restart, replica, replica.stop)
    elif kind == "store":
        run.redis.kill()
        await asyncio.sleep(run.random.choice([0, 1, 5]))
        await asyncio.to_thread(run.redis.start)
    elif kind == "pause":
        replica.signal(signal.SIGSTOP)
        await asyncio.sleep(_PAUSE)
        replica.signal(signal.SIGCONT)
    elif kind == "drain":
        done = await asyncio.to_thread(replica.command, "fleet", "drain", "--wait", "20")
        assert done.returncode in (0, 7), done.stderr
        await run_calls(run, _CALLS_BETWEEN)
        await asyncio.to_thread(replica.command, "fleet", "drain", "--undo")
    run.disruptions.append(Disruption(kind, replica.name if kind != "store" else "", began, run.now()))


def _restart(replica: Replica, end: Any) -> None:
    end()
    replica.start()


async def run_calls(run: Run, count: int) -> None:
    """Wait until so many more calls have ended, well or not."""
    goal = len(run.requests) + count
    async with asyncio.timeout(_PATIENCE * 2):
        while len(run.requests) < goal:
            run.changed.clear()
            await run.changed.wait()


async def check(run: Run, kinds: Sequence[str], *, seconds: float = 0, callers: int = 6) -> None:
    """Let clients call while the fleet is disrupted in these ways, then until all of them are answered again.

    `seconds`: continue with ways drawn at random until then. Half of the clients have sessions.
    """
    all_callers = [Caller(run, number, has_session=number % 3 != 2) for number in range(callers)]
    talkers = _talkers(run)
    tasks = [asyncio.create_task(one.calls()) for one in all_callers]
    tasks += [asyncio.create_task(one.talks()) for one in [*talkers, Approver(run)]]
    try:
        await run_calls(run, _CALLS_BETWEEN)
        for kind in kinds:
            await disrupt(run, kind)
            await run_calls(run, _CALLS_BETWEEN)
        while run.now() < seconds:
            await disrupt(run, run.random.choice(KINDS))
            await run_calls(run, _CALLS_BETWEEN)
        everybody = [*all_callers, *talkers]
        goals = [*(one.answered + 3 for one in all_callers), *(one.answered + 1 for one in talkers)]
        try:
            async with asyncio.timeout(_PATIENCE):
                while any(one.answered < goal for one, goal in zip(everybody, goals, strict=True)):
                    run.changed.clear()
                    await run.changed.wait()
        except TimeoutError:
            without = [one.name for one, goal in zip(everybody, goals, strict=True) if one.answered < goal]
            raise AssertionError(f"no answers in the end: {without}\n{run.whole()}") from None
    finally:
        run.is_over = True
        await asyncio.gather(*tasks)
        for task in run.tasks:
            task.cancel()
        await asyncio.gather(*run.tasks, return_exceptions=True)


def _talkers(run: Run) -> list[Talker]:
    """The first letter of a name says what is claimed of the calls."""
    return [
        *(Asked(run, f"q{number}") for number in range(2)),
        *(AskedInRounds(run, f"m{number}") for number in range(2)),
        *(Follower(run, f"p{number}") for number in range(2)),
        *(Subscriber(run, f"s{number}") for number in range(2)),
        *(ToolCaller(run, f"a{number}", "approved") for number in range(2)),
        ToolCaller(run, "b0", "counted", OTHER_TOKEN, pause=0.05),
        ToolCaller(run, "r0", "rated__rated", pause=0.05),
    ]


def checked(directory: Path, seed: int, kinds: Sequence[str], *, seconds: float = 0, broken: str = "") -> Run:
    """A whole run. `broken`: the rules that its bridges do not keep, with commas."""
    redis = Server(directory / "redis", "--appendonly", "yes", "--appendfsync", "always").start()
    made = directory / "made.txt"
    journal = directory / "journal.txt"
    journal.touch()
    servers = "".join(
        f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = ["{server}", "{file}"]\n'
        for name, server, file in (("s", ONCE, made), *((name, WITNESS, journal) for name in ("q", "w", "rated")))
    )
    servers += f'rate_limit = "{RATE}"\n'  # of the last one
    program = [str(BROKEN), broken] if broken else None
    try:
        with fleet(directory, redis, servers=RULES + servers, program=program) as found:
            run = Run(found, redis, random.Random(seed))
            until(lambda: _answers(found), "the tool is there")
            asyncio.run(check(run, kinds, seconds=seconds))
        called = [line.split() for line in journal.read_text("utf-8").splitlines()]
        run.made = [*made.read_text("utf-8").split(), *(id_ for id_, _ in called)]
        run.rated = [float(at) for id_, at in called if id_.startswith("r")]
        for replica in found.replicas:
            # On a busy machine a bridge may not come to renew its lease; its sessions move then, as they should.
            count = replica.log.read_text("utf-8").count("no member of its fleet for a while")
            run.disruptions += [Disruption("pause", f"{replica.name}, by the machine", 0, run.now())] * count
        return run
    finally:
        redis.kill()


def _answers(found: Fleet) -> bool:
    return all(httpx2.get(f"{one.root}/healthz/ready", trust_env=False).status_code == 200 for one in found.replicas)


def main() -> int:
    """Run it, and say what does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--broken", default="", help="rules to leave out, with commas: see `broken_bridge.py`")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fleet-") as directory:
        run = checked(Path(directory), options.seed, KINDS, seconds=options.seconds, broken=options.broken)
    found = run.faults()
    print(run.report())
    if found:
        print(run.whole())
    print("\n".join(found) or "all claims hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
