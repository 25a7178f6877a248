"""What the checker of fleets makes of a history, and of the words of an answer (issue 24)."""

import pytest

from support.fleet_checker.answers import read
from support.fleet_checker.history import (
    NOT_REACHED,
    Delays,
    Disruption,
    Kind,
    Outcome,
    Parts,
    Request,
    faults,
    late_faults,
    unexplained_faults,
)


def request(outcome: Outcome, *, id_: str = "a", session: str = "", owner: int = 0, began: float = 0) -> Request:
    return Request(id_, session, outcome, began, began + 1, "", owner)


@pytest.mark.parametrize(
    ("requests", "made", "fault"),
    [
        ([request("answered")], ["a"], ""),
        ([request("not sent")], [], ""),
        ([request("unknown")], [], ""),
        ([request("unknown")], ["a"], ""),
        ([request("unknown")], ["a", "a"], "made 2 times: a"),
        ([request("answered")], [], "answered, but made 0 times"),
        ([request("not sent")], ["a"], "said to be not sent, but made"),
        ([request("hung")], [], "neither answered nor"),
        ([request("wrong")], ["a"], "neither answered nor"),
    ],
)
def test_what_a_history_says(requests: list[Request], made: list[str], fault: str) -> None:
    found = faults(requests, made, [])
    assert len(found) == bool(fault)
    assert fault in "".join(found)


def test_a_session_that_moves_without_a_reason_is_a_fault() -> None:
    owners = [1, 2, 1]
    requests = [request("answered", id_=str(at), session="s", owner=one, began=at) for at, one in enumerate(owners)]
    assert faults(requests[:2], ["0", "1"], [Disruption("kill", "r1", 0, 1)]) == []
    [found] = faults(requests, ["0", "1", "2"], [Disruption("kill", "r1", 0, 1)])
    assert "moved 2 times, and at most 1" in found


@pytest.mark.parametrize(("parts", "found"), [("link", 1), ("store", 0), ("all", 0)])
def test_only_a_bridge_that_does_not_reach_the_store_may_keep_a_session_that_is_anothers(
    parts: Parts, found: int
) -> None:
    owners = [1, 2, 1, 2]
    requests = [request("answered", id_=str(at), session="s", owner=one, began=at) for at, one in enumerate(owners)]
    cut = Disruption("cut", "r1", 0, 4, parts)
    assert len(faults(requests, map(str, range(4)), [cut])) == found
    late = [request("answered", id_=f"late{at}", session="s", owner=1 + at % 2, began=90 + at) for at in range(4)]
    assert len(faults(late, [one.id for one in late], [cut])) == 1


def test_a_question_whose_answer_came_to_the_wrong_one_of_two_owners_is_no_fault() -> None:
    hung = [request("hung", id_="q0-1", began=2), request("hung", id_="q0-2", began=70)]
    [found] = faults(hung, [], [Disruption("cut", "r1", 0, 4, "store")])
    assert "q0-2" in found


@pytest.mark.parametrize(
    ("kind", "seconds", "is_explained"),
    [("kill", 3.9, True), ("kill", 4.1, False), ("store", 11, True), ("store", 13, False), ("cut", 8, False)],
)
def test_a_request_fails_only_soon_after_a_disruption(kind: Kind, seconds: float, is_explained: bool) -> None:
    done = [Disruption(kind, "r1", 10, 11)]
    failed = [request("unknown", began=10 + seconds), request("answered", began=90), request("refused", began=90)]
    assert len(list(unexplained_faults(failed, done, Delays()))) == (not is_explained)
    assert not list(unexplained_faults(failed, done, Delays([(10, 10.5), (10 + seconds, 12 + seconds)])))


def test_a_refusal_because_something_is_away_needs_a_disruption_as_well() -> None:
    refused = Request("b0-1", "", "refused", 90, 91, "200 LimitUnavailable")
    assert len(list(unexplained_faults([refused], [], Delays()))) == 1
    assert not list(unexplained_faults([refused], [Disruption("store", "", 85, 88)], Delays()))


def test_a_balancer_may_take_bridges_for_lost_that_the_machine_delays() -> None:
    refused = Request("c0-1", "", "unknown", 90, 91, "503 No server is available to handle this request.")
    assert len(list(unexplained_faults([refused], [], Delays([(89, 89.1)])))) == 1
    assert not list(unexplained_faults([refused], [], Delays([(89.5, 89.8)])))


def test_what_cannot_be_passed_on_fails_within_a_second_and_what_the_machine_delays() -> None:
    late = [Request("a", "s", "not sent", 20, 21.5, f"503 not sent: the bridge 'r1' {NOT_REACHED} (it does not)")]
    assert not list(late_faults([Request("a", "s", "not sent", 20, 29, "503 not sent: it stops")], [], Delays()))
    [found] = late_faults(late, [], Delays([(18, 19), (20.5, 20.6), (22, 24)]))
    assert "after 1.50 s, 1.30 s were due" in found
    assert not list(late_faults(late, [], Delays([(19.9, 20.1)])))
    assert not list(late_faults(late, [Disruption("pause", "r2", 20.5, 25)], Delays()))


@pytest.mark.parametrize(
    ("status", "text", "outcome"),
    [
        (200, '{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"[\\"a\\", 7]"}]}}', "answered"),
        (200, 'event: message\ndata: {"result":{"content":[{"type":"text","text":"[\\"a\\", 7]"}]}}\n', "answered"),
        (200, 'event: message\ndata: {"jsonrpc":"2.0","error":{"message":"outcome unknown: lost"}}\n', "unknown"),
        (503, '{"jsonrpc":"2.0","error":{"message":"not sent: it is about to stop"}}', "not sent"),
        (503, "<html>503 Service Unavailable</html>", "unknown"),
        (404, '{"jsonrpc":"2.0","error":{"message":"This session is over"}}', "wrong"),
        (200, '{"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[]}}', "wrong"),
    ],
)
def test_what_an_answer_says(status: int, text: str, outcome: Outcome) -> None:
    assert read(status, text)[0] == outcome
