"""What the bridges that share a process want of it besides calls: changes of resources, and log messages (legacy).

The server knows one client, so it gets what all of them want together: a resource is unsubscribed from when nobody
wants it any more, and the log level is the least severe of all. URIs and levels are texts as JSON.
"""

from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.protocol.log_levels import LEVELS

_SEVERITY = {encode(level): severity for severity, level in enumerate(LEVELS)}


class Wanted:
    """What each of them wants, by its number."""

    def __init__(self) -> None:
        self._subscribers = dict[bytes, set[int]]()
        self._levels = dict[int, bytes]()
        self._level = b""
        """What the server was sent last; empty: nothing, or it refused."""

    def __repr__(self) -> str:
        return f"<Wanted: {len(self._subscribers)} resources, level {self._level.decode() or 'unset'}>"

    def subscribed(self, number: int, uri: bytes) -> None:
        """It wants changes of this resource; empty: it said of none."""
        if uri:
            self._subscribers.setdefault(uri, set()).add(number)

    def unsubscribed(self, number: int, uri: bytes) -> bool:
        """It wants them no more. Returns whether another one does."""
        subscribers = self._subscribers.get(uri, set[int]())
        subscribers.discard(number)
        if not subscribers:
            self._subscribers.pop(uri, None)
        return bool(subscribers)

    def level_of_all(self, number: int, level: bytes) -> bytes:
        """It wants messages from this level on. Returns what the server is to get; empty: it has that already."""
        if level not in _SEVERITY:
            return level or b"null"  # the server says what is wrong with it
        self._levels[number] = level
        return self._least()

    def level_refused(self) -> None:
        """The server did not take what it got."""
        self._level = b""

    def left(self, number: int) -> list[tuple[str, bytes]]:
        """It wants nothing any more. Returns the requests, method and params, that the server is to get."""
        due = list[tuple[str, bytes]]()
        for uri in [uri for uri, subscribers in self._subscribers.items() if number in subscribers]:
            if not self.unsubscribed(number, uri):
                due.append(("resources/unsubscribe", b'{"uri":%b}' % uri))
        if self._levels.pop(number, b"") and self._levels and (level := self._least()):
            due.append(("logging/setLevel", b'{"level":%b}' % level))
        return due

    def _least(self) -> bytes:
        least = min(self._levels.values(), key=lambda level: _SEVERITY[level])
        if least == self._level:
            return b""
        self._level = least
        return least
