"""Whether a search found anything at all.

Scores of a ranker tell which tool fits best, not whether it fits: something is always nearest. A request that shares no
word with any of the best tools is most likely one that no tool is for; they are told as doubtful then. Pure.
"""

from collections.abc import Sequence
from itertools import islice

from mcpbridge.routing.filters import parse_filters
from mcpbridge.routing.schema_reading import as_schema
from mcpbridge.routing.tool_text import ToolText
from mcpbridge.routing.words import stems_of

__all__ = ["LOOKED_AT", "is_doubtful"]

LOOKED_AT = 5
"""Tools whose words are compared, the best."""

_QUERY, _TEXT = 2000, 2000
"""Characters of a text that are looked at."""
_PARAMETERS = 64


def is_doubtful(query: str, best: Sequence[ToolText]) -> bool:
    """Whether none of the best tools has a word of the query.

    Queries in another script than tools are written in share no words with them, and are never doubtful.
    """
    if not best:
        return True
    _, text = parse_filters(query[:_QUERY])
    asked = [stem for stem in stems_of(text) if stem.isascii()]
    if not asked:
        return False
    return not any(stem in said for said in map(_stems, best[:LOOKED_AT]) for stem in asked)


def _stems(tool: ToolText) -> frozenset[str]:
    members = as_schema(tool.schema.get("properties")) if tool.schema else None
    names = [str(name) for name in islice(members or {}, _PARAMETERS)]
    said = (tool.server, tool.name, tool.title, *tool.tags, tool.description, *names)
    return frozenset(stem for text in said for stem in stems_of(text[:_TEXT]))
