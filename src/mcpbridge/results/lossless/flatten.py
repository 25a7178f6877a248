"""Finds the tables in a value: records as columns, objects that repeat, and lists of paths by folder.

Records as columns: nested objects and short lists of one length are spread, and every path becomes a column. The order
of the columns is that of the members in all records, so each record gets its own order back. Records that contradict
that order are kept whole, in the column of the path where they do.

Objects that repeat, such as the user in each of forty issues, are found and given keys.

In a list of paths, what neighbours share is written once, above them. Folders end with `/`. The order stays, so a
folder may come again:

    # paths; what is indented lies in the folder above
    /srv/app/
     main.py
     api/
      users.py
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from msgspec import Struct, field

from mcpbridge.results.exact_json import write_json
from mcpbridge.results.lossless.notation import MISSING, Path, is_list, is_object

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


Shape = tuple[str, ...]
"""The names of an object's members, in order."""

_MEMBERS, _TIMES, _CHARS = 3, 3, 40
"""What an object must have at least to be written once: members, occurrences of its shape, characters."""
_WORK = 6
"""How often each character may be looked at. Objects inside objects are written out at every level."""

_CONTAINERS = (dict, list)


class Shared(Struct):
    """The objects of one shape."""

    name: str
    """Of the member that held the first of them."""
    groups: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    """Those that are equal, under their JSON; in the order of the value."""


def shared_objects(value: Any, size: int) -> dict[Shape, Shared]:
    """The objects that repeat, by shape. `size`: characters of the value as JSON."""
    counts: Counter[Shape] = Counter()
    pending = [value]
    while pending:
        item = pending.pop()
        if is_object(item):
            if len(item) >= _MEMBERS:
                counts[tuple(item)] += 1
            pending.extend(inner for inner in item.values() if type(inner) in _CONTAINERS)
        elif is_list(item):
            pending.extend(inner for inner in item if type(inner) in _CONTAINERS)
    wanted = {shape for shape, count in counts.items() if count >= _TIMES}
    found = _collect(value, wanted, _WORK * size) if wanted else {}
    return {shape: shared for shape, shared in found.items() if _pays(shared.groups)}


def _collect(value: Any, wanted: set[Shape], work: int) -> dict[Shape, Shared]:
    """`work`: characters that may be written in looking."""
    found: dict[Shape, Shared] = {}
    pending = [("", value)]
    while pending and work > 0:
        name, item = pending.pop()
        if is_object(item):
            shape = tuple(item)
            if shape in wanted:
                text = write_json(item)
                work -= len(text)
                groups = found.setdefault(shape, Shared(name)).groups
                if text in groups:
                    groups[text].append(item)
                    continue
                groups[text] = [item]
            pending.extend(entry for entry in reversed(item.items()) if type(entry[1]) in _CONTAINERS)
        elif is_list(item):
            pending.extend((name, inner) for inner in reversed(item) if type(inner) in _CONTAINERS)
    # Half of the objects with a key and half without one would be worse than none.
    return found if work > 0 else {}


def _pays(groups: dict[str, list[Any]]) -> bool:
    count = sum(map(len, groups.values()))
    chars = sum(map(len, groups)) / len(groups)
    return len(groups) <= 0.6 * count and count - len(groups) >= 2 and chars >= _CHARS


PATHS = "# paths; what is indented lies in the folder above"
"""The first line."""


def paths_form(text: str) -> str:
    """Paths, one a line, grouped by folder. What is no path is a line of its own."""
    paths = [line.split("/") for line in text.split("\n")]
    lines = [PATHS]
    above: list[list[str]] = []
    for i, path in enumerate(paths):
        *folders, name = path
        depth, at = _shared(above, folders)
        del above[depth:]
        following = paths[i + 1][:-1] if i + 1 < len(paths) else []
        while at < len(folders):
            # As many folders as the next path shares stand in one line; the rest is this path's alone.
            end = at
            while end < len(folders) and end < len(following) and folders[end] == following[end]:
                end += 1
            if end == at or folders[:at] != following[:at]:
                break
            above.append(folders[at:end])
            lines.append(" " * depth + "".join(f"{folder}/" for folder in folders[at:end]))
            depth, at = depth + 1, end
        lines.append(" " * depth + "/".join([*folders[at:], name]))
    return "\n".join(lines)


def paths_restored(text: str) -> str:
    """The paths again, one a line."""
    out: list[str] = []
    above: list[str] = []
    for line in text.split("\n")[1:]:
        name = line.lstrip(" ")
        depth = len(line) - len(name)
        del above[depth:]
        if name.endswith("/"):
            above.append(name)
        else:
            out.append("".join(above) + name)
    return "\n".join(out)


def _shared(above: list[list[str]], folders: list[str]) -> tuple[int, int]:
    """How many of the lines above hold for these folders too, and how many folders they say."""
    at = 0
    for depth, said in enumerate(above):
        if folders[at : at + len(said)] != said:
            return depth, at
        at += len(said)
    return len(above), at
