"""Makes the optional fields and the two schemas of a definition safe for typed clients.

The official SDKs check a whole list at once: one tool whose `title` is a number, and the client shows no tool of any
server. So a field that breaks the schema is left out, and of objects and lists only the wrong part. The demands are the
stricter of both SDKs': TypeScript refuses null where a field may be absent, and dates that are not ISO 8601. Fields
that the schemas do not know pass.

`inputSchema` must be an object schema in every revision, `outputSchema` up to 2025-11-25. Typed clients look at
`$schema`, `properties` and `required` of both. Nothing that a call could be checked against gets narrower.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, cast

from msgspec import Raw, Struct, field

from mcpbridge.protocol.jsonrpc import Fields, decode_array, decode_fields, encode, encode_fields


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
        items = zip(decode_array(raw), cast("list[object]", value), strict=True)
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


HEADER_MARK = "x-mcp-header"
"""Names the HTTP header that a modern client repeats an argument in; means nothing to legacy ones."""

Schema = dict[str, Any]

_HEADER_MARK_BYTES = HEADER_MARK.encode()
_OF_ONE = frozenset(
    {"items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties", "not",
     "if", "then", "else", "contentSchema", "additionalItems"}
)  # fmt: skip
_OF_MANY = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})


def is_presentable(schema: Schema) -> bool:
    """Whether typed clients take the keywords that they look at."""
    properties, required = schema.get("properties", {}), schema.get("required", ())
    return (
        isinstance(schema.get("$schema", ""), str)
        and is_object(properties)
        and all(map(is_object, properties.values()))
        and isinstance(required, list | tuple)
        and all(isinstance(name, str) for name in cast("list[object]", required))
    )


def mended_keywords(fields: Fields, schema: Schema, faults: list[str]) -> None:
    """Change `fields` so that `is_presentable` holds; what carried a meaning is named in `faults`."""
    if not isinstance(schema.get("$schema", ""), str):
        del fields["$schema"]
    properties = schema.get("properties", {})
    if not is_object(properties):
        del fields["properties"]
        if properties is not None:
            faults.append("properties is not an object")
    elif not all(map(is_object, properties.values())):
        fields["properties"] = _mended_properties(fields["properties"], properties, faults)
    required: object = schema.get("required", [])
    if not isinstance(required, list):
        del fields["required"]
        if required is not None:
            faults.append("required is not a list")
    elif not all(isinstance(name, str) for name in cast("list[object]", required)):
        names = zip(decode_array(fields["required"]), cast("list[object]", required), strict=True)
        fields["required"] = Raw(encode_fields([raw for raw, name in names if isinstance(name, str)]))
        faults.append("required lists something that is not a name")


def _mended_properties(raw: Raw, properties: dict[str, object], faults: list[str]) -> Raw:
    """The boolean schemas as the objects that mean the same; anything else that is no schema as "anything"."""
    fields = decode_fields(raw)
    for name, schema in properties.items():
        if not is_object(schema):
            fields[name] = Raw(b'{"not":{}}' if schema is False else b"{}")
            if not isinstance(schema, bool):
                faults.append(f"property {name[:100]!r} has no schema")
    return Raw(encode_fields(fields))


def without_header_marks(schema: Raw | bytes) -> Raw:
    """The same schema without `x-mcp-header` in it, or in a schema inside it. Data, such as defaults, stays."""
    if _HEADER_MARK_BYTES not in bytes(schema) or bytes(schema)[:1] != b"{":
        return schema if isinstance(schema, Raw) else Raw(schema)
    fields = decode_fields(schema)
    fields.pop(HEADER_MARK, None)
    for keyword, value in fields.items():
        first = bytes(memoryview(value)[:1])
        if keyword in _BY_NAME and first == b"{":
            named = decode_fields(value)
            fields[keyword] = Raw(encode_fields({name: without_header_marks(one) for name, one in named.items()}))
        elif keyword in _OF_MANY and first == b"[":
            fields[keyword] = Raw(encode_fields([without_header_marks(one) for one in decode_array(value)]))
        elif keyword in _OF_ONE and first == b"{":
            fields[keyword] = without_header_marks(value)
    return Raw(encode_fields(fields))
