"""Edit YAML: one entry of a map or a list in or out, in block or flow style, by the positions that PyYAML tells.

An entry is added as the first of its table, directly below the key of the table: where the last one ends depends on
comments, block scalars and blank lines, and where the first begins does not.
"""

import re
from collections.abc import Iterator, Mapping
from typing import cast

import yaml

from mcpbridge.client_files.editing import Edit, NotEditable, Splice, Spot
from mcpbridge.client_files.yaml_spans import compose, content_end, find, is_flow, is_null, pair, plain
from mcpbridge.client_files.yaml_text import as_block, as_item, on_one_line

__all__ = ["YamlEditor"]

_LINE_END = re.compile(r"[^\n]*(?:\n|$)")
_NEXT = re.compile(r"[ \t]*,[ \t]*")
_BLANKS = re.compile(r"[ \t]*")
_DASH = re.compile(r"([ \t]*)-[ \t]+")


class YamlEditor:
    """YAML. See `Editor`."""

    def parse(self, text: str) -> object:
        """The document as plain values; what has another tag than these as a pair of tag and text."""
        root = compose(text)
        try:
            return None if root is None else plain(root)
        except RecursionError as error:
            raise NotEditable("nested too deeply, or within itself") from error

    def to_put(self, text: str, spot: Spot, value: Mapping[str, object]) -> Iterator[Edit]:
        """In the place of what is there; else as the first of its table; else with a new table at the end."""
        root, page = compose(text), _Page(text)
        way = list(spot.table)
        if root is None or is_null(root):
            yield (page.at_the_end(way, spot, value, 0),)
            return
        at, key = root, None
        while way:
            found = pair(at, way[0])
            if found is None:
                yield from page.new_table(at, way, spot, value, key)
                return
            key, at = found
            way.pop(0)
            if is_null(at) or (not way and not at.value):
                yield from page.first_of(key, at, way, spot, value)
                return
        there = find(at, spot)
        if there is not None:
            yield page.instead(at, there, spot, value)
        yield page.beside(at, cast("yaml.Node", key), spot, value)

    def to_cut(self, text: str, spot: Spot) -> Edit:
        """The lines of the entry go, or its part of a flow collection."""
        page, at, key = _Page(text), cast("yaml.Node", compose(text)), None
        for name in spot.table:
            key, at = cast("tuple[yaml.Node, yaml.Node]", pair(at, name))
        return page.without(at, cast("int", find(at, spot)), key)


