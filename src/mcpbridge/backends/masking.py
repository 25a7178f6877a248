"""Masks secrets in the JSON that a backend made of what its peer told, for results and progress. Pure."""

import re
from collections.abc import Callable

import msgspec

from mcpbridge.wire.frame import encode

__all__ = ["masked"]

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
"""A string as it stands in JSON; nothing else in valid JSON has quotes."""


def masked(value: object, redact: Callable[[str], str]) -> bytes:
    """The value as JSON, with the secrets masked in its strings, and so in the names of members. Numbers stay.

    Each string is looked at as what it means, so the mask cannot break the JSON, however deep it is.
    """
    return _STRING.sub(lambda found: _masked(found[0], redact), encode(value).decode()).encode()


def _masked(literal: str, redact: Callable[[str], str]) -> str:
    text: str = msgspec.json.decode(literal) if "\\" in literal else literal[1:-1]
    shown = redact(text)
    return literal if shown == text else encode(shown).decode()
