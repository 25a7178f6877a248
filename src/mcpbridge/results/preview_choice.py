"""What of all that can be said of a value is said, in so many characters: facts, rows, fields, long texts."""

from mcpbridge.results.preview_facts import Line, by_worth
from mcpbridge.results.preview_outline import PLAINEST, outline
from mcpbridge.results.preview_table import Section
from mcpbridge.results.preview_words import ends_said

__all__ = ["Choice"]

_WORTH_MORE_THAN_ROWS = 0.03
"""Facts of so much worth for each character go before rows."""
_WORTH_THEIR_ROOM = 0.06
"""Facts of so much worth may take most of what is kept for rows, too."""
_WORTH_SAYING = 0.03
"""Facts of less worth for each character are not said, even where there is room: a model pays for each word."""
_LONG = 700
"""Characters, from which on a preview is long: a fact must be worth the more, the longer it is."""
_RISE = 1.5
"""By how much more with each `_LONG` characters."""
_ROWS_SHARE = 0.28
"""Of the room, kept for rows until the best facts are chosen."""
_FIELDS_SHARE = 0.45
"""Of the room, at most, for the list of fields that no line tells of."""
_ENDS_SHARE = 0.35
"""Of the room, at most, for the first and the last rows of all tables."""
_ROOM_FOR_ENDS = 1000
"""Characters, from which on the first and last rows go before all else; in less, they get what is left."""


class Choice:
    """What is said in the end: lines and rows of each section, the fields that remain."""

    def __init__(self, sections: list[Section], room: int, head: str, items: int) -> None:
        self._sections, self._room, self._head, self._items = sections, room, head, items
        self._ends = [""] * len(sections)
        self._rows = [""] * len(sections)
        self._plainness = 0
        self._order: list[tuple[Line, int]] = []
        self._ranked = by_worth(line for section in sections for line in section.lines)
        with_rows = [place for place, section in enumerate(sections) if section.rows is not None]
        with_rows.sort(key=lambda place: -sections[place].weight)
        self._with_rows = with_rows

    @property
    def has_rows(self) -> bool:
        """Some rows are told."""
        return any(self._rows) or any(self._ends)

    def choose(self) -> None:
        """Take what is worth most."""
        if self._room >= _ROOM_FOR_ENDS:
            self._take_ends(int(self._room * _ENDS_SHARE))
        kept = max(0, int(self._room * _ROWS_SHARE) - sum(map(len, self._ends))) if self._with_rows else 0
        self._take(reserve=kept, at_least=_WORTH_MORE_THAN_ROWS if self._with_rows else _WORTH_SAYING)
        self._fill_rows(0.6)
        self._take(reserve=0, at_least=_WORTH_SAYING)
        self._fill_rows(1.0)
        if self._room < _ROOM_FOR_ENDS:
            self._take_ends(self._room - len(self.text()) - 1)
        for self._plainness in range(PLAINEST + 1):
            if len(self.text()) <= self._room:
                break
        self._lengthen()

    def _take_ends(self, room: int) -> None:
        """The first and the last rows of tables, the largest first, where no rows are told yet."""
        for place in self._with_rows:
            rows = self._sections[place].rows
            if rows is not None and not self._rows[place]:
                self._ends[place] = rows.ends(room, self._items)
                room -= len(self._ends[place]) + 1

    def _take(self, reserve: int, at_least: float) -> None:
        """Take facts of so much worth as long as there is room, but for `reserve` characters."""
        used = len(self.text())
        ends = sum(map(len, self._ends))
        for worth, line, place in self._ranked:
            if worth < at_least * (1 + max(0, used - ends - _LONG) / _LONG * _RISE):
                continue
            if not line.may_take(place):
                continue
            cost = len(line.facts[place].text) + (2 if line.taken else len(line.title) + 3)
            name = line.facts[place].names
            refund = len(name.rpartition(".")[2]) + 1 if name and name not in line.told else 0
            kept = reserve if worth < _WORTH_THEIR_ROOM else reserve // 3
            if used + cost - refund > self._room - kept:
                continue
            line.taken.add(place)
            self._order.append((line, place))
            used += cost - refund
        while self._order and len(self.text()) > self._room:
            if self._plainness < PLAINEST:
                self._plainness += 1
                continue
            line, place = self._order.pop()
            line.taken.discard(place)

    def _fill_rows(self, share_of_room: float) -> None:
        """Give rows so much of what is left, to the sections by their weight."""
        self._rows = [""] * len(self._sections)
        total = sum(self._sections[place].weight for place in self._with_rows)
        for place in self._with_rows:
            section, ends = self._sections[place], self._ends[place]
            left = self._room - len(self.text()) - 1
            share = int(left * share_of_room * section.weight / total)
            total -= section.weight
            if section.rows is not None:
                used = self._room - left
                rows, replaces = section.rows.text(share, used, ends)
                if not rows:
                    rows, replaces = section.rows.text(left, used, ends)
                self._rows[place] = rows if replaces or not (rows and ends) else f"{ends}\n{rows}"

    def _lengthen(self) -> None:
        """Share what is left among the long texts of which the beginning is told."""
        lines = [line for section in self._sections for line in section.lines if line.whole and line.taken]
        lines.sort(key=lambda line: len(line.whole))
        spare = self._room - len(self.text())
        for place, line in enumerate(lines):
            fact = line.facts[0]
            before = len(fact.text)
            told = ends_said(line.whole, before + spare // (len(lines) - place))
            if len(told) > before:
                fact.text = told
                spare -= len(told) - before

    def text(self) -> str:
        """As it stands."""
        parts = [self._head] if self._head else []
        room = max(40, int(self._room * _FIELDS_SHARE) - 40)
        for section, rows, ends in zip(self._sections, self._rows, self._ends, strict=True):
            lines = [line for line in section.lines if line.taken]
            told = set[str]().union(*(line.told for line in lines))
            fields = [field for field in section.fields if field.path not in told]
            listed = outline(fields, room, self._plainness)
            room -= len(listed)
            title = section.title
            if listed:
                legend = " (= always)" if "=" in listed and any(field.always for field in fields) else ""
                listed = f"{'other ' if lines and title else ''}fields{legend}: {listed}"
                title = f"{title}; {listed}" if title else listed
            if title:
                parts.append(title)
            parts.extend(line.text for line in lines)
            if rows or ends:
                parts.append(rows or ends)
        return "\n".join(parts)
