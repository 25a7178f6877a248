"""How near the vectors of many tools are to a query's, all at once and without numpy.

Of each dimension there is one big integer with a lane a tool (`lanes`). The query's value in that dimension, a small
number, times that integer is the dimension's part of every product; the sum over the dimensions is every product. It
is exact: a total fits into a lane (`vectors.NORM`), and what lanes borrow from each other on the way cancels out.

Nothing is multiplied: the dimensions in which the query is largest are added up first, and what there is then is added
to the total as often as the next value is smaller, and so on down to 0. For 3,000 tools this takes about 0.15 ms.
"""

from array import array
from collections.abc import Iterable, Sequence

from mcpbridge.routing.lanes import Shape
from mcpbridge.routing.vectors import Vector

__all__ = ["Near", "packed"]


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
