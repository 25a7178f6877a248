"""Whether a service answers."""

import asyncio
from collections.abc import Callable

from mcpbridge.backends.backend import Health
from mcpbridge.backends.http_calling import HttpCaller, is_elsewhere
from mcpbridge.backends.http_outgoing import Outgoing
from mcpbridge.errors import UpstreamError

__all__ = ["look_at"]

_SECONDS = 5.0
"""Seconds that a look may take."""


async def look_at(caller: HttpCaller, origin: str, health: str | None, redact: Callable[[str], str]) -> Health:
    """Ask `health`, an address or a path below `origin`; None: a HEAD of `/` there, where every answer is a good one.

    Credentials go to the host of the service alone.
    """
    url = f"{origin}{health}" if health is not None and health.startswith("/") else health or f"{origin}/"
    outgoing = Outgoing("GET" if health is not None else "HEAD", url)
    is_ours = health is not None and not is_elsewhere(url, origin)
    clock = asyncio.get_running_loop().time
    began = clock()
    shown = redact(url.partition("?")[0])
    try:
        async with asyncio.timeout(_SECONDS):
            answer = await caller.send("health", outgoing, shows_credentials=is_ours)
    except TimeoutError:
        return Health(ok=False, detail=f"{shown}: no answer within {_SECONDS:g} s", seconds=clock() - began)
    except UpstreamError as error:
        return Health(ok=False, detail=redact(f"{shown}: {error.what}"), seconds=clock() - began)
    seconds = clock() - began
    if health is None:
        return Health(ok=True, detail=f"{shown} answers (HTTP {answer.status}); no `health` is set", seconds=seconds)
    return Health(ok=answer.status < 400, detail=f"{shown}: HTTP {answer.status}", seconds=seconds)
