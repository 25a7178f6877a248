"""What APIs' strict modes have words for, by their documentation; and how the rest is told. Pure."""

import re
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from mcpbridge.arguments.check import Schema

__all__ = ["ANTHROPIC", "OPENAI", "Dialect"]

_OF_TYPES: Mapping[str, tuple[str, ...]] = {
    "string": ("pattern", "minLength", "maxLength", "contentEncoding", "contentMediaType", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems"),
    "object": ("minProperties", "maxProperties", "propertyNames"),
}
_SAID_ANYWAY = ("format", "contentEncoding", "contentMediaType")
"""Not asserted by the bridge either: nothing is lost when they are left out."""
_FANCY = re.compile(r"\(\?(?!:)|\\[bBAZGpPkK1-9]")
"""In a `pattern`: what grammars cannot hold a model to."""


class Dialect(Struct, frozen=True):
    """What an API's strict mode has words for."""

    requires_all: bool
    """Every property has to be required; those that are not meant are null."""
    has_recursion: bool
    keeps: frozenset[str]
    """Rules for values of one type that it has; the others are told in the description."""
    formats: frozenset[str]

    def has_rule(self, keyword: str, value: object) -> bool:
        """Whether a rule for values of one type can be said in it."""
        if keyword == "format":
            return value in self.formats
        if keyword == "pattern" and (not isinstance(value, str) or _FANCY.search(value)):
            return False
        return keyword in self.keeps

    def rules(self, flat: Schema, kind: str) -> Schema:
        """The rules for values of a type that can be said in it."""
        return {
            keyword: flat[keyword] for keyword in _of(kind) if keyword in flat and self.has_rule(keyword, flat[keyword])
        }

    def told(self, flat: Schema, kinds: Iterable[str]) -> tuple[str, list[str]]:
        """The description of a place, and the rules that are lost there.

        It has what else the model should know: the default, and the rules that cannot be said.
        """
        lost = [one for kind in kinds for one in _of(kind) if one in flat and not self.has_rule(one, flat[one])]
        lost = list(dict.fromkeys(lost))
        notes = [f"{keyword}: {_json(flat[keyword])}" for keyword in lost]
        text = flat.get("description")
        text = text if isinstance(text, str) else ""
        default = flat.get("default")
        if default not in (None, [], {}, "") and _json(default).strip('"') not in text:
            notes.append(f"default: {_json(default)}")
        said = f"({', '.join(notes)})" if notes else ""
        return f"{text} {said}".strip(), [keyword for keyword in lost if keyword not in _SAID_ANYWAY]


OPENAI = Dialect(
    requires_all=True,
    has_recursion=True,
    keeps=frozenset(
        {"pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"}
    ),
    formats=frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}),
)
"""OpenAI's structured outputs."""
ANTHROPIC = Dialect(
    requires_all=False,
    has_recursion=False,
    keeps=frozenset(),
    formats=frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}),
)
"""Anthropic's strict tools."""


def _of(kind: str) -> tuple[str, ...]:
    return _OF_TYPES.get("number" if kind == "integer" else kind, ())


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
