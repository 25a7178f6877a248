"""The levels of slimming: which level cuts what of a tool's definition.

    level        description             input and output schema                            output schema listed
    off          as sent                 as sent                                            yes
    tidy         without needless blanks without what tells a model nothing                 yes
    slim         its beginning           short texts, no lengths and examples               yes
    skeleton     its first sentence      names, types, choices, defaults, what is required  yes
    signatures   a signature and         the signature stands for it                        no
                 its first sentence

The numbers stand below. `slim.py` applies them.
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
SIGNATURE_LENGTH = 2000
"""Characters of a signature."""


class SchemaRules(Struct, frozen=True):
    """How much of a schema stays."""

    text: int | None = None
    """Characters of one description; None: all of it, without needless blanks. 0: none."""
    all_texts: int | None = None
    """Characters of all descriptions together; required and outer properties come first, others have none."""
    dropped: frozenset[str] = frozenset()
    """Keywords that are left out."""
    longest_enum: int | None = None
    """Bytes of an `enum`; a longer one is told by its first values in the description."""
    longest_default: int | None = None
    """Bytes of a `default`; a longer one is left out."""


_LENGTHS = frozenset(
    {"minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
     "multipleOf", "contentEncoding", "contentMediaType"}
)  # fmt: skip
_SHOWN = frozenset({"examples", "example"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format"})

TIDY = SchemaRules()
"""A model loses nothing."""

SLIM = SchemaRules(text=80, all_texts=240, dropped=_LENGTHS | _SHOWN, longest_enum=400, longest_default=100)
"""What a parameter is for, in a few words."""

SKELETON = SchemaRules(text=0, dropped=_LENGTHS | _SHOWN | _BOUNDS, longest_enum=200, longest_default=40)
"""Names, types, values to choose from, defaults, and what is required."""

RULES: Mapping[Level, SchemaRules] = {"tidy": TIDY, "slim": SLIM, "skeleton": SKELETON, "signatures": SKELETON}
"""How much of a schema each level leaves; `off` leaves all."""
