"""Finds the kind of a text without a value, by its beginning and a look into its middle."""

import re
from typing import Literal

from mcpbridge.results.text.lines import PATH, PATH_AT_LINE, ROW_OF_LS, STAMP_OR_LEVEL, TREE
from mcpbridge.results.text.listings import TAGGED

TextKind = Literal["log", "html", "listing", "diff", "markdown", "text"]
"""The kinds of `Document.kind` that have no value."""

LOOKED_AT = 60_000
"""Characters of the beginning, and half as many of the middle, that are looked at."""

LINE = 300
"""Characters of a line that are looked at."""

MIMES: dict[str, TextKind] = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "text/x-diff": "diff",
    "text/x-patch": "diff",
}
"""Media types that say it."""


def kind_of(text: str, mime: str = "") -> TextKind:
    """The kind of a text. `mime`: what the server says it is, if anything; never slower than the part looked at."""
    said = MIMES.get(mime.partition(";")[0].strip().lower())
    if said:
        return said
    start = text[:LOOKED_AT]
    if _is_html(start):
        return "html"
    lines = _sample(text)
    if not lines:
        return "text"
    if _is_diff(lines):
        return "diff"
    marked = _marks_of_markdown(lines)
    if _stamped(lines) >= 0.3:
        return "log"
    if marked < 4 and _is_runner_output(lines):
        return "log"
    if _listed(lines) >= 0.8 and len(lines) >= 5:
        return "listing"
    return "markdown" if marked >= 4 else "text"


def _sample(text: str) -> list[str]:
    """Lines that are not blank: of the beginning, and in long texts of the middle and the end."""
    pieces = [text[:LOOKED_AT]]
    if len(text) > 4 * LOOKED_AT:
        middle = len(text) // 2
        pieces += [text[middle : middle + LOOKED_AT // 2], text[-LOOKED_AT // 2 :]]
    return [line[:LINE] for piece in pieces for line in piece.split("\n")[:2000] if line and not line.isspace()]


_HTML_START = re.compile(r"\s{0,200}(?:<\?xml[^>]{0,200}>\s{0,200})?(?:<!doctype\s+html|<html[\s>])", re.IGNORECASE)
_HTML_TAGS = re.compile(
    r"<(?:div|p|span|table|tr|td|ul|ol|li|h[1-6]|a|body|head|section|article|img|br)[\s>/]", re.IGNORECASE
)


def _is_html(start: str) -> bool:
    if _HTML_START.match(start):
        return True
    if not start[:2000].lstrip().startswith("<"):
        return False
    head = start[:8000]
    return len(_HTML_TAGS.findall(head)) >= max(4, head.count("<") // 5)


def _is_diff(lines: list[str]) -> bool:
    """Hunks, and file headings before them; a diff quoted in a document does not make it one."""
    hunks = sum(line.startswith(("@@ -", "*** ", "Binary files ", "rename to ", "GIT binary")) for line in lines)
    files = sum(line.startswith(("diff ", "--- ", "Index: ")) for line in lines)
    if not files or not (hunks or sum(line.startswith("diff --git ") for line in lines) >= 2):
        return False
    first = next(at for at, line in enumerate(lines) if line.startswith(("diff ", "--- ", "Index: ")))
    return not any(line.startswith("```") for line in lines[: first + 1])


def _stamped(lines: list[str]) -> float:
    """The share of lines that begin with a time or say a level, or else belong to one that does."""
    return sum(1 for line in lines if STAMP_OR_LEVEL.match(line)) / len(lines)


_RUNNER = re.compile(
    r"=+ (?:test session starts|FAILURES|ERRORS|short test summary)|\S+::\S+ (?:PASSED|FAILED|SKIPPED|ERROR)"
    r"|\s*test \S.{0,200} \.\.\. (?:ok|FAILED|ignored)|(?:=== RUN|\s*--- (?:PASS|FAIL|SKIP): )|(?:ok|not ok) \d+\b"
    r"|running \d+ tests?$|npm (?:ERR!|error|WARN|warn) |\s+(?:Compiling|Checking|Downloading|Downloaded) \S+ v\d"
    r"|(?:error|warning)(?:\[[A-Z]\w+\])?: |\S+?[:(]\d+[:,]\d+\)?: (?:fatal )?(?:error|warning|note)\b"
    r"|Traceback \(most recent call last\)|\s+at [\w$.<>]+ ?\(|\s+File \".{1,200}\", line \d+|(?:PASS|FAIL) \S+\.\w+"
    r"|\s*[✓✔✕✗×] |(?:BUILD|Tests?|Test Suites|Build)\b.{0,20}: ?.{0,80}(?:FAILED|SUCCESS|failed|passed)"
    r"|\[\d+/\d+\] |make(?:\[\d+\])?: |> Task :|FAILED? |(?:FAIL|ERROR|OK)(?::|\Z)"
)


def _is_runner_output(lines: list[str]) -> bool:
    """Output of a test run or a build, or a stack trace."""
    told = sum(1 for line in lines if _RUNNER.match(line))
    return told >= 3 and told / len(lines) >= 0.08


_LIKE_PATH = re.compile(r"[/\\\\]|^\.?[\w-]+\.\w{1,10}$")


def _listed(lines: list[str]) -> float:
    """The share of lines that name a path."""
    told = 0
    for line in lines:
        if (
            (
                (_LIKE_PATH.search(line) and PATH.fullmatch(line))
                or PATH_AT_LINE.match(line)
                or ROW_OF_LS.match(line)
                or TREE.match(line)
                or TAGGED.match(line)
            )
            or line.endswith(":")
            or line.startswith("total ")
        ):
            told += 1
    return told / len(lines)


_MARKDOWN = (
    (re.compile(r"#{1,6} \S"), 2),
    (re.compile(r"(?:```|~~~)"), 2),
    (re.compile(r"\s*[-*+] (?:\[[ xX]\] )?\S"), 1),
    (re.compile(r"\|.*\|\s*$"), 1),
    (re.compile(r".{0,200}?\[[^\]]{1,80}\]\([^)\s]{1,200}"), 1),
    (re.compile(r".{0,200}?\*\*[^*]{1,80}\*\*"), 1),
    (re.compile(r"(?:=+|-{3,})\s*$"), 1),
    (re.compile(r"> \S"), 1),
)


def _marks_of_markdown(lines: list[str]) -> int:
    """How much speaks for Markdown: headings and fences most; nothing does without one of these or a link."""
    score, strong = 0, False
    for at, (pattern, weight) in enumerate(_MARKDOWN):
        found = sum(1 for line in lines[:400] if pattern.match(line))
        if found:
            score += weight * min(found, 3)
            strong = strong or at in (0, 1, 4, 5)
    return score if strong else 0
