"""Facts of diffs: which files changed, by how many lines, and where."""

import re
from collections import Counter

from msgspec import Struct, field

from mcpbridge.results.text.lines import Fact, Lines, cut, many

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class Change(Struct):
    """What was changed in one file."""

    path: str
    line: int
    """Place of its first line."""
    plus: int = 0
    minus: int = 0
    how: str = ""
    """`new`, `deleted`, `renamed from …`, `binary`; nothing if it was only changed."""
    hunks: list[str] = field(default_factory=list[str])
    body: list[str] = field(default_factory=list[str])
    """The first lines that changed."""


def diff_facts(lines: Lines, items: int) -> list[Fact]:
    """The facts of a diff, in the order they are read in."""
    every = lines.first + lines.last
    changes, before = _changes(every)
    plus, minus = sum(each.plus for each in changes), sum(each.minus for each in changes)
    hunks = sum(len(each.hunks) for each in changes)
    ordered = sorted(changes, key=lambda each: -(each.plus + each.minus))
    hows = Counter(each.how.partition(" ")[0] for each in changes if each.how)
    special = [f"{each.path} ({each.how})" for each in changes if each.how not in ("", "new")]
    commits = [line for line in before if line.startswith("commit ")]
    counted = (
        f"{many(len(changes), 'file')} changed, {many(plus, 'insertion(+)', 'insertions(+)')}, "
        f"{many(minus, 'deletion(-)', 'deletions(-)')}, {many(hunks, 'hunk')}"
    )
    facts = [
        Fact(
            0,
            counted
            + "".join(f", {count} {how}" for how, count in hows.items())
            + (f", {many(len(commits), 'commit')}" if commits else ""),
        )
    ]
    if before:
        facts.append(
            Fact(3, "before: ", [cut(line.strip(), 160) for line in before if line.strip()], "\n  ", share=0.15)
        )
    listed = [
        f"{cut(each.path, 150)} +{each.plus} -{each.minus}" + (f" {each.how}" if each.how else "") for each in ordered
    ]
    facts.append(Fact(1, "files by size of change: ", listed, "\n  ", share=0.4))
    if special:
        facts.append(Fact(2, "deleted, renamed, binary: ", [cut(each, 200) for each in special], share=0.2))
    if changes:
        facts.append(Fact(4, f"first file: {changes[0].path}; last file: {changes[-1].path}", share=0.2))
    for order, each in enumerate(ordered[: max(items, 1)]):
        facts.append(
            Fact(5 + 2 * order, f"{cut(each.path, 150)} ", [cut(hunk, 120) for hunk in each.hunks], "; ", share=0.12)
        )
        facts.append(
            Fact(
                6 + 2 * order,
                "  ",
                [cut(line, 160) for line in each.body],
                "\n  ",
                share=0.2,
                of=each.plus + each.minus,
            )
        )
    return [fact for fact in facts if fact.items or fact.head.strip()]


def _changes(every: list[str]) -> tuple[list[Change], list[str]]:
    """The changed files, and the lines that stand before or between them (messages of commits)."""
    changes: list[Change] = []
    before: list[str] = []
    now: Change | None = None
    old_left = new_left = 0
    for at, line in enumerate(every):
        if now is not None and (old_left > 0 or new_left > 0) and line[:1] in ("+", "-", " ", "\\", ""):
            plus, minus = line[:1] == "+", line[:1] == "-"
            now.plus, now.minus = now.plus + plus, now.minus + minus
            if (plus or minus) and len(now.body) < 40:
                now.body.append(line)
            if line[:1] != "\\":
                old_left, new_left = old_left - (not plus), new_left - (not minus)
            continue
        hunk = _HUNK.match(line) if now is not None and line.startswith("@@") else None
        if hunk and now is not None:
            old_left, new_left = int((hunk[1] or "1")[:12]), int((hunk[2] or "1")[:12])
            now.hunks.append(line)
        elif line.startswith("diff --git "):
            now = Change(line.rpartition(" b/")[2] or line[11:], at)
            changes.append(now)
        elif line.startswith("--- ") and at + 1 < len(every) and every[at + 1].startswith("+++ "):
            if now is None or now.hunks or now.plus or now.minus:
                now = Change("", at)
                changes.append(now)
            _named(now, _path(line[4:]), _path(every[at + 1][4:]))
        elif now is None or line.startswith(("commit ", "Author:", "Date:", "    ")):
            before.append(line)
        else:
            _headed(now, line)
    return changes, before


def _named(change: Change, old: str, new: str) -> None:
    change.path = old if new == "/dev/null" else new
    if "/dev/null" in (old, new):
        change.how = change.how or ("new" if old == "/dev/null" else "deleted")


def _path(text: str) -> str:
    path = text.partition("\t")[0].strip()
    return path[2:] if path[:2] in ("a/", "b/") else path


def _headed(change: Change, line: str) -> None:
    """A line between the name of a file and its first hunk."""
    if line.startswith("new file"):
        change.how = "new"
    elif line.startswith("deleted file"):
        change.how = "deleted"
    elif line.startswith("rename from "):
        change.how = f"renamed from {line[12:]}"
    elif line.startswith(("Binary files ", "GIT binary")):
        change.how = f"{change.how} binary".strip()
