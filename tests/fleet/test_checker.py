"""A fleet under disruption keeps its claims, and without one of its rules the checker says so (issue 24).

`make soak` does the same for ten minutes. A failure names its seed: `python -m support.fleet_checker.run --seed N`.
"""

import random
import re
from pathlib import Path

import pytest

from support.fleet_checker import claims
from support.fleet_checker.disruptions import ALL_KINDS, KINDS
from support.fleet_checker.history import Kind
from support.fleet_checker.run import checked
from support.fleet_checker.summary import table
from support.partitions import needs_namespaces
from support.replicas import needs_fleet

pytestmark = needs_fleet
SECONDS = 60.0
"""How long things are done to the fleet, at least."""


def test_no_call_is_lost_or_made_twice(tmp_path: Path) -> None:
    """Every request is answered or fails with an error that says what is known, whatever is done to the fleet."""
    seed = random.randrange(10**6)
    run = checked(tmp_path, seed, random.Random(seed).sample(KINDS, len(KINDS)), seconds=SECONDS)
    found = claims.claims(run)
    assert run.faults() == [], f"seed {seed}\n{table(run, found)}\n{run.whole()}"
    assert {one.kind for one in run.disruptions} - {"slow"} == set(KINDS)  # that one is the machine's own doing
    assert run.ending_at >= SECONDS, run.report()
    assert sum(1 for one in run.requests if one.outcome == "answered") > len(run.requests) / 2, run.report()
    assert all(all(one.looked_at.values()) for one in found if one.what != claims.SOON), table(run, found)


@needs_namespaces
def test_the_run_cuts_the_network() -> None:
    """Without network namespaces it does not, which this skipped test says."""
    assert set(KINDS) == set(ALL_KINDS)


NOTICED = {
    "claims": (claims.ONE_BRIDGE, r"a session moved \d+ times, and at most \d+ were due"),
    "unknown": (claims.ONCE, r"said to be not sent, but made: .* h\d+-1 "),
    "approvals": (claims.APPROVED, r"decided 2 times: a\d-\d+, approval \w+, at "),
    "questions": (claims.OWN, r"released by another answer: [qm]\d-\d+ "),
    "progress": (claims.OWN, r"heard what is another call's: p\d-\d+ during p\d-\d+"),
    "subscriptions": (claims.OWN, r"a subscription has ended: s\d at "),
    "budgets": (claims.WITHIN_BUDGET, r"a budget of \d+ was exceeded: \d+ calls"),
    "rates": (claims.WITHIN_RATE, r"a rate was exceeded: \d+ calls"),
    "fencing": (claims.ONE_PROCESS, r"a process took a call though another had followed it: f\d-\d+ at "),
    "waits": (claims.ONE_PROCESS, r"two processes at once: \d+ since "),
    "uses": (claims.OWN, r"released twice: m1-\d+"),
    "runs": (claims.RUN_ONCE, r"ran twice at the same time: k0-\d+, "),
}
"""What the checker says without each rule: which claim does not hold, and how."""


@pytest.mark.parametrize(
    ("rules", "kinds", "seeds"),
    [
        ("claims", ("kill", "kill", "kill"), 5),  # one run nearly always does
        ("unknown", ("kill",), 1),  # a call is under way for certain when its bridge is killed
        ("rates", ("kill",), 1),  # a run ends when each bridge has refused
        ("subscriptions", ("kill", "kill", "kill"), 5),
        ("fencing,runs,uses", ("long pause",), 5),  # on a machine that does nothing else, the first or the second does
        ("approvals,questions,progress,budgets,waits", ("kill",), 5),
    ],
)
def test_a_fleet_without_a_rule_is_noticed(tmp_path: Path, rules: str, kinds: tuple[Kind, ...], seeds: int) -> None:
    """Such as without the compare-and-set of sessions, or if what may have reached a lost bridge is made again."""
    lacking, found = rules.split(","), list[tuple[str, str]]()
    for seed in range(seeds):
        directory = tmp_path / str(seed)
        directory.mkdir()
        run = checked(directory, seed, kinds, broken=rules)
        found += [(claim.what, fault) for claim in claims.claims(run) for fault in claim.faults]
        if all(_is_noticed(rule, found) for rule in lacking):
            return
    raise AssertionError([rule for rule in lacking if not _is_noticed(rule, found)], found)


def _is_noticed(rule: str, found: list[tuple[str, str]]) -> bool:
    claim, words = NOTICED[rule]
    return any(what == claim and re.match(words, fault) for what, fault in found)
