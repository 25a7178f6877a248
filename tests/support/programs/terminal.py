"""Commands on a terminal of their own."""

import asyncio
import os
import pty

from support.harness import Place

__all__ = ["on_terminal"]


async def on_terminal(place: Place, typed: str, *words: str) -> tuple[int, str]:
    """The exit code of a command on a terminal, and what it shows; `typed` once it asks something."""
    ours, its = pty.openpty()
    place.env |= {"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "200"}
    process = await place.start(*words, terminal=its)
    os.close(its)
    os.write(ours, typed.encode())
    shown = bytearray()
    try:
        async with asyncio.timeout(60):
            while piece := await asyncio.to_thread(_read, ours):
                shown += piece
            code = await process.wait()
    finally:
        os.close(ours)
    return code, shown.decode().replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # what Linux says when the other side of a terminal is closed
        return b""
