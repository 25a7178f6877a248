"""What all previews of texts share: the lines that are read, and the choice of facts that fit.

Facts are in the order in which they are read, and each says how much it matters: the room goes to what matters most,
then to the next, and what is left goes to lists that had to be cut. A cut says how much is missing; `ends` does the
same for the beginning and the end of a text.

`around` finds sentences of running text that are likely to be asked for: those with a figure, or with emphasis.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

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
        """Whether one of the words occurs anywhere in a line."""
        if self._present is None:
            text = "\n".join(self._lines)
            self._present = [word for word in self._words if word in text]
        for word in self._present:  # noqa: SIM110 - a generator takes three times as long
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


LEAST = 12
"""Characters below which a part of a fact says nothing."""

ENOUGH = 1_000
"""Characters of a room that any fact may use."""

MAJOR = 3
"""The last rank of the facts that may begin anywhere in a room."""

FIRST = 1
"""The last rank of the facts whose lists may use all of a room."""


class Fact(Struct, frozen=True):
    """One thing to report: a heading, and what is listed under it."""

    rank: int
    """How much it matters; 0 comes first."""
    head: str
    """What is before the list; of a fact without a list all of it."""
    items: Sequence[str] = ()
    """Listed as many as there is room for, from the first."""
    between: str = ", "
    """What is between two items."""
    share: float = 1.0
    """The part of the room that it may take at most before all others had their turn."""
    of: int = 0
    """How many items there are in truth, if more than are given."""
    is_counted: bool = True
    """Whether it is known how many items there are; if not, there are more than given, and no number is said."""


def facts_text(facts: Iterable[Fact], room: int) -> str:
    """The facts that fit into `room` characters, one a line, in their order.

    Of a large room minor facts get a part only: what has been shown by then answers most questions, and every character
    is paid for again with each of them.
    """
    placed = list(facts)
    by_rank = sorted(range(len(placed)), key=lambda at: placed[at].rank)
    lines: dict[int, str] = {}
    spare = room - max(min(room, ENOUGH), room * 11 // 20)
    left = room
    for at in by_rank:
        fact = placed[at]
        is_free = fact.rank <= MAJOR or (not fact.items and left - spare > len(fact.head) // 2)
        line = fact_text(fact, min(left - 1 - (0 if is_free else spare), int(room * fact.share)))
        if line:
            lines[at] = line
            left -= len(line) + 1
    for at in by_rank:
        limit = left if placed[at].rank <= FIRST else left - spare
        if limit > LEAST and placed[at].share < 1.0:
            had = len(lines[at]) if at in lines else -1
            line = fact_text(placed[at], limit + had if at in lines else limit - 1)
            if len(line) > max(had, 0):
                lines[at] = line
                left -= len(line) - had
    return "\n".join(lines[at] for at in sorted(lines))[:room]


def fact_text(fact: Fact, room: int) -> str:
    """The fact in at most `room` characters, with what is missing said; nothing if that is too few."""
    if not fact.items:
        return cut(fact.head, room) if room >= min(len(fact.head), max(LEAST * 3, len(fact.head) // 2)) else ""
    all_of = max(fact.of, len(fact.items))
    used, count = len(fact.head), 0
    reserve = len(_missing(fact, all_of))
    for item in fact.items:
        more = len(item) + (len(fact.between) if count else 0)
        is_last = count + 1 == all_of and fact.is_counted
        if used + more + (0 if is_last else reserve) > room:
            break
        used, count = used + more, count + 1
    if not count:
        spare = room - len(fact.head) - reserve
        if spare < LEAST * 4 or len(fact.head) > spare:
            return ""
        first = cut(fact.items[0], spare)
        return fact.head + first + _missing(fact, all_of - 1)
    text = fact.head + fact.between.join(fact.items[:count])
    return text + _missing(fact, all_of - count)


def _missing(fact: Fact, count: int) -> str:
    """What is said of the items that are not listed."""
    if not fact.is_counted:
        return f"{fact.between}…"
    return f"{fact.between}… +{count}" if count else ""


def cut(text: str, room: int) -> str:
    """A text in at most `room` characters, its cut marked. Line ends and other control characters become blanks."""
    short = text[: room + 1]
    if not short.isprintable():
        short = "".join(each if each.isprintable() or each == "\n" else " " for each in short)
    return short if len(short) <= room else short[: max(room - 1, 0)] + "…"[:room]


def tally(counts: Iterable[tuple[str, int]], most: int = 60) -> list[str]:
    """`name×count` for each, names cut to `most` characters."""
    return [f"{cut(name, most)}×{count}" for name, count in counts]


def many(count: int, one: str, more: str = "") -> str:
    """A number of things, in words: `1 file`, `2 files`. `more`: their name if it is not `one` with an s."""
    return f"{count} {one if count == 1 else more or one + 's'}"


def ends(text: str, room: int, head: float = 0.6) -> str:
    """A text in at most `room` characters: whole, or its beginning and its end, cut between lines where there are some.

    `head`: the part of the room that the beginning gets. Less than 80 characters show the beginning alone.
    """
    if len(text) <= room:
        return text
    reserve = len(f"\n[… {text.count(chr(10)) + 1} lines, {len(text)} characters …]\n")
    spare = room - reserve
    if spare < 40:
        return text[: max(room - 1, 0)] + "…"[: max(room, 0)]
    start = _to_line_end(text[: int(spare * head)])
    end = _from_line_start(text[-(spare - len(start)) :])
    missing = text[len(start) : len(text) - len(end)]
    whole = _whole_lines(missing, is_from_start=start[-1:] in ("", "\n"))
    counted = f"{many(whole, 'line')}, " if whole else ""
    note = f"[… {counted}{len(missing)} characters …]"
    return f"{start}{'' if start.endswith(chr(10)) else chr(10)}{note}\n{end}"


def _whole_lines(missing: str, *, is_from_start: bool) -> int:
    """How many lines are missing from their start to their end. `is_from_start`: the first is, as far as that goes."""
    return max(missing.count("\n") - (not is_from_start), 0)


def _to_line_end(start: str) -> str:
    at = start.rfind("\n")
    return start[: at + 1] if at >= len(start) // 2 else start


def _from_line_start(end: str) -> str:
    at = end.find("\n")
    return end[at + 1 :] if 0 <= at < len(end) // 2 else end


KEPT = 200
"""Sentences that are kept of each sort."""

FIGURE = re.compile(r"(?<![\w.])\d[\d.,:%/-]*\w{0,4}\b")
"""A number, with a unit or not."""

_END = re.compile(
    r"(?<!\b\w)(?<!\b(?:Mr|Ms|Dr|St|No|Nr|vs))(?<!\b(?:Mrs|Fig|Vol|Sec|Nos))[.!?][\"')\]]? (?=[^\sa-z\d])"
)
"""Where a sentence ends: not after an initial or an abbreviation, nor before a number or a small letter."""

SIDE = 80
"""Characters that are shown on each side at most."""


def around(line: str, start: int, end: int) -> str:
    """The sentence that holds this place of a line, or as much of it as fits, cut between words."""
    low = max((match.end() for match in _END.finditer(line, max(0, start - SIDE), start + 1)), default=0)
    if not low:
        low = max(0, start - SIDE)
        low = 0 if low == 0 else line.find(" ", low, start) + 1 or low
    stop = _END.search(line, end, end + SIDE)
    high = stop.end() - 1 if stop else 0
    if not high:
        high = min(len(line), end + SIDE)
        high = high if high == len(line) else max(line.rfind(" ", end, high), end)
    return cut(line[low:high].strip(), 3 * SIDE)
