"""`doctor --fix`: change what is certain to be wrong, try the server again, and take back what does not help.

A change is written whole or not at all, with a copy of what was there; everything else in the file stays as it is.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import unified_diff
from pathlib import Path
from typing import Any

from mcpbridge.app.doctor.examination import Examiner
from mcpbridge.app.doctor.finding import Edit, Finding
from mcpbridge.app.doctor.report import ServerReport
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.files.backups import Backups
from mcpbridge.config.files.write_file import ChangedMeanwhile, decoded, encoded, read_bytes, replace_file
from mcpbridge.config.load import read
from mcpbridge.config.secrets.providers import Providers
from mcpbridge.config.write_servers_toml import keep_trust


def applied(text: str, edit: Edit) -> str:
    """The text of a servers.toml with the change made; the same text where it has been made, or cannot be."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document: Any = tomlkit.parse(text)
        server: Any = document["servers"][edit.server]
        _change(server, edit)
        return tomlkit.dumps(document)
    except (TOMLKitError, LookupError, TypeError, AttributeError, ValueError):
        return text


def difference(before: str, after: str, file: str) -> str:
    """The lines that change, as `diff -U0` shows them: others may hold what nobody should see."""
    lines = unified_diff(before.splitlines(), after.splitlines(), file, file, n=0, lineterm="")
    return "\n".join(lines)


def _change(server: Any, edit: Edit) -> None:
    if edit.key:
        *tables, last = edit.key
        for name in tables:
            if name not in server:
                import tomlkit

                server[name] = tomlkit.inline_table()
            server = server[name]
        server[last] = edit.value
        return
    args = server.get("args", [])
    words = list(args)
    if edit.instead and words[edit.at] != edit.instead:
        raise ValueError("the arguments are others by now")
    words[edit.at : edit.at + bool(edit.instead)] = edit.args
    if "args" not in server or "\n" not in args.as_string():
        server["args"] = _array(words, getattr(args, "trivia", None))
        return
    if edit.instead:
        del args[edit.at]
    for number, word in enumerate(edit.args):  # one by one, so that comments between them stay where they are
        args.insert(edit.at + number, word)


def _array(words: list[str], trivia: Any) -> Any:
    """A list on one line, with what stood around the old one."""
    import tomlkit

    array: Any = tomlkit.array()
    array.extend([str(word) for word in words])
    if trivia is not None:
        array.trivia.comment, array.trivia.comment_ws = trivia.comment, trivia.comment_ws
        array.trivia.trail = trivia.trail
    return array


class Repair:
    """The repairs of one file."""

    def __init__(self, path: Path, environ: Mapping[str, str], *, now: Callable[[], datetime] = datetime.now) -> None:
        self._path = path.resolve()  # what a link points to is changed, and the link stays
        self._backups, self._now, self._environ = Backups(environ), now, environ
        self.backup: Path | None = None
        """The copy of the file as it was before the first change; None: nothing was changed."""

    @property
    def text(self) -> str:
        """What the file says now.

        Raises:
            ConfigError: it cannot be read.
        """
        return decoded(self._read(), self._path)

    def write(self, before: str, after: str) -> None:
        """Put `after` into the place of `before`.

        Raises:
            ConfigError: it cannot be written, or was changed by somebody meanwhile; nothing has changed then.
        """
        data = self._read()
        if self.backup is None:
            self.backup = self._backups.keep("doctor", self._path, data, self._now())
        try:
            with keep_trust(self._path, self._environ, after):
                replace_file(self._path, encoded(before, data), encoded(after, data), private=True)
        except ChangedMeanwhile as error:
            hint = "Run `mcpbridge doctor` once more."
            raise ConfigError(
                "it was changed by somebody else in the meantime", file=str(self._path), hint=hint
            ) from error

    def forget_backup(self) -> None:
        """Everything was taken back, so that the copy is of no use."""
        if self.backup is not None:
            self._backups.drop(str(self.backup))
            self.backup = None

    def _read(self) -> bytes:
        data = read_bytes(self._path)
        if data is None:
            raise ConfigError("it is gone", file=str(self._path))
        return data


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
    """They are in the file now; else it is as it was."""
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
    report: Callable[[Outcome], None],
) -> list[Outcome]:
    """Go through the findings that have an edit, the gravest of each server. `path`: the configuration file.

    `report` hears what became of each. Whatever does not leave the server working is taken back, also when this is
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
        report(outcome)
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
            loaded = read(path, environ, providers=Providers(environ))
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
