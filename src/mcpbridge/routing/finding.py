"""What a search finds: the tools that fit, near-duplicates as one; none where nothing seems to fit. Pure."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from mcpbridge.routing.concepts import expansions
from mcpbridge.routing.doubt import LOOKED_AT, is_doubtful
from mcpbridge.routing.ranker import Hit, Ranker
from mcpbridge.routing.siblings import Ability, abilities
from mcpbridge.routing.sight import Findable, Sight
from mcpbridge.routing.told import Told, told

__all__ = ["FURTHER", "NEAREST", "Finding", "find"]

FURTHER = 16
"""Tools beyond the limit that are looked at: near-duplicates come as one, and others that fit are counted."""
_NEAR = 0.15
"""A first hit with this score may fit though it has no word of the query: it means about the same."""
NEAREST = 3
"""Tools that are named as doubtful where none seems to fit."""


class Finding(Struct, frozen=True):
    """What was found for one query."""

    hits: Sequence[Hit]
    """All that were looked at, best first."""
    abilities: Sequence[Ability]
    """The same, near-duplicates as one; also where they do not fit."""
    tools: Mapping[str, Told]
    """Each of them, read, by id."""
    fits: bool
    """Some of them seem to be what is wanted."""

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
    sight: Sight,
    ranker: Ranker,
    read: Callable[[Findable], Told] = told,
    *,
    adjust: Callable[[list[Hit]], list[Hit]] = lambda hits: hits,
) -> Finding:
    """The tools of this sight for a query: `limit` of them, and some more that may fit too.

    `ranker` is the sight's; `read` reads definitions, for callers that have them read already. `adjust` may
    change the order of what is nearly equal.
    """
    tools = sight.by_id
    hits = adjust([hit for hit in ranker.rank(query, limit + FURTHER, among=tools) if hit.id in tools])
    found = {hit.id: read(tools[hit.id]) for hit in hits}
    texts = {id_: one.text for id_, one in found.items()}
    is_named = any(hit.is_named for hit in hits)
    is_near = bool(hits) and hits[0].score >= _NEAR
    meant = " ".join([query, *expansions(query)])
    fits = bool(hits) and (is_named or is_near or not is_doubtful(meant, list(texts.values())[:LOOKED_AT]))
    return Finding(hits, abilities(texts, texts), found, fits)
