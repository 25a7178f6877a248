"""Results that are kept for a while, in bounded memory; the one that was not used for longest goes first.

A result is kept as bytes, cut at the place where it is told of that it was kept: a hit splices that in and leaves the
rest as it came. No I/O; the time is passed in.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable

from msgspec import Struct

from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import encode, encode_fields

__all__ = ["CACHE_META", "Kept", "KeptResults", "Key", "opened"]

CACHE_META = "mcpbridge/cache"
"""In `_meta` of a result that was not fetched for this call: `hit`, `age` and `ttl` in seconds; `shared` if it comes
of a call that was under way."""

Key = tuple[str, ...]

_OVERHEAD = 600
"""Bytes that an entry takes beside its result, about."""
_MARK = encode(CACHE_META) + b":"


class Kept(Struct, eq=False):
    """One result. Its `tool` and `server` are names by which it can be dropped."""

    server: str
    tool: str
    data: bytes
    """See `opened`."""
    since: float
    until: float
    whole: bytes = b""
    """As it came, if that cannot be told from `data`."""

    @classmethod
    def of(cls, server: str, tool: str, data: bytes, since: float, until: float) -> "Kept":
        """Keep these bytes.

        Raises:
            msgspec.DecodeError: they are no object.
        """
        begun = opened(data)
        return cls(server, tool, begun, since, until, b"" if _closed(begun) == data else data)

    @property
    def original(self) -> bytes:
        """The result as it came, byte for byte."""
        return self.whole or _closed(self.data)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data) + len(self.whole) + _OVERHEAD

    def told(self, now: float, *, is_shared: bool = False) -> Body:
        """The result for a further call, marked."""
        mark: dict[str, object] = {
            "hit": True,
            "age": round(max(0.0, now - self.since), 3),
            "ttl": round(self.until - self.since, 3),
        }
        if is_shared:
            mark["shared"] = True
        return Body(self.data + encode(mark) + b"}}")


def opened(data: bytes) -> bytes:
    """A result up to the value of the mark in its `_meta`: the mark and two braces complete it.

    Raises:
        msgspec.DecodeError: it is no object.
    """
    if b'"_meta"' not in data:
        head = data.strip()[1:-1].rstrip()
        return b"{" + head + (b"," if head else b"") + b'"_meta":{' + _MARK
    result = Body(data)
    meta = result.inner("_meta") or Body()
    meta.drop(CACHE_META)
    rest = {name: value for name, value in result.fields.items() if name != "_meta"}
    inside = encode_fields(meta.fields)[1:-1]
    before = encode_fields(rest)[1:-1]
    return b"{%b%b" % (before, b"," if before else b"") + b'"_meta":{%b%b' % (inside, b"," if inside else b"") + _MARK


def _closed(begun: bytes) -> bytes:
    """What `opened` began, without what it added."""
    head = begun.removesuffix(b'"_meta":{' + _MARK)
    return head.removesuffix(b",") + b"}"


class KeptResults:
    """Results by key."""

    def __init__(self, max_bytes: int, max_result: int) -> None:
        """The size of all together, and of the largest that is kept at all."""
        self._max_bytes, self._max_result = max_bytes, max_result
        self.bytes = 0
        """What all take."""
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        self._keys: dict[str, set[Key]] = {}
        """By server."""

    def bound(self, max_bytes: int, max_result: int) -> None:
        """Other sizes from now on; what is too much goes."""
        self._max_bytes, self._max_result = max_bytes, max_result
        self._make_room()

    def get(self, key: Key, now: float) -> Kept | None:
        """A result that is still good; None when there is none."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if now >= kept.until:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return kept

    def put(self, key: Key, kept: Kept) -> bool:
        """Keep a result; others go for it. False: it is too large."""
        if kept.size > min(self._max_result + _OVERHEAD, self._max_bytes):
            return False
        if key in self._kept:
            self._drop(key)
        self._kept[key] = kept
        self._keys.setdefault(kept.server, set()).add(key)
        self.bytes += kept.size
        self._make_room()
        return True

    def drop_server(self, server: str) -> int:
        """Forget all results of a server; says how many there were."""
        keys = self._keys.get(server)
        if not keys:
            return 0
        count = len(keys)
        for key in list(keys):
            self._drop(key)
        return count

    def drop(self, which: Callable[[Kept], bool]) -> int:
        """Forget those of which this is true; says how many they were."""
        found = [key for key, kept in self._kept.items() if which(kept)]
        for key in found:
            self._drop(key)
        return len(found)

    def by_tool(self, now: float) -> dict[str, tuple[int, int]]:
        """How many there are of each tool and the bytes that they take; what is too old goes first."""
        self.drop(lambda kept: now >= kept.until)
        entries, sizes = Counter[str](), Counter[str]()
        for kept in self._kept.values():
            entries[kept.tool] += 1
            sizes[kept.tool] += kept.size
        return {tool: (count, sizes[tool]) for tool, count in entries.items()}

    def __len__(self) -> int:
        return len(self._kept)

    def _make_room(self) -> None:
        while self.bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Key) -> None:
        kept = self._kept.pop(key)
        self.bytes -= kept.size
        keys = self._keys[kept.server]
        keys.discard(key)
        if not keys:
            del self._keys[kept.server]
