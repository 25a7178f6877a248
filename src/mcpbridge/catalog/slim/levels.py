"""The levels of slimming: how much each one leaves of a tool's definition. Every number of slimming has its home here.

    level        description             input and output schema                            output schema listed
    off          as sent                 as sent                                            yes
    tidy         without needless blanks without annotations that mean nothing to a model   yes
    slim         its beginning           short texts, no examples, definitions inlined      yes
    skeleton     its first sentence      no texts                                           yes
    signatures   a signature and         the signature stands for it                        no
                 its first sentence

At all levels but `signatures` a schema accepts and refuses the same values as the one that was sent. `slim.py` applies
the levels.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Level = Literal["off", "tidy", "slim", "skeleton", "signatures"]
"""How much of a definition is listed."""

LEVELS: tuple[Level, ...] = ("off", "tidy", "slim", "skeleton", "signatures")
"""The most first."""

DESCRIPTION_LENGTH = 160
"""Characters of a tool's description that `slim` leaves."""

SENTENCE_LENGTH = 160
"""Characters of the first sentence, which the shorter levels leave."""

SHORTEST_SENTENCE = 12
"""Characters; what ends before is no sentence but "Tip." or "v1."."""

SIGNATURE_LENGTH = 2000
"""Characters of a signature."""

LARGEST_SCHEMA = 256 * 1024
"""Bytes of a schema that is shortened; the catalog takes no larger ones."""

DEEPEST_SCHEMA = 60
"""Schemas within schemas that are shortened; what is deeper stays as it was sent."""


class SchemaRules(Struct, frozen=True):
    """How much of a schema stays. No rule changes what the schema accepts: only annotations are left out."""

    text: int | None = None
    """Characters of one description; None: all of it, without needless blanks. 0: none."""
    all_texts: int | None = None
    """Characters of all descriptions together; required and outer properties come first, others have none."""
    dropped: frozenset[str] = frozenset({"$comment"})
    """Annotations that are left out."""
    longest_default: int | None = None
    """Bytes of a `default`; a longer one is left out."""
    is_inlined: bool = False
    """Definitions (`$defs`) that take less room where they are used are written there; so does the schema of a union
    of one."""


_UNTOLD = frozenset({"$comment", "examples", "example"})

TIDY = SchemaRules()
"""A model loses nothing, and every keyword that checks something stays where the server put it."""

SLIM = SchemaRules(text=80, all_texts=240, dropped=_UNTOLD, longest_default=100, is_inlined=True)
"""What a parameter is for, in a few words."""

SKELETON = SchemaRules(text=0, dropped=_UNTOLD, longest_default=40, is_inlined=True)
"""Names, types, what is accepted and required, and defaults."""

RULES: Mapping[Level, SchemaRules] = {"tidy": TIDY, "slim": SLIM, "skeleton": SKELETON, "signatures": SKELETON}
"""How much of a schema each level leaves; `off` leaves all."""
