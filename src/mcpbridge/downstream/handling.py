"""What all request handlers share: their shape, and reading params with errors that a client understands."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from msgspec import Raw

from mcpbridge.downstream.channel import Client, Notify
from mcpbridge.errors import BadRequest
from mcpbridge.wire.body import Body
from mcpbridge.wire.codes import INVALID_PARAMS
from mcpbridge.wire.frame import Frame

__all__ = ["EMPTY", "Handler", "Startup", "text"]

Handler = Callable[[Client, Frame, Notify], Awaitable[bytes | Raw]]
"""Answers one request with the bytes of its result. Errors are raised; `errors_to_wire` turns them into answers."""


class Startup(Protocol):
    """What is known of servers that are still starting."""

    async def settled(self) -> None:
        """Return once the catalog is worth listing: every server is ready or has failed, or had its time to."""
        ...

    async def more(self) -> bool:
        """Return when another server has got ready or failed; False when none is waited for any more.

        Raises:
            Overloaded: too many wait already.
        """
        ...


EMPTY = b"{}"


def text(params: Body, name: str) -> str:
    """A string member of the params.

    Raises:
        BadRequest: it is missing, or no string.
    """
    try:
        return params.text(name)
    except KeyError:
        raise BadRequest(INVALID_PARAMS, f"params.{name} is missing") from None
    except msgspec.ValidationError:
        raise BadRequest(INVALID_PARAMS, f"params.{name} must be a string") from None
