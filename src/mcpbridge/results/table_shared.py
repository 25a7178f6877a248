"""Objects that stand in a value again and again, such as the user in each of forty issues: found, and given keys."""

from collections import Counter
from typing import Any

from msgspec import Struct, field

from mcpbridge.results.exact_json import write_json
from mcpbridge.results.table_notation import is_list, is_object

__all__ = ["Shape", "Shared", "shared_objects"]

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
