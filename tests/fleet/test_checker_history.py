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
    call_faults,
    late_faults,
    session_faults,
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
    found = call_faults(requests, made)
    assert len(found) == bool(fault)
    assert fault in "".join(found)


def test_a_session_that_moves_without_a_reason_is_a_fault() -> None:
    owners = [1, 2, 1]
    requests = [request("answered", id_=str(at), session="s", owner=one, began=at) for at, one in enumerate(owners)]
    assert list(session_faults(requests[:2], [Disruption("kill", "r1", 0, 1)])) == []
    [found] = session_faults(requests, [Disruption("kill", "r1", 0, 1)])
    assert found == "a session moved 2 times, and at most 1 were due: s, at 1 at 0.00 s, 2 at 1.00 s, 1 at 2.00 s"


def test_a_session_may_move_once_at_a_bridge_that_is_cut_from_the_store_and_not_at_a_link_that_is_cut() -> None:
    """A bridge that its lease has left steps back, so that it never has a session beside another one."""
    owners = [1, 2, 1]
    requests = [request("answered", id_=str(at), session="s", owner=one, began=at) for at, one in enumerate(owners)]
    parts: tuple[Parts, ...] = ("store", "all")
    for one in parts:
        assert list(session_faults(requests[:2], [Disruption("cut", "r1", 0, 4, one)])) == []
        assert len(list(session_faults(requests, [Disruption("cut", "r1", 0, 4, one)]))) == 1
    assert len(list(session_faults(requests[:2], [Disruption("cut", "r1", 0, 4, "link")]))) == 1


def test_more_time_is_for_what_takes_longer_to_move() -> None:
    failed = [request("not sent", began=15)]
    assert len(list(unexplained_faults(failed, [Disruption("kill", "r1", 10, 11)], Delays()))) == 1
    assert not list(unexplained_faults(failed, [Disruption("kill", "r1", 10, 11)], Delays(), 5))


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
        (503, '{"jsonrpc":"2.0","error":{"message":"The bridge is stopping"}}', "wrong"),
        (503, "<html>503 Service Unavailable</html>", "unknown"),
        (404, '{"jsonrpc":"2.0","error":{"message":"This session is over"}}', "wrong"),
        (200, '{"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[]}}', "wrong"),
        (200, '{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"[\\"b\\", 7]"}]}}', "wrong"),
        (200, '{"result":{"isError":true,"_meta":{"mcpbridge/error":"UpstreamUnavailable"}}}', "not sent"),
        (200, '{"result":{"isError":true,"_meta":{"mcpbridge/error":"UpstreamGone"}}}', "unknown"),
    ],
)
def test_what_an_answer_says(status: int, text: str, outcome: Outcome) -> None:
    assert read(status, text, "a")[0] == outcome
