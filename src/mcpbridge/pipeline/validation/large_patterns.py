"""A schema without the patterns that are too large to be compiled: it accepts all that the whole one accepts. Pure.

Without its pattern a text is accepted whatever it is. Below most keywords that makes a schema accept more, which is
right: a call that the whole schema might accept must not be refused. Below some it can make it accept less: what `not`
refuses, a second branch of `oneOf`, an `if` that holds, one item too many for `maxContains`. Such a keyword goes with
the pattern. What counts as evaluated may shrink with it, so `unevaluatedProperties` and `unevaluatedItems` go then, and
with them what would accept less without them.
"""

from collections.abc import Callable
from typing import Any, cast

Schema = dict[str, Any]

_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
"""Keywords whose members are schemas under names."""
_VALUES = frozenset({"const", "enum", "default", "examples", "example"})
"""Keywords that hold values, not schemas."""
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_REFUSING = ("not", "oneOf")


def without_large_patterns(schema: Schema, is_large: Callable[[str], bool]) -> tuple[Schema, list[str]]:
    """The schema without these patterns, and the patterns; the same schema if it has none."""
    work = _Work(schema, is_large)
    lighter = work.lighter(schema)
    if work.has_lost_evaluated:
        lighter = work.lighter(schema)  # once more, since that may have been noticed in the middle
    return lighter, list(work.patterns)


class _Work:
    """One schema."""

    def __init__(self, root: Schema, is_large: Callable[[str], bool]) -> None:
        self._root, self._is_large = root, is_large
        self.patterns: dict[str, None] = {}
        self.has_lost_evaluated = False
        """A keyword went under which properties or items may count as evaluated."""

    def lighter(self, schema: Any) -> Any:
        """A schema, or a list of schemas, that accepts what this one accepts."""
        if isinstance(schema, list):
            return [self.lighter(one) for one in cast("list[Any]", schema)]
        if not isinstance(schema, dict):
            return schema
        node = cast("Schema", schema)
        gone = self._keywords_to_drop(node)
        return {key: self._lighter_value(key, value) for key, value in node.items() if key not in gone}

    def _lighter_value(self, key: str, value: Any) -> Any:
        if key in _VALUES:
            return value
        if key in _NAMED and isinstance(value, dict):
            members = cast("Schema", value).items()
            kept = [(name, one) for name, one in members if key != "patternProperties" or not self._is_too_large(name)]
            return {name: self.lighter(one) for name, one in kept}
        return self.lighter(value)

    def _keywords_to_drop(self, node: Schema) -> set[str]:
        gone = {key for key in _REFUSING if key in node and self._holds_large(node[key], set())}
        if "oneOf" in gone:
            self.has_lost_evaluated = True
        if "if" in node and self._holds_large(node["if"], set()):
            gone |= {"if", "then", "else"}
            self.has_lost_evaluated = True
        if "maxContains" in node and self._holds_large(node.get("contains"), set()):
            gone.add("maxContains")
        if self._is_too_large(node.get("pattern")):
            gone.add("pattern")
        named = node.get("patternProperties")
        if isinstance(named, dict) and any(map(self._is_too_large, cast("Schema", named))):
            gone.add("additionalProperties")  # it would refuse the names that the pattern allows
            self.has_lost_evaluated = True
        return gone.union(_UNEVALUATED) if self.has_lost_evaluated else gone

    def _is_too_large(self, pattern: object) -> bool:
        if not isinstance(pattern, str):
            return False
        if pattern not in self.patterns and self._is_large(pattern):
            self.patterns[pattern] = None
        return pattern in self.patterns

    def _holds_large(self, schema: Any, followed: set[str]) -> bool:
        """Whether a schema has such a pattern, or something that goes with one, also by its references."""
        if isinstance(schema, list):
            return any(self._holds_large(one, followed) for one in cast("list[Any]", schema))
        if not isinstance(schema, dict):
            return False
        node = cast("Schema", schema)
        found = self.has_lost_evaluated and any(key in node for key in _UNEVALUATED)
        for key, value in node.items():
            if key in _REFERENCES and isinstance(value, str):
                found |= self._refers_to_large(key, value, followed)
            elif key in _NAMED and isinstance(value, dict):
                members = cast("Schema", value)
                found |= key == "patternProperties" and any(self._is_too_large(name) for name in members)
                found |= any(self._holds_large(one, followed) for one in members.values())
            elif key == "pattern":
                found |= self._is_too_large(value)
            elif key not in _VALUES:
                found |= self._holds_large(value, followed)
        return found

    def _refers_to_large(self, key: str, reference: str, followed: set[str]) -> bool:
        """Of what cannot be followed here, the answer is yes."""
        if reference in followed:
            return False
        followed.add(reference)
        if key != "$ref" or (reference != "#" and not reference.startswith("#/")) or "%" in reference:
            return True
        node: Any = self._root
        for part in reference.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and name in node:
                node = cast("Schema", node)[name]
            elif isinstance(node, list) and name.isdecimal() and int(name) < len(cast("list[Any]", node)):
                node = cast("list[Any]", node)[int(name)]
            else:
                return True
        return self._holds_large(node, followed)
