"""What signing in to one server brought, as it is kept; the protocol of who keeps it; and the tasks of sign-ins.

A grant belongs to one server of the configuration (its name and address) and to the one authorization server that
gave it. Neither its tokens nor the client it was given to are ever shown to another.

Sign-ins and renewals run as `AuthTasks`: they outlive the request, and the connection, that needed them first.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.log import get_logger


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens, and all that is needed to renew them."""

    issuer: str
    """The authorization server that gave them; compared as it is written."""
    access_token: str
    refresh_token: str = ""
    expires_at: float = 0.0
    """Unix time; 0 when the server did not say."""
    scope: str = ""
    """What was granted, or asked for where the server did not say; words with blanks between."""
    asked: str = ""
    """What was asked for. A server that refuses to give it is not asked again for the same."""
    client: dict[str, Any] = {}
    """The registration that the tokens were given to, as `OAuthClientInformationFull` writes it."""
    authorization_server: dict[str, Any] = {}
    """Its metadata (RFC 8414)."""
    protected_resource: dict[str, Any] = {}
    """The metadata of the server itself (RFC 9728); empty when it has none."""

    def encode(self) -> bytes:
        """As it is kept."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes | None) -> "Grant | None":
        """What was kept; None when there is nothing, or nothing of this shape."""
        try:
            return _decode(data) if data else None
        except msgspec.DecodeError:
            return None


_decode = msgspec.json.Decoder(Grant).decode


def grant_key(name: str, url: str) -> str:
    """Under what the grant of a server is kept: two entries of one address may be two accounts."""
    return f"oauth\n{name}\n{url}"


class SecretStore(Protocol):
    """Keeps a few small secrets over the life of a process, for all bridges of one user."""

    async def load(self, key: str) -> bytes | None:
        """What is kept under `key`; None when there is nothing, or nothing that can be read.

        Raises:
            ConfigError: others could read or change what is kept.
        """
        ...

    async def save(self, key: str, value: bytes) -> None:
        """Keep `value`, whole or not at all; what was there before is gone.

        Raises:
            ConfigError: it cannot be kept; says why.
        """
        ...

    async def drop(self, key: str) -> bool:
        """Forget what is kept under `key`. False when there was nothing."""
        ...

    async def close(self) -> None:
        """Nothing is kept or read any more."""
        ...

    def lock(self, name: str, seconds: float) -> AbstractAsyncContextManager[None]:
        """Hold a lock that all processes of the user see; waits `seconds` for it.

        Raises:
            TimeoutError: another holds it all the time.
            StoreFailed: whether another holds it cannot be known.
        """
        ...


log = get_logger("mcpbridge.upstream")


class AuthTasks(OwnedTasks):
    """The tasks of all authorizations of one bridge."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Start a task. What it raises is logged and ends here. When nothing runs any more, it is not started."""
        if (task := super().spawn(_contained(work))) is None:
            work.close()
        return task


async def _contained(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        # One server's sign-in (its store on a disk that fails, say) must not end all the others with it.
        log.exception("a sign-in failed unexpectedly")
