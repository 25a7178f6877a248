"""Some rows of a table, as many columns and rows as are worth most: the first ones, and always the last."""

from dataclasses import dataclass

from mcpbridge.results.identity import cell
from mcpbridge.results.preview_facts import cost_of
from mcpbridge.results.profile import Profile

__all__ = ["Rows"]

_MOST_COLUMNS = 9
_MOST_ROWS = 400
_ROW_COUNTS = (1, 2, 4, 8, 12)
"""How many first rows are tried, beside as many as fit."""
_COST = 0.009
"""What a character costs in a preview of usual length, on the scale of the worth of columns."""
_USUAL = 1000
_SHOWN = 0.8
"""What is gained for a column by showing what is in it; beside its worth, as the following."""
_EACH = 0.4
"""By each row, up to the twelfth, that can be told by its place: what it is called."""
_EACH_OTHER = 0.05
"""The same for what else it has."""
_ALL = 9.0
"""By showing all rows of a table of a few: anything can be looked up, and nothing needs to be asked for."""
_FEW = 16
_PART = 3.0
"""By showing all of a large one; a part of it in proportion."""


@dataclass(slots=True)
class Rows:
    """The rows of one table."""

    columns: list[tuple[Profile, float]]
    """Best first, with their worth."""
    count: int
    start: int | None = 0
    """Rows begin with their place, counted from here; None: they do not, as those of a map have their key."""

    def text(self, room: int, before: int = 0) -> str:
        """The rows worth their characters, in so many at most; empty if there is no room for any.

        `before`: characters of the preview without them.
        """
        best, best_worth = "", float("-inf")
        for width in range(1, min(_MOST_COLUMNS, len(self.columns)) + 1):
            fitting = self._most(width, room)
            for rows in {fitting, *(few for few in _ROW_COUNTS if few < fitting)}:
                if not rows:
                    continue
                text = self._render(width, rows)
                worth = self._gain(width, rows) - _cost(text, before)
                if worth > best_worth or (worth == best_worth and text < best):
                    best, best_worth = text, worth
        return best

    def _gain(self, width: int, rows: int) -> float:
        """What so many columns of so many rows, beside the last one, are worth."""
        first, *others = (weight for _, weight in self.columns[:width])
        share = _ALL * min(1.0, _FEW / self.count) if rows >= self.count - 1 else _PART * rows / self.count
        by_place = min(rows, 12)
        return first * (_SHOWN + _EACH * by_place + share) + sum(others) * (_SHOWN + _EACH_OTHER * by_place + share)

    def _most(self, width: int, room: int) -> int:
        """How many of the first rows fit, beside the last one."""
        used = len(self._render(width, 1))
        if used > room:
            return 0
        rows = 1
        separator = 2 if width == 1 else 1
        while rows < min(self.count, _MOST_ROWS):
            used += len(self._row(width, rows)) + separator
            if used > room:
                break
            rows += 1
        return rows

    def _row(self, width: int, row: int) -> str:
        cells = " | ".join(cell(profile, row) for profile, _ in self.columns[:width])
        return f"{row + self.start} {cells}" if width > 1 and self.start is not None else cells

    def _render(self, width: int, rows: int) -> str:
        names = " | ".join(profile.path or "values" for profile, _ in self.columns[:width])
        everything = rows >= self.count - 1
        shown = range(self.count if everything else rows)
        if width == 1:
            text = f"{'all' if everything else 'first'} {names}: " + ", ".join(self._row(1, row) for row in shown)
            return text if everything else f"{text} … last: {self._row(1, self.count - 1)}"
        lines = [f"rows ({'' if self.start is None else 'index '}{names}):", *(self._row(width, row) for row in shown)]
        if not everything:
            if rows < self.count - 1:
                lines.append("…")
            lines.append(self._row(width, self.count - 1))
        return "\n".join(lines)


def _cost(text: str, before: int) -> float:
    """The longer the preview is already, the more must be gained by what makes it longer still."""
    return cost_of(text) * _COST * (before + len(text) / 2) / _USUAL
