"""The sample rows of a preview: which rows and columns are worth most, and single rows as JSON.

The rows are the first ones and always the last. In rows as JSON long texts and lists are cut.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from msgspec import Struct, field

from mcpbridge.results.exact_json import NotReadable, write_json
from mcpbridge.results.preview.column_profile import ColumnProfile, cell
from mcpbridge.results.preview.facts import cost, cost_of
from mcpbridge.results.preview.limits import (
    CELL_LENGTH,
    CHARACTER_COST,
    COLUMN_GAIN,
    ENDS_CELL_LENGTH,
    ENDS_TOKENS,
    FURTHER_ROWS_TOKENS,
    JSON_ROW_DEPTH,
    JSON_ROW_ELEMENTS,
    JSON_ROW_MEMBERS,
    JSON_ROW_TEXT,
    LARGE_TABLE_GAIN,
    LIST_LOSS,
    LIST_TOKENS,
    NAMED_ROW_GAIN,
    ROW_COLUMNS,
    ROW_COUNTS,
    ROW_GAIN,
    SHOWN_ROWS,
    SMALL_TABLE,
    SMALL_TABLE_GAIN,
    USUAL_LENGTH,
)
from mcpbridge.results.preview.wording import brief, cut, is_long_id
from mcpbridge.results.token_count import LONGEST_COUNTED, PUNCTUATION, estimated_tokens_of


class Rows(Struct):
    """The rows of one table."""

    columns: list[tuple[ColumnProfile, float]]
    """Best first, with their worth."""
    count: int
    start: int | None = 0
    """Rows begin with their place, counted from here; None: they do not, as those of a map have their key."""
    _cells: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """By row: its cells in the first column, the first two, and so on, as far as somebody asked."""
    _tokens: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """By row: tokens of the same, the place of the row included."""
    _short_cells: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    """By (place of the column, row), as the first and last rows have them."""
    _costs: dict[tuple[int, int, str], tuple[int, float]] = field(
        default_factory=dict[tuple[int, int, str], tuple[int, float]]
    )
    """What `_size` gave."""
    _sizes: dict[int, "_Sizes"] = field(default_factory=dict[int, "_Sizes"])
    """By number of columns."""

    def ends(self, room: int, items: int) -> str:
        """The first row and the last one in short, in so many characters; empty if there is no room.

        `items`: how many first rows there are at most, where they are short.
        """
        places: list[int] = []
        text = ""
        for place, (profile, _) in enumerate(self.columns):
            if places and _says_little(profile):
                continue
            wider = self._brief([*places, place], 1)
            if len(wider) <= room and (not text or estimated_tokens_of(wider) <= ENDS_TOKENS):
                places, text = [*places, place], wider
            if len(places) == ROW_COLUMNS:
                break
        for rows in range(2, min(items, self.count - 1) + 1):
            longer = self._brief(places, rows) if places else ""
            if not longer or len(longer) > room:
                break
            if estimated_tokens_of(longer) - estimated_tokens_of(text) > FURTHER_ROWS_TOKENS // (items - 1):
                break
            text = longer
        return text

    def text(self, room: int, before: int = 0, ends: str = "") -> tuple[str, bool]:
        """The rows worth their characters, in so many at most, and whether they stand for `ends`, too.

        Empty if there is no room for any. `before`: characters of the preview without them. `ends`: what `ends` gave,
        which is shown before them; rows that stand for it may be longer by its length.
        """
        best, replaces, best_worth = "", False, LIST_LOSS if ends else float("-inf")
        if ends and "\n…\n" not in ends:
            return "", False
        narrowest = max(1, ends.partition("\n")[0].count(" | ") + 1)
        replaced = self._gain(narrowest, 1) - _cost(ends, before - len(ends)) if ends else 0.0
        for width in range(1, min(ROW_COLUMNS, len(self.columns)) + 1):
            instead = bool(ends) and (width > 1 or len(self.columns) == 1)
            if instead and (width < narrowest or (width > 1 and is_long_id(self.columns[0][0].present[0]))):
                continue
            if ends and not instead and self._are_counted():
                continue
            fitting = self._most(width, room + (len(ends) + 1 if instead else 0))
            for rows in {fitting, *(few for few in ROW_COUNTS if few < fitting)}:
                rows = self._short_list(rows) if width == 1 else rows  # noqa: PLW2901 - the same rows, fewer of them
                if not rows or (ends and rows < min(self.count - 1, 2 if width == 1 else 4)):
                    continue
                # What it costs is known before it is written, and most of what is tried is not written.
                known = self._costs.get((width, rows, ends))
                if known is None:
                    known = self._costs[width, rows, ends] = self._size(width, rows, ends)
                length, cost = known
                worth = self._gain(width, rows) - _rising(cost, length, before - len(ends) if instead else before)
                worth -= replaced if instead else 0.0
                if worth < best_worth:
                    continue
                text = self._render(width, rows, ends)
                if worth > best_worth or text < best:
                    best, replaces, best_worth = text, instead, worth
        return best, replaces

    def _gain(self, width: int, rows: int) -> float:
        """What so many columns of so many rows, beside the last one, are worth."""
        first, *others = (weight for _, weight in self.columns[:width])
        small, large = SMALL_TABLE_GAIN * min(1.0, SMALL_TABLE / self.count), LARGE_TABLE_GAIN * rows / self.count
        share = small if rows >= self.count - 1 else large
        by_place = min(rows, 12)
        named = first * (COLUMN_GAIN + NAMED_ROW_GAIN * by_place + share)
        return named + sum(others) * (COLUMN_GAIN + ROW_GAIN * by_place + share)

    def _most(self, width: int, room: int) -> int:
        """How many of the first rows fit, beside the last one."""
        used = len(self._render(width, 1))
        if used > room:
            return 0
        rows = 1
        separator = 2 if width == 1 else 1
        while rows < min(self.count, SHOWN_ROWS):
            used += len(self._row(width, rows)) + separator
            if used > room:
                break
            rows += 1
        return rows

    def _size(self, width: int, rows: int, ends: str) -> tuple[int, float]:
        """Characters of what `_render` writes, and what they cost.

        Of a table it is the sum of its cells, which neither begin nor end with a blank: no token of the estimate goes
        from one into the next. Of a very long text tokens are estimated from samples.
        """
        sizes = self._sizes.get(width)
        if sizes is None:
            head = f"{self._head(self._names(range(width)))}\n" if width > 1 else ""
            sizes = self._sizes[width] = _Sizes([len(head)], [estimated_tokens_of(head)])
        everything = rows >= self.count - 1
        before_last = self.count - 1 if everything else rows
        for row in range(len(sizes.lengths) - 1, before_last if width > 1 else 0):
            line = self._row(width, row)
            sizes.lengths.append(sizes.lengths[-1] + len(line) + 1)
            ends_line = 0 if line[-1:] in PUNCTUATION else 1
            sizes.tokens.append(sizes.tokens[-1] + self._row_tokens(width, row) + ends_line)
        last = self._row(width, self.count - 1)
        length = sizes.lengths[before_last] + len(last) + (0 if everything else len(_GAP)) if width > 1 else 0
        if not 0 < length <= LONGEST_COUNTED:
            text = self._render(width, rows, ends)
            return len(text), cost_of(text)
        tokens = sizes.tokens[before_last] + self._row_tokens(width, self.count - 1)
        return length, cost(length, tokens + (0 if everything else estimated_tokens_of(_GAP)))

    def _are_counted(self) -> bool:
        """The rows are called by numbers without gaps, which their range says."""
        name = self.columns[0][0]
        return name.sort == "ident" and name.all_different and name.high - name.low == self.count - 1

    def _short_list(self, rows: int) -> int:
        """So many of the first rows, or fewer, lest the list of what they are called cost too much."""
        if rows >= self.count - 1 and self.count <= SMALL_TABLE:
            return rows
        spent = 0
        for row in range(rows):
            spent += estimated_tokens_of(self._row(1, row)) + 1
            if spent > LIST_TOKENS:
                return max(1, row)
        return rows

    def _row(self, width: int, row: int) -> str:
        cells = self._cells.get(row)
        if cells is None:
            cells = self._cells[row] = [cell(self.columns[0][0], row)]
        while len(cells) < width:
            cells.append(f"{cells[-1]} | {cell(self.columns[len(cells)][0], row, CELL_LENGTH, brief)}")
        return f"{row + self.start} {cells[width - 1]}" if width > 1 and self.start is not None else cells[width - 1]

    def _row_tokens(self, width: int, row: int) -> int:
        """Tokens of `_row`, of more than one column."""
        place = "" if self.start is None else f"{row + self.start} "
        tokens = self._tokens.get(row)
        if tokens is None:
            tokens = self._tokens[row] = [estimated_tokens_of(place + self._row(1, row))]
        while len(tokens) < width:
            shorter = len(self._cells[row][len(tokens) - 1])
            tokens.append(tokens[-1] + estimated_tokens_of(self._cells[row][len(tokens)][shorter:]))
        return tokens[width - 1]

    def _render(self, width: int, rows: int, ends: str = "") -> str:
        everything = rows >= self.count - 1
        if width == 1:
            (name,) = self._names((0,))
            shown = range(self.count if everything else rows)
            text = f"{'all' if everything else 'first'} {name}: " + ", ".join(self._row(1, row) for row in shown)
            last = self._row(1, self.count - 1)
            is_named = last in ends.rpartition("\n")[2].split(" | ")[0].split(" ")
            return text if everything else f"{text}, …" if is_named else f"{text} … last: {last}"
        return self._table(self._names(range(width)), rows, lambda row: self._row(width, row))

    def _brief(self, places: Sequence[int], rows: int) -> str:
        """The first and last rows, in these columns."""

        def row_text(row: int) -> str:
            text = " | ".join([self._short_cell(place, row) for place in places])
            return f"{row + self.start} {text}" if len(places) > 1 and self.start is not None else text

        return self._table(self._names(places), rows, row_text)

    def _names(self, places: Iterable[int]) -> list[str]:
        """What columns are called; members of a list or object have no path of their own."""
        return [self.columns[place][0].path or "values" for place in places]

    def _short_cell(self, place: int, row: int) -> str:
        text = self._short_cells.get((place, row))
        if text is None:
            text = self._short_cells[place, row] = cell(self.columns[place][0], row, ENDS_CELL_LENGTH, brief)
        return text

    def _head(self, names: Sequence[str]) -> str:
        index = "index " if self.start is not None and len(names) > 1 else ""
        return f"rows ({index}{' | '.join(names)}):"

    def _table(self, names: Sequence[str], rows: int, row_text: Callable[[int], str]) -> str:
        everything = rows >= self.count - 1
        lines = [self._head(names)]
        lines.extend(map(row_text, range(self.count if everything else rows)))
        text = "\n".join(lines)
        return text if everything else f"{text}\n{_GAP}{row_text(self.count - 1)}"


_GAP = "…\n"
"""Between the first rows and the last one."""


class _Sizes(Struct):
    """Of the head of a table and so many of its first rows, ends of lines included."""

    lengths: list[int]
    tokens: list[int]


def _says_little(profile: ColumnProfile) -> bool:
    """In a row that has a name already: addresses, hashes and numbers of other things."""
    if profile.sort == "url":
        return True
    return is_long_id(profile.present[0]) or (
        profile.sort == "ident" and profile.path.endswith(("id", "Id")) and "." in profile.path
    )


def _cost(text: str, before: int) -> float:
    return _rising(cost_of(text), len(text), before)


def _rising(cost: float, length: int, before: int) -> float:
    """The longer the preview is already, the more must be gained by what makes it longer still."""
    return cost * CHARACTER_COST * (before + length / 2) / USUAL_LENGTH


def whole_rows(rows: Sequence[Any], most: int, room: int) -> str:
    """The first rows, at most so many, one a line; empty if there is no room for one."""
    lines = ["first in full:"]
    used = len(lines[0])
    for row in rows[:most]:
        try:
            line = write_json(_shortened(row, 0))
        except NotReadable:
            break
        used += len(line) + 1
        if used > room:
            break
        lines.append(line)
    return "\n".join(lines) if len(lines) > 1 else ""


def _shortened(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return cut(value, JSON_ROW_TEXT)
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if depth >= JSON_ROW_DEPTH:
            return f"… {len(members)} members"
        some = {name: _shortened(members[name], depth + 1) for name, _ in zip(members, range(JSON_ROW_MEMBERS))}  # noqa: B905 - the shorter one ends it
        if len(members) > len(some):
            some["…"] = f"+{len(members) - len(some)} members"
        return some
    if isinstance(value, list):
        elements = cast("list[Any]", value)
        if depth >= JSON_ROW_DEPTH:
            return f"… {len(elements)} elements"
        some_elements = [_shortened(element, depth + 1) for element in elements[:JSON_ROW_ELEMENTS]]
        if len(elements) > JSON_ROW_ELEMENTS:
            some_elements.append(f"… +{len(elements) - JSON_ROW_ELEMENTS}")
        return some_elements
    return value
