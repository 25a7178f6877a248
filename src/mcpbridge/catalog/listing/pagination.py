"""The answers to the list methods, encoded beforehand, and the cursors between their pages.

A cursor says where it is ("after this entry of this kind"), so it needs no memory of who asked, survives a
restart, and still means the right place when the list has changed in between (spec, pagination).
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import compress

import msgspec
from msgspec import Struct

from mcpbridge.base.errors import BadRequest
from mcpbridge.catalog.definitions.check import Kind
from mcpbridge.catalog.listed_definitions import older_form
from mcpbridge.protocol.error_codes import INVALID_PARAMS
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.protocol.revisions import LATEST_LEGACY, is_modern

_LONGEST_CURSOR = 16_384
_MEMBER: dict[Kind, bytes] = {
    "tools": b"tools",
    "prompts": b"prompts",
    "resources": b"resources",
    "templates": b"resourceTemplates",
}
_Key = tuple[str, str]


class Entry(Struct, frozen=True, gc=False):
    """One thing in a listing: where it sorts, and its definition as the newest revision of either era sees it."""

    key: _Key
    """(server, name); unique within a listing."""
    legacy: bytes
    modern: bytes
    digest: bytes
    """Of both forms."""


class Listing:
    """Everything of one kind, in order, cut into pages."""

    def __init__(self, kind: Kind, entries: Sequence[Entry], page_size: int, modern_members: bytes) -> None:
        """`entries` are sorted by key. `page_size` 0: one page. `modern_members` end each modern page."""
        self._kind: Kind = kind
        self._entries = entries
        self._keys = [entry.key for entry in entries]
        self._asked_size, self._page_size = page_size, page_size or max(len(entries), 1)
        self._modern_members = modern_members
        self._pages: dict[tuple[int, str], bytes] = {}
        digest = sha256(kind.encode())
        for entry in entries:
            digest.update(entry.digest)
        self.digest = digest.hexdigest()

    @property
    def entries(self) -> Sequence[Entry]:
        """What is in it, in order."""
        return self._entries

    def of(self, entries: Sequence[Entry]) -> "Listing":
        """A list of the same kind, cut alike, of these entries (sorted by key)."""
        return Listing(self._kind, entries, self._asked_size, self._modern_members)

    def only(self, is_kept: Iterable[bool]) -> "Listing":
        """The same without some entries; `is_kept` says of each whether it stays. Cursors mean the same places."""
        return self.of(list(compress(self._entries, is_kept)))

    def page(self, cursor: str | None, *, revision: str) -> bytes:
        """The result object of the page behind `cursor`, on one line. An empty cursor is taken for none.

        A page that a walk from the start meets is encoded once for each revision that somebody asks in; asking again
        costs a look-up. `revision` is one that the bridge speaks.

        Raises:
            BadRequest: the cursor is not one of this listing's (−32602).
        """
        return self._page_at(bisect_right(self._keys, self._position(cursor)) if cursor else 0, revision)

    def pages(self, revision: str) -> Iterator[tuple[str, bytes]]:
        """All pages from the start on, each with the cursor that leads to it; that of the first is empty."""
        for start in range(0, max(len(self._entries), 1), self._page_size):
            yield self._cursor(self._keys[start - 1]) if start else "", self._page_at(start, revision)

    def _page_at(self, start: int, revision: str) -> bytes:
        page = self._pages.get((start, revision))
        if page is None:
            page = self._encoded(start, revision)
            if start % self._page_size == 0:  # a cursor from an older list may point anywhere, and often
                self._pages[start, revision] = page
        return page

    def _encoded(self, start: int, revision: str) -> bytes:
        modern = is_modern(revision)
        shown = self._entries[start : start + self._page_size]
        parts = [entry.modern if modern else older_form(self._kind, entry.legacy, revision) for entry in shown]
        if revision < LATEST_LEGACY and all(part is entry.legacy for part, entry in zip(parts, shown, strict=True)):
            return self._page_at(start, LATEST_LEGACY)  # not another copy of megabytes
        end = b"]"
        if start + len(shown) < len(self._entries):
            end += b',"nextCursor":' + encode(self._cursor(shown[-1].key))
        if modern:
            end += b"," + self._modern_members
        begin = b'{"%b":[' % _MEMBER[self._kind]
        if not parts:
            return b"%b%b}" % (begin, end)
        # The ends go to their neighbours, so that megabytes are joined in one copy.
        parts[0] = begin + parts[0]
        parts[-1] = b"%b%b}" % (parts[-1], end)
        return b",".join(parts)

    def _cursor(self, key: _Key) -> str:
        return urlsafe_b64encode(encode([self._kind, *key])).decode().rstrip("=")

    def _position(self, cursor: str) -> _Key:
        try:
            if len(cursor) > _LONGEST_CURSOR:
                raise ValueError(cursor)
            padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
            kind, server, name = _decode_cursor(urlsafe_b64decode(padded))
            if kind != self._kind or self._cursor((server, name)) != cursor:
                raise ValueError(cursor)
        except ValueError as error:  # the codecs' and msgspec's errors all are ValueErrors
            raise BadRequest(INVALID_PARAMS, "Invalid cursor: list again from the start") from error
        return server, name


_decode_cursor = msgspec.json.Decoder(tuple[str, str, str]).decode
