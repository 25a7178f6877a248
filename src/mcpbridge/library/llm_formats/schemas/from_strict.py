"""Turn strict arguments back: remove the nulls that stand for "not given". Pure, and without compiling anything.

A strict call has every property, and null for an optional one that was not meant. Such a null is removed where the
schema takes no null and does not require the property. A call that was right before is not changed, so this is safe
for arguments that were not strict.

Where alternatives (`anyOf`, `oneOf`) describe a place, the first one counts that the value fits once its own nulls are
out (of `oneOf` rather the only one that it fits as it is). A value that fits none stays as it is. The check for that is
rough and does not look at `pattern`, `format`, `not`, `if`, `contains`, `uniqueItems` or dependencies between
properties; the bridge checks calls elsewhere, against the whole schema.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from mcpbridge.library.llm_formats.schemas.parts import object_of, texts_of
from mcpbridge.pipeline.validation.schema_check import Schema
from mcpbridge.pipeline.validation.schema_paths import follow, is_schema

_MAX_LEVELS = 64


class TooMuch(Exception):
    """The schema has too many alternatives within each other."""


class Fitting:
    """Looks at values by the parts of one schema, in at most so many steps: the schema is somebody else's."""

    def __init__(self, root: Schema, steps: int) -> None:
        self._root = root
        self._steps = steps

    def step(self) -> None:
        """Count one.

        Raises:
            TooMuch: there is none left.
        """
        self._steps -= 1
        if self._steps < 0:
            raise TooMuch

    def fits(self, schema: object, value: object, level: int = 0) -> bool:
        """Whether the value has the types, names, listed values and sizes that the schema wants."""
        self.step()
        if not is_schema(schema):
            return schema is not False
        if level > _MAX_LEVELS:
            return True
        return (
            _is_of_type(schema.get("type"), value)
            and _is_listed(schema, value)
            and has_limits(schema, value)
            and ("$ref" not in schema or self.fits(follow(self._root, schema["$ref"]), value, level + 1))
            and self._fits_parts(schema, value, level + 1)
            and self._fits_within(schema, value, level + 1)
        )

    def _fits_parts(self, schema: Schema, value: object, level: int) -> bool:
        every, some, one = (
            cast("list[object]", found) if isinstance(found := schema.get(keyword), list) else []
            for keyword in ("allOf", "anyOf", "oneOf")
        )
        if not all(self.fits(part, value, level) for part in every):
            return False
        if some and not any(self.fits(part, value, level) for part in some):
            return False
        return not one or sum(self.fits(part, value, level) for part in one) == 1

    def _fits_within(self, schema: Schema, value: object, level: int) -> bool:
        if isinstance(value, list):
            items = schema.get("items", True)
            first: object = schema.get("prefixItems")
            many = len(cast("list[object]", first)) if isinstance(first, list) else 0
            return all(self.fits(items, one, level) for one in cast("list[object]", value)[many:])
        if not isinstance(value, dict):
            return True
        members = cast("dict[str, object]", value)
        if any(name not in members for name in texts_of(schema.get("required"))):
            return False
        properties = object_of(schema.get("properties"))
        others = True if "patternProperties" in schema else schema.get("additionalProperties", True)
        return all(self.fits(properties.get(name, others), one, level) for name, one in members.items())


def _is_of_type(kind: object, value: object) -> bool:
    if isinstance(kind, list):
        return any(_is_of_type(one, value) for one in cast("list[object]", kind))
    is_one = _TYPES.get(kind) if isinstance(kind, str) else None
    return is_one is None or is_one(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[object], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "integer": lambda value: _is_number(value) and cast("float", value) % 1 == 0,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _is_listed(schema: Schema, value: object) -> bool:
    listed: object = schema.get("enum")
    if isinstance(listed, list) and not any(_is_same(one, value) for one in cast("list[object]", listed)):
        return False
    return "const" not in schema or _is_same(schema["const"], value)


def _is_same(one: object, other: object) -> bool:
    """JSON's equality: 1 and 1.0 are the same, 1 and true are not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def has_limits(schema: Schema, value: Any) -> bool:
    """Whether a value is as large, and has as many parts, as the schema wants."""
    if _is_number(value):
        return all(_holds(schema.get(keyword), value, rule) for keyword, rule in _OF_NUMBERS.items())
    for kind, least, most in (
        (str, "minLength", "maxLength"),
        (list, "minItems", "maxItems"),
        (dict, "minProperties", "maxProperties"),
    ):
        if isinstance(value, kind):
            size = len(cast("str", value))
            return _holds(schema.get(least), size, _at_least) and _holds(schema.get(most), size, _at_most)
    return True


def _holds(limit: object, value: float, rule: Callable[[float, float], bool]) -> bool:
    return not _is_number(limit) or rule(value, cast("float", limit))


def _at_least(value: float, limit: float) -> bool:
    return value >= limit


def _at_most(value: float, limit: float) -> bool:
    return value <= limit


_OF_NUMBERS: Mapping[str, Callable[[float, float], bool]] = {
    "minimum": _at_least,
    "maximum": _at_most,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
    "multipleOf": lambda value, limit: limit == 0 or value % limit == 0,
}


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
