"""Lines of a text: which of them are looked at, and what the shapes of lines are that several kinds share."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

__all__ = [
    "PATH",
    "PATH_AT_LINE",
    "ROW_OF_LS",
    "SCANNED",
    "STAMP",
    "STAMP_OR_LEVEL",
    "TREE",
    "Lines",
    "Present",
    "lines_of",
    "words_in",
    "zeroed",
]

SCANNED = 4_000_000
"""Characters that are looked at. Of a longer text: three quarters from the beginning, the rest from the end."""

MOST = 200_000
"""Lines that are looked at; of more, parted in the same way."""

MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
STAMP = (
    r"(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z| ?[+-]\d\d:?\d\d)?"
    rf"|{MONTH} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{{1,9}})?|\d\d?/{MONTH}/\d{{4}}[: ]\d\d:\d\d:\d\d(?: [+-]\d{{4}})?"
    rf"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? {MONTH} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{{1,9}})? \d{{4}}"
    r"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
)
"""A point in time, as logs write it."""

LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|ERR|CRITICAL|CRIT|FATAL|SEVERE|PANIC|EMERG|ALERT)"
"""How grave it is, in capitals."""

STAMP_OR_LEVEL = re.compile(
    rf"\s{{0,4}}[\[(<]?(?:{STAMP}|{LEVEL}[\])>]?[: \t]|(?:time|ts|level)=|[0-9a-f.:]{{3,45}} \S+ \S+ \[\d)"
    rf"|[IWEF]\d{{4}} \d\d:\d\d:\d\d"
)
"""How a line of a log begins."""

PATH = re.compile(
    r"(?:\./|\.\./|/|~/|[A-Za-z]:[\\/])?(?:[^\s/\\:|<>\"][^/\\:|<>\"]{0,120}[/\\])*[^\s/\\:|<>\"]{1,200}/?"
)
"""A path alone on its line. Blanks are allowed in directories, not in the last name."""

PATH_AT_LINE = re.compile(r"((?:[A-Za-z]:)?[^\s:][^:\n]{0,300}):(\d{1,7})[:\-](?:\d{1,5}:)?")
"""`path:line:` as search tools write it."""

ROW_OF_LS = re.compile(
    r"([-dlbcps])[rwxsStT-]{9}[.+@]?\s+\d+\s+(\S+)\s+(\S+)\s+([\d,.]+[KMGTP]?)\s+"
    r"(\w{3}\s+\d+\s+[\d:]+|\d{4}-\d\d-\d\d(?:[ T]\S+)?(?: [+-]\d{4})?)\s+(.+)"
)
"""A row of `ls -l`: kind, owner, group, size, time, name."""

TREE = re.compile(r"(?:[│|] {0,3}\xa0{0,3}| {4}|\xa0{2,3} {0,2})*(?:[├└]──|[|`+\\]--)[ \xa0]?(.+)")
"""A row of `tree`."""


_ZEROS = str.maketrans(dict.fromkeys("123456789", "0"))


def words_in(lines: Sequence[str]) -> int:
    """How many words the lines have together."""
    return sum(len(" ".join(lines[at : at + 1000]).split()) for at in range(0, len(lines), 1000))


def zeroed(lines: Sequence[str]) -> list[str]:
    """The lines with every digit as 0: as long, and of the same form. Of lines that are not ASCII the digits stay."""
    whole = "\n".join(lines)
    if whole.isascii():
        return whole.translate(_ZEROS).split("\n") if lines else []
    return [line.translate(_ZEROS) if line.isascii() else line for line in lines]


class Present:
    """Some words, for a first look at many lines: lines are searched only for those that any line has at all."""

    def __init__(self, words: Iterable[str], lines: Sequence[str]) -> None:
        self._words = words
        self._lines = lines
        self._present: list[str] | None = None
        """Found with the first line that is asked for: often none is."""

    def any_in(self, line: str) -> bool:
        """Whether one of the words stands anywhere in a line."""
        if self._present is None:
            text = "\n".join(self._lines)
            self._present = [word for word in self._words if word in text]
        for word in self._present:  # noqa: SIM110 (a generator takes three times as long)
            if word in line:
                return True
        return False


class Lines(Struct, frozen=True):
    """The lines of a text that are looked at."""

    first: list[str]
    """From the beginning; all of them if the text is not too long."""
    last: list[str]
    """From the end of a text that is too long."""
    count: int
    """Lines of the whole text, exactly."""
    chars: int
    """Characters of the whole text."""

    @property
    def scope(self) -> str:
        """What is looked at, in words, if that is not all; else nothing."""
        if len(self.first) + len(self.last) >= self.count and self.chars <= SCANNED:
            return ""
        chars = sum(map(len, self.first)) + sum(map(len, self.last))
        return f"of the first {len(self.first)} and the last {len(self.last)} lines ({chars} chars) only:"

    def number(self, at: int) -> int:
        """The number in the text, from 1, of the line at this place of `first + last`."""
        return at + 1 if at < len(self.first) else self.count - (len(self.first) + len(self.last) - at) + 1


def lines_of(text: str) -> Lines:
    """The lines of a text, without their ends. A line end at the very end begins no further line."""
    body = text.removesuffix("\n")
    count = body.count("\n") + 1 if body else 0
    if len(body) <= SCANNED and count <= MOST:
        return Lines(_bare(body.split("\n") if body else []), [], count, len(text))
    first = _bare(body[: SCANNED * 3 // 4].split("\n", MOST * 3 // 4))
    last = _bare(body[-(SCANNED // 4) :].rsplit("\n", MOST // 4))
    first, last = first[:-1] or first, last[1:]  # those cut somewhere within
    if len(first) + len(last) > count:
        last = last[: max(count - len(first), 0)]
    return Lines(first, last, count, len(text))


def _bare(lines: list[str]) -> list[str]:
    """Without the carriage returns that may end them."""
    return [line.removesuffix("\r") for line in lines] if lines and lines[0].endswith("\r") else lines
