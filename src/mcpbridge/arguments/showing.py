"""Values and places of arguments in words, short and without secrets. Pure."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, cast

from mcpbridge.arguments.check import Path
from mcpbridge.redaction import SECRET_NAME
from mcpbridge.wire.frame import encode

__all__ = ["LONGEST_VALUE", "kind_of", "listed", "shown", "spelled"]

LONGEST_VALUE = 40
"""Characters of JSON; what is longer is told of by its kind alone."""
LONGEST_NAME = 60
"""Characters of one name in a path."""


def spelled(path: Path) -> str:
    """A place as people write it: `filter.tags[0]`."""
    parts = [f"[{key}]" if isinstance(key, int) else f".{_cut(key)}" for key in path]
    return "".join(parts).removeprefix(".")


def shown(value: Any, path: Path = ()) -> str:
    """A value as JSON if it is small and does not seem to be a secret by the names of its place; else its kind."""
    if any(isinstance(key, str) and SECRET_NAME.search(key) for key in path):
        return kind_of(value)
    if isinstance(value, Decimal) or (isinstance(value, str | dict | list) and len(value) > LONGEST_VALUE):  # pyright: ignore[reportUnknownArgumentType]
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
