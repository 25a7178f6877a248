"""Edits JSON, with or without comments: puts one entry in or takes one out, in the manner of what is around it.

The reader accepts comments and commas behind last members, and remembers where everything is. The parsers of the
standard library give no positions, and no maintained package edits such a text without writing it anew.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from mcpbridge.config.files.edit import Edit, NotEditable, Splice, Spot

COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")


@dataclass(slots=True)
class Node:
    """A value, and where it is: from `start` to `end`."""

    start: int
    end: int
    value: object
    members: "list[Member]" = field(default_factory=list["Member"])
    """Of an object, in their order."""


@dataclass(slots=True)
class Member:
    """A member of an object."""

    name: str
    start: int
    """Where its name begins."""
    node: Node
    comma: int | None
    """Where the comma behind it is."""


def scan(text: str) -> Node | None:
    """The document; None if there is nothing in it but blanks and comments.

    Raises:
        NotEditable: it is no JSON.
    """
    start = 1 if text.startswith("\ufeff") else 0
    at = _skip(text, start)
    if at == len(text):
        return None
    try:
        root = _value(text, at)
    except RecursionError as error:
        raise NotEditable("nested too deeply") from error
    at = _skip(text, root.end)
    if at < len(text):
        raise _unexpected(text, at, "the end")
    return root


def _value(text: str, at: int) -> Node:
    opening = text[at : at + 1]
    if opening == "{":
        return _object(text, at)
    if opening == "[":
        return _array(text, at)
    if found := _STRING.match(text, at):
        return Node(at, found.end(), _string(text, at, found[0]))
    if found := _SCALAR.match(text, at):
        return Node(at, found.end(), json.loads(found[0]))
    raise _unexpected(text, at, "a value")


def _object(text: str, start: int) -> Node:
    members: list[Member] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        if members and members[-1].comma is None:
            raise _unexpected(text, at, "`,` or `}`")
        found = _STRING.match(text, at)
        if not found:
            raise _unexpected(text, at, "a name in quotes")
        name = _string(text, at, found[0])
        colon = _skip(text, found.end())
        if text[colon : colon + 1] != ":":
            raise _unexpected(text, colon, "`:`")
        node = _value(text, _skip(text, colon + 1))
        after = _skip(text, node.end)
        comma = after if text[after : after + 1] == "," else None
        members.append(Member(name, at, node, comma))
        at = after if comma is None else _skip(text, comma + 1)
    return Node(start, at + 1, {member.name: member.node.value for member in members}, members)


def _array(text: str, start: int) -> Node:
    items: list[object] = []
    at, is_open = _skip(text, start + 1), True
    while text[at : at + 1] != "]":
        if not is_open:
            raise _unexpected(text, at, "`,` or `]`")
        node = _value(text, at)
        items.append(node.value)
        at = _skip(text, node.end)
        is_open = text[at : at + 1] == ","
        at = _skip(text, at + 1) if is_open else at
    return Node(start, at + 1, items)


def _string(text: str, at: int, token: str) -> str:
    try:
        return json.loads(token)
    except json.JSONDecodeError as error:
        raise _unexpected(text, at + error.pos, "a text") from error


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _unexpected(text: str, at: int, wanted: str) -> NotEditable:
    found = f"{text[at]!r}" if at < len(text) else "the end"
    return NotEditable(f"not valid JSON: expected {wanted}, and found {found}", text.count("\n", 0, at) + 1)


_BEHIND = re.compile(r"(?:[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/))*")
"""Comments on what is left of a line."""
_INDENT = re.compile(r"[ \t]*")
_LINE_END = re.compile(r"[ \t]*(?:\r?\n|\Z)")


class JsonEditor:
    """JSON and JSONC. See `Editor`."""

    def parse(self, text: str) -> object:
        """The document as plain values."""
        root = scan(text)
        return None if root is None else root.value

    def to_put(self, text: str, spot: Spot, value: Mapping[str, object]) -> Iterator[Edit]:
        """The one way there is."""
        if spot.in_list:
            raise NotEditable("lists in JSON are not edited")
        root, style = scan(text), _Style(text)
        if root is None:
            lead = "" if text.strip("\ufeff") in ("", "\n", "\r\n") or text.endswith("\n") else style.newline
            whole = style.to_json(_nested([*spot.table, spot.name], value), "")
            yield (Splice(len(text), len(text), f"{lead}{whole}{style.newline}"),)
            return
        style.learn(root)
        at, way = root, [*spot.table, spot.name]
        for depth, key in enumerate(way):
            member = _last(at, key)
            inner = _nested(way[depth + 1 :], value)
            if member is None:
                yield _insert(text, at, key, inner, style, is_root=at is root)
                return
            at = member.node
            if at.value is None or depth == len(way) - 1:
                yield (Splice(at.start, at.end, style.to_json(inner, style.indent_at(member.start))),)
                return

    def to_cut(self, text: str, spot: Spot) -> Edit:
        """The member goes, with the comma that it no longer needs. Comments stay."""
        at = cast("Node", scan(text))
        for key in spot.table:
            at = cast("Member", _last(at, key)).node
        number = max(index for index, member in enumerate(at.members) if member.name == spot.name)
        return (_cut(text, at, number),)


class _Style:
    """How a text is laid out, as far as one more member has to know."""

    def __init__(self, text: str) -> None:
        self._text = text
        first = re.search(r"\r?\n", text)
        self.newline = first[0] if first else "\n"
        self.unit, self.gap = "  ", " "
        self.is_inline = False
        """The whole text is one line with something in it."""

    def learn(self, root: Node) -> None:
        """Take over how the text indents, and what stands behind its colons."""
        if not root.members:
            return
        text, first = self._text, root.members[0]
        self.is_inline = "\n" not in text[root.start : root.end]
        between = text[first.start : first.node.start].rpartition(":")[2]
        self.gap = "" if not between else " "
        if self.starts_line(first.start):
            self.unit = self.indent_at(first.start).removeprefix(self.indent_at(root.start))

    def starts_line(self, at: int) -> bool:
        """Whether nothing but blanks stands before this on its line."""
        return not self._text[self._line(at) : at].strip(" \t\ufeff")

    def indent_at(self, at: int) -> str:
        """The blanks at the beginning of this line."""
        found = _INDENT.match(self._text, self._line(at))
        return found[0] if found else ""

    def _line(self, at: int) -> int:
        begin = self._text.rfind("\n", 0, at) + 1
        return max(begin, 1) if self._text.startswith("\ufeff") else begin

    def to_json(self, value: object, indent: str) -> str:
        """A value; an object over several lines, whose closing brace is indented so."""
        items = dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else {}
        if not items or self.is_inline:
            return self.on_one_line(cast("object", value))
        inner = indent + self.unit
        members = [self.member(key, item, inner) for key, item in items.items()]
        lines = f",{self.newline}{inner}".join(members)
        return f"{{{self.newline}{inner}{lines}{self.newline}{indent}}}"

    def member(self, name: str, value: object, indent: str) -> str:
        """A member of an object whose members are indented so."""
        return f"{_quoted(name)}:{self.gap}{self.to_json(value, indent)}"

    def on_one_line(self, value: object) -> str:
        """A value without line ends."""
        return json.dumps(value, ensure_ascii=False, separators=("," + self.gap, ":" + self.gap))


def _insert(text: str, at: Node, name: str, value: object, style: _Style, *, is_root: bool) -> Edit:
    """One more member at the end of an object."""
    if not at.members:
        return (_fill(text, at, name, value, style, is_root=is_root),)
    last = at.members[-1]
    neighbour = text[last.node.start : last.node.end]
    is_flat = isinstance(last.node.value, dict) and bool(last.node.members) and "\n" not in neighbour
    if not style.starts_line(last.start):
        between = " " if style.gap else ""
        if len(at.members) > 1 and (comma := at.members[-2].comma) is not None:
            between = text[comma + 1 : last.start]
            between = between if not between.strip(" \t") else " "
        new = f"{_quoted(name)}:{style.gap}{style.on_one_line(value)}"
        if last.comma is not None:
            return (Splice(last.comma + 1, last.comma + 1, f"{between}{new},"),)
        return (Splice(last.node.end, last.node.end, f",{between}{new}"),)
    indent = style.indent_at(last.start)
    new = f"{_quoted(name)}:{style.gap}{style.on_one_line(value)}" if is_flat else style.member(name, value, indent)
    if last.comma is not None:
        behind = _behind(text, last.comma + 1)
        return (Splice(behind, behind, f"{style.newline}{indent}{new},"),)
    end, behind = last.node.end, _behind(text, last.node.end)
    if behind == end:
        return (Splice(end, end, f",{style.newline}{indent}{new}"),)
    return Splice(end, end, ","), Splice(behind, behind, f"{style.newline}{indent}{new}")


def _fill(text: str, at: Node, name: str, value: object, style: _Style, *, is_root: bool) -> Splice:
    """The first member of an object."""
    begin, end = at.start + 1, at.end - 1
    comments = list(COMMENT.finditer(text, begin, end))
    behind = comments[-1].end() if comments else begin
    if style.is_inline and not is_root:
        return Splice(behind, end, f"{' ' if comments else ''}{_quoted(name)}:{style.gap}{style.to_json(value, '')}")
    own = style.indent_at(at.start)
    inner = own + style.unit
    return Splice(behind, end, f"{style.newline}{inner}{style.member(name, value, inner)}{style.newline}{own}")


def _cut(text: str, at: Node, number: int) -> Splice:
    member, style = at.members[number], _Style(text)
    end = member.node.end if member.comma is None else member.comma + 1
    if len(at.members) == 1 and not (text[at.start + 1 : member.start] + text[end : at.end - 1]).strip():
        return Splice(at.start + 1, at.end - 1, "")
    if number and member.comma is None:  # the comma before it goes; comments between them stay
        comma = cast("int", at.members[number - 1].comma)
        kept = text[comma + 1 : member.start].rstrip()
        return Splice(comma, end, kept + _line_for(kept, text, end, style.newline))
    # what stands between a value and its comma is a comment at most, and stays
    kept = text[member.node.end : member.comma].strip() if member.comma is not None else ""
    if not style.starts_line(member.start):
        while text[end : end + 1] in (" ", "\t"):
            end += 1
        return Splice(member.start, end, kept + _line_for(kept, text, end, style.newline))
    begin = text.rfind("\n", 0, member.start) + 1
    if (line := _LINE_END.match(text, end)) and not kept:
        return Splice(begin, line.end(), "")
    return Splice(member.start, end, kept + _line_for(kept, text, end, style.newline))


def _line_for(preceding: str, text: str, end: int, newline: str) -> str:
    """A line end, if a comment would hide what comes behind it."""
    return newline if "//" in preceding.rpartition("\n")[2] and not _LINE_END.match(text, end) else ""


def _behind(text: str, at: int) -> int:
    found = _BEHIND.match(text, at)
    return found.end() if found else at


def _last(node: Node, name: str) -> Member | None:
    """The member that counts of those with this name."""
    return next((member for member in reversed(node.members) if member.name == name), None)


def _nested(way: list[str], value: object) -> object:
    for key in reversed(way):
        value = {key: value}
    return value


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
