"""What a client hears while its call waits for the server to start: progress, if it asked for that.

Progress must increase, and what the server says of the call once it runs comes after this. So ours counts up to zero,
in seconds, from the longest time that the call may wait: below whatever a server begins with.
"""

import asyncio
from math import ceil
from typing import Self

from msgspec import Raw

from mcpbridge.core.model import Call
from mcpbridge.protocol.jsonrpc import encode

FIRST_SECONDS = 1.0
"""Seconds of waiting before the client is notified; most starts need less."""
EVERY_SECONDS = 1.0


class StartProgress:
    """Notifies the client of one call meanwhile: `with StartProgress(...):` around the wait."""

    def __init__(self, server: str, call: Call, seconds: float) -> None:
        """`seconds`: how long the call may wait."""
        self._server, self._call, self._most = server, call, ceil(seconds)
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        if self._call.wants_progress:
            self._timer = self._loop.call_later(FIRST_SECONDS, self._tell)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self) -> None:
        waited = self._loop.time() - self._began
        message = f"Starting server '{self._server}' … {waited:.0f} s"
        params = {"progress": min(-0.001, round(waited - self._most, 3)), "message": message}
        self._call.update("notifications/progress", Raw(encode(params)))
        self._timer = self._loop.call_later(EVERY_SECONDS, self._tell)
