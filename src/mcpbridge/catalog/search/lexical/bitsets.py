"""A small number for each tool of a catalog, all of them in one big integer, so that one operation is done for all.

Each tool has a lane of 16 bits. Adding two such integers adds in all lanes, and an integer times a small number is
every lane times that number, at about a nanosecond a lane and without numpy. Lanes must not overflow: who adds sees to
that. Negative numbers borrow from the next lane, which cancels out in sums; `positive` ends that.
"""

import sys
from array import array
from collections.abc import Iterator
from typing import NamedTuple

MOST = 0xFFFF
"""The largest number of a lane that has no sign."""

_BITS = 9
"""Of the largest number that are kept where two kinds of numbers are weighed against each other."""
_SLACK = 3
"""256ths by which such a sum may be too small."""


class Mask(NamedTuple):
    """Some of the tools."""

    lanes: int
    """All bits of their lanes."""
    flags: bytes
    """A byte a tool: 1 if it is one of them."""


class Cells:
    """Lanes taken apart: numbers from 0 to `MOST`, by tool."""

    def __init__(self, lanes: bytes) -> None:
        self._cells, self._upper = _swapped(array("H", lanes)), lanes[1::2]

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[int]:
        return iter(self._cells)

    def __getitem__(self, tool: int) -> int:
        return self._cells[tool]

    def largest(self) -> int:
        """The largest number; 0 where there is none."""
        upper = self._upper
        byte = self._byte_of(1)
        if not byte:
            return max(self._cells, default=0)
        return max([self._cells[tool] for tool in _where(upper, byte)])

    def first(self, count: int) -> list[int]:
        """The tools with the `count` largest numbers, and some more that have about as much as the last; in order.

        Those that have next to nothing (1/256 of `MOST`) are left out.
        """
        return _where(self._upper, max(1, self._byte_of(count) - _SLACK))

    def _byte_of(self, count: int) -> int:
        """The largest upper byte that `count` tools have, or more."""
        left = self._upper
        low, high = 0, 256
        while high - low > 1:
            middle = (low + high) // 2
            above = left.translate(None, _BYTES[:middle])
            if len(above) >= count:
                low, left = middle, above
            else:
                high = middle
        return low


_BYTES = bytes(range(256))


def _where(upper: bytes, byte: int) -> list[int]:
    """Where the bytes are that are not below one."""
    flags = upper.translate(bytes(byte) + b"\1" * (256 - byte))
    found: list[int] = []
    at = flags.find(1)
    while at >= 0:
        found.append(at)
        at = flags.find(1, at + 1)
    return found


def _swapped(numbers: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


class Shape:
    """Lanes for so many tools."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._ones = int.from_bytes(b"\1\0" * count, "little")
        self._half = self._ones << 15

    def put(self, numbers: "array[int]") -> int:
        """The lanes of numbers without signs, an `array("H")`."""
        return int.from_bytes(_swapped(numbers).tobytes(), "little")

    def signed(self, numbers: bytes) -> int:
        """The lanes of numbers that are 16 bits each, with signs."""
        raised = bytearray(numbers)
        raised[1::2] = bytes(raised[1::2]).translate(_FLIPPED)  # each plus 0x8000, and that taken off of all
        return int.from_bytes(raised, "little") - self._half

    def signed_numbers(self, lanes: int) -> bytes:
        """What `signed` was given."""
        raised = bytearray((lanes + self._half).to_bytes(2 * self.count, "little"))
        raised[1::2] = bytes(raised[1::2]).translate(_FLIPPED)
        return bytes(raised)

    def of_bytes(self, numbers: bytes | bytearray) -> int:
        """The lanes of numbers that are a byte each."""
        wide = bytearray(2 * self.count)
        wide[::2] = numbers
        return int.from_bytes(wide, "little")

    def mask(self, flags: bytes) -> Mask:
        """The tools that have a 1; the others have a 0."""
        ones = self.of_bytes(flags)
        return Mask((ones << 16) - ones, flags)

    def positive(self, lanes: int) -> int:
        """Signed numbers, with 0 for what is negative."""
        raised = lanes + self._half
        signs = raised >> 15 & self._ones
        return raised & ((signs << 15) - signs)

    def share(self, lanes: int, largest: int, share: float) -> int:
        """The numbers in a unit in which the `largest` of them is `share` of `MOST`, to nine bits.

        Such numbers may be added where their shares are 1 together.
        """
        drop = max(0, largest.bit_length() - _BITS)
        if drop:
            lanes = lanes >> drop & ((self._ones << 16 - drop) - self._ones)
        return lanes * int(share * MOST / ((largest >> drop) or 1))

    def cells(self, lanes: int) -> Cells:
        """Lanes without signs, taken apart."""
        return Cells(lanes.to_bytes(2 * self.count, "little"))


_FLIPPED = bytes(number ^ 0x80 for number in range(256))
