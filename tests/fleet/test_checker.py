"""A fleet under disruption keeps its claims, and without one of its rules the checker says so (issue 24).

`make soak` does the same for ten minutes. A failure names its seed: `python -m support.fleet_checker.run --seed N`.
"""

import random
from pathlib import Path

import pytest

from support.fleet_checker.run import KINDS, checked
from support.replicas import needs_fleet

pytestmark = needs_fleet


def test_no_call_is_lost_or_made_twice(tmp_path: Path) -> None:
    """Every request is answered or fails with an error that says what is known, whatever is done to the fleet."""
    seed = random.randrange(10**6)
    run = checked(tmp_path, seed, random.Random(seed).sample(KINDS, len(KINDS)))
    assert run.faults() == [], f"seed {seed}\n{run.whole()}"
    assert {one.kind for one in run.disruptions} == set(KINDS)
    assert sum(1 for one in run.requests if one.outcome == "answered") > len(run.requests) / 2, run.report()


NOTICED = {
    "claims": "a session moved",
    "unknown": "made",
    "approvals": "decided",
    "questions": "released by another answer",
    "progress": "heard what is another call's",
    "subscriptions": "a subscription has ended",
    "budgets": "a budget of",
}
"""What the checker says without each rule."""


@pytest.mark.parametrize("rules", ["claims", "unknown", "subscriptions", "approvals,questions,progress,budgets"])
def test_a_fleet_without_a_rule_is_noticed(tmp_path: Path, rules: str) -> None:
    """Such as without the compare-and-set of sessions, or if what may have reached a lost bridge is made again."""
    lacking, found = rules.split(","), list[str]()
    for seed in range(5):  # one run nearly always does
        directory = tmp_path / str(seed)
        directory.mkdir()
        found += checked(directory, seed, ("kill",) * (1 if "," in rules else 3), broken=rules).faults()
        if all(any(NOTICED[rule] in fault for fault in found) for rule in lacking):
            return
    raise AssertionError(found)
