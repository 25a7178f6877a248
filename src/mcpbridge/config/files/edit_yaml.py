"""Edits YAML: puts one entry of a map or a list in or takes one out, in block or flow style, by PyYAML's positions.

An entry is added as the first of its table, directly below the key of the table: where the last one ends depends on
comments, block scalars and blank lines, and where the first begins does not. Values are written so that every YAML
reader reads the same.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import yaml

from mcpbridge.config.files.edit import Edit, NotEditable, Splice, Spot


def compose(text: str) -> yaml.Node | None:
    """The root; None if there is nothing in it.

    Raises:
        NotEditable: it is no YAML, or more than one document.
    """
    try:
        return cast("yaml.Node | None", yaml.compose(text, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType] - the package has no types
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "cannot be parsed"
        raise NotEditable(f"not valid YAML: {what}", mark.line + 1 if mark else None) from error
    except yaml.YAMLError as error:
        at = getattr(error, "position", None)
        line = text.count("\n", 0, at) + 1 if isinstance(at, int) else None
        raise NotEditable("not valid YAML: a character that is not allowed there", line) from error
    except RecursionError as error:
        raise NotEditable("nested too deeply") from error


def plain(node: yaml.Node) -> object:
    """The value; of a tag that is none of JSON's, as a pair of tag and text."""
    value = node.value
    if isinstance(node, yaml.MappingNode):
        return {name_of(key): plain(item) for key, item in value}
    if isinstance(node, yaml.SequenceNode):
        return [plain(item) for item in value]
    match node.tag.removeprefix("tag:yaml.org,2002:"):
        case "str":
            return value
        case "null":
            return None
        case "bool":
            return value.lower() in ("true", "yes", "on")
        case "int" if re.fullmatch(r"-?(0|[1-9]\d*)", value):
            return int(value)
        case "float" if re.fullmatch(r"-?\d+\.\d+", value):
            return float(value)
        case _:
            return (node.tag, value)


def name_of(key: yaml.Node) -> str:
    """A key as text."""
    return key.value if isinstance(key, yaml.ScalarNode) else repr(plain(key))


def is_null(node: yaml.Node) -> bool:
    """Whether it says nothing, in whatever spelling."""
    return node.tag == "tag:yaml.org,2002:null"


def pair(at: yaml.Node, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Key and value in a map; of several with one name the last."""
    pairs = cast("list[tuple[yaml.Node, yaml.Node]]", at.value)
    return next(((key, value) for key, value in reversed(pairs) if name_of(key) == name), None)


def find(at: yaml.Node, spot: Spot) -> int | None:
    """Which one of the table the entry is."""
    found = None
    for number, one in enumerate(cast("list[Any]", at.value)):
        if spot.in_list:
            named = pair(one, "name") if isinstance(one, yaml.MappingNode) else None
            found = number if named and named[1].value == spot.name else found
        elif name_of(one[0]) == spot.name:
            found = number
    return found


def is_flow(node: yaml.Node) -> bool:
    """Whether it is written with brackets."""
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def content_end(node: yaml.Node) -> int:
    """Where the last character of a value is that is neither blank nor comment."""
    if isinstance(node, yaml.ScalarNode) or is_flow(node) or not node.value:
        return node.end_mark.index
    last = node.value[-1]
    parts = cast("tuple[yaml.Node, ...]", last if isinstance(last, tuple) else (last,))
    return max(content_end(part) for part in parts)


_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.+@-]*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
"""Not texts for some readers."""
_UNSAFE = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff]")


def as_block(name: str, value: Mapping[str, object], indent: int, step: int) -> list[str]:
    """The lines of a map under its key."""
    lines = [f"{' ' * indent}{on_one_line(name)}:"]
    return lines + [f"{' ' * (indent + step)}{on_one_line(key)}: {on_one_line(item)}" for key, item in value.items()]


def as_item(value: Mapping[str, object], indent: int) -> list[str]:
    """The lines of a map in a list, whose dashes are indented so."""
    pairs = [f"{on_one_line(key)}: {on_one_line(item)}" for key, item in value.items()]
    return [f"{' ' * indent}{'  ' if number else '- '}{pair}" for number, pair in enumerate(pairs)]


def on_one_line(value: object) -> str:
    """A value in flow style."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value).items()
        return "{" + ", ".join(f"{on_one_line(key)}: {on_one_line(item)}" for key, item in members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(on_one_line, cast("list[object]", value))) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    text = json.dumps(value, ensure_ascii=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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

    def _into_flow(self, at: yaml.Node, rendered: str) -> Splice:
        begin = self.text.index("[" if isinstance(at, yaml.SequenceNode) else "{", at.start_mark.index) + 1
        return Splice(begin, begin, f"{rendered}, " if at.value else rendered)

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
