"""Puts one entry into a document or takes it out, and leaves every other character alone.

The editors of JSON, TOML and YAML say which characters to replace. What holds for all of them is here: an edit counts
only if the edited text, read again, holds the entry as it should be and everything else as it was. Any other edit is
refused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Protocol, cast


class NotEditable(Exception):
    """A document that is left alone. `line`, from 1: where it goes wrong; None: nowhere in particular."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what)
        self.what, self.line = what, line


@dataclass(frozen=True, slots=True)
class Spot:
    """Where an entry is in a document, or will be."""

    table: tuple[str, ...]
    """The keys that lead to all entries."""
    name: str
    in_list: bool = False
    """The entries are a list, and each says its `name` itself."""


@dataclass(frozen=True, slots=True)
class Splice:
    """Put `text` in the place of the characters from `start` to `end`."""

    start: int
    end: int
    text: str

    def within(self, document: str) -> str:
        """The document with it."""
        return document[: self.start] + self.text + document[self.end :]


@dataclass(frozen=True, slots=True)
class Undo:
    """How a text was that is now another: what takes an entry out without a trace while nobody changes it."""

    was: str
    now: str


@dataclass(frozen=True, slots=True)
class Put:
    """A document with the entry in it. `undo`: None where it replaced another, or nothing had to be done."""

    text: str
    undo: Undo | None = None
    edit: "Edit" = ()
    """What was done; empty if nothing was, or if it was done in steps."""


Edit = tuple[Splice, ...]
"""Made together; none touches another."""


class Editor(Protocol):
    """What one format needs. Positions count characters; texts keep their line ends and their byte order mark."""

    def parse(self, text: str) -> object:
        """The document as plain values; None if there is nothing in it.

        Raises:
            NotEditable: it cannot be read.
        """
        ...

    def to_put(self, text: str, spot: Spot, value: Mapping[str, object]) -> Iterator[Edit]:
        """Ways to put an entry in, or in the place of the one with its name, the nicest first."""
        ...

    def to_cut(self, text: str, spot: Spot) -> Edit:
        """What takes one occurrence of the entry out. There is one."""
        ...


def entries(document: object, spot: Spot) -> dict[str, object]:
    """What is in the table of a parsed document, by name; of several with one name the last.

    Raises:
        NotEditable: something else is where the table should be.
    """
    at = document
    for depth, key in enumerate(spot.table):
        if at is None:
            return {}
        if not isinstance(at, dict):
            raise NotEditable(f"expected a table with keys {_where(spot.table[:depth])}, and found {_kind(at)}")
        at = cast("dict[str, object]", at).get(key)
    if at is None:
        return {}
    if not isinstance(at, list if spot.in_list else dict):
        expected = "a list" if spot.in_list else "a table with keys"
        raise NotEditable(f"expected {expected} {_where(spot.table)}, and found {_kind(at)}")
    if isinstance(at, dict):
        return dict(cast("dict[str, object]", at))
    items = [cast("dict[str, object]", item) for item in cast("list[object]", at) if isinstance(item, dict)]
    return {str(item["name"]): item for item in items if "name" in item}


def entry(document: object, spot: Spot) -> object:
    """The entry in a parsed document; None if there is none."""
    return entries(document, spot).get(spot.name)


def put(editor: Editor, text: str, spot: Spot, value: Mapping[str, object]) -> Put:
    """The text with this entry, which takes the place of one with its name.

    Raises:
        NotEditable: the text cannot be read, or not be edited without changing what else it says.
    """
    if spot.in_list:
        value = {"name": spot.name, **value}
    document = editor.parse(text)
    found = entry(document, spot)
    if found == value:
        return Put(text)
    unchanged = _rest(document, spot)

    def is_right(edited: object) -> bool:
        return _rest(edited, spot) == unchanged and entry(edited, spot) == value

    if (made := _first(editor, text, editor.to_put(text, spot, value), is_right)) is not None:
        edit, edited = made
        return Put(edited, _undo(text, edited, edit) if found is None else None, edit)
    if found is not None:  # as a last resort elsewhere
        return Put(put(editor, take_out(editor, text, spot), spot, value).text)
    raise NotEditable("cannot be edited without changing what else it says")


