"""Facts of a preview, and which of them are told where room is short.

Facts stand in the order they are read in, and each says how much it matters: the room goes to what matters most, then
to the next, and what is left over goes to lists that had to be cut. What is cut says how much is missing.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

__all__ = ["ENOUGH", "Fact", "cut", "filled", "many", "tally", "told"]

LEAST = 12
"""Characters below which a part of a fact tells nothing."""

ENOUGH = 1_000
"""Characters of a room that any fact may use."""

MAJOR = 3
"""The last rank of the facts that may begin anywhere in a room."""

FIRST = 1
"""The last rank of the facts whose lists may use all of a room."""


class Fact(Struct, frozen=True):
    """One thing to tell: a heading, and what is listed under it."""

    rank: int
    """How much it matters; 0 comes first."""
    head: str
    """What stands before the list; of a fact without a list all of it."""
    items: Sequence[str] = ()
    """Listed as many as there is room for, from the first."""
    between: str = ", "
    """What stands between two items."""
    share: float = 1.0
    """The part of the room that it may take at most before all others had their turn."""
    of: int = 0
    """How many items there are in truth, if more than are given."""
    is_counted: bool = True
    """Whether it is known how many items there are; if not, there are more than given, and no number is said."""


def filled(facts: Iterable[Fact], room: int) -> str:
    """The facts that fit into `room` characters, one a line, in their order.

    Of a large room minor facts get a part only: what has been told by then answers most questions, and every character
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
        line = told(fact, min(left - 1 - (0 if is_free else spare), int(room * fact.share)))
        if line:
            lines[at] = line
            left -= len(line) + 1
    for at in by_rank:
        limit = left if placed[at].rank <= FIRST else left - spare
        if limit > LEAST and placed[at].share < 1.0:
            had = len(lines[at]) if at in lines else -1
            line = told(placed[at], limit + had if at in lines else limit - 1)
            if len(line) > max(had, 0):
                lines[at] = line
                left -= len(line) - had
    return "\n".join(lines[at] for at in sorted(lines))[:room]


def told(fact: Fact, room: int) -> str:
    """The fact in at most `room` characters, with what is missing said; nothing if that is too few to tell it."""
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
