"""A process with pipes whose end does not hang on who else holds them open.

A pipe of `asyncio.create_subprocess_exec` stays open until its far end is: what a process started may hold that, and at
the end of an event loop nobody waits for it.
"""

import asyncio
from asyncio.subprocess import Process, SubprocessStreamProtocol
from functools import partial
from typing import Any

__all__ = ["PipedProcess"]

_LIMIT = 1 << 16
"""Bytes that a stream holds, twice of which stop the reading; as asyncio has it."""


class PipedProcess:
    """A process, and its pipes as streams."""

    def __init__(self, process: Process, transport: asyncio.SubprocessTransport) -> None:
        self.process = process
        self._transport = transport

    @classmethod
    async def start(cls, *argv: str, **how: Any) -> "PipedProcess":
        """As `asyncio.create_subprocess_exec`.

        Raises:
            OSError: it cannot be started.
        """
        loop = asyncio.get_running_loop()
        made = partial(SubprocessStreamProtocol, limit=_LIMIT, loop=loop)
        transport, protocol = await loop.subprocess_exec(made, *argv, **how)
        return cls(Process(transport, protocol, loop), transport)

    async def close(self) -> None:
        """Close its pipes, once it has ended: also those that others hold open. What they held unread is dropped."""
        stdin = self.process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.transport.abort()  # nobody reads any more what is still to be written
        self._transport.close()
        await asyncio.sleep(0)  # the loop closes them in its next turn
