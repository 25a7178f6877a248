"""Measures how well a catalog's tools are found: read queries with their right tools, or make some, and count. Pure.

A file of queries is JSON lines, `{"query": "open an issue", "tool": "github/create_issue"}`, or a table with commas or
tabs, `query,tool`. A request that needs several tools has a list in place of the tool, one entry a need, and where
several tools meet a need alike, a list of these:
`[["github/create_issue", "gitlab/create_issue"], ["slack/post_message"]]`.

A tool is found at the line of the answer that names it, also as a near-duplicate of another. Where a search answers
that no tool seems to fit, it names the nearest as doubtful; these lines count too.

Where nobody has written queries, they are made of the tools' own descriptions: the first sentence as an order, without
the tool's name and without a third of its words. Such a query is easier than what people and models ask. It measures
whether the catalog distinguishes its tools at all.
"""

import csv
import json
import re
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.base.errors import UnknownName
from mcpbridge.catalog.search.duplicates import Ability
from mcpbridge.catalog.search.ranker import ToolText
from mcpbridge.catalog.signatures.short_text import SECTION, clean, sentences
from mcpbridge.catalog.words import VERBS, name_key, stems_of

_QUERY = ("query", "text")
_TOOL = ("tool", "gold")
_SHOWN = 60
"""Characters of a cell that are shown."""

Needs = tuple[tuple[str, ...], ...]
"""What a request needs: for each need the tools of which any one meets it."""


class Asked(Struct, frozen=True):
    """One query."""

    text: str
    needs: Needs
    """Names of tools; once they were looked up, their ids (`server/tool`)."""
    line: int = 0
    """Where it is in its file, from 1; 0: in none."""


class Flaw(NamedTuple):
    """What is wrong with a line of a file."""

    line: int
    what: str


class _Wrong(ValueError):
    """A line that cannot be read; says why."""


def read_queries(text: str) -> tuple[list[Asked], list[Flaw]]:
    """The queries of a file, and the lines that are none. Which of the forms it has is seen from the first line."""
    lines = [(number, line.rstrip("\r")) for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1)]
    lines = [(number, line) for number, line in lines if line.strip()]
    asked: list[Asked] = []
    flaws: list[Flaw] = []
    read = _from_json if not lines or lines[0][1].lstrip().startswith("{") else _Table(lines[0][1])
    for number, line in lines:
        try:
            found = read(line)
        except _Wrong as error:
            flaws.append(Flaw(number, str(error)))
        else:
            asked += [replace(found, line=number)] if found is not None else []
    return asked, flaws


def with_ids(asked: Sequence[Asked], id_of: Callable[[str], str]) -> tuple[list[Asked], list[Flaw]]:
    """The queries with ids in place of names, without those for which there is no right tool; and unknown names.

    `id_of` finds the tool of a name, or raises UnknownName. Of several tools that are right alike one is enough.
    """
    kept: list[Asked] = []
    flaws: list[Flaw] = []
    for one in asked:
        needs: list[tuple[str, ...]] = []
        for need in one.needs:
            ids: list[str] = []
            for name in need:
                try:
                    ids.append(id_of(name))
                except UnknownName as error:
                    flaws.append(Flaw(one.line, str(error)))
            needs += [tuple(dict.fromkeys(ids))] if ids else []
        if len(needs) == len(one.needs):
            kept.append(replace(one, needs=tuple(needs)))
    return kept, flaws


# -- JSON lines


def _from_json(line: str) -> Asked:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise _Wrong("not JSON") from None
    if not isinstance(found, dict):
        raise _Wrong("not a JSON object")
    members = cast("Mapping[str, Any]", found)
    text = next((members[name] for name in _QUERY if name in members), None)
    if not isinstance(text, str) or not text.strip():
        raise _Wrong("`query` is missing, or no text")
    text = text.encode(errors="replace").decode()  # half a character has no UTF-8 form
    return Asked(text, _needs(next((members[name] for name in _TOOL if name in members), None)))


def _needs(value: object) -> Needs:
    listed = cast("list[object]", value) if isinstance(value, list) else [value]
    groups = [cast("list[object]", one) if isinstance(one, list) else [one] for one in listed]
    needs = tuple(tuple(name for name in group if isinstance(name, str) and name.strip()) for group in groups)
    if not needs or any(not names or len(names) < len(group) for names, group in zip(needs, groups, strict=True)):
        raise _Wrong("`tool` must be the name of a tool, or a list with one entry for each tool that is needed")
    return needs


# -- tables


