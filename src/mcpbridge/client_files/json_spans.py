"""Read JSON with comments and commas behind last members, and remember where everything stands.

The parsers of the standard library tell no positions, and no kept package edits such a text without writing it anew.
"""

import json
import re
from dataclasses import dataclass, field

from mcpbridge.client_files.editing import NotEditable

__all__ = ["COMMENT", "Member", "Node", "scan"]

COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")


@dataclass(slots=True)
class Node:
    """A value, and where it stands: from `start` to `end`."""

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
    """Where the comma behind it stands."""


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
