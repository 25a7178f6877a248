"""What the checker of fleets makes of a server that runs once for all, and of calls that run once (issue 24)."""

from pathlib import Path

import pytest

from support.fleet_checker.equal_calls import Ran, run_faults, runs
from support.fleet_checker.history import Delays, Disruption, Kind, Outcome, Parts, Request
from support.fleet_checker.one_process import Process, process_faults, processes

KILL = Disruption("kill", "r1", 4, 5)
STOP = Disruption("long pause", "r1", 4, 16)


def request(id_: str, owner: int, count: int, *, began: float = 0, outcome: Outcome = "answered") -> Request:
    return Request(id_, "", outcome, began, began + 1, str(count), owner)


def test_the_journal_says_what_each_process_did(tmp_path: Path) -> None:
    journal = tmp_path / "journal.txt"
    journal.write_text("started 7 101.5\ncall 7 102.5 f0-1 1\nbeside 8 103.5\ncall 7 104.5 f1-1 2\ncall 8 10", "utf-8")
    assert processes(journal, 100) == [
        Process(7, 1.5, is_beside=False, calls=[("f0-1", 2.5, 1), ("f1-1", 4.5, 2)]),
        Process(8, 3.5, is_beside=True, calls=[]),
    ]


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ([Process(1, -1, False, [("a", 1, 1)]), Process(2, 5, False, [("b", 6, 1)])], ""),
        (
            [Process(1, -1, False, [("a", 6, 1)]), Process(2, 5, False)],
            "took a call though another had followed it: a at",
        ),
        ([Process(1, -1, False), Process(2, 5, True)], "two processes at once: 2 since 5.00 s"),
        ([Process(1, -1, False, [("a", 1, 1), ("b", 2, 1)])], "a process lost its state: b by 1"),
        ([Process(1, -1, False), Process(2, 5, False), Process(3, 6, False)], "2 processes were started, at 1 disrupt"),
    ],
)
def test_a_server_for_the_fleet_has_one_process_at_a_time(found: list[Process], fault: str) -> None:
    faults = list(process_faults(found, [], [KILL]))
    assert len(faults) == bool(fault)
    assert fault in "".join(faults)


def test_an_answer_is_of_the_process_that_took_the_call() -> None:
    found = [Process(1, -1, False, [("a", 1, 1), ("b", 2, 2)])]
    assert list(process_faults(found, [request("a", 1, 1), request("b", 0, 0, outcome="unknown")], [])) == []
    for wrong in (request("a", 1, 2), request("a", 2, 1), request("c", 1, 1)):
        [fault] = process_faults(found, [wrong], [])
        assert "answered by another state" in fault


def test_a_bridge_that_is_stopped_keeps_its_process_and_gives_it_nothing_new() -> None:
    found = [Process(1, -1, False), Process(2, 14, True)]
    assert list(process_faults(found, [], [STOP])) == []
    found = [Process(1, -1, False, [("early", 16.1, 1)]), Process(2, 14, True)]
    [fault] = process_faults(found, [request("early", 0, 0, began=3.9, outcome="unknown")], [STOP])
    assert "took a call though another had followed it: early at 16.10 s" in fault


def test_the_journal_says_what_ran(tmp_path: Path) -> None:
    journal = tmp_path / "journal.txt"
    journal.write_text("k0-1 101 102\nk0-2 103", "utf-8")
    assert runs(journal, 100) == [Ran("k0-1", 1, 2)]


@pytest.mark.parametrize(
    ("kind", "parts", "is_excused"),
    [("kill", "", False), ("cut", "link", False), ("cut", "store", True), ("store", "", True), ("pause", "", True)],
)
def test_equal_calls_run_at_the_same_time_only_while_a_bridge_does_not_reach_the_store(
    kind: Kind, parts: Parts, is_excused: bool
) -> None:
    twice = [Ran("k0-1", 1, 2), Ran("k0-1", 1.5, 2.5), Ran("k0-2", 1, 2)]
    found = list(run_faults(twice, [], [Disruption(kind, "r1", 0, 1, parts)], Delays()))
    assert found == ([] if is_excused else ["ran twice at the same time: k0-1, 1.00–2.00 s and 1.50–2.50 s"])
    assert not list(run_faults([Ran("k0-1", 1, 2), Ran("k0-1", 2.5, 3)], [], [], Delays()))


def test_an_equal_call_is_answered_by_a_run_or_says_what_is_known() -> None:
    ran = [Ran("k0-1", 1, 2)]
    assert not list(
        run_faults(ran, [request("k0-1@r1", 1, 0), request("k0-1@r2", 0, 0, outcome="unknown")], [], Delays())
    )
    [fault] = run_faults(ran, [request("k0-2@r1", 1, 0)], [], Delays())
    assert "answered, but never run" in fault
    [fault] = run_faults(ran, [request("k0-1@r1", 0, 0, outcome="hung")], [], Delays())
    assert "neither answered nor" in fault
