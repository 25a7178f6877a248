"""Calls that a person makes from a page: as a client named `console`, the way of every client's call.

Every rule, limit, approval and log applies. Who signed in with a token is that token's principal; the person at this
machine is the local user. Who leaves the page, or presses Cancel, cancels the call, also at its server.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import Raw
from starlette.requests import Request

from mcpbridge.app.console.sign_in import Visit
from mcpbridge.core.context import Session
from mcpbridge.downstream.client import Client, Notify
from mcpbridge.library.bridge import Bridge
from mcpbridge.protocol.jsonrpc import Frame, encode
from mcpbridge.protocol.revisions import LATEST_LEGACY

CLIENT = "console"
"""What calls of the console have for a client's name."""

T = TypeVar("T")


class Made(msgspec.Struct, frozen=True):
    """What came of a call."""

    session: str
    """The session of this call alone: its record is found by it."""
    result: bytes
    """JSON as the client gets it: the result, or the error."""
    is_error: bool
    """The request was answered with an error, or the result says that the tool failed."""


class _Answer(msgspec.Struct):
    result: Raw = Raw()
    error: Raw = Raw()


class _Said(msgspec.Struct):
    is_error: object = msgspec.field(default=False, name="isError")


def _unheard(message: bytes) -> None:
    """For calls whose page wants to hear nothing meanwhile."""


async def make_call(
    bridge: Bridge,
    visit: Visit,
    method: str,
    params: dict[str, Any],
    *,
    session: Session | None = None,
    notify: Notify = _unheard,
) -> Made:
    """Make a request as this visitor. `session`: where the caller wants to know it before. Cancelling cancels it.

    `notify` gets the notifications that belong to it, encoded; `params` may hold a `progressToken`, and JSON as `Raw`.
    """
    bridge.require_running()
    session = session or new_session(visit)
    client = Client(
        principal=session.principal,
        version=LATEST_LEGACY,
        info={"name": CLIENT},
        cached_session=session,
    )
    answer = await bridge.server.answer(client, Frame(id=Raw(b"1"), method=method, params=Raw(encode(params))), notify)
    message = msgspec.json.decode(bytes(answer.data), type=_Answer)
    if error := bytes(message.error):
        return Made(session.id, error, is_error=True)
    result = bytes(message.result) or b"{}"
    is_error = False
    with suppress(msgspec.DecodeError, RecursionError):
        is_error = msgspec.json.decode(result, type=_Said).is_error is True
    return Made(session.id, result, is_error)


def new_session(visit: Visit) -> Session:
    """The session of one call of a visitor."""
    return Session("" if visit.is_local else visit.by, CLIENT)


async def while_wanted(request: Request, work: Callable[[], Awaitable[T]]) -> T | None:
    """What comes of the work; None: the browser has gone meanwhile, so it was cancelled.

    The body of the request must have been read.
    """
    task = asyncio.ensure_future(work())
    gone = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        return None
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.wait({task, gone})


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
