"""Texts as vectors by a table of word pieces, without numpy: what a text means is about the sum of what its words mean.

The table (`data/words.table`) was fitted so that these sums come near the sentence vectors of all-MiniLM-L6-v2
(Apache-2.0); see `scripts/routing_table.py` for where it comes from. A row becomes one big integer with a lane of 32
bits a dimension, so that a whole row is weighted and added by two operations on integers. A lane holds a signed number;
that its neighbours borrow from it is undone when the lanes are taken apart.

The file, all numbers little-endian: the magic, then as 32-bit numbers rows, dimensions, places of the hash table and
characters of the longest entry; a 32-bit number a row, and one more: where its entry begins; a 16-bit factor a row; the
hash table; the rows, a byte a dimension, with 128 for zero; the entries of the vocabulary, in UTF-8. The hash table has
16-bit numbers: at the place of an entry's CRC-32, or the next that is free, the entry's row plus 1; 0 is free. So words
are looked up in the file, and nothing of it has to be kept.

Many tools are compared with a query at once. Of each dimension there is one big integer with a lane a tool (`lanes`).
The query's value in that dimension, a small number, times that integer is the dimension's part of every product; the
sum over the dimensions is every product. It is exact: a total fits into a lane (`NORM`), and what lanes borrow from
each other on the way cancels out. Nothing is multiplied: the dimensions in which the query is largest are added up
first, and the sum so far is added to the total as often as the next value is smaller, and so on down to 0. For 3,000
tools this takes about 0.15 ms.
"""

import mmap
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from math import isqrt
from operator import mul
from pathlib import Path
from zlib import crc32

from mcpbridge.catalog.search.lexical.bitsets import Shape
from mcpbridge.catalog.words import WordPieces

TABLE = Path(__file__).resolve().parent / "data" / "words.table"

NORM = 175
"""Length of a vector of whole numbers. Two such vectors have a product that fits into 16 bits with its sign."""

Vector = Sequence[int]
"""A direction, as whole numbers; of length `NORM`, or all 0 where nothing is known of a text."""

_MAGIC = b"mcpbvec2"
_HEADER = struct.Struct("<8s4I")
_MOST_PIECES = 4096
"""Weights of pieces in a sum, altogether; of more a lane would overflow."""
_TOP = 4095
"""The largest factor of a row: 127 * 4095 * 4096 < 2 ** 31."""
_ROWS = 2048
"""Rows that are kept ready, about 1 MB."""
_FLIPPED = bytes(number ^ 0x80 for number in range(256))
"""From a signed byte to one with 128 for zero."""


