"""What is pinned of a server, and the digest by which it is recognized. Pure.

Every member of a definition counts: a model, a client or an app may read any of them. The digest is that of the one
spelling of `protocol/canonical_json.py`, so the order of members and blanks mean nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, cast

import msgspec

from mcpbridge.protocol.canonical_json import canonical

PinKind = Literal["tools", "prompts", "resources", "templates", "server"]
"""A list of the server, or the server itself, of which the names in `FACTS` are pinned."""

PIN_KINDS: tuple[PinKind, ...] = ("server", "tools", "prompts", "resources", "templates")
"""In the order of the lock file."""

Fact = Literal["instructions", "identity", "command", "package", "origin"]
"""What is pinned of a server itself: its instructions; its name and version; how it is started; the version of its
package, where the command leaves the choice to `npx` or `uvx`; where it is."""

FACTS: tuple[Fact, ...] = ("instructions", "identity", "command", "package", "origin")

LONGEST_SUMMARY = 80
"""Characters of the text that belongs to a digest."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One thing of a server, as it is now."""

    kind: PinKind
    name: str
    """The name, URI or template by which the server knows it; for `server` one of `FACTS`."""
    definition: bytes
    """Its one spelling."""

    @property
    def digest(self) -> str:
        """SHA-256 of the definition, in hexadecimal."""
        return sha256(self.definition).hexdigest()

    @property
    def summary(self) -> str:
        """One line that says what this is."""
        return summary_of(self.definition)


def pin(kind: PinKind, name: str, definition: bytes) -> Pin:
    """Pin a definition as it came. Never raises."""
    return Pin(kind, name, canonical(definition))


def pin_fact(fact: Fact, value: object) -> Pin:
    """Pin something of the server itself; `value` can be written as JSON."""
    return pin("server", fact, msgspec.json.encode(value))


def summary_of(definition: bytes) -> str:
    """The beginning of what a definition says of itself, on one line."""
    try:
        value: object = msgspec.json.decode(definition)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    text = " ".join(_summary(value).split())
    return text if len(text) <= LONGEST_SUMMARY else f"{text[: LONGEST_SUMMARY - 1].rstrip()}…"


def _summary(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return " ".join(str(one) for one in cast("list[object]", value))
    if not isinstance(value, dict):
        return ""
    members = cast("dict[str, object]", value)
    if "version" in members:
        return f"{members.get('name', '')} {members['version']}"
    texts: Iterable[object] = (members.get(member) for member in ("description", "title", "name"))
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")
