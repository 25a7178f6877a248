"""Finding one's way in a JSON schema: what governs a place, and which names are declared there. Pure.

`$ref`s are followed within the schema only. A schema may refer to itself: each part is visited once.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard, cast
from urllib.parse import unquote

from mcpbridge.arguments.check import Path, Schema

__all__ = ["declared", "follow", "governing", "has_patterns", "is_schema", "owner"]

_IN_PLACE_MANY = ("allOf", "anyOf", "oneOf")
_IN_PLACE_ONE = ("if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def is_schema(value: object) -> TypeGuard[Schema]:
    """Whether it is an object, as all schemas but `true` and `false` are."""
    return isinstance(value, dict)


def follow(root: Schema, reference: object) -> Schema:
    """What a `$ref` within `root` refers to; an empty schema when it cannot be found here."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return {}
    node: object = root
    for part in reference[1:].split("/")[1:]:
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        node = _step(node, name)
    return node if is_schema(node) else {}


def owner(root: Schema, place: Path) -> Schema:
    """The schema that has the keyword at the end of `place` (a path as the check went it)."""
    return _walk(root, place)[0]


def governing(root: Schema, place: Path) -> Schema:
    """The whole schema of the value that the keyword at the end of `place` was about.

    It is the one that `allOf`, `$ref` and the like hang on.
    """
    return _walk(root, place)[1]


def declared(root: Schema, node: Schema) -> dict[str, object]:
    """The properties of an object by name, of all schemas that apply to it or may; the first of a name counts."""
    found: dict[str, object] = {}
    for part in _parts(root, node):
        properties = part.get("properties")
        if is_schema(properties):
            for name, schema in properties.items():
                found.setdefault(name, schema)
    return found


def has_patterns(root: Schema, node: Schema) -> bool:
    """Whether names are also declared by a pattern."""
    return any(part.get("patternProperties") for part in _parts(root, node))


def _parts(root: Schema, node: Schema) -> Iterator[Schema]:
    """A schema and those that apply to the very same value, each once."""
    waiting, seen = [node], set[int]()
    while waiting:
        part = waiting.pop(0)
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        inner: list[object] = [part.get(keyword) for keyword in _IN_PLACE_ONE]
        for keyword in _IN_PLACE_MANY:
            several = part.get(keyword)
            if isinstance(several, list):
                inner += cast("list[object]", several)
        dependent = part.get("dependentSchemas")
        if is_schema(dependent):
            inner += dependent.values()
        if "$ref" in part:
            inner.append(follow(root, part["$ref"]))
        waiting += [one for one in inner if is_schema(one)]


def _walk(root: Schema, place: Path) -> tuple[Schema, Schema]:
    node: object = root
    whole: object = root
    at = 0
    while at < len(place) - 1:
        keyword = place[at]
        at += 1
        if keyword in _REFERENCES and is_schema(node):
            node = follow(root, node.get(cast("str", keyword)))
            continue
        node = _step(node, keyword)
        if keyword in _IN_PLACE_MANY or keyword == "dependentSchemas":
            node, at = _step(node, place[at]), at + 1
            continue
        if keyword in _IN_PLACE_ONE:
            continue
        if keyword in ("properties", "patternProperties", "prefixItems") or _is_list(node):
            node, at = _step(node, place[at]), at + 1
        whole = node
    return (node if is_schema(node) else {}), (whole if is_schema(whole) else {})


def _is_list(node: object) -> bool:
    return isinstance(node, list)


def _step(node: object, key: str | int) -> object:
    """One step down; None when there is nothing."""
    if isinstance(node, dict):
        return cast("dict[object, Any]", node).get(key)
    if isinstance(node, list) and str(key).isdigit():
        items = cast("Sequence[object]", node)
        return items[int(key)] if int(key) < len(items) else None
    return None