class Table:
    """The table in memory. Rows are read from the file as they are needed."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        magic, rows, dims, places, longest = _HEADER.unpack_from(data)
        if magic != _MAGIC or places & places - 1:
            raise ValueError("not a table of word vectors")
        whole = memoryview(data)
        starts_end = _HEADER.size + 4 * (rows + 1)
        factors_end = starts_end + 2 * rows
        places_end = factors_end + 2 * places
        self.dims: int = dims
        self._data, self._first, self._words = data, places_end, places_end + rows * dims
        if len(data) < self._words:
            raise ValueError("a part of the table of word vectors is missing")
        self._starts = whole[_HEADER.size : starts_end].cast("I")
        self._factors = whole[starts_end:factors_end].cast("H")
        self._places = whole[factors_end:places_end].cast("H")
        if len(data) != self._words + self._starts[rows]:
            raise ValueError("a part of the table of word vectors is missing")
        self._pieces = WordPieces(self._row_of, longest)
        self._zero = int.from_bytes(b"\x80\0\0\0" * dims, "little")
        self._half = int.from_bytes(b"\0\0\0\x80" * dims, "little")
        self._row = lru_cache(_ROWS)(self._read)

    def rows(self, word: str) -> tuple[int, ...]:
        """The rows of a word in lower case."""
        return self._pieces.rows(word)

    def forget(self) -> None:
        """Let go of the words and rows that were read, and of the memory that the file takes."""
        self._pieces.forget()
        self._row.cache_clear()
        if isinstance(self._data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self._data.madvise(mmap.MADV_DONTNEED)

    def _row_of(self, entry: str) -> int | None:
        said = entry.encode("utf-8", "surrogatepass")
        places, last = self._places, len(self._places) - 1
        at = crc32(said) & last
        while row := places[at]:
            start = self._words + self._starts[row - 1]
            if self._data[start : self._words + self._starts[row]] == said:
                return row - 1
            at = at + 1 & last
        return None

    def vector(self, words: Iterable[tuple[str, int]]) -> Vector:
        """The direction of a text: its words in lower case, with how much each counts (a small positive number)."""
        weights: dict[int, int] = {}
        left = _MOST_PIECES
        for word, weight in words:
            for row in self._pieces.rows(word):
                weights[row] = weights.get(row, 0) + weight
                left -= weight
            if left <= 0:
                break
        return self._direction(sum(map(mul, map(self._row, weights), weights.values())))

    def _read(self, row: int) -> int:
        """A row times its factor, a lane a dimension."""
        wide = bytearray(4 * self.dims)
        start = self._first + row * self.dims
        wide[::4] = self._data[start : start + self.dims]
        return (int.from_bytes(wide, "little") - self._zero) * self._factors[row]

    def _direction(self, lanes: int) -> Vector:
        """The lanes as a vector: brought to 15 bits, and then to `NORM` in the upper half of each lane."""
        if not lanes:
            return (0,) * self.dims
        size = 4 * self.dims
        values = array("i", ((lanes + self._half) ^ self._half).to_bytes(size, "little")).tolist()
        length = isqrt(sum(map(mul, values, values))) or 1
        drop = max(0, length.bit_length() - 15)
        if drop:
            ones = self._half >> 31
            shifted = (lanes + self._half) >> drop & ((ones << 32 - drop) - ones)
            lanes, length = shifted - (self._half >> drop), length >> drop
        scaled = lanes * round(NORM * 0x10000 / length) + (self._half >> 16)
        return array("h", ((scaled + self._half) ^ self._half).to_bytes(size, "little"))[1::2]


@cache
def table() -> Table | None:
    """The table that is shipped; None where it is missing or is something else, and tools are found by words alone."""
    try:
        with TABLE.open("rb") as file:
            return Table(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError, struct.error):
        return None


def encode_table(entries: Sequence[str], factors: Sequence[float], cells: bytes, dims: int) -> bytes:
    """A table as it is stored: `cells` are the rows, a signed byte a dimension, and each counts by its factor."""
    largest = max(factors)
    scaled = [max(0, round(factor / largest * _TOP)) for factor in factors]
    words = [entry.encode() for entry in entries]
    starts = [0, *accumulate(map(len, words))]
    places = array("H", bytes(2 << (2 * len(words)).bit_length()))
    for row, word in enumerate(words):
        at = crc32(word) % len(places)
        while places[at]:
            at = (at + 1) % len(places)
        places[at] = row + 1
    if sys.byteorder == "big":
        places.byteswap()
    header = _HEADER.pack(_MAGIC, len(entries), dims, len(places), max(map(len, entries)))
    numbers = struct.pack(f"<{len(starts)}I{len(scaled)}H", *starts, *scaled)
    return b"".join([header, numbers, places.tobytes(), cells.translate(_FLIPPED), *words])


def packed(vectors: Iterable[Vector]) -> bytes:
    """Vectors of one server's tools, one after the other, as `Near` takes them."""
    cells = array("h")
    for vector in vectors:
        cells.extend(vector)
    return cells.tobytes()


class Near:
    """The vectors of all tools, by dimension."""

    def __init__(self, shape: Shape, parts: Sequence[bytes], dims: int) -> None:
        cells = memoryview(b"".join(parts)).cast("h")
        self._shape = shape
        self._columns = [shape.signed(cells[dim::dims].tobytes()) for dim in range(dims)] if shape.count else []

    def vectors(self) -> bytes:
        """The vectors of all tools, one after the other, as they were given."""
        dims = len(self._columns)
        cells = array("h", bytes(2 * dims * self._shape.count))
        for dim, column in enumerate(self._columns):
            cells[dim::dims] = array("h", self._shape.signed_numbers(column))
        return cells.tobytes()

    def products(self, query: Vector, least: int = 1) -> int:
        """The product with each tool, as lanes; 0 where it is negative. Products are at most NORM * NORM.

        Dimensions in which the query has less than `least` are left out.
        """
        asked: dict[int, int] = {}
        for column, value in zip(self._columns, query, strict=False):
            if value >= least:
                asked[value] = asked.get(value, 0) + column
            elif value <= -least:
                asked[-value] = asked.get(-value, 0) - column
        total = level = 0
        values = sorted(asked, reverse=True)
        for value, below in zip(values, [*values[1:], 0], strict=False):
            level += asked[value]
            total += level if value - below == 1 else level * (value - below)
        return self._shape.positive(total)
