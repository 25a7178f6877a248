"""Which values go first when a store is full: those of the kind that takes the most room.

Of that kind the ones that were not used for longest go, no further than to where another kind takes the most room.
Kinds with a bound of their own are held to it first. Each store removes them in its own way. Pure.
"""

from collections.abc import Mapping

_NOTHING: Mapping[str, int] = {}


def next_to_shrink(rooms: Mapping[str, int], surplus: int, spared: Mapping[str, int] = _NOTHING) -> tuple[str, int]:
    """The kind that values are taken from next, and how many bytes of it, at least 1 and at most `surplus`.

    `rooms`: bytes by kind. `spared`: so many bytes of a kind do not count.
    """
    weights = {kind: max(0, room - spared.get(kind, 0)) for kind, room in rooms.items()}
    kind = max(weights, key=weights.__getitem__)
    second = max((room for other, room in weights.items() if other != kind), default=0)
    return kind, min(surplus, max(1, weights[kind] - second))
