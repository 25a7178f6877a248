"""What the suite found, and what to make of it.

The rule is a comparison: what passes when the suite asks the server itself must pass through the bridge. What cannot
is named in `expected_failures.toml` with the reason; a named one that passes is a mistake in that file.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

__all__ = ["Expected", "Outcome", "Verdict", "expectations", "judge", "read_outcomes"]

_WHEN = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z?$")


@dataclass
class Outcome:
    """The checks of one scenario."""

    succeeded: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """What the suite says, by check."""

    @property
    def passed(self) -> bool:
        """Nothing failed (the suite's own rule), and something was checked at all."""
        return bool(self.succeeded) and not self.failed

    @property
    def why_not(self) -> str:
        """What the suite says of it."""
        failed = "; ".join(f"{check}: {said}" for check, said in self.failed.items())
        return failed or "nothing of it could be checked"


@dataclass(frozen=True)
class Expected:
    """A failure that is known, and why it has to be."""

    leg: str
    """Glob on the names of legs."""
    revision: str
    scenario: str
    reason: str

    def covers(self, leg: str, revision: str, scenario: str) -> bool:
        """Whether this entry is about that."""
        return fnmatch(leg, self.leg) and (revision, scenario) == (self.revision, self.scenario)


@dataclass(frozen=True)
class Verdict:
    """One leg at one revision."""

    leg: str
    revision: str
    passed: list[str]
    lost: dict[str, str]
    """Scenarios that must pass and did not, with what the suite says."""
    excused: dict[str, str]
    """Scenarios that were expected to fail and did, with the reason."""
    surprises: list[str]
    """Scenarios that were expected to fail and passed."""
    scored: int
    """How many of those to pass belong to the scored set."""
    scored_passed: int

    @property
    def is_good(self) -> bool:
        """Whether all is as it should be."""
        return not self.lost and not self.surprises


def read_outcomes(folder: Path) -> dict[str, Outcome]:
    """All scenarios whose results lie below a folder."""
    found: dict[str, Outcome] = {}
    for path in sorted(folder.rglob("checks.json")):
        name = _WHEN.sub("", path.parent.relative_to(folder).as_posix()).removeprefix("server-")
        outcome = found.setdefault(name, Outcome())
        for check in json.loads(path.read_text("utf-8")):
            if check["status"] == "SUCCESS":
                outcome.succeeded.append(check["id"])
            elif check["status"] == "FAILURE":
                outcome.failed[check["id"]] = (check.get("errorMessage") or check.get("description") or "")[:300]
    return found


def expectations(file: Path) -> list[Expected]:
    """The failures that are known."""
    return [Expected(**entry) for entry in tomllib.loads(file.read_text("utf-8")).get("expected", [])]


def judge(
    leg: str,
    revision: str,
    outcomes: Mapping[str, Outcome],
    must_pass: Iterable[str],
    scored: Iterable[str],
    expected: Iterable[Expected],
) -> Verdict:
    """Compare what a leg did with what it must do."""
    known = {entry.scenario: entry.reason for entry in expected if entry.covers(leg, revision, entry.scenario)}
    wanted = list(must_pass)
    passed = [name for name in wanted if name in outcomes and outcomes[name].passed]
    missing = {name: outcomes.get(name, Outcome()).why_not for name in wanted if name not in passed}
    scored_wanted = set(scored) & set(wanted)
    return Verdict(
        leg,
        revision,
        passed,
        lost={name: why for name, why in missing.items() if name not in known},
        excused={name: known[name] for name in missing if name in known},
        surprises=[name for name in known if name in passed],
        scored=len(scored_wanted),
        scored_passed=len(scored_wanted & set(passed)),
    )
