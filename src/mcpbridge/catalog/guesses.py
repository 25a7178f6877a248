"""Which of many names somebody may have meant, found quickly.

Comparing two names well costs 20 to 50 µs, and one wrong name must not hold up the calls of all others: so the
comparison sees only the names that share most pairs of letters with the wrong one.
"""

from collections.abc import Iterable

from mcpbridge.errors import nearest

__all__ = ["likely_meant"]

_LONGEST = 200
"""Characters of a name that gets a suggestion; nobody misspells a longer one."""

_LENGTH_APART = 32
_COMPARED = 100


def likely_meant(name: str, known: Iterable[str]) -> list[str]:
    """The known names closest to `name`, best first; few or none."""
    if not name or len(name) > _LONGEST:
        return []
    folded = name.casefold()
    pairs = {folded[i : i + 2] for i in range(len(folded) - 1)}
    alike = [other for other in known if abs(len(other) - len(name)) <= _LENGTH_APART]
    if len(alike) > _COMPARED:
        common = [(sum(pair in form for pair in pairs), other) for other in alike for form in (other.casefold(),)]
        common.sort(key=lambda item: -item[0])
        alike = [other for _, other in common[:_COMPARED]]
    return nearest(name, alike)
