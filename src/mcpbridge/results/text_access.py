"""Facts of logs of web servers: statuses, methods, paths, clients, failures."""

import re
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct, field

from mcpbridge.results.text_facts import Fact, cut, many, tally
from mcpbridge.results.text_lines import Lines

__all__ = ["access_facts"]

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
