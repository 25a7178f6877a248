"""A large message in pieces that are sent one after the other: joined they would be copied, which stops all else."""

from collections.abc import Iterator

from msgspec import Raw

Part = bytes | Raw


class Pieces:
    """Some bytes in order. Never changed. `bytes()` of it copies them all."""

    __slots__ = ("_size", "parts")

    def __init__(self, *parts: "Part | Pieces") -> None:
        self.parts: list[Part] = []
        for part in parts:
            self.parts += part.parts if isinstance(part, Pieces) else [part]
        self._size = sum(map(len, self.parts))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(map(memoryview, self.parts))

    def views(self, most: int) -> Iterator[memoryview]:
        """All bytes in order, `most` at a time; nothing is copied."""
        for part in self.parts:
            view = memoryview(part)
            for start in range(0, len(view), most):
                yield view[start : start + most]


Payload = bytes | Raw | Pieces
"""The bytes of a result."""
