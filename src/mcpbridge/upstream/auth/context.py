"""What signing in to servers needs of the bridge: where secrets are kept, and how a person gets to see a page.

`oauth_tokens.py` and `authorization.py` do the work; they are loaded with the first remote server.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from msgspec import Struct

from mcpbridge.upstream.auth.grant import SecretStore


class Page(Struct, frozen=True):
    """An authorization page that a person has to visit."""

    server: str
    url: str
    take: Callable[[str], str]
    """Takes the address that the browser ended at, where it cannot reach us; says what is wrong with it, or nothing."""


Show = Callable[[Page], Awaitable[bool]]
"""Brings a page before a person. False when it could not."""


class AuthContext(Struct, frozen=True):
    """What an authorization needs of its bridge."""

    store: SecretStore
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    """Starts a task that lives as long as the bridge at most."""
    show: Show | None = None
    """How this bridge opens pages by itself; None: it cannot."""
    is_interactive: bool = False
    """It does so for servers whose `auth.interactive` says nothing."""
    learn: Callable[[str, Iterable[str]], None] = lambda name, secrets: None
    """Gets every secret of a server by name, to mask it."""
