"""Records as columns: nested objects and short lists of one length are spread, and every path becomes a column.

The order of the columns is that of the members in all records, so that it gives each record its own order back.
Records that contradict it are kept whole, in the column of the path where they do.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from mcpbridge.results.table_notation import MISSING, Path, is_list, is_object

__all__ = ["Column", "assemble", "spread"]

Column = tuple[Path, list[Any]]
"""A path, and its value in each record; MISSING where there is none."""

_LONGEST = 4
"""Items of lists that are spread; longer ones stay cells."""
_WIDEST = 400
"""Members of all records together; more are no record, but a map."""
_SHAPES = 1000
"""Different sets of members that are brought into one order."""


def spread(path: Path, values: list[Any], whole: Callable[[list[Any]], bool]) -> Iterator[Column]:
    """The columns of these values, one per record. `whole`: whether values stay together in one column."""
    shapes = Counter(tuple(value) for value in values if is_object(value) and value)
    if path and (shapes or any(is_list(value) for value in values)) and whole(values):
        yield path, values
        return
    if shapes:
        yield from _members(path, values, shapes, whole)
        return
    lengths = {len(value) for value in values if is_list(value)}
    if len(lengths) == 1 and 0 < (length := lengths.pop()) <= _LONGEST:
        yield from _others(path, values, list)
        for i in range(length):
            yield from spread((*path, i), [v[i] if is_list(v) else MISSING for v in values], whole)
        return
    yield path, values


def assemble(columns: list[Column], count: int) -> list[Any]:
    """The records that these columns were made of."""
    records: list[Any] = [MISSING] * count
    for path, values in columns:
        for i, value in enumerate(values):
            if value is not MISSING:
                records[i] = _put(records[i], path, value)
    return records


def _members(
    path: Path, values: list[Any], shapes: "Counter[tuple[str, ...]]", whole: Callable[[list[Any]], bool]
) -> Iterator[Column]:
    order, odd = _common_order(list(shapes))
    if not order or (len(order) > 8 and sum(len(s) * n for s, n in shapes.items()) < 0.12 * len(order) * len(values)):
        yield path, values
        return
    records = [v if is_object(v) and v and tuple(v) not in odd else None for v in values]
    others = [MISSING if record is not None else value for record, value in zip(records, values, strict=True)]
    if any(value is not MISSING for value in others):
        yield path, others
    for name in order:
        inner = [MISSING if record is None else record.get(name, MISSING) for record in records]
        yield from spread((*path, name), inner, whole)


def _others(path: Path, values: list[Any], kind: type) -> Iterator[Column]:
    others = [MISSING if type(value) is kind else value for value in values]
    if any(value is not MISSING for value in others):
        yield path, others


def _common_order(shapes: list[tuple[str, ...]]) -> tuple[list[str], set[tuple[str, ...]]]:
    """An order of all names that those shapes agree with, and the shapes that do not. Empty: there are too many."""
    if len(shapes) > _SHAPES:
        return [], set()
    order = list(shapes[0])
    odd: set[tuple[str, ...]] = set()
    for shape in shapes[1:]:
        places = {name: i for i, name in enumerate(order)}
        known = [places[name] for name in shape if name in places]
        if any(a > b for a, b in pairwise(known)):
            odd.add(shape)
            continue
        at = 0
        for name in shape:
            if name in places:
                at = order.index(name, at) + 1
            else:
                order.insert(at, name)
                at += 1
        if len(order) > _WIDEST:
            return [], odd
    return (order if len(order) <= _WIDEST else []), odd


def _put(record: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    if record is MISSING:
        record = _container(path[0])
    place = record
    for step, following in pairwise(path):
        place = _inside(place, step, following)
    last = path[-1]
    if isinstance(last, int):
        place.append(value)
    else:
        place[last] = value
    return record


def _inside(place: Any, step: str | int, following: str | int) -> Any:
    if isinstance(step, int):
        items = place
        if step == len(items):
            items.append(_container(following))
        return items[step]
    return place.setdefault(step, _container(following))


def _container(step: str | int) -> Any:
    return [] if isinstance(step, int) else {}
