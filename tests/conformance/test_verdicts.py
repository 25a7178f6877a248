"""The rule by which a run of the official suite is judged; the run itself is `make conformance`."""

import json
from pathlib import Path

import pytest

from conformance.results import Expected, Outcome, expectations, judge, read_outcomes
from conformance.suite import HERE

GOOD = Outcome(succeeded=["check"])
BAD = Outcome(succeeded=["check"], failed={"other": "it said no"})
EXCUSED = Expected(leg="* legacy", revision="2026-07-28", scenario="asked", reason="no such key")


def test_what_passes_directly_must_pass_through_the_bridge() -> None:
    verdict = judge("stdio", "2025-11-25", {"a": GOOD, "b": BAD}, ["a", "b", "never-ran"], ["a", "b"], [])
    assert verdict.lost == {"b": "other: it said no", "never-ran": "nothing of it could be checked"}
    assert (verdict.passed, verdict.scored_passed, verdict.scored) == (["a"], 1, 2)
    assert not verdict.is_good


def test_a_failure_is_excused_where_the_file_says_so_and_nowhere_else() -> None:
    outcomes = {"asked": BAD}
    assert judge("stdio legacy", "2026-07-28", outcomes, ["asked"], ["asked"], [EXCUSED]).is_good
    for leg, revision in (("stdio", "2026-07-28"), ("stdio legacy", "2025-11-25")):
        assert not judge(leg, revision, outcomes, ["asked"], ["asked"], [EXCUSED]).is_good


def test_an_excused_scenario_that_passes_fails_the_run() -> None:
    verdict = judge("stdio legacy", "2026-07-28", {"asked": GOOD}, ["asked"], ["asked"], [EXCUSED])
    assert verdict.surprises == ["asked"]
    assert not verdict.is_good


def test_a_scenario_of_which_nothing_was_checked_has_not_passed(tmp_path: Path) -> None:
    folder = tmp_path / "server-polling-2026-11-21T15-35-25-006Z"
    folder.mkdir()
    (folder / "checks.json").write_text(json.dumps([{"id": "content-type", "status": "INFO"}]))
    assert not read_outcomes(tmp_path)["polling"].passed


@pytest.mark.parametrize("entry", expectations(HERE / "expected_failures.toml"), ids=lambda entry: entry.scenario)
def test_every_expected_failure_has_a_reason(entry: Expected) -> None:
    assert len(entry.reason.split()) > 8