class _Table:
    """Reads the lines of a table; its first line may name the columns."""

    def __init__(self, first: str) -> None:
        self._delimiter = "\t" if "\t" in first else ","
        self._query, self._tool, self._columns = 0, 1, 2
        self._header = ""
        try:
            names = [cell.strip().casefold() for cell in _cells(first, self._delimiter)]
        except csv.Error:  # told of when it is read as a row
            names = []
        places = [next(_places(names, known), None) for known in (_QUERY, _TOOL)]
        if places[0] is not None and places[1] is not None:
            self._query, self._tool = places[0], places[1]
            self._columns, self._header = len(names), first

    def __call__(self, line: str) -> Asked | None:
        """One line; None for the names of the columns."""
        if line == self._header:
            return None
        try:
            cells = _cells(line, self._delimiter)
        except csv.Error as error:
            raise _Wrong(f"cannot be read as a row: {error}") from None
        if len(cells) != self._columns:
            why = "; a query with commas must be in quotes" if self._delimiter == "," else ""
            raise _Wrong(f"{len(cells)} columns instead of {self._columns}{why}")
        text, tool = cells[self._query].strip(), cells[self._tool].strip()
        if not text or not tool:
            raise _Wrong(f"{'the query' if not text else 'the tool'} is missing: {line.strip()[:_SHOWN]}")
        return Asked(text, ((tool,),))


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter, strict=True))


def _places(names: Sequence[str], known: Sequence[str]) -> Iterator[int]:
    return (names.index(name) for name in known if name in names)


AT = (1, 5, 8)
"""Lengths of answers for which recall is reported."""
DEPTH = 50
"""Lines of an answer that are looked at; what is not among them is not found."""

First = Literal["right", "sibling", "same_server", "other_server", "doubtful"]
"""What comes first: a right tool; one of the same server with a close name; another of that server; one of another
server; or the answer begins with that no tool seems to fit."""

_CLOSE = 1 / 3
"""Share of the words of two names that they have in common, from which they are close."""
_NAME = 200


