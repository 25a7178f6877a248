"""What the server core knows of one client, and how it reaches it.

A front (stdio, HTTP) makes one `Client` for each legacy session, and one for each modern request,
since a modern request declares everything anew (Spec 2026-07-28, `_meta` envelope).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Answer", "Client", "Notify"]

Notify = Callable[[bytes], None]
"""Takes one whole JSON-RPC message towards the client, at once; drops it when the way is gone."""


def _nowhere(message: bytes) -> None:
    """The way to a client that has no channel for unsolicited messages."""


@dataclass(slots=True, eq=False)
class Client:
    """One client: a legacy session for its whole life, or the sender of one modern request."""

    principal: str = ""
    """Who the front authenticated; empty for the local user."""
    modern: bool = False
    version: str = ""
    """The negotiated protocol revision; empty before `initialize`."""
    info: dict[str, Any] = field(default_factory=dict[str, Any])
    """`clientInfo` as declared; for logs and quirks, never for permission."""
    capabilities: dict[str, Any] = field(default_factory=dict[str, Any])
    log_level: str = ""
    """The least severe level wanted (`logging/setLevel`, or the request's `logLevel`); empty: none asked for."""
    push: Notify = _nowhere
    """Sends a message outside any request: stdout, or the session's GET stream. Legacy only."""
    initialized: bool = False
    """The client has sent `notifications/initialized`: from then on it may be sent unsolicited messages."""
    subscriptions: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Resources that it subscribed to (legacy): URI in the client's spelling to server and URI there."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request: a whole JSON-RPC message, and its error code (0 for a result)."""

    data: bytes
    code: int = 0
