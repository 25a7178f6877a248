"""Words as entries of a vocabulary of pieces: the longest entry that a word begins with, then the next, to its end."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

__all__ = ["WordPieces"]

_LONGEST = 32
"""Characters of a word that are looked at."""
_CACHED = 8192


class WordPieces:
    """Finds the rows of a word. Entries that go on with a word begin with `##`."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._rows: Mapping[str, int] = {entry: row for row, entry in enumerate(entries)}
        self._longest = max(map(len, entries), default=0)
        self.rows = lru_cache(_CACHED)(self._look_up)

    def _look_up(self, word: str) -> tuple[int, ...]:
        """The rows of a word in lower case; none if a part of it is in no entry."""
        whole = self._rows.get(word)
        if whole is not None:
            return (whole,)
        word = word[:_LONGEST]
        found: list[int] = []
        at = 0
        while at < len(word):
            for end in range(min(len(word), at + self._longest), at, -1):
                row = self._rows.get(("##" if at else "") + word[at:end])
                if row is not None:
                    found.append(row)
                    at = end
                    break
            else:
                return ()
        return tuple(found)
