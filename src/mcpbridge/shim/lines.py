"""Cut a stream of bytes into lines that are forwarded whole. Sans-I/O.

What was forwarded in part could not be taken back if the other end died in the middle. Only a line over the limit goes
through in pieces: it is more than the bridge takes, and is not kept for it.
"""

__all__ = ["LONGEST_LINE", "Lines"]

LONGEST_LINE = 256 << 20
"""Bytes."""


class Lines:
    """Feed it what arrives; it returns the lines that this completes, with their ends."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self.held = 0
        """Bytes of a line whose end has not come yet."""
        self._is_skipping = False
        self.is_passing = False
        """The last line that was returned is a piece of one over the limit, whose end has not come yet."""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes; and pieces of one over the limit, as they come."""
        end = data.rfind(b"\n") + 1
        if not end:
            return self._hold(data) if data else []
        if self._is_skipping:
            self._is_skipping = False
            return self.feed(data[data.index(b"\n") + 1 :])
        lines = [line + b"\n" for line in data[: end - 1].split(b"\n")]
        if self.held:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts.clear()
        self.held = 0
        self.is_passing = False
        return lines + self._hold(data[end:]) if end < len(data) else lines

    def skip(self) -> None:
        """Leave out the rest of the line that is passing."""
        self._is_skipping, self.is_passing = self.is_passing, False

    def end(self) -> bytes:
        """What is left of a line without an end."""
        rest = b"".join(self._parts)
        self._parts.clear()
        self.held = 0
        return rest

    def _hold(self, data: bytes) -> list[bytes]:
        if self._is_skipping:
            return []
        if self.is_passing:
            return [data]
        self._parts.append(data)
        self.held += len(data)
        if self.held <= self._longest:
            return []
        self.is_passing = True
        return [self.end()]
