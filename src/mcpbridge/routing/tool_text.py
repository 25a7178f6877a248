"""What a tool and its server say of themselves, as rankers read it."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

__all__ = ["ServerText", "ToolText"]


class ServerText(Struct, frozen=True):
    """One server, as its tools are found by it."""

    name: str
    title: str = ""
    """What it calls itself, or what the configuration says."""
    description: str = ""
    tags: tuple[str, ...] = ()


class ToolText(Struct, frozen=True):
    """One tool. Whatever it says may be malformed: a schema is any JSON value, a text may be megabytes."""

    id: str
    """What a ranker answers with; unique in an index."""
    server: str
    name: str
    """The server's own name for it."""
    title: str = ""
    description: str = ""
    schema: Mapping[str, Any] | None = None
    """Its `inputSchema`, parsed; None where there is none that is an object."""
    tags: tuple[str, ...] = ()
