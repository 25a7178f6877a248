"""All that is claimed of a run: what does not hold, and how much was looked at (issue 24)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from support.fleet_checker.equal_calls import run_faults
from support.fleet_checker.exchanges import approval_faults, budget_faults, exchange_faults, rate_faults
from support.fleet_checker.history import NOT_REACHED, Request, call_faults, late_faults, session_faults
from support.fleet_checker.history import unexplained_faults as unexplained
from support.fleet_checker.one_process import MOVE_SECONDS, process_faults
from support.fleet_checker.talkers import BURST, MOST_CALLS, RATE_SECONDS

if TYPE_CHECKING:
    from support.fleet_checker.run import Run

ONCE = "each call is made once, or fails with what is known"
ONE_BRIDGE = "a session has one bridge at a time"
SERVED = "all clients are served in the end"
EXPLAINED = "nothing fails without a disruption"
SOON = "what cannot be passed on fails within a second"
OWN = "questions, progress and subscriptions reach their callers alone"
APPROVED = "approvals count once"
WITHIN_BUDGET = "budgets hold"
WITHIN_RATE = "rates hold"
ONE_PROCESS = "a server for the fleet has one process at a time"
RUN_ONCE = "equal calls at the same time run once"


@dataclass(frozen=True)
class Claim:
    """One claim."""

    what: str
    looked_at: dict[str, int]
    """How many there were of each kind of thing that it is about: without them it says nothing."""
    faults: Sequence[str]
    """Where it does not hold."""

    def __str__(self) -> str:
        of = ", ".join(f"{count:,} {things}" for things, count in self.looked_at.items())
        return f"{self.what}: {f'{len(self.faults)} faults' if self.faults else 'holds'} ({of})"


def claims(run: "Run") -> list[Claim]:
    """Each of them."""
    talks, done, everything, delays = run.talks, run.disruptions, run.everything(), run.delays
    # A bridge that does not reach the store has its part of the rate, the others all of it.
    outages = sum(1 if one.kind == "store" else 1 / 2 for one in done if one.reaches_no_store)

    def of(letter: str) -> list[Request]:
        return [one for one in talks.requests if one.id.startswith(letter)]

    shared, equal = of("f"), of("k")
    others = [one for one in everything if one.id[0] != "k"]
    answered = [one for one in everything if one.session and one.owner]
    failed = [one for one in everything if one.outcome not in ("answered", "refused")]
    far = [one for one in failed if one.outcome == "not sent" and NOT_REACHED in one.detail]
    questions = sum(len(one.asked) for one in talks.exchanges)
    steps = sum(len(one.progress) for one in talks.exchanges)
    sides = sum(1 for one in everything if one.id[0] != "f")
    return [
        Claim(ONCE, {"calls": len(others), "made": len(run.made)}, call_faults(others, run.made)),
        Claim(
            ONE_BRIDGE,
            {"sessions": len({one.session for one in answered}), "calls": len(answered)},
            [*session_faults(everything, done)],
        ),
        Claim(SERVED, {"clients": run.clients}, run.missing),
        Claim(
            EXPLAINED,
            {"calls": sides + len(shared), "that failed": len(failed), "disruptions": len(done)},
            [
                *unexplained([one for one in everything if one.id[0] != "f"], done, delays),
                *unexplained(shared, done, delays, MOVE_SECONDS),
            ],
        ),
        Claim(SOON, {"calls that were not": len(far)}, [*late_faults(everything, done, delays)]),
        Claim(
            OWN,
            {"questions": questions, "steps": steps, "changes": len(talks.touches), "heard": len(talks.heard)},
            [*exchange_faults(talks.exchanges, talks.heard, talks.touches, done)],
        ),
        Claim(
            APPROVED,
            {"calls": len(of("a")), "decisions": len(talks.decisions)},
            [*approval_faults(of("a"), run.made, talks.decisions, done)],
        ),
        Claim(
            WITHIN_BUDGET,
            {"calls": len(of("b")), "conversations": len({one.session for one in of("b")})},
            [*budget_faults(of("b"), run.made, MOST_CALLS)],
        ),
        Claim(WITHIN_RATE, {"calls made": len(run.rated)}, [*rate_faults(run.rated, BURST, RATE_SECONDS, outages)]),
        Claim(
            ONE_PROCESS,
            {"processes": len(run.processes), "calls": len(shared)},
            [*process_faults(run.processes, shared, done)],
        ),
        Claim(RUN_ONCE, {"runs": len(run.ran), "calls": len(equal)}, [*run_faults(run.ran, equal, done, delays)]),
    ]
