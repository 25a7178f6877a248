"""What is pinned of one server, out of what it lists and says of itself. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from mcpbridge.base.masking.mask import MASK
from mcpbridge.catalog.definitions.check import KEY, Kind
from mcpbridge.catalog.pins.definition import Pin, pin, pin_fact


def pins_of(
    lists: Mapping[str, Iterable[bytes]],
    instructions: str,
    identity: Mapping[str, Any],
    *,
    command: Sequence[str] = (),
    package: Mapping[str, str] = {},
    origin: str = "",
) -> tuple[Pin, ...]:
    """The pins of a server; what is empty is none. Entries without a name are left out, as nobody can use them.

    `lists`: by kind, each definition as it came. `identity`: its `serverInfo`. `command`: without secrets.
    `package`: its name and the version that runs; empty: unknown.
    """
    found: list[Pin] = []
    if instructions:
        found.append(pin_fact("instructions", instructions))
    if identity:
        found.append(pin_fact("identity", dict(identity)))
    if command:
        found.append(pin_fact("command", list(command)))
    if package:
        found.append(pin_fact("package", dict(package)))
    if origin:
        found.append(pin_fact("origin", origin))
    for kind in KEY:
        named = ((name_of(kind, definition), definition) for definition in lists.get(kind, ()))
        found += [pin(kind, name, bytes(definition)) for name, definition in named if name]
    return tuple(found)


def origin_of(url: str) -> str:
    """The scheme, host and port of an address; no user, path or query, where secrets can be."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}".lower()


def command_without_secrets(words: Sequence[str], redact: Callable[[str], str]) -> tuple[str, ...]:
    """The words of a command line, where secrets are masked, also those that follow an option."""
    masked: list[str] = []
    for before, word in zip(("", *words), words, strict=False):
        pair = f"{before} {word}"
        is_secret = before.startswith("-") and redact(before) == before and redact(pair) != pair
        masked.append(MASK if is_secret else redact(word))
    return tuple(masked)


def name_of(kind: Kind, definition: bytes) -> str:
    """The name, URI or template by which the server knows a definition; empty: it has none, or cannot be read."""
    try:
        value: object = msgspec.json.decode(definition)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    name = cast("dict[str, object]", value).get(KEY[kind]) if isinstance(value, dict) else None
    return name if isinstance(name, str) else ""
