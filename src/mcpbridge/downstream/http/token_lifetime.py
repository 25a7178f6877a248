"""What somebody opened with an access token ends with it: streams, subscriptions, sessions and WebSockets.

A token that says no end (an opaque one whose provider names none) could be revoked, and nobody would look at it again.
So what was opened with it ends after a while; its client connects anew, and the token is checked then.
"""

import asyncio
from collections.abc import Coroutine
from time import time
from typing import Any

from mcpbridge.core.identity import Identity
from mcpbridge.downstream.http.exchange import Exchange, Refused
from mcpbridge.downstream.http.http1_exchange import Http1Exchange

LONGEST_WITHOUT_END = 3600.0
"""Seconds."""


REVOKED = Refused(401, "The access token was revoked")


def is_open_by(principal: str, identity: Identity | None, whose: str, client_id: str) -> bool:
    """Whether somebody has something open as this principal, by way of this OAuth client; empty: of any."""
    return principal == whose and (not client_id or (identity is not None and identity.client_id == client_id))


def end_of(identity: Identity | None) -> float | None:
    """When what this person opens now has to end, in seconds since 1970; None: nothing ends it (`http.tokens`)."""
    if identity is None:
        return None
    return time() + LONGEST_WITHOUT_END if identity.expires_at is None else identity.expires_at


def while_valid(exchange: Exchange, stream: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
    """The stream, which ends with the token that it was opened with.

    Raises:
        Refused: 401, if it has not begun by then.
    """
    until = end_of(exchange.identity)
    return stream if until is None else _ending(exchange, stream, until)


async def _ending(exchange: Exchange, stream: Coroutine[Any, Any, None], until: float) -> None:
    limit = asyncio.timeout(max(0.0, until - time()))
    try:
        async with limit:
            await stream
    except TimeoutError:
        if not limit.expired():
            raise
        if isinstance(exchange, Http1Exchange) and not exchange.has_begun:
            raise Refused(401, "The access token expired") from None
        await exchange.end_stream()
