"""A JSON value, cut until it fits: lists keep their first items, texts their beginning, objects as much of each member.

What fits stays as it is. Nothing deeper than what had to be cut is looked into, so the cost goes with what is kept, not
with what was sent.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from mcpbridge.results.exact_json import write_json

__all__ = ["Cut", "shrunk"]

DEPTH = 40
"""Levels that are cut within; what is nested deeper is left out where it does not fit."""

LEAST = 24
"""Characters below which a text or a member is not worth its room."""

WEIGHED = 32
"""How many times the room a value is measured to, when room is dealt out in proportion."""


class Cut(Struct, frozen=True):
    """One list or object that lost something."""

    path: str
    """Where it is, such as `items[0].tags`; empty for the whole."""
    kept: int
    total: int
    what: str
    """`items` or `members`."""


def shrunk(value: Any, room: int, cuts: list[Cut], path: str = "", depth: int = 0) -> Any:
    """The value, such that `write_json` of it has at most `room` characters.

    At least 2 of them are needed, and what is neither a text nor holds others cannot be cut: it becomes null. What was
    cut is added to `cuts`, the outermost first.

    Raises:
        NotReadable: the value cannot be written.
    """
    if _fits(value, room):
        return value
    if isinstance(value, str):
        return _text(value, room)
    if isinstance(value, list):
        return _list(cast("list[Any]", value), room, cuts, path, depth)
    if isinstance(value, dict):
        return _object(cast("dict[str, Any]", value), room, cuts, path, depth)
    return None


def _list(value: Sequence[Any], room: int, cuts: list[Cut], path: str, depth: int) -> list[Any]:
    kept: list[Any] = []
    left = room - 2
    for item in value:
        if not _fits(item, left - (1 if kept else 0)):
            break
        left -= len(write_json(item)) + (1 if kept else 0)
        kept.append(item)
    inner: list[Cut] = []
    if not kept and left >= LEAST and depth < DEPTH and _can_be_cut(value[0]):
        kept = [shrunk(value[0], left, inner, f"{path}[0]", depth + 1)]
    if len(kept) < len(value):
        cuts.append(Cut(path, len(kept), len(value), "items"))
    cuts += inner
    return kept


def _object(value: Mapping[str, Any], room: int, cuts: list[Cut], path: str, depth: int) -> dict[str, Any]:
    """Small members whole; the others share what is left, in proportion to what they would need."""
    names: dict[str, int] = {}
    left = room - 2
    for name in value:
        cost = len(write_json(name)) + 2
        if cost + 2 > left:
            break
        left -= cost + 2  # at least two characters for what it holds
        names[name] = cost
    left += 2 * len(names)
    shares = _shares({name: _measure(value[name], room * WEIGHED) for name in names}, left)
    if (min(shares.values(), default=LEAST) < LEAST and len(names) < len(value)) or _too_thin(value, shares):
        shares = _first_ones(value, names, room - 2)
        names = {name: names[name] for name in shares}
    kept: dict[str, Any] = {}
    inner: list[Cut] = []
    for name in names:
        member, share = value[name], shares[name]
        if _fits(member, share):
            kept[name] = member
        elif depth < DEPTH and share >= 2 and _can_be_cut(member):
            where = f"{path}.{name}" if path else name
            kept[name] = shrunk(member, share, inner, where, depth + 1)
        elif share >= 2 and isinstance(member, list | dict):
            where = f"{path}.{name}" if path else name
            sized = cast("list[Any] | dict[str, Any]", member)
            kept[name] = type(sized)()
            inner.append(Cut(where, 0, len(sized), "items" if isinstance(sized, list) else "members"))
    if len(kept) < len(value):
        cuts.append(Cut(path, len(kept), len(value), "members"))
    cuts += inner
    return kept


def _shares(weights: Mapping[str, int], room: int) -> dict[str, int]:
    """Room for each: what it needs if that is less than an equal part of the room, else in proportion to its need."""
    left, others = room, sorted(weights, key=lambda name: -weights[name])
    shares: dict[str, int] = {}
    while others and weights[others[-1]] <= left // len(others):
        name = others.pop()
        shares[name] = weights[name]
        left -= weights[name]
    needed = sum(weights[name] for name in others)
    spare = left - 2 * len(others)
    for name in others:
        shares[name] = 2 + spare * weights[name] // needed if needed else 2
    return shares


def _too_thin(value: Mapping[str, Any], shares: Mapping[str, int]) -> bool:
    """Most members hold others and would lose all they hold: then some of them whole tell more."""
    emptied = sum(
        1
        for name, share in shares.items()
        if share < LEAST and isinstance(value[name], list | dict) and not _fits(value[name], share)
    )
    return emptied * 2 > len(value)


def _first_ones(value: Mapping[str, Any], names: Mapping[str, int], room: int) -> dict[str, int]:
    """Room for the first members alone, each whole; what is left for the first that has to be cut."""
    shares: dict[str, int] = {}
    left = room
    for name, cost in names.items():
        need = len(write_json(value[name])) if _measure(value[name], left) <= left else left + 1
        if cost + need > left:
            if not shares and left - cost >= 2:
                shares[name] = left - cost
            break
        shares[name] = need
        left -= cost + need
    return shares


def _text(value: str, room: int) -> str:
    """The beginning of a text and how much is missing; nothing at all if there is no room even for that."""
    mark = f"…[+{len(value)} chars]"
    end = room - 2 - len(mark)
    while end > 0:
        kept = f"{value[:end]}…[+{len(value) - end} chars]"
        excess = len(write_json(kept)) - room
        if excess <= 0:
            return kept
        end -= max(1, min(excess, end * excess // (room + excess)))
    return "…" if room >= 3 else ""


def _can_be_cut(value: Any) -> bool:
    return value not in ("", [], {}) and isinstance(value, str | list | dict)


def _fits(value: Any, room: int) -> bool:
    return _measure(value, room) <= room and len(write_json(value)) <= room


def _measure(value: Any, most: int) -> int:
    """About how many characters it is written in: never more than the truth, and little more than `most` is counted."""
    count, todo = 0, [value]
    while todo and count <= most:
        now = todo.pop()
        if isinstance(now, str):
            count += len(now) + 2
        elif isinstance(now, dict):
            members = cast("dict[str, Any]", now)
            count += 2 + max(0, 4 * len(members) - 1)
            if count <= most:
                count += sum(len(str(name)) for name in members)
                todo.extend(members.values())
        elif isinstance(now, list):
            items = cast("list[Any]", now)
            count += 2 + max(0, len(items) - 1)
            if count <= most:
                todo.extend(items)
        elif now is None or now is True:
            count += 4
        elif now is False:
            count += 5
        else:
            count += 1 if isinstance(now, int) and now.bit_length() > 10_000 else len(str(now))
    return count
