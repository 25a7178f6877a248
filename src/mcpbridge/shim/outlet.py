"""Write to a descriptor or a socket that may not take everything at once."""

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Outlet"]

_PIECE = 1 << 18


class Outlet:
    """Keeps what the other side does not take yet, in order."""

    def __init__(self, write: "Callable[[bytes | memoryview], int]") -> None:
        """`write` takes what it can and returns how many bytes; raises BlockingIOError for none, OSError at the end."""
        self._write = write
        self._rest = bytearray()
        self.queued = 0
        """Bytes taken so far, with those that have left."""
        self.is_broken = False
        """The other side takes nothing any more; what comes is dropped."""

    @property
    def pending(self) -> int:
        """Bytes that have not left."""
        return len(self._rest)

    @property
    def sent(self) -> int:
        """Bytes that have left."""
        return self.queued - len(self._rest)

    def put(self, data: bytes) -> None:
        """Take `data`, and write what goes at once."""
        self.queued += len(data)
        if self._rest or self.is_broken:
            self._rest += data
            return
        written = self._try(data)
        if written < len(data):
            self._rest += memoryview(data)[written:]

    def flush(self) -> None:
        """Write what goes now."""
        while self._rest and not self.is_broken:
            with memoryview(self._rest) as rest:
                written = self._try(rest[:_PIECE])
            del self._rest[:written]
            if not written:
                return

    def _try(self, data: bytes | memoryview) -> int:
        try:
            return self._write(data)
        except BlockingIOError:
            return 0
        except OSError:
            self.is_broken = True
            return 0
