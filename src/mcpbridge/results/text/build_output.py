"""Facts of the output of test runs and builds, and of stack traces."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct, field

from mcpbridge.results.text.lines import Fact, Lines, Present, cut, many, tally, zeroed
from mcpbridge.results.text.repeated_lines import templates_of

OUTCOME = re.compile(
    r"(?P<id>\S{1,200}::\S.{0,200}?) (?P<how>PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS)\b"
    r"|(?P<how1>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (?P<id1>\S{1,300})"
    r"|(?:test )?(?P<id2>\w\S{0,200}(?: [(-][^()]{1,200}\)?)?) \.\.\. (?P<how2>ok|FAILED|ignored|FAIL|ERROR|skipped)\b"
    r"|\s*--- (?P<how3>PASS|FAIL|SKIP): (?P<id3>\S{1,200})"
    r"|\s*(?P<how4>not ok|ok) \d+(?: -)? ?(?P<id4>.{0,200})"
    r"|(?P<how5>PASS|FAIL)\s+(?P<id5>[\w./@\\-]{1,200}\.\w{1,6})(?=\s|$)"
    r"|(?P<how6>FAIL|ERROR): (?P<id6>\w.{0,200})"
    r"|\s*(?P<how7>[✓✔√✕✗✘×○]) (?P<id7>.{1,200}?)(?: \(\d+ ?m?s\))?$"
)
BAD = frozenset(("FAILED", "ERROR", "FAIL", "not ok", "✕", "✗", "✘", "×"))
NAMED = {
    "✓": "passed",
    "✔": "passed",
    "√": "passed",
    "✕": "failed",
    "✗": "failed",
    "✘": "failed",
    "×": "failed",
    "○": "skipped",
}

PLACE = re.compile(
    r"\s{0,8}(?:--> |> |at |File \")?((?:[A-Za-z]:)?[\w./\\@+~-]{1,200}?\.\w{1,6})"
    r"(?:[:(]|\", line )(\d{1,7})(?:[:,]\d{1,5})?\)?"
    r"(?::? ?(.{0,300}))"
)
"""A place in a file, as compilers, linters and test runners write it, and what is said of it."""

_AT_PLACE = re.compile(r"\bat ([\w./\\@+~-]{1,200}\.\w{1,6}):(\d{1,7})\b")

SUMMARY = re.compile(
    r"(?<![\w.])\d[\d,]* (?:tests? )?(?:pass(?:ed|ing)|fail(?:ed|ing|ures?)|errors?|warnings?|skipped|pending|problems?"
    r"|vulnerabilit\w+|ignored)\b"
    r"|test result: |Tests(?: run)?: |Test Suites: |Ran \d+ tests?|BUILD (?:SUCC|FAIL)"
    r"|(?:Build|Compil)\w* (?:succeeded|failed|finished)|\bFAILED \(|Finished |exit (?:code|status) \d|Error \d+$"
)
EXCEPTION = re.compile(
    r"(?:E +|Caused by: |Exception in thread \"[^\"]{0,80}\" |Uncaught )?"
    r"((?:[A-Za-z_]\w{0,80}[.:]{1,2}){0,12}[A-Z]\w{0,80}(?:Error|Exception|Exit|Interrupt|Warning))(?::|$)"
)
_COUNTED = re.compile(
    r"[\d,] (?:tests? )?(?:pass|fail|error|warning|skipped|pending|problem|vulnerabilit|ignored)", re.IGNORECASE
)
"""What the counts of a summary look like, for a first look."""

_SUMMING = ("test result: ", "Test", "Ran ", "BUILD ", "Build", "Compil", "FAILED (", "Finished ", "exit ", "Error ")
"""What else a summary has, for a first look."""

_ENDINGS = ("PASS", "FAIL", "SKIP", "ERROR", " ... ", "ok ", *NAMED)
"""What every line that reports how a test ended has one of, for a first look."""

_GROUPS = {
    name: (f"how{name.lstrip('howid')}", f"id{name.lstrip('howid')}") for name in OUTCOME.groupindex
}  # where a match has how a test ended and its id, by the group that was matched last

TROUBLE = ("error", "fail", "exception", "panic", "fatal", "err!", "cannot", "denied", "undefined")
CAUTION = ("warn", "deprecat")


class Runs(Struct):
    """What is known of such lines so far. Places of lines are those of all lines that are looked at."""

    endings: Present
    summing: Present
    trouble_words: Present
    caution_words: Present
    is_counted: bool
    """Whether anything looks like the counts of a summary."""
    outcomes: dict[str, str] = field(default_factory=dict[str, str])
    """Tests by id, and how they ended."""
    bad: dict[str, int] = field(default_factory=dict[str, int])
    """Ids of tests that failed, and where that was said last."""
    trouble: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    caution: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    plain: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    places: dict[str, int] = field(default_factory=dict[str, int])
    """Places of failures with what is said of them, and the line."""
    exceptions: Counter[str] = field(default_factory=Counter[str])
    thrown: list[int] = field(default_factory=list[int])
    summaries: list[int] = field(default_factory=list[int])
    traces: list[int] = field(default_factory=list[int])

    def take(self, at: int, line: str) -> bool:
        """Take in a line that has neither a time nor a level. True if it is plain: it reports nothing but its text."""
        if not line or line.isspace():
            return False
        if self.endings.any_in(line) and (outcome := OUTCOME.match(line)):
            self._outcome(at, outcome)
            return False
        if (self.summing.any_in(line) or (self.is_counted and _COUNTED.search(line))) and SUMMARY.search(line):
            self.summaries.append(at)
            return False
        low = line.lower()
        begins = "traceback" in low or low.startswith(("exception in", "panic:", "thread '"))
        if begins:
            self.traces.append(at)
        if self.trouble_words.any_in(low) or line.startswith("E  "):
            self._trouble(at, line)
        elif self.caution_words.any_in(low):
            self.caution.append((at, line))
        else:
            self.plain.append((at, line))
            if " --> " not in line:
                return not begins
            if place := PLACE.match(line):
                self.places.setdefault(f"{place[1]}:{place[2]}", at)
        return False

    def _outcome(self, at: int, outcome: re.Match[str]) -> None:
        how_at, id_at = _GROUPS[outcome.lastgroup or "id"]
        how, name = outcome[how_at], outcome[id_at].strip()
        self.outcomes[name or str(at)] = NAMED.get(how, how)
        if how in BAD:
            self.bad[name] = at

    def _trouble(self, at: int, line: str) -> None:
        place = PLACE.match(line)
        text = (place[3] if place else line).strip()
        if (place is None or " " in text) and text.strip("=-*_ ").upper() not in ("FAILURES", "ERRORS", "WARNINGS"):
            self.trouble.append((at, text))
        place = place or _AT_PLACE.search(line)
        if place:
            said = cut(text, 160)
            self.places.setdefault(f"{place[1]}:{place[2]}" + (f": {said}" if said else ""), at)
        thrown = EXCEPTION.match(line)
        if thrown:
            self.exceptions[thrown[1]] += 1
            self.thrown.append(at)


def _runs_of(lines: Sequence[str]) -> Runs:
    """Nothing known yet, but which words these lines have at all."""
    text = "\n".join(lines)
    low = text.lower().split("\n") if text else []
    return Runs(
        Present(_ENDINGS, lines),
        Present(_SUMMING, lines),
        Present(TROUBLE, low),
        Present(CAUTION, low),
        is_counted=_COUNTED.search(text) is not None,
    )


def run_facts(
    rest: Sequence[tuple[int, str]], texts: Sequence[tuple[int, str]], lines: Lines, every: Sequence[str]
) -> list[Fact]:
    """The facts of such lines. `texts`: lines with a time but no level, which may speak of trouble as well."""
    runs = _runs_of([line for _, line in rest])
    plain: set[str] = set()
    for (at, line), form in zip(rest, zeroed([line for _, line in rest]), strict=True):
        if form in plain:
            runs.plain.append((at, line))
        elif runs.take(at, line):
            plain.add(form)
    lows = [text.lower() for _, text in texts]
    words = Present(TROUBLE, lows)
    troubled = [each for each, low in zip(texts, lows, strict=True) if words.any_in(low)]
    trouble = sorted([*runs.trouble, *troubled])
    facts: list[Fact] = []
    if runs.outcomes:
        facts.append(Fact(1, "tests: ", tally(Counter(runs.outcomes.values()).most_common())))
    if runs.summaries:
        ends = dict.fromkeys([*runs.summaries[::-1][:12], *runs.summaries[:6]])
        shown = [cut(every[at].strip(" =-*"), 200) for at in ends]
        facts.append(Fact(0, "summary: ", shown, "\n  ", share=0.25, of=len(runs.summaries)))
    if runs.bad:
        facts.append(Fact(1, f"{len(runs.bad)} failed: ", [cut(name, 200) for name in runs.bad], "\n  ", share=0.35))
    facts += _places(runs, lines)
    if runs.exceptions:
        facts.append(
            Fact(2, "exceptions: ", tally(runs.exceptions.most_common(40)), share=0.2, of=len(runs.exceptions))
        )
        thrown = dict.fromkeys([runs.thrown[0], runs.thrown[-1]])
        shown = [f"L{lines.number(at)} {cut(every[at].strip(), 300)}" for at in thrown]
        facts.append(Fact(2, "thrown first and last: ", shown, "\n  ", share=0.25))
    facts += _traces(runs, lines, every)
    facts += _messages(4, ("line of errors", "lines of errors"), trouble, lines)
    facts += _messages(5, ("warning", "warnings"), runs.caution, lines)
    if runs.plain:
        found = [each for each in templates_of(runs.plain) if each.count > 2]
        facts.append(Fact(8, "also: ", [f"{each.count}× {cut(each.text, 120)}" for each in found], "\n  ", share=0.15))
    return [fact for fact in facts if fact.items]


def _places(runs: Runs, lines: Lines) -> list[Fact]:
    """Where in which files something went wrong."""
    if not runs.places:
        return []
    places = [f"{place} (L{lines.number(at)})" for place, at in runs.places.items()]
    facts = [Fact(2, f"{many(len(places), 'place')}: ", places[:200], "\n  ", share=0.3, of=len(places))]
    if len(places) > 4:
        files = Counter(place.partition(":")[0] for place in runs.places)
        facts.append(Fact(3, "places by file: ", tally(files.most_common(60), 100), share=0.15, of=len(files)))
    return facts


def _messages(rank: int, name: tuple[str, str], texts: Sequence[tuple[int, str]], lines: Lines) -> list[Fact]:
    """What lines of trouble say, each message with how often or with its line."""
    if not texts:
        return []
    told = [
        (f"{each.count}× " if each.count > 1 else f"L{lines.number(each.first)} ") + cut(each.text, 200)
        for each in templates_of(texts)
    ]
    return [Fact(rank, f"{many(len(texts), *name)}: ", told, "\n  ", share=0.25)]


def _trace(every: Sequence[str], at: int) -> list[str]:
    """The lines from this one to the one that says what was thrown, or to the next blank one."""
    body = [every[at]]
    for line in islice(every, at + 1, None):
        if not line.strip():
            break
        body.append(line[:1000])
        if EXCEPTION.match(line[:1000]):
            break
    return body


def _traces(runs: Runs, lines: Lines, every: Sequence[str]) -> list[Fact]:
    """The first and the last trace, from its start to the line that says what was thrown."""
    shown: list[str] = []
    for at in dict.fromkeys([*runs.traces[:1], *runs.traces[-1:]]):
        body = _trace(every, at)
        kept = body if len(body) <= 8 else [*body[:2], f"  … {len(body) - 6} lines", *body[-4:]]
        shown.append(f"L{lines.number(at)} " + "\n  ".join(cut(line.rstrip(), 160) for line in kept))
    return (
        [Fact(3, f"{many(len(runs.traces), 'trace')}: ", shown, "\n  ", share=0.3, of=len(runs.traces))]
        if shown
        else []
    )
