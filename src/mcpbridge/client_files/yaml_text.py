"""Values as YAML text, in block and in flow style, such that every YAML reader reads the same."""

import json
import re
from collections.abc import Mapping
from typing import cast

__all__ = ["as_block", "as_item", "on_one_line"]

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.+@-]*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
"""Not texts for some readers."""
_UNSAFE = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff]")


def as_block(name: str, value: Mapping[str, object], indent: int, step: int) -> list[str]:
    """The lines of a map under its key."""
    lines = [f"{' ' * indent}{on_one_line(name)}:"]
    return lines + [f"{' ' * (indent + step)}{on_one_line(key)}: {on_one_line(item)}" for key, item in value.items()]


def as_item(value: Mapping[str, object], indent: int) -> list[str]:
    """The lines of a map in a list, whose dashes are indented so."""
    pairs = [f"{on_one_line(key)}: {on_one_line(item)}" for key, item in value.items()]
    return [f"{' ' * indent}{'  ' if number else '- '}{pair}" for number, pair in enumerate(pairs)]


def on_one_line(value: object) -> str:
    """A value in flow style."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value).items()
        return "{" + ", ".join(f"{on_one_line(key)}: {on_one_line(item)}" for key, item in members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(on_one_line, cast("list[object]", value))) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    text = json.dumps(value, ensure_ascii=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