class _Page:
    """A text, and what to do to it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        found = re.search(r"^(?![ \t]*#)[^\n]*:[ \t]*(?:#[^\n]*)?\r?\n([ ]+)(?![ -])\S", text, re.MULTILINE)
        self.step = len(found[1]) if found and len(found[1]) <= 8 else 2

    def block(self, way: list[str], spot: Spot, value: Mapping[str, object], indent: int) -> str:
        """The lines of the entry, with those of the tables around it that are missing."""
        lines = [f"{' ' * (indent + self.step * depth)}{on_one_line(key)}:" for depth, key in enumerate(way)]
        indent += self.step * len(way)
        lines += as_item(value, indent) if spot.in_list else as_block(spot.name, value, indent, self.step)
        return "".join(line + self.newline for line in lines)

    def at_the_end(self, way: list[str], spot: Spot, value: Mapping[str, object], indent: int) -> Splice:
        """After everything; a text that ends without a line end then still does."""
        new, at = self.block(way, spot, value, indent), len(self.text)
        if self.text.strip("\ufeff") and not self.text.endswith("\n"):
            new = self.newline + new.removesuffix(self.newline)
        return Splice(at, at, new)

    def new_table(
        self, at: yaml.Node, way: list[str], spot: Spot, value: Mapping[str, object], key: yaml.Node | None
    ) -> Iterator[Edit]:
        """One more member of a map: the table, with the entry in it."""
        inner: object = [value] if spot.in_list else {spot.name: value}
        for name in reversed(way[1:]):
            inner = {name: inner}
        if is_flow(at) or not at.value:
            yield (self._into_flow(at, f"{on_one_line(way[0])}: {on_one_line(inner)}"),)
            return
        start = self._line(at.value[0][0].start_mark.index)
        indent = self._indent(start)
        if key is None:
            yield (self.at_the_end(way, spot, value, indent),)
        yield (Splice(start, start, self.block(way, spot, value, indent)),)

    def first_of(
        self, key: yaml.Node, at: yaml.Node, way: list[str], spot: Spot, value: Mapping[str, object]
    ) -> Iterator[Edit]:
        """The first entry of a table that is empty, or nothing yet: below its key, else as a flow collection."""
        indent = key.start_mark.column + self.step
        start, end = max(at.start_mark.index, key.end_mark.index), max(at.end_mark.index, key.end_mark.index)
        cut: Edit = ()
        if start == end:  # nothing stands there; behind the colon, then
            start = end = self.text.index(":", key.end_mark.index) + 1
        else:
            cut = (Splice(len(self.text[:start].rstrip(" \t")), end, ""),)
        line_end, new = self._line_end(end), self.block(way, spot, value, indent)
        if not self.text[:line_end].endswith("\n"):
            new = self.newline + new.removesuffix(self.newline)
        yield (*cut, Splice(line_end, line_end, new))
        inner: object = [value] if spot.in_list else {spot.name: value}
        for name in reversed(way):
            inner = {name: inner}
        gap = "" if self.text[:start].endswith((" ", "\t")) else " "
        yield (Splice(start, end, gap + on_one_line(inner)),)

    def beside(self, at: yaml.Node, key: yaml.Node, spot: Spot, value: Mapping[str, object]) -> Edit:
        """The entry before the others of its table."""
        if is_flow(at):
            shown = on_one_line(value)
            return (self._into_flow(at, shown if spot.in_list else f"{on_one_line(spot.name)}: {shown}"),)
        first = at.value[0] if spot.in_list else at.value[0][0]
        indent = self._indent(self._line(first.start_mark.index))
        start = self._line_end(key.end_mark.index)
        return (Splice(start, start, self.block([], spot, value, indent)),)

    def instead(self, at: yaml.Node, number: int, spot: Spot, value: Mapping[str, object]) -> Edit:
        """The entry in the place of the one with its name."""
        if is_flow(at):
            old = at.value[number] if spot.in_list else at.value[number][1]
            return (Splice(old.start_mark.index, old.end_mark.index, on_one_line(value)),)
        start, end, indent = self._lines_of(at, number)
        new = self.block([], spot, value, indent)
        return (Splice(start, end, new if self.text[:end].endswith("\n") else new.removesuffix(self.newline)),)

    def without(self, at: yaml.Node, number: int, key: yaml.Node | None) -> Edit:
        """The table without one of its entries; one that is empty then is shown so."""
        if is_flow(at):
            return (self._out_of_flow(at, number),)
        start, end, _ = self._lines_of(at, number)
        if len(at.value) == 1 and key is not None:
            empty = " []" if isinstance(at, yaml.SequenceNode) else " {}"
            colon = self.text.index(":", key.end_mark.index) + 1
            return Splice(colon, colon, empty), self._whole_lines(start, end)
        return (self._whole_lines(start, end),)

    def _whole_lines(self, start: int, end: int) -> Splice:
        if self.text[:end].endswith("\n"):
            return Splice(start, end, "")
        before = self.text[:start].removesuffix("\n").removesuffix("\r")  # it ends without a line end, then as now
        return Splice(len(before), end, "")

    def _lines_of(self, at: yaml.Node, number: int) -> tuple[int, int, int]:
        """From, to, and the indentation of one entry in block style.

        Raises:
            NotEditable: it does not have its lines to itself.
        """
        is_list = isinstance(at, yaml.SequenceNode)
        first, last = (at.value[number],) * 2 if is_list else at.value[number]
        start = self._line(first.start_mark.index)
        before = self.text[start : first.start_mark.index]
        dash = _DASH.fullmatch(before)
        if not (dash if is_list else not before.strip(" \ufeff")):
            raise NotEditable("the entry shares its line with something else", first.start_mark.line + 1)
        indent = len(dash[1]) if dash else first.start_mark.column
        end = max(content_end(last), first.end_mark.index if not is_list else 0)
        return start, self._line_end(end if not self.text[:end].endswith("\n") else end - 1), indent

    def _into_flow(self, at: yaml.Node, shown: str) -> Splice:
        begin = self.text.index("[" if isinstance(at, yaml.SequenceNode) else "{", at.start_mark.index) + 1
        return Splice(begin, begin, f"{shown}, " if at.value else shown)

    def _out_of_flow(self, at: yaml.Node, number: int) -> Splice:
        bounds = [(one, one) if isinstance(at, yaml.SequenceNode) else one for one in at.value]
        start, end = bounds[number][0].start_mark.index, bounds[number][1].end_mark.index
        if following := _NEXT.match(self.text, end):
            return Splice(start, following.end(), "")
        if number:
            return Splice(bounds[number - 1][1].end_mark.index, end, "")
        blanks = _BLANKS.match(self.text, end)
        return Splice(start, blanks.end() if blanks else end, "")

    def _indent(self, line: int) -> int:
        """How far what begins this line is indented: a key, the `?` of one, or a dash."""
        found = _BLANKS.match(self.text, line)
        return len(found[0]) if found else 0

    def _line(self, at: int) -> int:
        begin = self.text.rfind("\n", 0, at) + 1
        return max(begin, 1) if self.text.startswith("\ufeff") else begin

    def _line_end(self, at: int) -> int:
        found = _LINE_END.match(self.text, at)
        return found.end() if found else at
