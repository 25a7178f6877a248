"""Facts of logs: how much of which level, what went wrong, what the lines say and how often.

Of logs of web servers: statuses, methods, paths, clients, failures. Lines without a time and a level (traces, output
of test runs and builds) are read by `build_output.py`.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, field

from mcpbridge.results.text.build_output import OUTCOME, run_facts
from mcpbridge.results.text.lines import LEVEL, STAMP, Fact, Lines, Present, cut, many, tally, zeroed
from mcpbridge.results.text.repeated_lines import Template, templates_of

_REQUEST = re.compile(
    r"(\S{1,100}) \S{1,100} \S{1,100} \[([^\]]{5,40})\] "
    r"\"([A-Z]{3,8}) ([^\s\"]{1,2000})[^\"]{0,20}\" (\d{3}) (\d{1,15}|-)"
    r"(?: \"[^\"]{0,2000}\" \"([^\"]{0,400})\")?(.{0,60})"
)
_DURATION = re.compile(r"\d{1,6}\.\d{1,6}")


class Requests(Struct):
    """What is known of the requests so far. Places of lines are those of all lines that are looked at."""

    times: list[str] = field(default_factory=list[str])
    """Of the first and of the last."""
    clients: Counter[str] = field(default_factory=Counter[str])
    methods: Counter[str] = field(default_factory=Counter[str])
    paths: Counter[str] = field(default_factory=Counter[str])
    statuses: Counter[str] = field(default_factory=Counter[str])
    agents: Counter[str] = field(default_factory=Counter[str])
    hours: Counter[str] = field(default_factory=Counter[str])
    failed: Counter[str] = field(default_factory=Counter[str])
    """Status, method and path of those with a status of 500 and more."""
    failures: list[int] = field(default_factory=list[int])
    sent: int = 0
    """Bytes."""
    largest: tuple[int, int] = (-1, 0)
    """Bytes, and where, counted backwards so that the first of several comes first."""
    slowest: tuple[float, int] = (-1.0, 0)
    """As the log counts time, and where."""
    other: int = 0
    """Lines that are no requests."""

    def take(self, at: int, line: str) -> None:
        """Take a line in."""
        match = _REQUEST.match(line)
        if not match:
            self.other += 1
            return
        client, time, method, path, status, size, agent, rest = match.groups()
        path = path.partition("?")[0]
        self.clients[client] += 1
        self.methods[method] += 1
        self.paths[path] += 1
        self.statuses[status] += 1
        self.hours[time[:14]] += 1
        self.times = [*self.times[:1], time]
        if agent:
            self.agents[agent] += 1
        if size != "-":
            self.sent += int(size)
            self.largest = max(self.largest, (int(size), -at))
        if status[0] == "5":
            self.failures.append(at)
            self.failed[f"{status} {method} {cut(path, 80)}"] += 1
        if rest and (took := _DURATION.search(rest)):
            self.slowest = max(self.slowest, (float(took[0]), -at))


def access_facts(lines: Lines, every: Sequence[str]) -> list[Fact]:
    """The facts of a log whose lines are requests, as web servers write them; none if it is no such log."""
    probe = every[:40]
    if not probe or sum(1 for line in probe if _REQUEST.match(line)) * 2 < len(probe):
        return []
    seen = Requests()
    for at, line in enumerate(every):
        seen.take(at, line)

    def line_of(at: int) -> str:
        return f"L{lines.number(at)} {cut(every[at], 300)}"

    largest = f"; largest {line_of(-seen.largest[1])}" if seen.largest[0] >= 0 else ""
    facts = [
        Fact(0, f"time: {seen.times[0]} → {seen.times[-1]}"),
        Fact(0, "status: ", tally(sorted(seen.statuses.items()))),
        Fact(0, "methods: ", tally(seen.methods.most_common(12)), of=len(seen.methods)),
        Fact(1, f"bytes sent: {seen.sent}{largest}", share=0.25),
        Fact(
            2,
            f"{many(len(seen.paths), 'path')}: ",
            tally(seen.paths.most_common(24), 100),
            share=0.25,
            of=len(seen.paths),
        ),
        Fact(
            2,
            f"{many(len(seen.clients), 'client')}: ",
            tally(seen.clients.most_common(12), 60),
            share=0.2,
            of=len(seen.clients),
        ),
    ]
    if seen.failures:
        named = tally(seen.failed.most_common(12), 100)
        facts.append(Fact(2, f"{len(seen.failures)} failed (5xx): ", named, share=0.25, of=len(seen.failed)))
        shown = [line_of(at) for at in dict.fromkeys([seen.failures[0], seen.failures[-1]])]
        facts.append(Fact(4, "first and last 5xx: ", shown, "\n  ", share=0.3))
    if seen.slowest[0] >= 0:
        facts.append(Fact(3, f"slowest: {line_of(-seen.slowest[1])}"))
    if seen.other:
        facts.append(Fact(3, f"lines of another form: {seen.other}"))
    facts += [
        Fact(4, "agents: ", tally(seen.agents.most_common(20), 50), share=0.15, of=len(seen.agents)),
        Fact(5, "by hour: ", tally(seen.hours.most_common(24)), share=0.1, of=len(seen.hours)),
        Fact(4, f"first: {cut(every[0], 300)}", share=0.2),
        Fact(1, f"last: {cut(every[-1], 300)}", share=0.25),
    ]
    return [fact for fact in facts if fact.items or not fact.head.endswith(": ")]


WIDTH = 500
"""Characters of a line that are looked at."""

FORMS = 10_000
"""Forms of lines that are remembered; most logs have far fewer."""

NAMES = {
    "WARNING": "WARN",
    "ERR": "ERROR",
    "CRIT": "CRITICAL",
    "INFORMATION": "INFO",
    "W": "WARN",
    "E": "ERROR",
    "I": "INFO",
}
"""Other names of levels, where a log uses both; shown as the log writes them otherwise."""

GRAVE = ("EMERG", "PANIC", "ALERT", "FATAL", "CRITICAL", "CRIT", "SEVERE", "ERROR", "ERR", "E", "F")
"""Levels that say that something failed; the gravest first."""

MARKS = (
    *("INFO", "DEBUG", "WARN", "ERR", "TRACE", "NOTICE", "CRIT", "FATAL", "SEVERE", "PANIC", "EMERG", "ALERT"),
    *("level=", "lvl=", "severity="),
    *("error]", "warn]", "crit]", "notice]", "info]", "debug]", "alert]", "emerg]"),
)
"""What every line that says its level has one of, for a first look."""

BEGINNING = re.compile(
    rf"\s{{0,4}}(?:(?:time|ts|timestamp)=)?[\[(<\"]?({STAMP})[\])>\"]?[,|]?(?:\s|$)|([IWEF])\d{{4}} (\d\d:\d\d:\d\d\S*)"
)
LEVELLED = re.compile(
    rf"\b(?:({LEVEL})(?![A-Za-z])|(?:level|lvl|severity)=\"?(\w{{3,12}}))"
    r"|\[(\w{0,20}:?(?:error|warn|crit|notice|info|debug|alert|emerg))\]"
)
AFTER = re.compile(
    r"[\])>\"]?:?[\s|-]*(?:\[([^\]\n]{1,60})\]:?\s*|([A-Za-z][\w.$/:-]{1,60}?)(?:\[\d+\]|\(\d+\))?(?::\s+|\s+[-|]\s+))?"
)
_SIGNS = ' \t[]()<>-|:"='
PROCESS = re.compile(r"\s*(?:[\w.-]+ )?([A-Za-z][\w./-]{1,60})(?:\[\d+\])?: ")


class LogScan(Struct):
    """What is known of the lines so far."""

    marks: Present
    rest: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Lines with neither a time nor a level."""
    levels: Counter[str] = field(default_factory=Counter[str])
    parts: Counter[str] = field(default_factory=Counter[str])
    graves: Counter[str] = field(default_factory=Counter[str])
    """How often each part spoke of a failure."""
    texts: dict[str, list[tuple[int, str]]] = field(default_factory=dict[str, list[tuple[int, str]]])
    """Lines by level, with their numbers: what they say after time, level and part."""
    first: str = ""
    last: str = ""


