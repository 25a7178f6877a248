"""A backend while it runs: what keeps one that fails there from taking the others with it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from mcpbridge.backends.backend import Backend, Condition
from mcpbridge.logs import get_logger
from mcpbridge.wire.frame import encode

__all__ = ["ENDING_SECONDS", "Kept", "keeping_secrets"]

log = get_logger("mcpbridge.backends")

ENTERING_SECONDS = 10.0
"""Seconds that a backend may take to begin, which is to be at once."""
ENDING_SECONDS = 15.0
"""Seconds that a backend may take to end; then it is cancelled."""


def keeping_secrets(backend: Backend, redact: Callable[[str], str]) -> Backend:
    """The same backend, which masks secrets of the bridge in what it says, if it runs code of the user.

    A program makes its backends before it has a bridge.
    """
    keep: Callable[[Callable[[str], str]], None] | None = getattr(backend, "keep_secrets", None)
    if keep is not None:
        keep(redact)
    return backend


class Kept:
    """One backend, of a program or of the settings."""

    def __init__(self, backend: Backend, redact: Callable[[str], str]) -> None:
        """`redact` masks secrets in what it fails with, and in what it says of itself."""
        self.backend, self._redact = keeping_secrets(backend, redact), redact
        self.failed: Condition | None = None
        """Why it could not begin."""
        self._told: tuple[object, tuple[bytes, ...]] = (), ()
        """What it offered last, and that as bytes."""

    @property
    def condition(self) -> Condition:
        """How it is."""
        return self.failed or self.backend.condition

    @property
    def offered(self) -> tuple[bytes, ...]:
        """The definitions of its tools."""
        if self.failed is not None:
            return ()
        tools = self.backend.tools
        if not isinstance(tools, tuple):  # it may change in place
            return tuple(encode(dict(tool)) for tool in tools)
        if tools is not self._told[0]:
            encoded: tuple[bytes, ...] | None = getattr(self.backend, "encoded_tools", None)
            self._told = tools, encoded if encoded is not None else tuple(encode(dict(tool)) for tool in tools)
        return self._told[1]

    @asynccontextmanager
    async def running(self, changed: Callable[[], None]) -> AsyncGenerator[None]:
        """It works meanwhile. One that cannot begin is `failed`, and nothing is raised."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(ENTERING_SECONDS):  # of no scope that would have to be left in its order
                    await stack.enter_async_context(self.backend.running(changed))
                self.failed = None
            except Exception as error:  # a program's own code
                told = self._redact(f"{type(error).__name__}: {error}").removesuffix(": ")[:300]
                log.error("a backend could not begin", kind=self.backend.kind, exc_info=error)
                self.failed = Condition("failed", f"it could not begin: {told}", is_lasting=True)
                changed()
            yield
