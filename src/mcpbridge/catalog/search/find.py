"""What a search finds: the tools that fit, near-duplicates as one; none where nothing seems to fit. Pure.

Scores of a ranker say which tool fits best, not whether it fits: something is always nearest. A request that shares no
word with any of the best tools is most likely one that no tool is for: these are then answered as doubtful. The wording
of answers is in `answers.py`, the order of tools in `index.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from mcpbridge.catalog.search.duplicates import Ability, abilities
from mcpbridge.catalog.search.lexical.concepts import expansions
from mcpbridge.catalog.search.query_filters import parse_filters
from mcpbridge.catalog.search.ranker import Hit, Ranker, ToolText
from mcpbridge.catalog.search.visible_tools import Findable, VisibleTools
from mcpbridge.catalog.search.weights import NEAR
from mcpbridge.catalog.signatures.schema import as_schema
from mcpbridge.catalog.words import stems_of

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


class ReadDefinition(Struct, frozen=True):
    """A tool with its definition, read. Whatever is malformed in it counts as not there."""

    tool: Findable
    text: ToolText
    output: Mapping[str, Any] | None = None
    """Its `outputSchema`; None where there is none that is an object."""

    @property
    def description(self) -> str:
        """What it says of itself; its title, if that is all."""
        return self.text.description or self.text.title


def read_definition(tool: Findable) -> ReadDefinition:
    """Read the definition that clients get. Never raises."""
    try:
        found: object = msgspec.json.decode(tool.published)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    members = as_schema(found) or {}
    title, description = (_text(members.get(key)) for key in ("title", "description"))
    schema, output = (as_schema(members.get(key)) for key in ("inputSchema", "outputSchema"))
    return ReadDefinition(tool, ToolText(tool.id, tool.server, tool.name, title, description, schema), output)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


FURTHER = 16
"""Tools beyond the limit that are looked at: near-duplicates come as one, and others that fit are counted."""
NEAREST = 3
"""Tools that are named as doubtful where none seems to fit."""


class Finding(Struct, frozen=True):
    """What was found for one query."""

    hits: Sequence[Hit]
    """All that were looked at, best first."""
    abilities: Sequence[Ability]
    """The same, near-duplicates as one; also where they do not fit."""
    tools: Mapping[str, ReadDefinition]
    """Each of them, read, by id."""
    fits: bool
    """Some of them seem to be what is wanted."""
    looked_for: int
    """Hits that the ranker was asked for, which decides about scores where a request has several needs."""

    @property
    def named(self) -> Sequence[Ability]:
        """Those that an answer may name: where none seems to fit, the nearest."""
        return self.abilities if self.fits else self.abilities[:NEAREST]

    @property
    def scores(self) -> Mapping[str, Hit]:
        """The hits by id."""
        return {hit.id: hit for hit in self.hits}


def find(
    query: str,
    limit: int,
    visible: VisibleTools,
    ranker: Ranker,
    read: Callable[[Findable], ReadDefinition] = read_definition,
    *,
    adjust: Callable[[list[Hit]], list[Hit]] = lambda hits: hits,
) -> Finding:
    """The `visible` tools that fit a query: `limit` of them, and some more that may fit too.

    `ranker` is that of `visible`; `read` reads definitions, for callers that have them read already. `adjust` may
    change the order of what is nearly equal.
    """
    tools = visible.by_id
    looked_for = limit + FURTHER
    hits = adjust([hit for hit in ranker.rank(query, looked_for, among=tools) if hit.id in tools])
    found = {hit.id: read(tools[hit.id]) for hit in hits}
    texts = {id_: one.text for id_, one in found.items()}
    is_named = any(hit.is_named for hit in hits)
    is_near = bool(hits) and hits[0].score >= NEAR
    meant = " ".join([query, *expansions(query)])
    fits = bool(hits) and (is_named or is_near or not is_doubtful(meant, list(texts.values())[:LOOKED_AT]))
    return Finding(hits, abilities(texts, texts), found, fits, looked_for)