def log_facts(lines: Lines, items: int) -> list[Fact]:
    """The facts of a log, in the order they are read in."""
    every = lines.first + lines.last
    access = access_facts(lines, every)
    if access:
        return access
    scan = LogScan(Present(MARKS, every))
    looked_at = [line[:WIDTH] for line in every]
    known: dict[str, _Parts | None] = {}
    spoke: list[tuple[str, str]] = []
    for at, (line, form) in enumerate(zip(looked_at, zeroed(looked_at), strict=True)):
        if form in known:
            parts = known[form]
        else:
            parts = _parts(scan.marks, line)
            if len(known) < FORMS:
                known[form] = parts
        if parts is None:
            scan.rest.append((at, line))
        else:
            spoke.append(_record(scan, at, line, parts))
    _count(scan, Counter(spoke))
    facts: list[Fact] = [Fact(0, _span(scan))] if scan.first else []
    if scan.levels:
        facts.append(Fact(0, "levels: ", tally(scan.levels.most_common(12)), of=len(scan.levels)))
    facts += run_facts(scan.rest, scan.texts.get("", []) if not scan.levels else [], lines, every)
    if scan.levels or scan.first:
        facts += _grave(scan, lines, every)
        facts += _other_lines(scan, lines, every)
    facts += _ends(every, items)
    return facts


class _Parts(NamedTuple):
    """Where the parts of a line stand, which is the same in all lines that differ in digits only."""

    stamp: slice
    level: slice
    part: slice
    text: int


_NONE = slice(0, 0)


