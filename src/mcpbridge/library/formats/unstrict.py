"""The way back from strict arguments: the nulls that stand for "not given" are taken out again. Pure.

A strict call has every property, and null where an optional one was not meant. Such a null is taken out where the
schema takes no null there and does not require the property: a call that was right before is not changed, and one
that was not may become right. It is therefore safe for arguments of calls that were not strict.

Where alternatives (`anyOf`, `oneOf`) describe a place, the first counts that the value fits once its own nulls are out
(of `oneOf` rather the only one that it fits as it is). `pattern`, `not` and `if` are not looked at for that. A value
that fits none is left as it is.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from mcpbridge.arguments.check import Schema
from mcpbridge.arguments.places import follow, is_schema
from mcpbridge.library.formats.fitting import Fitting, TooMuch
from mcpbridge.library.formats.schema_parts import object_of, texts_of

__all__ = ["unstricted"]

_MAX_LEVELS = 64
"""Of values and schemas within each other; deeper ones are left as they are."""
_STEPS, _STEPS_OF_EACH = 10_000, 20
"""Values looked at, each once for every alternative of every place around it: so many, and as many more for each value
in the arguments. Arguments that take more are left as they are."""


def unstricted(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments without the nulls that mean "not given". `schema`: the tool's input schema, not its strict form."""
    whole = dict(arguments)
    values, nulls = _count(whole)
    if not nulls:
        return whole
    try:
        clearing = _Clearing(dict(schema), _STEPS + _STEPS_OF_EACH * values)
        return cast("dict[str, Any]", clearing.without(dict(schema), whole, 0))
    except (RecursionError, TooMuch):
        return whole


def _count(value: object) -> tuple[int, int]:
    """Values in it, itself included; and how many of them are null."""
    waiting, values, nulls = [value], 0, 0
    while waiting:
        one = waiting.pop()
        values += 1
        nulls += one is None
        if isinstance(one, dict):
            waiting += cast("dict[str, object]", one).values()
        elif isinstance(one, list):
            waiting += cast("list[object]", one)
    return values, nulls


class _Clearing:
    """One set of arguments on its way back."""

    def __init__(self, root: Schema, steps: int) -> None:
        self._root = root
        self._fitting = Fitting(root, steps)

    def without(self, schema: Schema, value: object, level: int) -> object:
        """The value without the nulls that this schema takes no part in."""
        if level > _MAX_LEVELS or not isinstance(value, dict | list):
            return value
        self._fitting.step()
        together = list(self._together(schema, cast("object", value), level))
        if isinstance(value, dict):
            return self._object(together, cast("dict[str, object]", value), level)
        return self._array(together, cast("list[object]", value), level)

    def _together(self, schema: Schema, value: object, level: int) -> Iterator[Schema]:
        """The schemas that the value is held to at once: with what is referred to, and the alternative that it fits."""
        if level > _MAX_LEVELS:
            return
        yield schema
        if "$ref" in schema:
            yield from self._together(follow(self._root, schema["$ref"]), value, level + 1)
        for part in _schemas(schema.get("allOf")):
            yield from self._together(part, value, level + 1)
        for keyword in ("anyOf", "oneOf"):
            branch = self._branch(schema, keyword, value, level)
            if branch is not None:
                yield from self._together(branch, value, level + 1)

    def _branch(self, schema: Schema, keyword: str, value: object, level: int) -> Schema | None:
        """The alternative that a value is meant for."""
        branches = _schemas(schema.get(keyword))
        if keyword == "oneOf":
            as_it_is = [branch for branch in branches if self._fitting.fits(branch, value)]
            if len(as_it_is) == 1:  # without its nulls, it could fit a second one, and that would be one too many
                return as_it_is[0]
        beside: Schema = {key: one for key, one in schema.items() if key != keyword}
        for branch in branches:
            cleared = self.without(_whole(beside, branch), value, level + 1)
            if self._fitting.fits(branch, cleared) and self._fitting.fits(beside, cleared):
                return branch
        return None

    def _object(self, together: list[Schema], value: dict[str, object], level: int) -> dict[str, object]:
        required = {name for schema in together for name in texts_of(schema.get("required"))}
        kept: dict[str, object] = {}
        for name, member in value.items():
            described = list(_described(together, name))
            if member is not None:
                kept[name] = self._through(described, member, level)
            elif name in required or not described or all(self._fitting.fits(one, None) for one in described):
                kept[name] = None
        return kept

    def _array(self, together: list[Schema], value: list[object], level: int) -> list[object]:
        elements = value
        for schema in together:
            first = _schemas(schema.get("prefixItems"))
            rest = schema.get("items")
            elements = [
                self._through([first[at] if at < len(first) else rest], one, level) for at, one in enumerate(elements)
            ]
        return elements

    def _through(self, schemas: list[object], value: object, level: int) -> object:
        """Each takes out what it knows of."""
        for schema in schemas:
            if is_schema(schema):
                value = self.without(schema, value, level + 1)
        return value


def _whole(beside: Schema, branch: Schema) -> Schema:
    """An alternative with what stands beside it: a property that it requires may only be described there."""
    properties = {**object_of(beside.get("properties")), **object_of(branch.get("properties"))}
    whole: Schema = {**beside, **branch}
    return {**whole, "properties": properties} if properties else whole


def _schemas(value: object) -> list[Schema]:
    return [one for one in cast("list[object]", value) if is_schema(one)] if isinstance(value, list) else []


def _described(together: list[Schema], name: str) -> Iterator[object]:
    for schema in together:
        properties = object_of(schema.get("properties"))
        if name in properties:
            yield properties[name]
        elif is_schema(schema.get("additionalProperties")):
            yield schema["additionalProperties"]
