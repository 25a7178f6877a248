"""The stages of one call as bars over its time. Pure.

Stages lie within each other: a stage's own bar is the time that it took itself, on the way in and on the
way back; the line under it is the time that it waited for the stages within.
"""

from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct

WIDTH = 1000.0
"""Units that the whole time of a call is wide."""
_THINNEST = 3.0
"""Units that a bar has at least, so that it is seen."""


class Piece(Struct, frozen=True):
    """A piece of a bar, in units of `WIDTH`."""

    x: float
    width: float


class Bar(Struct, frozen=True):
    """One stage."""

    name: str
    depth: int
    """How many stages are around it."""
    began: float
    """Seconds since the call began."""
    seconds: float
    """From when the call came to when it left, stages within included."""
    own: float
    """What of that the stage took itself."""
    span: Piece
    """All of the time."""
    pieces: Sequence[Piece]
    """Its own."""


def waterfall(stages: object, seconds: float) -> Sequence[Bar]:
    """The bars of the stages of a call that took so many seconds, in the order in which it came to them.

    `stages`: as the call log has them: name, begin and end in milliseconds since the call began. What is none of that
    is left out.
    """
    given = cast("list[object]", stages) if isinstance(stages, list) else []
    known = [stage for one in given if (stage := _stage(one))]
    whole = max([seconds, *(ended for _, _, ended in known)]) or 1e-6
    return [_bar(known, at, whole) for at in range(len(known))]


def _stage(one: Any) -> tuple[str, float, float] | None:
    try:
        name, began, ended = one
        return str(name), max(0.0, began / 1000), max(0.0, began / 1000, ended / 1000)
    except (TypeError, ValueError):
        return None


def _bar(stages: Sequence[tuple[str, float, float]], at: int, whole: float) -> Bar:
    name, began, ended = stages[at]
    around = [other for other in stages[:at] if other[1] <= began and ended <= other[2]]
    gaps: list[tuple[float, float]] = []
    free = began
    for _, inner_began, inner_ended in stages[at + 1 :]:
        if inner_began >= free and inner_ended <= ended:  # those within one that was seen begin before `free`
            gaps.append((free, inner_began))
            free = inner_ended
    gaps.append((free, ended))
    own = sum(end - start for start, end in gaps)
    pieces = [_piece(start, end, whole) for start, end in gaps if end - start > whole / WIDTH]
    if not pieces:
        pieces = [_piece(began, began + own, whole)]
    return Bar(name, len(around), began, ended - began, own, _piece(began, ended, whole), pieces)


def _piece(start: float, end: float, whole: float) -> Piece:
    width = min(max((end - start) / whole * WIDTH, _THINNEST), WIDTH)
    return Piece(round(min(start / whole * WIDTH, WIDTH - width), 1), round(width, 1))
