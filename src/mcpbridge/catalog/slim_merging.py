"""Two schemas as one, and a schema without null: steps of making one smaller; pure.

Schemas are given by their keywords, values unparsed.
"""

from msgspec import Raw

from mcpbridge.catalog.slim_keywords import ANNOTATIONS, UNIONS
from mcpbridge.wire.frame import Fields, decode_batch, decode_fields, encode_fields

__all__ = ["merged", "only_arm", "starts", "without_null"]


def starts(raw: Raw, sign: bytes) -> bool:
    """Whether the JSON begins with this character; cheap."""
    return bytes(memoryview(raw)[:1]) == sign


def merged(fields: Fields, keyword: str, body: Fields, *, outer_wins: bool) -> Fields | None:
    """The schema with `body` in place of its `keyword`; None where that would mean something else, or lose words.

    `outer_wins`: of two descriptions or titles the inner one may be lost.
    """
    for name, value in fields.items():
        if name == keyword:
            continue
        if name not in ANNOTATIONS:
            return None
        other = body.get(name)
        if other is not None and bytes(other) != bytes(value) and not (outer_wins and name in ("description", "title")):
            return None
    one: Fields = {}
    for name, value in fields.items():
        if name == keyword:
            one.update({inner: said for inner, said in body.items() if inner == keyword or inner not in fields})
        else:
            one[name] = value
    return one


def only_arm(fields: Fields) -> tuple[str, Fields] | None:
    """The union of a single schema that is the whole of this one, and that schema; None if there is none."""
    for keyword in UNIONS:
        value = fields.get(keyword)
        if value is not None and starts(value, b"["):
            arms = decode_batch(value)
            if len(arms) == 1 and starts(arms[0], b"{"):
                return keyword, decode_fields(arms[0])
    return None


def without_null(fields: Fields) -> Fields:
    """The schema of a property whose default is null, without that default and without null among its types."""
    rest: Fields = {}
    for keyword, value in fields.items():
        if keyword == "default":
            continue
        rest[keyword] = value
        if starts(value, b"["):
            if keyword == "type":
                types = [kind for kind in decode_batch(value) if bytes(kind) != b'"null"']
                if types:
                    rest[keyword] = types[0] if len(types) == 1 else Raw(encode_fields(types))
            elif keyword in ("anyOf", "oneOf"):
                arms = decode_batch(value)
                others = [arm for arm in arms if not _is_null(arm)]
                if others and len(others) < len(arms):
                    rest[keyword] = Raw(encode_fields(others))
    return rest


def _is_null(arm: Raw) -> bool:
    if not starts(arm, b"{") or b"null" not in bytes(arm):
        return False
    fields = decode_fields(arm)
    if not fields.keys() <= {"type", "title", "description", "const"}:
        return False
    return all(bytes(fields.get(name, _NULLS[name])) == _NULLS[name] for name in ("type", "const"))


_NULLS = {"type": b'"null"', "const": b"null"}