class Outcome(Struct, frozen=True):
    """What one query found."""

    asked: Asked
    """With ids."""
    lines: Sequence[tuple[str, ...]]
    """The answer, best first: ids of a tool and of its near-duplicates."""
    places: tuple[int | None, ...]
    """Of each need the line that meets it, from 1; None: no line does."""
    is_doubtful: bool = False
    """The answer says that no tool seems to fit."""

    @classmethod
    def of(cls, asked: Asked, abilities: Iterable[Ability], *, is_doubtful: bool = False) -> "Outcome":
        """`abilities`: the answer, best first, of which `DEPTH` lines count."""
        lines = [(one.id, *one.also) for one in abilities][:DEPTH]
        at: dict[str, int] = {}
        for number, ids in enumerate(lines, 1):
            for id_ in ids:
                at.setdefault(id_, number)
        places = tuple(min((at[id_] for id_ in need if id_ in at), default=None) for need in asked.needs)
        return cls(asked, lines, places, is_doubtful)

    def recall(self, most: int) -> float:
        """The share of its needs that the first `most` lines meet."""
        return sum(place is not None and place <= most for place in self.places) / len(self.places)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The ids of all tools that are right."""
        return tuple(id_ for need in self.asked.needs for id_ in need)


class Confusion(Struct, frozen=True):
    """Two tools of one server with close names, of which one came first where the other was right."""

    tools: tuple[str, str]
    """Ids, sorted."""
    times: int
    of: int
    """Queries for which one of the two was right."""


class Spread(Struct, frozen=True):
    """Some numbers together."""

    count: int
    mean: float
    p95: int

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "Spread":
        """Zeros for no numbers."""
        ordered = sorted(numbers)
        if not ordered:
            return cls(0, 0.0, 0)
        return cls(len(ordered), sum(ordered) / len(ordered), ordered[(len(ordered) * 95 - 1) // 100])


def recall(outcomes: Sequence[Outcome], most: int) -> float:
    """The share of needs that the first `most` lines of answers meet, averaged over queries; 0 for no queries."""
    return sum(outcome.recall(most) for outcome in outcomes) / (len(outcomes) or 1)


def firsts(outcomes: Iterable[Outcome], tools: Mapping[str, ToolText]) -> dict[First, int]:
    """How many queries have what as their first line. `tools`: all that can be found, by id."""
    counts: dict[First, int] = {"right": 0, "sibling": 0, "same_server": 0, "other_server": 0, "doubtful": 0}
    for outcome in outcomes:
        counts[_first(outcome, tools)] += 1
    return counts


def confusions(outcomes: Sequence[Outcome], tools: Mapping[str, ToolText]) -> list[Confusion]:
    """The siblings that are taken for one another, the worst first."""
    times: Tally[tuple[str, str]] = Tally()
    for outcome in outcomes:
        if _first(outcome, tools) == "sibling":
            first = outcome.lines[0][0]
            wanted = next(id_ for id_ in outcome.wanted if are_close(tools[id_], tools[first]))
            times[min(wanted, first), max(wanted, first)] += 1
    asked = Tally(id_ for outcome in outcomes for id_ in dict.fromkeys(outcome.wanted))
    found = [Confusion(pair, count, asked[pair[0]] + asked[pair[1]]) for pair, count in times.items()]
    return sorted(found, key=lambda one: (-one.times, one.of, one.tools))


def are_close(one: ToolText, other: ToolText) -> bool:
    """Whether two tools of one server have names that are often confused."""
    if one.server != other.server or one.id == other.id:
        return False
    mine, its = (_stems(tool.server, tool.name[:_NAME]) for tool in (one, other))
    return len(mine & its) >= len(mine | its) * _CLOSE


def _first(outcome: Outcome, tools: Mapping[str, ToolText]) -> First:
    if outcome.is_doubtful or not outcome.lines:
        return "doubtful"
    if 1 in outcome.places:
        return "right"
    first = tools[outcome.lines[0][0]]
    wanted = [tools[id_] for id_ in outcome.wanted]
    if any(are_close(tool, first) for tool in wanted):
        return "sibling"
    return "same_server" if any(tool.server == first.server for tool in wanted) else "other_server"


@lru_cache(4096)
def _stems(server: str, name: str) -> frozenset[str]:
    """Of a tool's name, those that are not in its server's; all, if there are no others."""
    own = frozenset(stems_of(name))
    return own - frozenset(stems_of(server[:_NAME])) or own


_LONGEST = 400
"""Characters of a sentence that are looked at."""
_MOST = 12
"""Words of a query, those not counted that say nothing."""
_SPARED = 3
"""Words that a query has at least, if there were as many."""
_THING = r"(?:mcp )?(?:tool|function|endpoint|method|command|action|operation)"
_PURPOSE = (
    r"(?:(?:that|which) )?(?:(?:is |can be )?used (?:to|for)|(?:allows?|enables?|helps?|lets?) (?:you|users?)(?: to)?"
    r"|(?:allows?|helps?) to|can|will|to|for|that|which)"
)
_OPENING = re.compile(
    rf"(?:(?:(?:this|the|an?) )?{_THING} {_PURPOSE}|(?:this|the) {_THING}"
    rf"|use (?:this|it)(?: {_THING})? (?:to|for|when you (?:want|need) to)"
    r"|(?:allows?|enables?|lets?) (?:you|users?)(?: to)?|used (?:to|for)) ",
    re.IGNORECASE,
)
"""How descriptions begin, before they come to what the tool does."""
_SIGNS = re.compile(r"^\W+|\W+$")
_MIXED = re.compile(r"\w[_./-]\w|[a-z][A-Z]")
_CODE = re.compile(r"\w_\w|\b[a-z]{2,}[A-Z]")
"""A name of something in a program, which nobody says: another tool's, a parameter's."""


def query_for(tool: ToolText) -> str:
    """What somebody might ask for who wants this tool; empty if it does not say what it does."""
    names = {name_key(name[:_NAME]) for name in (tool.name, tool.server + tool.name)}
    for said in _purposes(tool):
        words = [word for raw in said.replace("(s)", "").split() if (word := _SIGNS.sub("", raw))]
        words = [word for word in words if not _is_name(word, names)]
        if any(len(stem) > 1 for word in words for stem in stems_of(word)):
            break
    else:
        return ""
    words = _shortened(words, tool.id)
    words[0] = _as_order(words[0])
    query = " ".join(words)
    return f"please {query}" if name_key(query) in names else query


def _purposes(tool: ToolText) -> Iterator[str]:
    """What a tool says of what it does: its sentences, and then its title."""
    for sentence in sentences(tool.description):
        if SECTION.match(sentence):
            break
        said = sentence[:_LONGEST]
        opening = _OPENING.match(said)
        yield said[opening.end() :] if opening else said
    yield clean(tool.title, _LONGEST)


def _is_name(word: str, names: set[str]) -> bool:
    """Whether it is written as a name: the tool's own, or one in a program. Plain words are what people say as well."""
    return bool(_CODE.search(word)) or (bool(_MIXED.search(word)) and name_key(word) in names)


def _shortened(words: list[str], seed: str) -> list[str]:
    """Without a third of the words that say something; which, depends on nothing but the tool.

    The first stays: it is the verb as a rule, without which creating and deleting would be asked for alike.
    """
    saying = [at for at, word in enumerate(words) if stems_of(word)]
    end = saying[_MOST] if len(saying) > _MOST else len(words)
    saying = saying[:_MOST]
    spared = max(_SPARED, len(saying) - len(saying) // 3)
    order = sorted(saying[1:], key=lambda at: (crc32(f"{seed}\0{at}\0{words[at]}".encode(errors="replace")), at))
    dropped = set(order[spared - 1 :])
    return [word for at, word in enumerate(words[:end]) if at not in dropped]


def _as_order(word: str) -> str:
    """`Creates`, `Create`: create. `HTTP` stays."""
    lower = word.lower()
    for ending, instead in (("ies", "y"), ("es", ""), ("s", "")):
        if lower.endswith(ending) and (verb := lower.removesuffix(ending) + instead) in VERBS:
            return verb
    return lower if word.istitle() else word
