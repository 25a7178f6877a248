"""What the checker of fleets makes of a history, and of the words of an answer (issue 24)."""

import pytest

from support.fleet_checker.answers import read
from support.fleet_checker.history import Disruption, Outcome, Request, faults


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
