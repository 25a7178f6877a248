"""Which tools share words with a query: BM25 over weighted fields, as an inverted index.

A word in a name says more of a tool than one in a parameter's description; `search/weights.py` has the weights. The
usual length of a field is fixed, so that a posting depends on its own tool alone: the postings of a server are made
once and serve in every catalog that has the server. How rare a word is, is looked up when a query has it.

Upstreams are not trusted: descriptions may be megabytes and schemas any JSON value, however deep. What is read of them
is capped here, and nothing but strings in the expected places is read.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain
from math import log
from typing import Any, NamedTuple, cast

from msgspec import Struct

from mcpbridge.catalog.search.lexical.bitsets import MOST, Shape
from mcpbridge.catalog.search.ranker import ServerText, ToolText
from mcpbridge.catalog.search.weights import (
    DESCRIPTION,
    PARAMETER_DETAILS,
    PARAMETER_NAMES,
    SATURATION,
    SERVER,
    SERVER_DESCRIPTION,
    TITLE,
    TOOL_NAME,
    FieldWeight,
)
from mcpbridge.catalog.words import stems_of

_NAME = 200
_DESCRIPTION = 4000
_PARAMETER = 400
_SERVER = 1000
_ENUM = 40
"""Characters of one text that are looked at."""
_PARAMETERS = 64
_CHOICES = 16
"""How many are looked at in one schema, and of one parameter."""
_DEPTH = 3
"""Levels of objects in objects."""


class ServerFields(NamedTuple):
    """The texts of a server."""

    name: str
    """Name, title and tags."""
    description: str


class ToolFields(NamedTuple):
    """The texts of a tool."""

    name: str
    title: str
    """Title and tags."""
    description: str
    parameters: str
    """Names of parameters."""
    details: str
    """Descriptions of parameters, and the values that they may have."""


def server_fields(server: ServerText) -> ServerFields:
    """What is looked at of a server."""
    name, title = server.name[:_NAME], server.title[:_NAME]
    return ServerFields(" ".join((name, title, *_some(server.tags))), server.description[:_SERVER])


def tool_fields(tool: ToolText) -> ToolFields:
    """What is looked at of a tool."""
    names: list[str] = []
    details: list[str] = []
    for name, detail in _parameters(tool.schema):
        names.append(name)
        details += detail
    name = tool.name[:_NAME]
    title = "" if tool.title == tool.name else tool.title[:_NAME]
    return ToolFields(
        name,
        " ".join((title, *_some(tool.tags))),
        tool.description[:_DESCRIPTION],
        " ".join(names),
        " ".join(details),
    )


def _some(texts: tuple[str, ...]) -> list[str]:
    return [text[:_ENUM] for text in texts[:_CHOICES]]


def _parameters(schema: Mapping[str, Any] | None) -> Iterator[tuple[str, list[str]]]:
    """Name, and texts, of the parameters of a schema, outermost first."""
    level: list[Mapping[str, Any]] = [] if schema is None else [schema]
    left = _PARAMETERS
    for _ in range(_DEPTH):
        below: list[Mapping[str, Any]] = []
        for parent in level:
            for name, one in _members(parent.get("properties"))[:left]:
                left -= 1
                yield name[:_NAME], _texts(one)
                below += _nested(one)
        level = below[:left]
        if not level:
            return


def _members(value: object) -> list[tuple[str, object]]:
    if not isinstance(value, Mapping):
        return []
    some: list[tuple[str, object]] = []
    for name, one in cast("Mapping[Any, object]", value).items():
        if len(some) == _PARAMETERS:
            break
        some.append((str(name)[:_NAME], one))
    return some


def _texts(parameter: object) -> list[str]:
    if not isinstance(parameter, Mapping):
        return []
    one = cast("Mapping[str, object]", parameter)
    found = [value[:_PARAMETER] for key in ("title", "description") if isinstance(value := one.get(key), str)]
    for holder in (one, one.get("items")):
        if isinstance(holder, Mapping) and isinstance(
            choices := cast("Mapping[str, object]", holder).get("enum"), list
        ):
            some = cast("list[object]", choices)[:_CHOICES]
            found += [choice[:_ENUM] for choice in some if isinstance(choice, str)]
    return found


def _nested(parameter: object) -> list[Mapping[str, Any]]:
    """Objects whose members are parameters too: the value itself, or the items of a list."""
    if not isinstance(parameter, Mapping):
        return []
    one = cast("Mapping[str, Any]", parameter)
    items = one.get("items")
    return [one, cast("Mapping[str, Any]", items)] if isinstance(items, Mapping) else [one]


class Postings(Struct, frozen=True, array_like=True):
    """Of each stem the tools of a server that have it. Packed: these are most of what is kept of a server."""

    stems: str
    """With a blank between."""
    sizes: bytes
    """How many tools have each stem: numbers of 32 bits."""
    cells: bytes
    """The tools, stem by stem: numbers of 32 bits (`_cell`)."""


def _cell(tool: int, level: int) -> int:
    """The number of a tool within its server, and how much a word is there."""
    return tool << _LEVEL_BITS | level


_CELL = array("I").itemsize
_LEVEL_BITS = 8
_LEVEL = (1 << _LEVEL_BITS) - 1
_STEPS = 255
"""How much a word can be in a tool, in whole steps: numbers that are shared, and fit into a byte."""
_COMMON = 48
"""A word that one tool in so many has is looked up in lanes, of which all are added at once: then that is quicker."""
_WORDS = 128
"""Stems of a request that are looked for, the most significant."""
_KEPT = 32_000_000
"""Bytes of lanes that are kept."""


def postings_of(server: ServerFields, tools: Iterable[ToolFields]) -> Postings:
    """The postings of a server's tools."""
    found: dict[str, list[int]] = {}
    common: dict[str, float] = {}
    _count(common, server.name, SERVER)
    _count(common, server.description, SERVER_DESCRIPTION)
    for number, tool in enumerate(tools):
        amounts = common.copy()
        _count(amounts, tool.name, TOOL_NAME)
        _count(amounts, tool.title, TITLE)
        _count(amounts, tool.description, DESCRIPTION)
        _count(amounts, tool.parameters, PARAMETER_NAMES)
        _count(amounts, tool.details, PARAMETER_DETAILS)
        for stem, amount in amounts.items():
            level = int(amount / (amount + SATURATION) * _STEPS) or 1
            if (posting := found.get(stem)) is None:
                found[stem] = [_cell(number, level)]
            else:
                posting.append(_cell(number, level))
    return Postings(
        " ".join(found),
        array("I", map(len, found.values())).tobytes(),
        array("I", chain.from_iterable(found.values())).tobytes(),
    )


