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
_COST = 0.0068
"""What a character costs, on the scale of the worth of columns."""
_USUAL = 1000
_SHOWN = 0.8
_EACH = 0.25
_EACH_OTHER = 0.25
_ALL = 9.0
_PART = 3.0


@dataclass(slots=True)
class Rows:
    """The rows of one table."""

    columns: list[tuple[Profile, float]]
    """Best first, with their worth."""
    count: int
    start: int | None = 0
    """Rows begin with their place, counted from here; None: they do not, as those of a map have their key."""

    def text(self, room: int, before: int = 0) -> str:
        """The rows worth their characters, in so many at most; empty if there is no room for any."""
        best, best_worth = "", float("-inf")
        for width in range(1, min(_MOST_COLUMNS, len(self.columns)) + 1):
            fitting = self._most(width, room)
            first, *rest = (weight for _, weight in self.columns[:width])
            others = sum(rest)
            for rows in {fitting, *(few for few in _ROW_COUNTS if few < fitting)}:
                if not rows:
                    continue
                text = self._render(width, rows)
                # Somebody may ask for a row by its place, or look up what it has in another column.
                share = _ALL if rows >= self.count - 1 else _PART * rows / self.count
                worth = first * (_SHOWN + _EACH * min(rows, 12) + share)
                worth += others * (_SHOWN + _EACH_OTHER * min(rows, 12) + share) - _cost(text, before)
                if worth > best_worth or (worth == best_worth and text < best):
                    best, best_worth = text, worth
        return best

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
