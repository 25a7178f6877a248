"""A fleet under disruption keeps its claims, and without one of its rules the checker says so (issue 24).

`make soak` does the same for ten minutes. A failure names its seed: `python -m support.fleet_checker.run --seed N`.
"""

import random
from pathlib import Path

import pytest

from support.fleet_checker.disruptions import KINDS
from support.fleet_checker.run import checked
from support.replicas import needs_fleet

pytestmark = needs_fleet


def test_no_call_is_lost_or_made_twice(tmp_path: Path) -> None:
    """Every request is answered or fails with an error that says what is known, whatever is done to the fleet."""
    seed = random.randrange(10**6)
    run = checked(tmp_path, seed, random.Random(seed).sample(KINDS, len(KINDS)))
    assert run.faults() == [], f"seed {seed}\n{run.whole()}"
    assert {one.kind for one in run.disruptions} - {"slow"} == set(KINDS)  # that one is the machine's own doing
    assert sum(1 for one in run.requests if one.outcome == "answered") > len(run.requests) / 2, run.report()


NOTICED = {
    "claims": "a session moved",
    "unknown": "made",
    "approvals": "decided",
    "questions": "released by another answer",
    "progress": "heard what is another call's",
    "subscriptions": "a subscription has ended",
    "budgets": "a budget of",
    "rates": "a rate was exceeded",
}
"""What the checker says without each rule."""


@pytest.mark.parametrize(
    ("rules", "kills", "seeds"),
    [
        ("claims", 3, 5),  # one run nearly always does
        ("unknown", 1, 1),  # a call is under way for certain when its bridge is killed
        ("rates", 1, 1),  # a run ends when each bridge has refused
        ("subscriptions", 3, 5),
        ("approvals,questions,progress,budgets", 1, 5),
    ],
)
def test_a_fleet_without_a_rule_is_noticed(tmp_path: Path, rules: str, kills: int, seeds: int) -> None:
    """Such as without the compare-and-set of sessions, or if what may have reached a lost bridge is made again."""
    lacking, found = rules.split(","), list[str]()
    for seed in range(seeds):
        directory = tmp_path / str(seed)
        directory.mkdir()
        found += checked(directory, seed, ("kill",) * kills, broken=rules).faults()
        if all(any(NOTICED[rule] in fault for fault in found) for rule in lacking):
            return
    raise AssertionError(found)
