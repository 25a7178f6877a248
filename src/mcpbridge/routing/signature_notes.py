"""What is said of a value besides its type: formats, bounds and patterns in short, and its description."""

from mcpbridge.routing.schema_literals import as_range, is_identifier, literal, pattern
from mcpbridge.routing.schema_reading import NOTES, Member, Schema, as_schema, items_of
from mcpbridge.routing.short_texts import adds_to, clean, cut

__all__ = ["UNTOLD", "Notes", "needs_of", "notes_of", "said_of", "says_more"]

_NAME = 100
_NEEDED = 8
_FORMAT, _EXAMPLE = 30, 60
"""Characters of a format, and of one example."""
_OF_WIDTH = frozenset(f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in ("", 8, 16, 32, 64)) | {"double"}
"""Formats that add nothing to the type."""

_CONDITIONS = (
    "not if then else dependentRequired dependentSchemas dependencies propertyNames contains minContains maxContains"
    " minProperties maxProperties contentSchema $dynamicRef $recursiveRef"
)
UNTOLD = frozenset(_CONDITIONS.split())
"""Conditions that no type tells."""

Notes = tuple[list[str], bool]
"""Notes on a type, and whether they are all that there is to note."""


def notes_of(kind: object, schema: Schema, *, is_exact: bool) -> Notes:
    """The notes on a value of this type. Without `is_exact` only those that callers trip over: formats and numbers."""
    if kind in ("integer", "number"):
        text, is_whole = as_range(schema, "minimum", "maximum")
        step = schema.get("multipleOf")
        exact = [f"step {literal(step, 12)}"] if step not in (None, 1) else []
        return _with([text] if text else [], exact, is_exact=is_exact, is_whole=is_whole)
    if kind == "array":
        text, is_whole = as_range(schema, "minItems", "maxItems")
        exact = [f"len {text}"] if text else []
        exact += ["unique"] if schema.get("uniqueItems") is True else []
        return _with([], exact, is_exact=is_exact, is_whole=is_whole)
    if kind != "string":
        return [], True
    said = [clean(schema.get(key), _NAME) for key in ("format", "contentEncoding", "contentMediaType")]
    text, is_whole = as_range(schema, "minLength", "maxLength")
    exact = [f"len {text}"] if text else []
    regex = schema.get("pattern")
    exact += [pattern(regex)] if regex is not None else []
    formats = [cut(one, _FORMAT) for one in said if one and one not in _OF_WIDTH]
    return _with(formats, exact, is_exact=is_exact, is_whole=is_whole)


def said_of(member: Member, room: int) -> str:
    """What is said of a member, on one line of about `room` characters; what is cut ends with `…`."""
    schema = as_schema(member.schema)
    if schema is None:
        return ""
    text = clean(schema.get("description") or schema.get("title"), room + 1)
    said = cut(text, room) if adds_to(text, member.name) else ""
    shown = [text for one in items_of(schema.get("examples"))[:3] if (text := literal(one, _EXAMPLE))]
    examples = f"(e.g. {', '.join(shown)})" if shown else ""
    deprecated = "deprecated" if schema.get("deprecated") is True else ""
    return " ".join(part for part in (deprecated, said, examples) if part).replace("*/", "* /")


def says_more(member: Member) -> bool:
    """Whether anything is said of a member that its name and type do not say."""
    schema = as_schema(member.schema)
    if schema is None:
        return False
    return (
        bool(schema.get("examples"))
        or schema.get("deprecated") is True
        or adds_to(schema.get("description"), member.name)
    )


def needs_of(schema: Schema, most: int) -> tuple[str, bool]:
    """Of which members an object needs one or another, `one of: id|name+owner`; and whether that is all."""
    told, is_whole = "", UNTOLD.isdisjoint(schema)
    for keyword, words in (("anyOf", "any of"), ("oneOf", "one of")):
        options = items_of(schema.get(keyword))
        needed = [_needed(option) for option in options[:most]]
        if options and not told and all(needed) and len(options) == len(needed):
            told = f"{words}: {'|'.join(needed)}"
        else:
            is_whole = is_whole and not schema.get(keyword)
    return told, is_whole


def _needed(option: object) -> str:
    """The members that one of several alternatives needs; empty if it says anything else."""
    schema = as_schema(option)
    names = items_of(schema.get("required")) if schema is not None and set(schema) <= {"required", *NOTES} else []
    plain = [name for name in names if isinstance(name, str) and is_identifier(name)]
    return "+".join(plain) if len(plain) == len(names) <= _NEEDED else ""


def _with(notes: list[str], exact: list[str], *, is_exact: bool, is_whole: bool) -> Notes:
    """Notes that are always told, and those that are told only where all are; an empty one could not be written."""
    told = [note for note in exact if note] if is_exact else []
    return notes + told, is_whole and len(told) == len(exact)
