"""The ranker of one catalog: what a query names comes first, then what fits its needs best."""

from collections.abc import Callable, Container, Mapping, Sequence

from mcpbridge.routing.clauses import clauses
from mcpbridge.routing.filters import Scope, parse_filters
from mcpbridge.routing.names import NameIndex
from mcpbridge.routing.needs import Best, Fits, need_of
from mcpbridge.routing.ranker import Hit
from mcpbridge.routing.vectors import Table

__all__ = ["NOTHING_FITS", "CatalogRanker"]

NOTHING_FITS = 0.28
"""A first hit with a lower score does not fit. Of requests that a catalog has a tool for, one in a hundred is below; of
those that it has none for, three in four."""

_QUERY = 8000
"""Characters of a query that are looked at."""
_PART = 0.9
"""What the best tool for a part of a request scores, where that for the whole scores 1."""
_SAID = 0.15
"""How much less the parts count that say less."""
_STEP = 0.94
"""What each further tool for one of several needs scores of what it would, so that the best for each come early."""
_DEPTH = 40
"""Tools that are looked at closely."""


class CatalogRanker:
    """Ranks by words and vectors. A value; safe to share between threads."""

    def __init__(
        self, ids: Sequence[str], scopes: Sequence[Scope], names: NameIndex, fits: Fits, table: Table | None
    ) -> None:
        self._ids, self._scopes, self._names = ids, scopes, names
        self._fits, self._table = fits, table

    def rank(self, query: str, limit: int, *, among: Container[str] | None = None) -> list[Hit]:
        """As the protocol says."""
        filters, text = parse_filters(query[:_QUERY])
        text = text.strip()
        allowed = self._allowed(filters.passes if filters else None, among)
        if filters and not text:
            numbers = allowed if allowed is not None else range(len(self._ids))
            return [Hit(self._ids[number], 1.0) for number in numbers][: max(0, limit)]
        named = [number for number in self._names.named(text) if allowed is None or number in allowed]
        scores, sure = self._scores(text, max(limit, _DEPTH), allowed)
        for number in named:
            scores.pop(number, None)
        ordered = sorted(scores.items(), key=lambda one: (-one[1], one[0]))
        scale = sure / ordered[0][1] if ordered and ordered[0][1] > 0 else 0.0
        found = [Hit(self._ids[number], 1.0, is_named=True) for number in named]
        found += [Hit(self._ids[number], max(0.0, min(1.0, score * scale))) for number, score in ordered]
        return found[: max(0, limit)]

    def _allowed(
        self, passes: Callable[[Scope], bool] | None, among: Container[str] | None
    ) -> Mapping[int, None] | None:
        if passes is None and among is None:
            return None
        return {
            number: None
            for number, (one, scope) in enumerate(zip(self._ids, self._scopes, strict=True))
            if (among is None or one in among) and (passes is None or passes(scope))
        }

    def _scores(self, text: str, depth: int, allowed: Mapping[int, None] | None) -> tuple[dict[int, float], float]:
        """The tools for a request, as a whole and by its parts, with their scores; and how well the best one fits."""
        whole = self._best(text, depth, allowed)
        parts = [self._best(part, depth, allowed) for part in clauses(text)]
        if not parts:
            return {fit.tool: fit.score for fit in whole.fits}, whole.sure
        most = max(part.said for part in parts) or 1.0
        scores: dict[int, float] = {}
        for best, weight in [(whole, 1.0), *((part, _PART * (part.said / most) ** _SAID) for part in parts)]:
            for place, fit in enumerate(best.fits):
                score = fit.score * weight * _STEP**place
                scores[fit.tool] = max(score, scores.get(fit.tool, 0.0))
        return scores, max(best.sure for best in (whole, *parts))

    def _best(self, text: str, depth: int, allowed: Mapping[int, None] | None) -> Best:
        return self._fits.best(need_of(text, self._table), depth, allowed)
