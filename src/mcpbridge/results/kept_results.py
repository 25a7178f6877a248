"""Kept results: put, found again, read and deleted. Each belongs to a principal, and nobody else sees it.

Whoever is kept to roles reads those of tools that there are for them now: a role that somebody lost takes what it
brought along (`get_for`, `summaries_for`). Those who administer the bridge, and the local user, read all of them.

`ResultSummary` is the entry that is written beside a kept result, so that it can be found without being read.

A handle is computed from the principal and the bytes of the result, with a secret of the store. So the same result,
kept again, has the same handle (a model is shown the same bytes each time), and nobody can guess one.
"""

import base64
import hashlib
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import anyio.to_thread
import msgspec
from msgspec import Struct

from mcpbridge.base.masking.known_values import known_only
from mcpbridge.core.model import Call, Caller
from mcpbridge.storage.store import BytesLike, Entry, Store


class ResultSummary(Struct, frozen=True, omit_defaults=True):
    """One kept result. Kept as JSON beside it (`label` in the store), so new fields need defaults."""

    handle: str
    tool: str
    """The tool's id, `server/tool`."""
    arguments: str = ""
    """The arguments of the call as JSON, secrets masked, cut after some hundred characters."""
    outcome: str = "ok"
    """`ok`, or `tool_error` for a result with `isError`."""
    kind: str = ""
    """See `Document.kind`; of several parts `parts`, of pictures and the like their media type."""
    headline: str = ""
    """What it is in a few words, as previews begin."""
    chars: int = 0
    """Characters of its texts."""
    at: float = 0.0
    """When it was kept; seconds since 1970."""
    client: str = ""
    """`clientInfo.name` of who called."""
    labels: tuple[str, ...] | None = None
    """What the call had touched, `private` and `untrusted`; None: nobody looked."""


class OwnedResult(Struct, frozen=True):
    """A kept result and whose it is, for who administers the bridge."""

    summary: ResultSummary
    principal: str
    """Empty: the local user's."""
    size: int
    """Bytes of the result."""
    expires: float
    """Seconds since 1970, when it is forgotten unless it is used before."""


RESULTS = "result"
"""The kind of value that results are in the store."""

_SECRET, _SECRET_NAME = "secret", "handles"
_SECRET_BYTES = 32
_SECRET_SECONDS = 10 * 365 * 86400.0
_HANDLE_BYTES = 16
"""128 bits, as the store's own handles have."""
_SLOW = 256 * 1024
"""Bytes from which they are hashed in a thread."""
_LONGEST_TEXT = 300
"""Characters of arguments and headlines that are kept in a summary."""
_LONGEST_NAME = 200
"""Characters of names: servers and clients name things as long as they like."""
_MARGIN = 4096
"""Characters that are looked at beyond what is kept, so that a secret at the edge is not kept in part."""
_SEARCHED = 10_000
"""Results, the newest, among which words are looked for."""
_MOST_WORDS, _LONGEST_WORD = 20, 100
"""Words that are looked for, and characters of each that are; the rest would find nothing less."""


Restriction = Callable[[Caller], Callable[[str], bool] | None]
"""What says which tools (ids) there are for a caller; None: all of them."""


def _unrestricted(caller: Caller) -> None:
    """Nobody is kept to roles."""


