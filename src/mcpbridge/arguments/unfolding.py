"""How much work a schema can make of a value: how large it is when every `$ref` stands for what it refers to. Pure.

A few lines of references that each lead to two others mean a million schemas, and every value is checked against all
of them; two that lead back to where they stand double the work with each level of the value. One call of a tool of a
hostile server would stop the bridge. So there are bounds, far beyond what real schemas need.
"""

from collections.abc import Iterator
from math import log
from typing import cast

from mcpbridge.arguments.check import Schema, Uncheckable
from mcpbridge.arguments.places import follow, is_schema

__all__ = ["MAX_PARTS", "MAX_STEPS", "levels_to_check"]

MAX_PARTS = 5_000
"""Parts of a schema, unfolded; real ones have hundreds at most."""
MAX_STEPS = 1_000_000
"""Parts that one value is checked against, about 10 ms; it depends on how deep the value is."""
MAX_COMPOSED = 20
"""Objects and arrays among the options of one `enum`: each value is compared with all of them."""
_FEWEST_LEVELS = 4
_MAX_ODD = 6
"""References that are no paths from the top: what they lead to is not looked for, so there may not be many."""

_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas"})
_ONLY_REFERRED_TO = frozenset({"$defs", "definitions", "enum", "const", "default", "examples"})


def levels_to_check(root: Schema) -> int:
    """Levels of a value that can be checked in bounded time; 0: all that there are.

    Raises:
        Uncheckable: a value would be checked against more than `MAX_PARTS`.
        RecursionError: the schema is nested too deeply.
    """
    if any(_has_long_enum(part) for part in _parts(root)):
        raise Uncheckable("an enum has too many objects or arrays")
    references = [part for part in _parts(root) if _is_reference(part)]
    if not references:
        return 0  # as large as its text
    odd = sum(not _is_path(part) for part in references)
    if odd > _MAX_ODD or (len(references) > _MAX_ODD and _has_parts_of_their_own(root)):
        raise Uncheckable("its references are too many to follow")
    parts, ways_back = _Count(root).of(root)
    if parts > MAX_PARTS:
        raise Uncheckable("its references unfold too far")
    return max(_FEWEST_LEVELS, int(log(MAX_STEPS, ways_back))) if ways_back > 1 else 0


class _Count:
    """Counts parts, and ways that lead back to where they come from; looks at each part once."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._known: dict[int, tuple[int, int]] = {}

    def of(self, part: object, *, has_names: bool = False) -> tuple[int, int]:
        """Of one part, which is a schema, a list of them, or (`has_names`) has them by name."""
        known = self._known.get(id(part))
        if known is not None:
            return known
        self._known[id(part)] = 1, 1  # while it is counted: here it leads back to itself
        found = [
            self.of(inner, has_names=not has_names and keyword in _BY_NAME)
            for keyword, inner in _inner(part)
            if has_names or keyword not in _ONLY_REFERRED_TO
        ]
        if not has_names and _is_reference(part) and _is_path(part):
            found.append(self.of(follow(self._root, cast("Schema", part)["$ref"])))
        counted = 1 + sum(parts for parts, _ in found), sum(ways_back for _, ways_back in found)
        self._known[id(part)] = counted
        return counted


def _inner(part: object) -> Iterator[tuple[str, object]]:
    """The objects and arrays that may be, or hold, schemas, with their keyword or name."""
    if is_schema(part):
        yield from ((keyword, value) for keyword, value in part.items() if _is_composed(value))
    elif isinstance(part, list):
        yield from (("", value) for value in cast("list[object]", part) if _is_composed(value))


def _parts(part: object) -> Iterator[object]:
    yield part
    for _, inner in _inner(part):
        yield from _parts(inner)


def _is_composed(value: object) -> bool:
    return isinstance(value, dict | list)


def _has_long_enum(part: object) -> bool:
    options: object = part.get("enum") if is_schema(part) else None
    return isinstance(options, list) and sum(map(_is_composed, cast("list[object]", options))) > MAX_COMPOSED


def _is_reference(part: object) -> bool:
    return is_schema(part) and any(
        isinstance(part.get(keyword), str) for keyword in ("$ref", "$dynamicRef", "$recursiveRef")
    )


def _is_path(part: object) -> bool:
    """Whether it is a `$ref` that is a path from the top."""
    reference: object = cast("Schema", part).get("$ref")
    return isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))


def _has_parts_of_their_own(root: Schema) -> bool:
    """Whether paths may begin at another part than the top (`$id`)."""
    return any(
        is_schema(part) and part is not root and any(isinstance(part.get(keyword), str) for keyword in ("$id", "id"))
        for part in _parts(root)
    )
