"""What in a JSON schema governs a place of the arguments, and how places are named. Pure.

`$ref`s are followed within the schema only. A schema may refer to itself: each part is visited once.

Also how much work a schema can make of a value. A few lines of references that each lead to two others mean a million
schemas, and every value is checked against all of them; one call of a tool of a hostile server would stop the bridge.
So there are bounds, far beyond what real schemas need.
"""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from math import log
from typing import Any, TypeGuard, cast
from urllib.parse import unquote

from mcpbridge.base.masking.known_values import SECRET_NAME
from mcpbridge.pipeline.validation.schema_check import Path, Schema, Uncheckable
from mcpbridge.protocol.jsonrpc import encode

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


LONGEST_VALUE = 40
"""Characters of JSON; of a longer one only its kind is shown."""
LONGEST_NAME = 60
"""Characters of one name in a path."""


def spelled(path: Path) -> str:
    """A place as people write it: `filter.tags[0]`."""
    parts = [f"[{key}]" if isinstance(key, int) else f".{_cut(key)}" for key in path]
    return "".join(parts).removeprefix(".")


def printed(value: Any, path: Path = ()) -> str:
    """A value as JSON if it is small and does not seem to be a secret by the names of its place; else its kind."""
    if any(isinstance(key, str) and SECRET_NAME.search(key) for key in path):
        return kind_of(value)
    if isinstance(value, Decimal) or (isinstance(value, str | dict | list) and len(value) > LONGEST_VALUE):  # pyright: ignore[reportUnknownArgumentType] - of any JSON
        return kind_of(value)
    try:
        text = encode(value).decode()
    except (ValueError, OverflowError, RecursionError):
        return kind_of(value)
    is_composed = text[:1] in "{[" or text[:2] in ('"{', '"[')
    if len(text) > LONGEST_VALUE or (is_composed and SECRET_NAME.search(text)):
        return kind_of(value)
    return text


def kind_of(value: Any) -> str:
    """What a value is, without it: "a string of 120 characters"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return f"a string of {len(value)} character{'' if len(value) == 1 else 's'}"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"an array of {len(cast('list[Any]', value))}"
    return "an integer" if isinstance(value, int) else "a number"


def listed(items: Iterable[str], *, most: int = 12, longest: int = 200) -> str:
    """Items with commas, those beyond a number or a length of all only counted."""
    all_items = list(items)
    kept = list[str]()
    for item in all_items[:most]:
        if kept and sum(map(len, kept)) + len(item) > longest:
            break
        kept.append(_cut(item, longest))
    more = len(all_items) - len(kept)
    return ", ".join(kept) + (f", … ({len(all_items)} in all)" if more else "")


def _cut(text: str, longest: int = LONGEST_NAME) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


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
    if any(_has_long_enum(part) for part in _subschemas(root)):
        raise Uncheckable("an enum has too many objects or arrays")
    references = [part for part in _subschemas(root) if _is_reference(part)]
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


def _subschemas(part: object) -> Iterator[object]:
    yield part
    for _, inner in _inner(part):
        yield from _subschemas(inner)


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
        for part in _subschemas(root)
    )
