"""Changes of single places in JSON text, and members that are named twice. Pure.

Whatever nobody changes keeps its bytes. JSON does not say which of two members of one name counts, and servers differ.
Who decides by arguments sees the last, so such arguments are refused wherever somebody decides.
"""

import json
import re
from collections.abc import Iterable, Sequence

from msgspec import Raw, Struct

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.pipeline.validation.schema_check import Path
from mcpbridge.pipeline.validation.schema_paths import spelled
from mcpbridge.protocol.jsonrpc import decode_array, decode_fields, encode


class _NamedTwice(Exception):
    """An object with two members of one name, which is its message."""


def refuse_doubles(tool: str, arguments: bytes | Raw | None) -> None:
    """Raise ArgumentsRefused if some object in the arguments of a call, at any depth, names a member twice.

    The same for what is nested too deeply to be looked at. The arguments are JSON that was read before. Costs 1 to 2 µs
    for usual arguments.
    """
    if arguments is None:
        return
    data = bytes(arguments)
    if len(data) <= _SHORT and b"\\" not in data:
        names: list[bytes] = [*filter(None, _NAMES.findall(data))]
        if len({*names}) == len(names) and data.isascii():
            return  # no two names are the same, at whatever depth: mostly that is all there is to see
    try:
        _look(data.decode("utf-8", "surrogateescape"))
    except _NamedTwice as double:
        what = f"`{spelled((str(double),))}` is named twice, and servers differ in which of the two counts"
    except (ValueError, RecursionError):
        what = "they cannot be read"
    else:
        return
    raise ArgumentsRefused(f"{tool} was not called, for its arguments decide whether it may be: {what}")


def _members(pairs: list[tuple[str, object]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        for name, _ in pairs:
            if name not in names:
                raise _NamedTwice(name)
            names.remove(name)


# Numbers stay text: they may be of any size. Text may hold whatever the front let pass.
_look = json.JSONDecoder(object_pairs_hook=_members, parse_int=str, parse_float=str, strict=False).decode


_SHORT = 500
"""Bytes of arguments that cannot be nested too deeply."""
_NAMES = re.compile(rb'("[^"]*")[ \t\r\n]*:|"[^"]*"')
"""All strings of JSON without a backslash, one after the other; those that are names of members as its group."""


class Edit(Struct, frozen=True):
    """One change. Without a new value or name the member goes."""

    path: Path
    """Where; a member that is not there is added last."""
    raw: bytes | None = None
    """The new value, as JSON text."""
    name: str | None = None
    """The new name of the member; its place among the others stays."""


def applied(raw: bytes | Raw, edits: Iterable[Edit]) -> Raw:
    """The text with these changes, none of which may be inside another."""
    return _applied(raw if isinstance(raw, Raw) else Raw(raw), [(edit.path, edit) for edit in edits])


def at(raw: bytes | Raw, path: Path) -> bytes:
    """The text of the value at a path that exists."""
    for key in path:
        raw = decode_array(raw)[key] if isinstance(key, int) else decode_fields(raw)[key]
    return bytes(raw)


def _applied(raw: Raw, edits: Sequence[tuple[Path, Edit]]) -> Raw:
    by_key: dict[str | int, list[tuple[Path, Edit]]] = {}
    for path, edit in edits:
        if not path:
            return Raw(edit.raw or b"null")
        by_key.setdefault(path[0], []).append((path[1:], edit))
    if isinstance(next(iter(by_key), ""), int):
        items = decode_array(raw)
        for index, inner in by_key.items():
            items[int(index)] = _applied(items[int(index)], inner)
        return Raw(encode(items))
    fields = decode_fields(raw)
    changed: dict[str, Raw] = {}
    for key, value in fields.items():
        inner = by_key.pop(key, None)
        if inner is None:
            changed[key] = value
            continue
        path, edit = inner[0]
        if path or edit.raw is not None:
            changed[key] = _applied(value, inner)
        elif edit.name is not None:
            changed[edit.name] = value
    for key, inner in by_key.items():
        changed[str(key)] = Raw(inner[0][1].raw or b"null")
    return Raw(encode(changed))