def _count(amounts: dict[str, float], text: str, field: FieldWeight) -> None:
    if not text:
        return
    stems = stems_of(text)
    share = field.share(len(stems))
    get = amounts.get
    for stem in stems:
        amounts[stem] = get(stem, 0.0) + share


class _Posting(NamedTuple):
    """The tools that have a stem, and how much, in steps."""

    tools: Sequence[int]
    levels: Sequence[int]
    most: int


class _Common(NamedTuple):
    """The same, where many tools have it."""

    levels: bytes
    """Of all tools; 0 where it is not."""
    lanes: int
    most: int


class WordIndex:
    """The postings of all servers together."""

    def __init__(self, shape: Shape, parts: Iterable[tuple[int, Postings]]) -> None:
        """`parts`: how many tools a server has, and their postings."""
        self._cells: dict[str, bytes] = {}
        """Of each stem the cells of all servers, with the tools' numbers in the catalog."""
        self._merged: dict[str, _Posting] = {}
        self._shape = shape
        first = 0
        get = self._cells.get
        for size, postings in parts:
            more = _cell(first, 0)
            raised = array("I", [cell + more for cell in memoryview(postings.cells).cast("I")]).tobytes()
            at = 0
            for stem, count in zip(postings.stems.split(), memoryview(postings.sizes).cast("I"), strict=True):
                self._cells[stem] = get(stem, b"") + raised[at : at + count * _CELL]
                at += count * _CELL
            first += size
        self._common: dict[str, _Common] = {}
        self._most_common = max(8, _KEPT // (4 * shape.count + 1))
        self._rarities: dict[str, float] = {}
        self.rarest: float = log(1 + shape.count / 1.5)
        """The rarity of a word that one tool has."""

    def rarity(self, stem: str) -> float:
        """How significant a word is: 0 for one that no tool has, less for one that many have."""
        known = self._rarities.get(stem)
        if known is None:
            having = len(self._cells.get(stem, b"")) // _CELL
            known = log(1 + (self._shape.count - having + 0.5) / (having + 0.5)) if having else 0.0
            if having:  # what else queries say must not fill the memory
                self._rarities[stem] = known
        return known

    def amounts(self, words: Mapping[str, float]) -> int:
        """How much of the stems is in each tool, as lanes in a unit of their own; each stem has a weight."""
        telling = [(factor, stem) for stem, weight in words.items() if (factor := weight * self.rarity(stem))]
        if len(telling) > _WORDS:
            telling = nlargest(_WORDS, telling)
        asked = [(factor, self._posting(stem)) for factor, stem in telling]
        most = sum([factor * posting.most for factor, posting in asked])
        if not most:
            return 0
        unit = (MOST - sum([posting.most for _, posting in asked]) / 2) / most
        lanes = 0
        few = array("H", bytes(2 * self._shape.count))
        for factor, posting in asked:
            times = round(factor * unit)
            if isinstance(posting, _Common):
                lanes += posting.lanes * times
            else:
                for tool, level in zip(posting.tools, posting.levels, strict=True):
                    few[tool] += times * level
        return lanes + self._shape.put(few)

    def shares(self, words: Mapping[str, float], tools: Collection[int]) -> dict[int, float]:
        """The sum of the weights of the stems that each of the tools has, anywhere in its texts."""
        found = dict.fromkeys(tools, 0.0)
        for stem, weight in words.items():
            posting = self._posting(stem)
            if isinstance(posting, _Common):
                levels = posting.levels
                for tool in found:
                    if levels[tool]:
                        found[tool] += weight
            else:
                for tool in found.keys() & posting.tools:
                    found[tool] += weight
        return found

    def points(self, words: Mapping[str, float], tool: int) -> dict[str, float]:
        """How much each of the stems that a tool has adds to its `amounts`, in a unit of their own."""
        found: dict[str, float] = {}
        for stem, weight in words.items():
            posting = self._posting(stem)
            if isinstance(posting, _Common):
                level = posting.levels[tool]
            else:
                level = next(
                    (level for one, level in zip(posting.tools, posting.levels, strict=True) if one == tool), 0
                )
            if level:
                found[stem] = weight * self.rarity(stem) * level
        return found

    def _posting(self, stem: str) -> _Posting | _Common:
        """Tools and levels of a stem; put together when it is asked for first."""
        known = self._merged.get(stem) or self._common.get(stem)
        if known is not None:
            return known
        packed = self._cells.get(stem)
        if packed is None:
            return _NOWHERE
        cells = memoryview(packed).cast("I")
        tools = [cell >> _LEVEL_BITS for cell in cells]
        levels = [cell & _LEVEL for cell in cells]
        if len(tools) * _COMMON < self._shape.count:
            made = self._merged[stem] = _Posting(tools, levels, max(levels))
            return made
        flat = bytearray(self._shape.count)
        for tool, level in zip(tools, levels, strict=True):
            flat[tool] = level
        if len(self._common) >= self._most_common:
            self._common.clear()
        common = self._common[stem] = _Common(bytes(flat), self._shape.of_bytes(flat), max(levels))
        return common


_NOWHERE = _Posting((), (), 0)