def _parts(marks: Present, line: str) -> _Parts | None:
    """Find time, level, the part that speaks, and what it says. None if the line has neither a time nor a level."""
    start = BEGINNING.match(line)
    pos = start.end() if start else 0
    stamp = _NONE if start is None else _group(start, 1, 3)
    found = LEVELLED.match(line, pos)
    if found is None and marks.any_in(line):
        found = LEVELLED.search(line, pos, pos + 90) if start or "level=" in line else LEVELLED.match(line, 1)
    if found and (start or not OUTCOME.match(line)):
        after = AFTER.match(line, found.end())
        part = _group(after, 1, 2) if after else _NONE
        if part == _NONE:
            before = line[pos : found.start()].rstrip(_SIGNS)
            part = slice(pos + len(before) - len(before.lstrip(_SIGNS)), pos + len(before))
        return _Parts(stamp, _group(found, 1, 2, 3), part, after.end() if after else found.end())
    if start is None:
        return None
    process = PROCESS.match(line, pos)
    part = _group(process, 1) if process else _NONE
    return _Parts(stamp, _group(start, 2), part, process.end() if process else pos)


def _group(match: re.Match[str], *numbers: int) -> slice:
    """Where the first of these groups stands that matched."""
    return next((slice(*match.span(number)) for number in numbers if match[number]), _NONE)


def _record(scan: LogScan, at: int, line: str, parts: _Parts) -> tuple[str, str]:
    """Take a line in. Returns its level and the part that speaks; either may be empty."""
    stamp, level_at, part, text = parts
    if stamp.stop:
        scan.last = line[stamp]
        scan.first = scan.first or scan.last
    level = line[level_at]
    if level in scan.texts:
        scan.texts[level].append((at, line[text:]))
    else:
        scan.texts[level] = [(at, line[text:])]
    return level, line[part]


def _count(scan: LogScan, spoke: Counter[tuple[str, str]]) -> None:
    """Count the levels, and the parts that spoke at each."""
    for (level, part), count in spoke.items():
        if level:
            scan.levels[level] += count
        if part and len(part) <= 60:
            scan.parts[part] += count
            if level.upper() in GRAVE:
                scan.graves[part] += count


def _span(scan: LogScan) -> str:
    return f"time: {scan.first} → {scan.last}"


def _grave(scan: LogScan, lines: Lines, every: Sequence[str]) -> list[Fact]:
    """The lines that speak of failures: the gravest, the first and the last of each level, and what they say."""
    facts: list[Fact] = []
    levels = sorted((each for each in scan.texts if each.upper() in GRAVE), key=lambda each: GRAVE.index(each.upper()))
    for level in levels:
        texts = scan.texts[level]
        shown = texts if len(texts) <= 3 else [texts[0], texts[-1]]
        name = f"{level} lines: " if len(texts) <= 3 else f"{level} first and last: "
        whole = [f"L{lines.number(at)} {cut(every[at], 300)}" for at, _ in shown]
        facts.append(Fact(1 if len(texts) <= 3 else 5, name, whole, "\n  ", share=0.25))
        if len(texts) > 3:
            facts.append(Fact(2, f"{level} says: ", _templates(templates_of(texts), lines), "\n  ", share=0.3))
    return facts


def _other_lines(scan: LogScan, lines: Lines, every: Sequence[str]) -> list[Fact]:
    """What the other lines say, by level, the rarer level first; who speaks; what took longest."""
    facts: list[Fact] = []
    peaks: list[tuple[float, int]] = []
    others = sorted((len(texts), level) for level, texts in scan.texts.items() if level.upper() not in GRAVE)
    for order, (_, level) in enumerate(others):
        found = templates_of(scan.texts[level])
        peaks += [each.slowest for each in found if each.slowest]
        name = f"{level} says: " if level else "says: "
        facts.append(Fact(4 + order, name, _templates(found, lines), "\n  ", share=0.25))
    if peaks:
        _, at = max(peaks, key=lambda peak: peak[0])
        facts.append(Fact(6, f"slowest: L{lines.number(at)} {cut(every[at], 200)}"))
    if len(scan.parts) > 1:
        facts.append(Fact(3, "from: ", tally(scan.parts.most_common(40), 40), share=0.15, of=len(scan.parts)))
    if scan.graves and len(scan.parts) > 1:
        facts.append(Fact(6, "failures from: ", tally(scan.graves.most_common(20), 40), share=0.1, of=len(scan.graves)))
    return facts


def _templates(templates: Sequence[Template], lines: Lines) -> list[str]:
    """Each with how often, or with its line if it stands once; the rare among the frequent."""
    rare = [each for each in templates if each.count == 1]
    often = [each for each in templates if each.count > 1]
    mixed = often[:6] + rare[:3] + often[6:] + rare[3:]
    return [
        (f"{each.count}× " if each.count > 1 else f"L{lines.number(each.first)} ") + cut(each.text, 240)
        for each in mixed
    ]


def _ends(every: Sequence[str], items: int) -> list[Fact]:
    """The first line and the last ones, whole."""
    last = [at for at in range(len(every) - 1, max(len(every) - 40, -1), -1) if every[at].strip()][: max(items - 1, 1)]
    if not last:
        return []
    final = [cut(every[at], 300) for at in sorted(last)]
    return [
        Fact(7, f"first: {cut(every[0], 300)}", share=0.2),
        Fact(1, f"last: {final[-1]}", share=0.3),
        Fact(9, "before: ", final[:-1][::-1], "\n  ", share=0.3, is_counted=len(final) < 3)
        if len(final) > 1
        else Fact(9, ""),
    ]
