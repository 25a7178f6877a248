"""How much of a tool a signature tells, from most to least."""

from msgspec import Struct

__all__ = ["FORMS", "NAMES", "Detail", "Form"]


class Detail(Struct, frozen=True):
    """How much is told. What is not is marked."""

    depth: int = 2
    """Levels of objects within parameters that are spelled out."""
    members: int = 12
    """Members of one object, and alternatives of one value."""
    literals: int = 90
    """Characters of the values of one enum, and twice those of a default."""
    is_exact: bool = False
    """Lengths, patterns and the like are told too."""
    texts: int = 0
    """Characters of a member's description; 0: none is told."""
    room: int = 1200
    """Characters altogether, about; what comes after is left out."""


class Form(Struct, frozen=True):
    """How much of a tool is told on one line."""

    description: int
    """Characters of the description; 0: none is told."""
    optional: int = 0
    """Optional parameters that are named."""
    detail: Detail | None = None
    """What of parameters; None: nothing."""
    sentences: int = 20


FORMS: tuple[Form, ...] = (
    Form(200, 16, Detail(depth=2, members=12, literals=90, room=900)),
    Form(120, 8, Detail(depth=1, members=8, literals=60, room=400)),
    Form(90, 4, Detail(depth=0, members=5, literals=32, room=240)),
    Form(70, 0, Detail(depth=0, members=4, literals=24, room=160)),
    Form(70, sentences=1),
    Form(30, sentences=1),
    Form(0),
)
"""From the longest to the shortest. The first is that of the level `brief`."""

NAMES = Form(120, sentences=1)
"""The level `names`."""
