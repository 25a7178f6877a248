"""Definitions that a schema refers to: found, named, and told once.

Only references within the schema are followed (`#`, `#/$defs/Name`); nothing is fetched.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote

__all__ = ["References"]

_STEPS = 16
_LOOKED_AT = 20_000
"""Parts of a schema that are searched for references."""
_FOREIGN = re.compile(r"[^A-Za-z0-9_]+")
_LONGEST = 40


class References:
    """Those of one schema."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._uses: Counter[str] | None = None
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._told: set[int] = set()
        self._open: dict[int, str] = {}

    def target(self, ref: object) -> object:
        """What a reference points to; None if that is nothing."""
        if not isinstance(ref, str) or not ref.startswith("#") or len(ref) > 1000:
            return None
        at: object = self._root
        steps = ref[1:].split("/")
        if steps[0] or len(steps) > _STEPS:
            return None
        for step in steps[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(at, Mapping):
                at = cast("Mapping[str, object]", at).get(name)
            elif isinstance(at, list) and name.isascii() and name.isdigit() and len(name) < 6:
                items = cast("list[object]", at)
                at = items[int(name)] if int(name) < len(items) else None
            else:
                return None
        return at

    def name(self, ref: object, target: object) -> tuple[str, bool]:
        """The name of a definition, and whether it says enough: the definition was told, or is being told."""
        if not isinstance(ref, str):
            return "", False
        name = self._names.get(ref)
        if name is None:
            last = _FOREIGN.sub("_", unquote(ref.rsplit("/", 1)[-1][:200])).strip("_")[:_LONGEST] or "Self"
            name = last if last not in self._taken else f"{last}{len(self._taken) + 1}"
            self._taken.add(name)
            self._names[ref] = name
        key = id(target)
        if key in self._open:
            name = self._open[key] = self._open[key] or name
        return name, key in self._told or key in self._open

    def is_shared(self, ref: object) -> bool:
        """Whether a definition is used more than once."""
        if self._uses is None:
            self._uses = _uses(self._root)
        return isinstance(ref, str) and self._uses[ref] > 1

    def opened(self, schema: object) -> None:
        """From now on a part of the schema is being told."""
        self._open.setdefault(id(schema), "")

    def is_open(self, schema: object) -> bool:
        """Whether it is being told."""
        return id(schema) in self._open

    def closed(self, schema: object) -> str:
        """It is told now; returns the name that it was called by within itself, or nothing."""
        return self._open.pop(id(schema), "")

    def is_told(self, target: object) -> bool:
        """Whether its name says enough."""
        return id(target) in self._told

    def told(self, target: object) -> None:
        """From now on its name says enough."""
        self._told.add(id(target))


def _uses(root: object) -> Counter[str]:
    found: Counter[str] = Counter()
    todo: list[Any] = [root]
    for _ in range(_LOOKED_AT):
        if not todo:
            break
        one = todo.pop()
        if isinstance(one, Mapping):
            members = cast("Mapping[str, object]", one)
            ref = members.get("$ref")
            if isinstance(ref, str):
                found[ref] += 1
            todo += [value for value in members.values() if isinstance(value, dict | list)]
        elif isinstance(one, list):
            todo += [value for value in cast("list[object]", one) if isinstance(value, dict | list)]
    return found
