"""Facts of a preview, and the choice of those that fit into so many characters.

Each fact belongs to a line and has a worth: about how often somebody asks for it. Facts are chosen by worth for each
character. Where the line is, and where in the line, does not depend on what is chosen.

Also here: series within rows (lists of numbers, or of points in time with their values), described by their first,
last, least and greatest value.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from msgspec import Struct, field

from mcpbridge.results.preview.column_profile import Number, exact_sum
from mcpbridge.results.preview.flatten import Column, Lists, Table
from mcpbridge.results.preview.limits import CHARS_IN_TOKEN, SERIES_POINTS
from mcpbridge.results.preview.wording import rounded_mean
from mcpbridge.results.token_count import estimated_tokens_of


class Fact(Struct):
    """Something worth saying of a line's subject."""

    text: str
    worth: float
    """Compare: 10 for the value counts of a state, 1 for a mean."""
    names: str = ""
    """The path of the field that need not be listed elsewhere when this is said."""
    joint: bool = False
    """It continues the fact before it, and is said only with that."""


class Line(Struct):
    """What can be said of one subject, in the order in which it is said."""

    title: str
    """With what the line begins; a field path, or words."""
    facts: list[Fact] = field(default_factory=list[Fact])
    names: str = ""
    """The path of the field that its title names."""
    chosen: set[int] = field(default_factory=set[int])
    whole: str = ""
    """A long text, of which its one fact shows the beginning; more is shown where there is room."""

    def add(self, text: str, worth: float, names: str = "", *, joint: bool = False) -> None:
        """One more fact, if there is something to say."""
        if text:
            self.facts.append(Fact(text, worth, names or self.names, joint))

    def may_choose(self, place: int) -> bool:
        """It is not chosen yet, and the one that it continues is."""
        return place not in self.chosen and (not self.facts[place].joint or place - 1 in self.chosen)

    @property
    def named_fields(self) -> set[str]:
        """The fields that can be read in it."""
        return {self.facts[place].names for place in self.chosen}

    @property
    def text(self) -> str:
        """The line with what was chosen."""
        facts = [self.facts[place] for place in sorted(self.chosen)]
        body = "".join(f"{' ' if fact.joint else '; '}{fact.text}" for fact in facts)[2:]
        return f"{self.title}: {body}" if self.title else body


Lines = list[Line]


def cost_of(text: str) -> float:
    """What a text costs, in characters of plain words: its tokens count for half, for digits and signs take more."""
    return cost(len(text), estimated_tokens_of(text))


def cost(length: int, tokens: int) -> float:
    """The same, of a text with so many characters and tokens."""
    return (length + CHARS_IN_TOKEN * tokens) / 2


def by_worth(lines: Iterable[Line]) -> list[tuple[float, Line, int]]:
    """All facts with their worth for what a character costs, the most first; equal ones in their order."""
    ranked: list[tuple[float, Line, int]] = []
    for line in lines:
        begin = cost_of(line.title) / 2
        before = 0.0
        for place, fact in enumerate(line.facts):
            rank = fact.worth / (cost_of(fact.text) + begin + 6)
            before = min(rank, before) if fact.joint else rank
            ranked.append((before, line, place))
    ranked.sort(key=lambda entry: -entry[0])
    return ranked


def series_columns(table: Table) -> list[Column]:
    """Columns of ours for each series: what its first, last, least and most value is, and the mean."""
    columns: list[Column] = []
    for lists in table.lists:
        if not lists.path or "[]" in lists.path or len(lists.lists) > 20_000:
            continue
        picked = _reader(lists)
        if picked is not None:
            columns.extend(_summary_columns(lists, *picked))
    return columns


def _reader(lists: Lists) -> tuple[str, Callable[[Any], Any]] | None:
    """How a point's value is read: the point itself, or the second of a pair; None if these are no series."""
    long = [entry for entry in lists.lists if len(entry) >= SERIES_POINTS]
    if not long or len(long) * 2 < len(lists.lists):
        return None
    point = long[0][0]
    if _number(point) is not None:
        return "", _itself
    if isinstance(point, list) and len(point) == 2 and _number(point[0]) is not None and _number(point[1]) is not None:  # pyright: ignore[reportUnknownArgumentType] - of any JSON
        return "[1]", _second
    return None


def _itself(point: Any) -> Any:
    return point


def _second(point: Any) -> Any:
    return point[1] if isinstance(point, list) and len(point) == 2 else None  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - of any JSON


def _summary_columns(lists: Lists, suffix: str, read: Callable[[Any], Any]) -> list[Column]:
    rows: list[int] = []
    told: dict[str, list[Any]] = {"last": [], "max": [], "min": [], "≈mean": [], "first": []}
    for row, points in zip(lists.rows, lists.lists, strict=True):
        values = list(map(read, points))
        numbers = [_number(value) for value in values]
        known = [value for value in numbers if value is not None]
        if len(known) < len(numbers) or not known:
            continue
        rows.append(row)
        total = exact_sum(known)
        told["first"].append(values[0])
        told["last"].append(values[-1])
        told["min"].append(values[known.index(min(known))])
        told["max"].append(values[known.index(max(known))])
        told["≈mean"].append(rounded_mean(total, len(known)) if total is not None else None)
    whole: Sequence[int] = range(len(rows)) if rows == list(range(len(rows))) else rows
    return [
        Column(f"{lists.path}[]{suffix} {name}", figures, whole, len(lists.lists), derived=True)
        for name, figures in told.items()
        if figures
    ]


def _number(value: Any) -> Number | None:
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and 0 < len(value) <= 40 and value[0] in "-0123456789":
        try:
            read = Decimal(value)
        except InvalidOperation:
            return None
        return read if read.is_finite() else None
    return None
