"""What the keywords of JSON Schema are to somebody who makes a schema smaller: tables, and how far each level goes."""

import re
from collections.abc import Mapping

from msgspec import Struct

__all__ = [
    "ANNOTATIONS",
    "DIALECT",
    "NOTHING_SAID",
    "OLD_DIALECT",
    "RULES_OF_OWN",
    "SAFE_INTEGERS",
    "SENSITIVE_TO_DIALECT",
    "SKELETON",
    "SLIM",
    "SUFFIXES",
    "TIDY",
    "TURNS_ROUND",
    "UNIONS",
    "SchemaRules",
]


class SchemaRules(Struct, frozen=True):
    """How much of a schema stays."""

    text: int | None = None
    """Characters of one description; None: all of it, without needless blanks. 0: none."""
    all_texts: int | None = None
    """Characters of all descriptions together; required and outer properties come first, others have none."""
    dropped: frozenset[str] = frozenset()
    """Keywords that are left out."""
    longest_enum: int | None = None
    """Bytes of an `enum`; a longer one is told by its first values in the description."""
    longest_default: int | None = None
    """Bytes of a `default`; a longer one is left out."""


_LENGTHS = frozenset(
    {"minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
     "multipleOf", "contentEncoding", "contentMediaType"}
)  # fmt: skip
_SHOWN = frozenset({"examples", "example"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format"})

TIDY = SchemaRules()
"""A model loses nothing."""

SLIM = SchemaRules(text=80, all_texts=240, dropped=_LENGTHS | _SHOWN, longest_enum=400, longest_default=100)
"""What a parameter is for, in a few words."""

SKELETON = SchemaRules(text=0, dropped=_LENGTHS | _SHOWN | _BOUNDS, longest_enum=200, longest_default=40)
"""Names, types, values to choose from, defaults, and what is required."""

ANNOTATIONS = frozenset(
    {"title", "description", "default", "deprecated", "readOnly", "writeOnly", "examples", "example", "$comment"}
)
"""Keywords that say something and check nothing."""

UNIONS = ("anyOf", "oneOf", "allOf")
"""Keywords of several schemas that mean the same as the schema alone where there is one."""

TURNS_ROUND = frozenset({"not", "if", "contains"})
"""Where a schema that accepts more makes the one around it accept less. So does `oneOf`, if it has several."""

RULES_OF_OWN = frozenset(
    {"allOf", "anyOf", "oneOf", "if", "not", "$ref", "dependentRequired", "dependentSchemas", "dependencies",
     "minProperties"}
)  # fmt: skip
"""Beside one of these an object may require properties that are not in its `required`."""

NOTHING_SAID: Mapping[str, frozenset[bytes]] = {
    "required": frozenset({b"[]"}),
    "examples": frozenset({b"[]"}),
    "patternProperties": frozenset({b"{}"}),
    "dependentSchemas": frozenset({b"{}"}),
    "dependentRequired": frozenset({b"{}"}),
    "dependencies": frozenset({b"{}"}),
    "propertyNames": frozenset({b"{}", b"true", b'{"type":"string"}'}),
    "description": frozenset({b'""', b"null"}),
    "title": frozenset({b'""', b"null"}),
    "uniqueItems": frozenset({b"false"}),
    "minLength": frozenset({b"0"}),
    "minItems": frozenset({b"0"}),
    "minProperties": frozenset({b"0"}),
}
"""Keywords and the values with which they say nothing. `properties` and `items` are not among them: some providers
refuse an object or array without."""

SAFE_INTEGERS = frozenset({b"-9007199254740991", b"9007199254740991"})
"""The largest integers of JavaScript, which generators write as bounds of every integer."""

DIALECT = re.compile(rb'"https?://json-schema\.org/(?:draft-0[467]|draft/20(?:19-09|20-12))/schema#?"')
"""`$schema` of the dialects in use."""

OLD_DIALECT = re.compile(rb'"https?://json-schema\.org/draft-0')
"""In these `$ref` hides what stands beside it."""

SENSITIVE_TO_DIALECT = re.compile(
    rb'"(?:additionalItems|dependencies|\$recursive\w+)"\s*:|"id"\s*:\s*"|"items"\s*:\s*\[|"exclusiveM(?:in|ax)imum"\s*:\s*[tf]'
)
"""What means something else, or nothing, in 2020-12, which holds where no dialect is named."""

SUFFIXES = (
    "schema", "arguments", "args", "parameters", "params", "input", "request", "model", "output", "result", "response"
)  # fmt: skip
"""What generators add to the name of a tool to get a title for its schemas."""
