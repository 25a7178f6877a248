"""The three streams of a job, without a thread or a task for any of them."""

import asyncio
import os
from contextlib import suppress

__all__ = ["Fed", "Kept"]

_PIECE = 1 << 16


class Kept:
    """What arrives on a descriptor: the beginning is kept, all of it is read and counted."""

    def __init__(self, descriptor: int, most: int) -> None:
        """`most`: bytes to keep. The descriptor is closed at its end, or by `close`."""
        self._descriptor, self._most = descriptor, most
        self._data = bytearray()
        self.cut = 0
        """Bytes that were not kept."""
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    @property
    def data(self) -> bytes:
        """What was kept."""
        return bytes(self._data)

    async def over(self) -> None:
        """Return when nobody can write to it any more."""
        await self._over.wait()

    def close(self) -> None:
        """Stop reading."""
        if not self._over.is_set():
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._over.set()

    def _read(self) -> None:
        try:
            piece = os.read(self._descriptor, _PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        room = max(0, self._most - len(self._data))
        self._data += piece[:room]
        self.cut += max(0, len(piece) - room)
        if not piece:
            self.close()


class Fed:
    """What a job reads: written as fast as it takes it, then closed."""

    def __init__(self, descriptor: int, data: bytes) -> None:
        self._descriptor, self._rest, self._is_open = descriptor, memoryview(data), True
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_writer(descriptor, self._write)

    def close(self) -> None:
        """Whatever is left is not written."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_writer(self._descriptor)
            with suppress(OSError):
                os.close(self._descriptor)

    def _write(self) -> None:
        try:
            self._rest = self._rest[os.write(self._descriptor, self._rest[:_PIECE]) :]
        except BlockingIOError:
            return
        except OSError:  # it reads no more
            self._rest = self._rest[:0]
        if not self._rest:
            self.close()
