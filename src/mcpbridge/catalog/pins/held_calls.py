"""Decide whether a tool can still be called though its server changed it and nobody agreed. Pure.

The old definition stays listed, so clients call by the old one and the server acts by the new one. A call passes only
if it cannot mean something else by that:

1. It is refused where the tool lost a hint that it is safe, or where a default is another one: the same arguments
   would do more, or other things.
2. It passes if the new input schema provably accepts all that the old one did (`schema_inclusion.py`), and no name of
   a parameter has a meaning that it did not have, or none any more. An open schema (one that allows further names)
   accepts a name that is gone, and a server may ignore what it stood for.
3. Else its arguments decide, if the changes are of whole parameters: it passes if they are right by the new schema and
   it uses only parameters that both schemas have. A new parameter must have no default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import msgspec

from mcpbridge.catalog.pins.changes import Change
from mcpbridge.catalog.pins.schema_inclusion import accepts_all

_PARAMETERS = frozenset(
    {
        *("parameter-added", "required-parameter-added", "parameter-removed"),
        *("parameter-now-required", "parameter-now-optional", "type", "enum"),
    }
)
"""Changes of a schema after which the arguments of a call say whether it means the same."""
_REFUSING = frozenset({"annotation-weakened", "default"})
"""Changes after which no call means the same for certain."""

_Object = dict[str, object]


@dataclass(frozen=True, slots=True)
class HeldTool:
    """A tool whose old definition is listed."""

    name: str
    effect: Literal["held", "checked", "refused"]
    """Its calls pass, pass by their arguments, or are refused."""
    schema: bytes = b""
    """The input schema that the server has now."""
    parameters: frozenset[str] = frozenset()
    """Those that a call may use whose arguments decide."""

    @classmethod
    def of(cls, name: str, old: bytes, new: bytes, changes: tuple[Change, ...]) -> "HeldTool":
        """Decide it by the definitions as they were and are, and the changes between them. Never raises."""
        before, after = _schema(old), _schema(new)
        classes = {one.what for one in changes}
        is_unclear = any(one.what == "other" and not one.where for one in changes)
        if before is None or after is None or is_unclear or classes & _REFUSING:
            return cls(name, "refused")
        was, now = _properties(before), _properties(after)
        if accepts_all(after, before) and not _has_other_names(before, changes):
            return cls(name, "held")
        if was is None or now is None or not _is_plain(changes) or _has_new_default(was, now):
            return cls(name, "refused")
        return cls(name, "checked", after, frozenset(was.keys() & now.keys()))


def _has_other_names(before: bytes, changes: tuple[Change, ...]) -> bool:
    """Whether a call by the old schema may use a name that is gone, or that was free and is taken now."""
    is_closed = _members(before).get("additionalProperties") is False
    gone = any(one.what == "parameter-removed" for one in changes)
    return gone or any(
        one.what in ("parameter-added", "required-parameter-added") and ("." in one.where or not is_closed)
        for one in changes
    )


def _is_plain(changes: tuple[Change, ...]) -> bool:
    """Whether all changes of the schema are of parameters of the tool itself, and not of parts of their values."""
    return all(one.where and "." not in one.where for one in changes if one.what in _PARAMETERS) and not any(
        one.what == "constraint" for one in changes
    )


def _has_new_default(was: Mapping[str, object], now: Mapping[str, object]) -> bool:
    added = (now[name] for name in now.keys() - was.keys())
    return any(isinstance(one, dict) and cast("_Object", one).get("default") is not None for one in added)


def _schema(definition: bytes) -> bytes | None:
    try:
        members = msgspec.json.decode(definition, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return bytes(members.get("inputSchema", b"{}"))


def _properties(schema: bytes) -> Mapping[str, object] | None:
    properties = _members(schema).get("properties", {})
    return cast("_Object", properties) if isinstance(properties, dict) else None


def _members(schema: bytes) -> _Object:
    try:
        value: object = msgspec.json.decode(schema)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return cast("_Object", value) if isinstance(value, dict) else {}