class KeptResults:
    """The results kept in a store."""

    def __init__(
        self,
        store: Store,
        *,
        lifetime: float,
        redact: Callable[[str], str] = lambda text: text,
        clock: Callable[[], float] = time.time,
        restriction: Restriction = _unrestricted,
    ) -> None:
        """`lifetime`: seconds that a result is kept after it was last used. `redact` masks secrets in summaries.

        `restriction`: of those who read results of their own.
        """
        self._restriction = restriction
        self._store, self._redact, self._clock = store, known_only(redact), clock
        self.lifetime = lifetime
        """Seconds that a result is kept after it was last used."""
        self._secret = b""

    async def handle_of(self, data: BytesLike, *, principal: str) -> str:
        """The handle that `keep` gives these bytes; `[a-z2-7]{26}`, 128 bits.

        Raises:
            StoreFailed: the secret that it takes cannot be kept. Not from the bridge's own store.
        """
        if not self._secret:
            self._secret = await self._store.put_if_absent(
                _SECRET,
                secrets.token_bytes(_SECRET_BYTES),
                principal="",
                expires_in=_SECRET_SECONDS,
                handle=_SECRET_NAME,
            )
        if len(data) > _SLOW:
            return await anyio.to_thread.run_sync(_handle, self._secret, principal, data, abandon_on_cancel=True)
        return _handle(self._secret, principal, data)

    async def keep(self, data: BytesLike, summary: ResultSummary, *, principal: str) -> None:
        """Keep the bytes of a result under `summary.handle` (of `handle_of`). Kept again, it starts a new lifetime.

        `data` may be a view of bytes that do not change. A summary without a time gets the present one. Its names and
        texts are masked and cut.

        Raises:
            ValueTooLarge, StoreFailed: it cannot be kept.
        """
        store, handle = self._store, summary.handle
        label = msgspec.json.encode(self._presentable(summary))
        if await store.renew(RESULTS, handle, principal=principal, expires_in=self.lifetime, label=label):
            return
        await store.put(RESULTS, data, principal=principal, expires_in=self.lifetime, handle=handle, label=label)

    async def get(self, handle: str, *, principal: str) -> bytes | None:
        """The result as the server sent it, and it counts as used; None if there is none for this principal."""
        return await self._store.get(RESULTS, handle, principal=principal, renew=self.lifetime)

    async def get_for(self, handle: str, caller: Caller) -> bytes | None:
        """As `get`, for who called: None as well where there is no such tool for the caller any more."""
        sees = self._restriction(caller)
        if sees is not None:
            summary = await self.summary(handle, principal=caller.principal)
            if summary is None or not sees(summary.tool):
                return None
        return await self.get(handle, principal=caller.principal)

    async def has_for(self, handle: str, caller: Caller) -> bool:
        """Whether `get_for` would find one. It does not count as used."""
        summary = await self.summary(handle, principal=caller.principal)
        return summary is not None and self.may_know(caller, summary.tool)

    async def summaries_for(self, caller: Caller, *, search: str = "", limit: int = 50) -> list[ResultSummary]:
        """As `summaries`, for who called: of tools that there are for the caller now."""
        sees = self._restriction(caller)
        if sees is None:
            return await self.summaries(principal=caller.principal, search=search, limit=limit)
        found = await self.summaries(principal=caller.principal, search=search, limit=_SEARCHED)
        return [summary for summary in found if sees(summary.tool)][:limit]

    def may_know(self, caller: Caller, tool: str) -> bool:
        """Whether there is such a tool for who called."""
        sees = self._restriction(caller)
        return sees is None or sees(tool)

    async def summary(self, handle: str, *, principal: str) -> ResultSummary | None:
        """What is known of one; of results that have no summary, the handle and times alone."""
        entry = await self._store.entry(RESULTS, handle, principal=principal)
        return None if entry is None else _summary(entry)

    async def summaries(self, *, principal: str | None, search: str = "", limit: int = 50) -> list[ResultSummary]:
        """Those whose tool, arguments, outcome, headline, kind or client have all words of `search`; the newest first.

        `principal` None: of everybody, for who administers the bridge. The 10,000 newest are searched, and for 20
        different words at most.
        """
        words = searched_words(search)
        looked_at = max(limit, _SEARCHED) if words else limit
        entries = await self._store.entries(RESULTS, principal=principal, limit=looked_at, newest_first=True)
        if not words:
            return [_summary(entry) for entry in entries]
        return await anyio.to_thread.run_sync(_matching, entries, words, limit, abandon_on_cancel=True)

    async def everybody(self, *, search: str = "", limit: int = 50) -> list["OwnedResult"]:
        """Kept results of all principals, the newest first, for who administers the bridge; `search`: see `summaries`.

        Cancelling costs nothing.
        """
        words = searched_words(search)
        looked_at = max(limit, _SEARCHED) if words else limit
        entries = await self._store.entries(RESULTS, principal=None, limit=looked_at, newest_first=True)
        wanted = {one.handle for one in _matching(entries, words, limit)} if words else {one.handle for one in entries}
        return [
            OwnedResult(_summary(entry), entry.principal, entry.size, entry.expires)
            for entry in entries
            if entry.handle in wanted
        ][:limit]

    async def drop(self, handle: str, *, principal: str) -> bool:
        """Forget one. False if there was none."""
        return await self._store.drop(RESULTS, handle, principal=principal)

    def _presentable(self, summary: ResultSummary) -> ResultSummary:
        return ResultSummary(
            handle=summary.handle,
            tool=self._cut(summary.tool, _LONGEST_NAME),
            arguments=self._cut(summary.arguments, _LONGEST_TEXT),
            outcome=summary.outcome,
            kind=summary.kind[:_LONGEST_NAME],
            headline=self._cut(summary.headline, _LONGEST_TEXT),
            chars=summary.chars,
            at=summary.at or self._clock(),
            client=self._cut(summary.client, _LONGEST_NAME),
            labels=summary.labels,
        )

    def _cut(self, text: str, most: int) -> str:
        masked = self._redact(text[: most + _MARGIN])
        if len(masked) > most:
            masked = masked[: most - 1] + "…"
        return masked.encode("utf-8", "replace").decode()  # lone surrogates are no JSON


def searched_words(search: str) -> list[str]:
    """The words of a search that are looked for: each once, in lower case, so many of so many characters."""
    text = search[: 4 * _MOST_WORDS * _LONGEST_WORD].casefold()
    return list(dict.fromkeys(word[:_LONGEST_WORD] for word in text.split()))[:_MOST_WORDS]


def _handle(secret: bytes, principal: str, data: BytesLike) -> str:
    name = principal.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(len(name).to_bytes(8, "big") + name, key=secret[:64], digest_size=_HANDLE_BYTES)
    digest.update(data)
    return base64.b32encode(digest.digest()).decode().rstrip("=").lower()


def _summary(entry: Entry) -> ResultSummary:
    """What the label says, as far as it can be trusted to be about this value."""
    try:
        summary = msgspec.json.decode(entry.label, type=ResultSummary)
    except (msgspec.DecodeError, UnicodeDecodeError):  # late results have none
        return ResultSummary(handle=entry.handle, tool="", at=entry.created)
    return msgspec.structs.replace(summary, handle=entry.handle)


def _matching(entries: Sequence[Entry], words: Sequence[str], limit: int) -> list[ResultSummary]:
    found: list[ResultSummary] = []
    for entry in entries:
        summary = _summary(entry)
        texts = [summary.tool, summary.arguments, summary.outcome, summary.headline, summary.kind, summary.client]
        text = "\n".join(texts).casefold()
        if all(word in text for word in words):
            found.append(summary)
            if len(found) == limit:
                break
    return found


_REFERENCES = "references"


def note_references(call: Call, handles: Iterable[str]) -> None:
    """The arguments of the call hold these kept results, in full."""
    call.note(_REFERENCES, sorted(handles))


def references_of(call: Call) -> list[str]:
    """The handles that `note_references` noted."""
    handles = (call.facts or {}).get(_REFERENCES)
    return cast("list[str]", handles) if isinstance(handles, list) else []
