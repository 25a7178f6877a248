"""`doctor --fix`: change what is certain to be wrong, try the server again, and take back what does not help."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpbridge.config.load import read
from mcpbridge.doctor.examination import Examiner
from mcpbridge.doctor.finding import Edit, Finding
from mcpbridge.doctor.fixing import applied, difference
from mcpbridge.doctor.repairing import Repair
from mcpbridge.doctor.report import ServerReport
from mcpbridge.errors import ConfigError

__all__ = ["Outcome", "repair_all"]

Agree = Callable[[Finding, str], Awaitable[bool]]
"""Is shown a finding and the lines that would change, and says whether that may be done."""

_ROUNDS = 3
"""Changes of one server, one after the other: behind what was wrong first something else may come to light."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the changes to one server."""

    server: str
    code: str
    """Of the finding that they began with."""
    edits: tuple[Edit, ...]
    """Those that were made."""
    is_kept: bool
    """They stand in the file now; else it is as it was."""
    why: str = ""
    """Why they are not kept."""
    report: ServerReport | None = None
    """How the server is with them; None: it was not tried."""

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        told = {"server": self.server, "code": self.code, "edits": [str(edit) for edit in self.edits]}
        return {**told, "kept": self.is_kept, "ok": bool(self.report and self.report.is_ready), "why": self.why}


async def repair_all(
    findings: Sequence[Finding],
    repair: Repair,
    path: Path,
    examiner: Examiner,
    environ: Mapping[str, str],
    *,
    agree: Agree,
    told: Callable[[Outcome], None],
) -> list[Outcome]:
    """Go through the findings that have an edit, the gravest of each server. `path`: the configuration file.

    `told` hears what became of each. Whatever does not leave the server working is taken back, also when this is
    cancelled or fails.

    Raises:
        ConfigError: the file cannot be written.
    """
    outcomes: list[Outcome] = []
    for finding in _first_of_each(findings):
        before = repair.text
        is_settled = False
        try:
            outcome = await _repair(finding, repair, path, examiner, environ, agree)
            is_settled = outcome.is_kept
        finally:
            if not is_settled and (now := repair.text) != before:
                repair.write(now, before)
        outcomes.append(outcome)
        told(outcome)
    if not any(outcome.is_kept for outcome in outcomes):
        repair.forget_backup()
    return outcomes


async def _repair(
    finding: Finding,
    repair: Repair,
    path: Path,
    examiner: Examiner,
    environ: Mapping[str, str],
    agree: Agree,
) -> Outcome:
    """Change and try until the server works, or there is nothing more to change. What is left over is to be undone."""
    server, code = finding.server, finding.code
    made: tuple[Edit, ...] = ()
    codes = set[str]()
    report: ServerReport | None = None
    for _ in range(_ROUNDS):
        if finding.edit is None or finding.code in codes:
            break
        codes.add(finding.code)
        before = repair.text
        after = applied(before, finding.edit)
        if after == before:
            return Outcome(server, code, made, is_kept=False, why="the file does not look as expected", report=report)
        if not await agree(finding, difference(before, after, str(path))):
            return Outcome(server, code, made, is_kept=False, why="you did not agree", report=report)
        repair.write(before, after)
        made = (*made, finding.edit)
        try:
            loaded = read(path, environ)
        except ConfigError as error:
            return Outcome(server, code, made, is_kept=False, why=f"the file would be wrong: {error.what}")
        report, failed = await examiner.again(loaded, server)
        if report.is_ready:
            return Outcome(server, code, made, is_kept=True, report=report)
        finding = failed[0] if failed else Finding("", "fail", report.state)
    return Outcome(server, code, made, is_kept=False, why=f"it still fails: {finding.what}", report=report)


def _first_of_each(findings: Sequence[Finding]) -> list[Finding]:
    """The first failure of each server that can be mended; of a server that works, the first other thing."""
    fixable = sorted((one for one in findings if one.edit is not None), key=lambda one: one.level != "fail")
    return list({one.server: one for one in reversed(fixable)}.values())[::-1]
