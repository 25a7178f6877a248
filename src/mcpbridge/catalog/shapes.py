"""What typed clients demand of the optional fields of a definition.

The official SDKs check a whole list at once: one tool whose `title` is a number, and the client shows no tool of any
server. So a field that breaks the schema is left out, and of objects and lists just the part that does. The demands
are the stricter of both SDKs': TypeScript refuses null where a field may be absent, and dates that are not ISO 8601.
Fields that the schemas do not know are nobody's business.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, cast

from msgspec import Raw, Struct, field

from mcpbridge.wire.frame import decode_batch, decode_fields, encode

__all__ = ["OPTIONAL_FIELDS", "Shape", "fits", "is_object", "mended"]


class Members(Struct, frozen=True):
    """An object whose known members, where present, have these shapes."""

    known: Mapping[str, "Shape"]
    required: frozenset[str] = field(default_factory=frozenset[str])


class Items(Struct, frozen=True):
    """An array of this shape."""

    each: "Shape"


Shape = Callable[[object], bool] | Members | Items


def fits(value: object, shape: Shape) -> bool:
    """Whether a decoded value has the shape."""
    if isinstance(shape, Members):
        if not isinstance(value, dict):
            return False
        members = cast("dict[str, object]", value)
        return shape.required <= members.keys() and all(
            fits(members[name], inner) for name, inner in shape.known.items() if name in members
        )
    if isinstance(shape, Items):
        return isinstance(value, list) and all(fits(item, shape.each) for item in cast("list[object]", value))
    return shape(value)


def mended(raw: Raw | bytes, value: object, shape: Shape) -> Raw | bytes | None:
    """The bytes with what does not fit left out; None when nothing useful is left. `value` is `raw`, decoded."""
    if fits(value, shape):
        return raw
    if isinstance(shape, Members) and isinstance(value, dict):
        return _mended_object(raw, cast("dict[str, object]", value), shape)
    if isinstance(shape, Items) and isinstance(value, list):
        items = zip(decode_batch(raw), cast("list[object]", value), strict=True)
        kept = [mended(part, item, shape.each) for part, item in items]
        return encode([_spliced(part) for part in kept if part is not None])
    return None


def _mended_object(raw: Raw | bytes, value: dict[str, object], shape: Members) -> bytes | None:
    fields = decode_fields(raw)
    for name, inner in shape.known.items():
        if name in fields:
            part = mended(fields[name], value[name], inner)
            if part is None:
                del fields[name]
            else:
                fields[name] = _spliced(part)
    return encode(fields) if shape.required <= fields.keys() else None


def _spliced(part: Raw | bytes) -> Raw:
    return part if isinstance(part, Raw) else Raw(part)


def is_object(value: object) -> bool:
    """A JSON object."""
    return isinstance(value, dict)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_icon_address(value: object) -> bool:
    """Clients fetch it by themselves, so it must not lead to scripts, files or plain HTTP (2025-11-25, icons)."""
    return isinstance(value, str) and value[:8].lower().startswith(("https://", "data:"))


def _is_truth(value: object) -> bool:
    return isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _one_of(*words: str) -> Callable[[object], bool]:
    return lambda value: value in words


_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)


def _is_date(value: object) -> bool:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(re.sub(r"\.\d+", "", value))
    except ValueError:
        return False
    return True


_ICONS = Items(
    Members(
        {"src": _is_icon_address, "mimeType": _is_text, "sizes": Items(_is_text), "theme": _one_of("light", "dark")},
        required=frozenset({"src"}),
    )
)
_EVERYWHERE: dict[str, Shape] = {"title": _is_text, "description": _is_text, "icons": _ICONS, "_meta": is_object}
_HINTS: dict[str, Shape] = dict.fromkeys(
    ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"), _is_truth
)
_ABOUT_CONTENT = Members(
    {"audience": Items(_one_of("user", "assistant")), "priority": _is_share, "lastModified": _is_date}
)
_ARGUMENTS = Items(
    Members(
        {"name": _is_text, "title": _is_text, "description": _is_text, "required": _is_truth},
        required=frozenset({"name"}),
    )
)

OPTIONAL_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "tools": _EVERYWHERE
    | {
        "annotations": Members({"title": _is_text, **_HINTS}),
        "execution": Members({"taskSupport": _one_of("forbidden", "optional", "required")}),
    },
    "prompts": _EVERYWHERE | {"arguments": _ARGUMENTS},
    "resources": _EVERYWHERE | {"mimeType": _is_text, "size": _is_whole, "annotations": _ABOUT_CONTENT},
    "templates": _EVERYWHERE | {"mimeType": _is_text, "annotations": _ABOUT_CONTENT},
}
"""Kind to field to `Shape`, for every optional field that some revision defines (schemas are in `schemas.py`)."""
