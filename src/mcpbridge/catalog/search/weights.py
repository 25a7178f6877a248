"""The weights of the search for tools: what a word, a field, nearness of meaning and former use count in the ranking.

Words are weighed in `lexical/`, vectors in `embeddings/`, the whole in `index.py`. The weights were fitted on requests
to 4,700 tools, by cross-validation; none matters much by itself. `benchmarks/` measures what a change does.
"""

from collections.abc import Mapping
from typing import NamedTuple


class FieldWeight(NamedTuple):
    """What a word counts in one field of a tool: the parameters of BM25 for that field."""

    weight: float
    damping: float
    """How much longer fields count less: 0 not at all, 1 in proportion."""
    usual: float
    """Stems that such a field usually has."""

    def share(self, length: int) -> float:
        """What one occurrence counts in a field of so many stems."""
        return self.weight / (1 - self.damping + self.damping * length / self.usual)


SERVER = FieldWeight(2.5, 0.3, 3)
"""Name, title and tags of the server."""

TOOL_NAME = FieldWeight(3, 0.3, 3)

TITLE = FieldWeight(1.5, 0.3, 3)
"""Title and tags of the tool."""

DESCRIPTION = FieldWeight(1, 0.4, 18)

PARAMETER_NAMES = FieldWeight(0.6, 0.7, 6)

PARAMETER_DETAILS = FieldWeight(0.35, 0.7, 25)
"""Descriptions of parameters, and the values that they may have."""

SERVER_DESCRIPTION = FieldWeight(0.35, 0.7, 14)

SATURATION = 1.3
"""`k1` of BM25: how soon a word that comes again adds nothing."""

IMPLIED_WORDS: Mapping[str, tuple[float, float]] = {
    "entity": (0.4, 0.2),
    "idiom": (0.5, 0.25),
    "synonym": (0.35, 0.35),
    "abroad": (0.7, 0.35),
}
"""What implied and suggested words of a class count, against 1 for the words of the query."""


# Words of the query.

NUMBER = 0.3
"""What a number in a query counts: it is rarely part of a name."""

IMPLIED = 0.8
"""What implied words count, as a share of what their class counts."""

FAINT = 0.05
"""Share of the most significant word: a less significant implied word is not looked for."""

UNKNOWN = 0.5
"""What words that no tool has count against the rarest: most are names of people, places and things."""

STRONG = 0.5
"""What the words of a kind of query (an address, a file name) count, against 1 for words of the query."""

FAIR = 0.3
"""The same for kinds that are less sure."""

WEAK = 0.15
"""The same for kinds that are least sure."""


# Words and built-in vectors together.

BY_WORDS = 0.6
"""What being the best by words counts when candidates are chosen."""

BY_VECTORS = 0.4
"""What being the best by vectors counts when candidates are chosen."""

LESS_BY_WORDS = 0.2
"""By how much words count less when the candidates are ordered."""

ASKED = 0.2
"""What the share of the query counts that a tool has, when the candidates are ordered."""

NAMED = 0.1
"""What the share of a tool's name counts that is asked for, when the candidates are ordered."""

OWN_PIECES = 8
"""What each word of the query counts in its vector."""

IMPLIED_PIECES = 2.4
"""What each implied word counts in the vector of the query."""


# Several needs in one request.

PART = 0.9
"""What the best tool for a part of a request scores, where that for the whole scores 1."""

PART_WORDS = 0.15
"""How much less the parts count that have fewer significant words; an exponent."""

STEP = 0.94
"""What each further tool for one of several needs scores of what it would, so that the best for each come early."""


# A model of embeddings, where one is set up (`search.embedder.weight` is its share).

PART_NEARNESS = 0.85
"""What nearness to one part of a request counts, beside nearness to the whole."""

SAME_NEARNESS = 1e-6
"""What is nearer by less is not nearer."""


# Tools that served the same user before.

FEEDBACK = 0.08
"""How much a score can rise, as a share of the best one."""

FEEDBACK_FADES = 0.99
"""What is left of a note after each further one; half after 69."""

FEEDBACK_HALF = 2.0
"""Notes that move a tool half as far as it can move."""

FEEDBACK_OTHER_WORDS = 0.05
"""What a note counts for queries with other words."""


# When nothing seems to fit.

NEAR = 0.15
"""A first hit with this score may fit though it has no word of the query: it means about the same."""

CONFUSABLE = 0.3
"""Share of words that two siblings have in common from which an answer says how they differ."""
