"""What models chose lately, and one at a time who asks them the same."""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from math import inf
from weakref import WeakValueDictionary

from msgspec import Struct

__all__ = ["Chosen", "Kept"]

MOST = 256
"""Choices that are kept; the one not asked for longest goes first."""


class Chosen(Struct, frozen=True):
    """What came of asking a model."""

    names: tuple[str, ...] = ()
    failure: str = ""
    """Why nothing did."""
    until: float = inf
    """When it is to be asked again, in the seconds of the clock that is used."""


class Kept:
    """Choices by what was asked."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, Chosen] = OrderedDict()
        self._turns = WeakValueDictionary[Hashable, asyncio.Lock]()
        """Alive as long as somebody asks or waits."""

    def of(self, key: bytes, now: float) -> Chosen | None:
        """What came of this question, if it is known and still counts."""
        chosen = self._kept.get(key)
        if chosen is None or chosen.until <= now:
            return None
        self._kept.move_to_end(key)
        return chosen

    def keep(self, key: bytes, chosen: Chosen) -> None:
        """Remember it."""
        self._kept[key] = chosen
        self._kept.move_to_end(key)
        if len(self._kept) > MOST:
            self._kept.popitem(last=False)

    def turn(self, of: Hashable) -> asyncio.Lock:
        """What those hold, one after the other in order of arrival, who ask this question."""
        turn = self._turns.get(of)
        if turn is None:
            turn = self._turns[of] = asyncio.Lock()
        return turn
