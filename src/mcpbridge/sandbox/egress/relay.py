"""Passes bytes between two connections, in both directions, until both have ended."""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

_CHUNK = 1 << 16


class Side(Struct, frozen=True):
    """One of the two connections."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        """Close it, whatever is still to be sent."""
        self.writer.close()

    async def answer(self, status: str, text: str) -> None:
        """Answer a request in HTTP, with plain text. The connection is to be closed then."""
        body = text.encode("utf-8", "replace")
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        self.writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await self.writer.drain()


async def relay(program: Side, outside: Side, first: Callable[[], Awaitable[bytes | None]] | None = None) -> None:
    """Pass on all that both send; returns when both have ended, or one is lost. Closes `outside`.

    `first`: what of the program is to be passed on first; None of it ends both. Meanwhile the other side may speak.
    """

    async def out() -> bool:
        if first is not None:
            data = await first()
            if data is None:
                return False
            outside.writer.write(data)
        await _pass_on(program.reader, outside.writer)
        return True

    sending = asyncio.ensure_future(out())
    receiving = asyncio.ensure_future(_pass_on(outside.reader, program.writer))
    try:
        done, _ = await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
        is_lost = any(task.exception() is not None for task in done)
        if not is_lost and not (sending.done() and not sending.result()):
            await asyncio.gather(sending, receiving)
    finally:
        for task in (sending, receiving):
            task.cancel()
        await asyncio.gather(sending, receiving, return_exceptions=True)
        outside.close()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK):
        target.write(data)
        await target.drain()
    if target.can_write_eof():
        target.write_eof()
