"""The two schemas of a tool, made safe to publish; nothing that a call could be checked against gets narrower.

`inputSchema` must be an object schema in every revision, `outputSchema` up to 2025-11-25. Typed clients look at
`$schema`, `properties` and `required` of both and refuse the whole list over a wrong one.
"""

from typing import Any, cast

from msgspec import Raw

from mcpbridge.catalog.shapes import is_object
from mcpbridge.wire.frame import Fields, decode_batch, decode_fields, encode_fields

__all__ = ["HEADER_MARK", "Schema", "is_presentable", "mended_keywords", "without_header_marks"]

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
        names = zip(decode_batch(fields["required"]), cast("list[object]", required), strict=True)
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
            fields[keyword] = Raw(encode_fields([without_header_marks(one) for one in decode_batch(value)]))
        elif keyword in _OF_ONE and first == b"{":
            fields[keyword] = without_header_marks(value)
    return Raw(encode_fields(fields))