def take_out(editor: Editor, text: str, spot: Spot, undo: Undo | None = None) -> str:
    """The text without the entry; by `undo` exactly as it was before, if that part of it is as it was left.

    Raises:
        NotEditable: the text cannot be read, or not be edited without changing what else it says.
    """
    document = editor.parse(text)
    if spot.name not in entries(document, spot):
        return text
    unchanged = _rest(document, spot)

    def is_right(edited: object) -> bool:
        return _rest(edited, spot) == unchanged and entry(edited, spot) is None

    if undo is not None and undo.now and text.count(undo.now) == 1:
        at = text.index(undo.now)
        back = (Splice(at, at + len(undo.now), undo.was),)
        if (made := _first(editor, text, [back], is_right)) is not None:
            return made[1]
    edited = text
    while spot.name in entries(editor.parse(edited), spot):  # once, but for names that stand twice
        without = _apply(edited, editor.to_cut(edited, spot))
        if len(without) >= len(edited):
            break
        edited = without
    if not is_right(editor.parse(edited)):
        raise NotEditable("cannot be edited without changing what else it says")
    return edited


def _first(
    editor: Editor, text: str, edits: Iterable[Edit], is_right: Callable[[object], bool]
) -> tuple[Edit, str] | None:
    """The first of the edits that does what it should, and what it leads to."""
    for edit in edits:
        edited = _apply(text, edit)
        try:
            if is_right(editor.parse(edited)):
                return edit, edited
        except NotEditable:
            continue
    return None


def _undo(text: str, edited: str, edit: Edit) -> Undo:
    start, end = min(splice.start for splice in edit), max(splice.end for splice in edit)
    return Undo(text[start:end], edited[start : end + len(edited) - len(text)])


def _apply(text: str, edit: Edit) -> str:
    for splice in sorted(edit, key=lambda splice: (-splice.start, -splice.end)):
        text = splice.within(text)
    return text


def _rest(document: object, spot: Spot) -> str:
    """All that a document says beside the entry. An empty table on the way to it says nothing."""
    return repr(_in_order(_without(document, spot.table, spot)))


def _in_order(value: object) -> object:
    """The value with keys in an order that says nothing: TOML may have a table in pieces."""
    if isinstance(value, dict):
        return [(key, _in_order(item)) for key, item in sorted(cast("dict[str, object]", value).items())]
    if isinstance(value, list):
        return [_in_order(item) for item in cast("list[object]", value)]
    return value


def _without(at: object, way: tuple[str, ...], spot: Spot) -> object:
    if not way:
        if isinstance(at, list):
            return [item for item in cast("list[object]", at) if not _is_named(item, spot.name)] or None
        if isinstance(at, dict):
            return {k: v for k, v in cast("dict[str, object]", at).items() if k != spot.name} or None
        return at
    if not isinstance(at, dict):
        return at
    table = cast("dict[str, object]", at)
    inner = _without(table.get(way[0]), way[1:], spot)
    kept = {key: inner if key == way[0] else value for key, value in table.items()}
    return {key: value for key, value in kept.items() if key != way[0] or value is not None} or None


def _is_named(item: object, name: str) -> bool:
    return isinstance(item, dict) and cast("dict[str, object]", item).get("name") == name


def _where(way: tuple[str, ...]) -> str:
    return f"at `{'.'.join(way)}`" if way else "as the whole"


def _kind(value: object) -> str:
    kinds: list[tuple[type | UnionType, str]] = [
        (dict, "a table"),
        (list, "a list"),
        (str, "a text"),
        (bool, "a truth value"),
        (int | float, "a number"),
    ]
    return next((name for kind, name in kinds if isinstance(value, kind)), "something else")
