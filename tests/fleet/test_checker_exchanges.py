"""What the checker of fleets makes of questions, progress, subscriptions, approvals and limits (issue 24)."""

from typing import Any

import pytest

from support.fleet_checker.exchanges import (
    Decision,
    Exchange,
    Heard,
    Touch,
    approval_faults,
    budget_faults,
    exchange_faults,
    rate_faults,
)
from support.fleet_checker.history import Disruption, Outcome, Request

KILL = Disruption("kill", "r1", 0, 1)


def request(outcome: Outcome, id_: str = "a0-1", session: str = "s") -> Request:
    return Request(id_, session, outcome, 20, 21)


@pytest.mark.parametrize(
    ("exchange", "fault"),
    [
        ({"asked": ("q0-1",), "said": "x", "got": "x"}, ""),
        ({"asked": ("q0-1",), "said": "x"}, ""),
        ({"asked": ("q0-2",), "said": "x", "got": "x"}, "heard what is another call's: q0-2"),
        ({"asked": ("q0-1", "q0-1"), "said": "x", "got": "x"}, "asked 2 times"),
        ({"asked": ("q0-1",), "said": "x", "got": "y"}, "released by another answer"),
        ({"asked": ("q0-1",), "said": "x", "got": ""}, "released by another answer"),
        ({"got": "x"}, "answered without a question"),
        ({"progress": (("q0-1", 0), ("q0-1", 1))}, ""),
        ({"progress": (("q1-1", 0),)}, "heard what is another call's: q1-1"),
        ({"progress": (("q0-1", 1), ("q0-1", 1))}, "progress that does not grow"),
        ({"is_repeated": True}, "released twice"),
        ({"is_lost": True, "began": 5, "ended": 6}, ""),
        ({"is_lost": True, "began": 50, "ended": 60}, "lost without a reason"),
    ],
)
def test_what_came_during_a_call(exchange: dict[str, Any], fault: str) -> None:
    found = list(exchange_faults([Exchange("q0-1", **exchange)], [], [], [KILL]))
    assert len(found) == bool(fault)
    assert fault in "".join(found)


@pytest.mark.parametrize(
    ("heard", "fault"),
    [
        (Heard("s0", "update", "s0"), ""),
        (Heard("s0", "update", "s1"), "heard of what it has not subscribed to"),
        (Heard("s0", "notifications/progress", "p0-1"), "heard what is another client's"),
        (Heard("s0", "elicitation/create", "q0-1"), "heard what is another client's"),
    ],
)
def test_what_came_on_a_stream(heard: Heard, fault: str) -> None:
    found = list(exchange_faults([], [heard], [], []))
    assert len(found) == bool(fault)
    assert fault in "".join(found)


def test_a_change_that_nobody_hears_of_is_a_fault() -> None:
    touches = [Touch("s0", was_heard=True, at=1), Touch("s0", was_heard=False, at=2)]
    assert list(exchange_faults([], [], touches, [])) == ["a subscription has ended: s0 at 2.00 s"]


@pytest.mark.parametrize(
    ("outcome", "made", "decisions", "fault"),
    [
        ("answered", 1, [(True, 1, 0)], ""),
        ("answered", 1, [(True, 0, 1)], ""),
        ("answered", 1, [(True, 0, 0)], "made without a yes"),
        ("unknown", 1, [], "made without a yes"),
        ("unknown", 0, [(True, 1, 0)], ""),
        ("refused", 0, [(False, 1, 0)], ""),
        ("answered", 1, [(True, 0, 1), (False, 1, 0)], "made after a no"),
        ("answered", 1, [(True, 2, 0)], "decided 2 times: a0-1, approval 0, at 20.00 s (taken by 2)"),
        ("refused", 0, [(True, 1, 0)], "refused, though there was a yes"),
    ],
)
def test_what_approvals_do(outcome: Outcome, made: int, decisions: list[tuple[bool, int, int]], fault: str) -> None:
    said = [Decision("a0-1", f"{at}", yes, taken, unknown, 20) for at, (yes, taken, unknown) in enumerate(decisions)]
    found = list(approval_faults([request(outcome)], ["a0-1"] * made, said, [KILL]))
    assert len(found) == bool(fault)
    assert fault in "".join(found)


def test_a_yes_whose_call_failed_during_a_disruption_is_none() -> None:
    """Approvals fail closed: while the store is away nobody knows of the yes."""
    said = [Decision("a0-1", "x", is_yes=True, taken=1, unknown=0, at=20)]
    assert list(approval_faults([request("refused")], [], said, [Disruption("store", "", 19, 22)])) == []


def test_a_budget_counts_what_was_made_whatever_the_client_heard() -> None:
    requests = [request(outcome, f"b0-{at}") for at, outcome in enumerate(("answered", "unknown", "refused"))]
    assert list(budget_faults(requests, ["b0-0", "b0-1"], 2)) == []
    [found] = budget_faults(requests, ["b0-0", "b0-1", "b0-2"], 2)
    assert "a budget of 2 was exceeded: 3 calls" in found


def test_a_rate_is_a_burst_and_then_one_at_a_time() -> None:
    burst = [0.0] * 100
    assert list(rate_faults([*burst, 2, 4, 6], 100, 2, 0)) == []
    [found] = rate_faults([*burst, *[0.1] * 5], 100, 2, 0)
    assert "a rate was exceeded: 104 calls" in found
    assert list(rate_faults([*burst, *[0.1] * 5], 100, 2, 1)) == []
