"""Changes of single places in JSON text; whatever nobody changes keeps its bytes. Pure."""

from collections.abc import Iterable, Sequence

from msgspec import Raw, Struct

from mcpbridge.arguments.check import Path
from mcpbridge.wire.frame import decode_batch, decode_fields, encode

__all__ = ["Edit", "applied", "at"]


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
        raw = decode_batch(raw)[key] if isinstance(key, int) else decode_fields(raw)[key]
    return bytes(raw)


def _applied(raw: Raw, edits: Sequence[tuple[Path, Edit]]) -> Raw:
    by_key: dict[str | int, list[tuple[Path, Edit]]] = {}
    for path, edit in edits:
        if not path:
            return Raw(edit.raw or b"null")
        by_key.setdefault(path[0], []).append((path[1:], edit))
    if isinstance(next(iter(by_key), ""), int):
        items = decode_batch(raw)
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
