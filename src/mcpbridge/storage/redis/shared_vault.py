"""The vault of bridges that share a store: its rows are on the server, and each bridge has a copy of all of them.

Who calls looks at the copy, which is the files of any vault, and costs nothing. What another bridge changed is fetched
at most a second later, and at once by whoever holds the lock of a row. While the server cannot be reached, the copy
answers; nothing can be locked then, so no token is renewed twice.

After each failure of the server all rows are compared, since another one may have taken over that lacks changes. Of two
rows the newer one counts: a bridge that has it writes it down again.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from operator import itemgetter
from pathlib import Path
from time import monotonic

import anyio
import anyio.to_thread

from mcpbridge.base.errors import ConfigError, StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.storage.redis.shared_secrets import SEND_AGAIN, SEND_SECONDS, Change, SharedRows
from mcpbridge.storage.token_store import write_private
from mcpbridge.storage.vault import Row, Vault, head_of
from mcpbridge.storage.vault_keys import VaultKeys, is_private_directory

log = get_logger("mcpbridge.storage")

FOLLOW_SECONDS = 1.0
"""Between two times that a bridge asks what has changed, while calls come."""
_ROTATE = "rotate"
_UNSENT = "unsent"
"""The file with the places of rows that the server could not take."""


class SharedVault(Vault):
    """A `Vault` of which other bridges have the same rows."""

    def __init__(self, directory: Callable[[], Path], keys: Callable[[Path], VaultKeys], shared: SharedRows) -> None:
        super().__init__(lambda: directory() / f"shared-{shared.name}", keys)
        self._shared = shared
        self._last = -1
        """The number of the last change that the copy has; -1: it was not compared yet."""
        self._epoch = 0
        """That of the connections when it was compared."""
        self._numbers: dict[str, int] = {}
        """By place, the last change of a row that the server had and this bridge knows."""
        self._newest = ("", 0)
        """The last of them all: place and number."""
        self._tried: dict[str, bytes] = {}
        """What was sent to the server, and may be there, for places that are `_unsent`."""
        self._sent = set[str]()
        """Places of rows that were changed here, since the last look at what others changed."""
        self._known_salt = b""
        self._asked_at = float("-inf")
        self._unsent = set[str]()
        """Places of rows that were written or taken away here, which the server does not know yet."""
        self._changing = anyio.Lock()
        """Held by whoever writes rows, here or to the server: else an old one could be sent in place of a new one."""
        self._has_complained = False

    async def follow(self) -> None:
        """Take over what other bridges changed, unless that was done a moment ago."""
        if monotonic() - self._asked_at < FOLLOW_SECONDS or (self._last >= 0 and self._changing.locked()):
            return
        try:
            await self._fetch()
            self._has_complained = False
        except StoreFailed as error:
            if not self._has_complained:
                self._has_complained = True
                log.warning("the shared accounts cannot be read; what is known of them counts", reason=str(error))

    async def load(self, row: Row) -> bytes | None:
        """As of any vault."""
        await self.follow()
        return await super().load(row)

    async def save(self, row: Row, value: bytes) -> None:
        """As of any vault. Where the server does not answer, this bridge has the row, and hands it on later."""
        await self._fetch_first()
        async with self._changing:
            self._unsent.add(row.place)
            await super().save(row, value)
            await self._try_to_send(row.place)

    async def drop(self, row: Row) -> bool:
        """As of any vault. Where the server does not answer, this bridge has forgotten it, and the others later."""
        async with self._changing:
            self._unsent.add(row.place)
            had = await super().drop(row)
            return await self._try_to_send(row.place) or had

    async def settle(self) -> None:
        """See `Vault`."""
        await self._fetch()

    @asynccontextmanager
    async def lock(self, row: Row, what: str, seconds: float) -> AsyncGenerator[None]:
        """Alone among all bridges, and with the row as it is now. At the end the others can see what became of it.

        Raises:
            TimeoutError: another holds it all the time.
            StoreFailed: the server does not answer; or another bridge got the lock meanwhile.
        """
        async with self._shared.lock(self.lock_name(row, what), seconds):
            await self._fetch()
            yield
            with anyio.move_on_after(SEND_SECONDS):  # as in a failover; the next one must not see what was before
                while row.place in self._unsent:
                    await anyio.sleep(SEND_AGAIN)
                    async with self._changing:
                        with suppress(StoreFailed):
                            await self._send([row.place])

    async def rotate_all(self) -> tuple[int, int]:
        """As of any vault, with the rows of all bridges."""
        async with self._shared.lock(_ROTATE, 60.0):
            await self._fetch()
            async with self._changing:
                found = await super().rotate_all()
                self._unsent.update(path.stem for path in self.directory.glob("*.row"))
                await self._send(list(self._unsent))
            return found

    async def close(self) -> None:
        """End the connections."""
        await self._shared.close()

    # -- internals

    def _salt(self) -> bytes:
        try:
            return (self.directory / "salt").read_bytes()
        except OSError as error:
            raise ConfigError("the shared accounts were not read yet", key="store.url") from error

    async def _fetch_first(self) -> None:
        """Be able to write, whether or not the server answers now."""
        if self._last >= 0 or (self.directory / "salt").exists():
            await self.follow()
            return
        try:
            await self._fetch()
        except StoreFailed as error:
            raise ConfigError(f"an account cannot be stored: {error.what}", file=error.file) from error

    async def _fetch(self) -> None:
        changed: list[tuple[Row, bool]] = []
        try:
            async with self._changing:
                await self._fetch_into(changed)
        finally:  # also where it failed on the way: what is in the files already is no change the next time
            for row, is_there in changed:
                self.changed_elsewhere(row, is_there)

    async def _fetch_into(self, changed: list[tuple[Row, bool]]) -> None:
        epoch, is_first = self._shared.server.epoch, self._last < 0
        is_whole = is_first or epoch != self._epoch
        at = 0 if is_whole else self._last
        if is_whole:
            await self._take_salt()
        if is_first:
            self._unsent |= await anyio.to_thread.run_sync(_places_in, self.directory / _UNSENT)
        seen: set[str] = set()
        while True:
            page, salt, has_lost = await self._shared.changes(at, self._newest)
            if has_lost or salt != self._known_salt:
                self._newest = ("", 0)
                log.warning("the server of the shared accounts has lost changes")
                at, is_whole = 0, True
                seen.clear()
                await self._take_salt()
                continue
            changed += await anyio.to_thread.run_sync(self._take, page, is_first)
            seen.update(change.place for change in page if change.data)
            if not page:
                break
            at = page[-1].number
        if is_whole:
            changed += await anyio.to_thread.run_sync(self._keep_only, seen)
        self._last, self._epoch, self._asked_at = at, epoch, monotonic()
        self._sent.clear()
        await self._send(list(self._unsent))

    async def _take_salt(self) -> None:
        salt, path = await self._shared.salt(), self.directory / "salt"

        def write() -> None:
            is_private_directory(self.directory)
            if not path.exists() or path.read_bytes() != salt:
                write_private(path, salt)

        await anyio.to_thread.run_sync(write)
        if salt != self._known_salt:  # with another one nothing of before can be read: what the server has counts
            self._numbers.clear()
        self._known_salt = salt

    def _take(self, page: Sequence[Change], is_first: bool) -> list[tuple[Row, bool]]:
        """Write what others changed; returns the rows that are not as they were.

        A command on this machine shares the files: the row may be there already.
        """
        changed: list[tuple[Row, bool]] = []
        for change in page:
            if self._is_ours_newer(change):
                self._unsent.add(change.place)
                continue
            self._unsent.discard(change.place)
            is_known = is_first or self._numbers.get(change.place) == change.number or change.place in self._sent
            self._know(change.place, change.number)
            path = self.directory / f"{change.place}.row"
            before, is_same = head_of(path), _bytes_of(path) == change.data
            if not change.data:
                path.unlink(missing_ok=True)
            elif not is_same:  # else its time would say that it changed
                write_private(path, change.data)
            head = head_of(path) or before
            if head is not None and not (is_same and is_known):
                changed.append((head, bool(change.data)))
        return changed

    def _know(self, place: str, number: int) -> None:
        self._numbers[place] = number
        self._newest = max(self._newest, (place, number), key=itemgetter(1))

    def _is_ours_newer(self, change: Change) -> bool:
        known = self._numbers.get(change.place)
        if change.place not in self._unsent:
            return known is not None and known > change.number  # the server has lost what we have
        # It was written under the lock. If another one has changed the row since then, our change was there before.
        return known is None or known >= change.number or change.data == self._tried.get(change.place)

    def _keep_only(self, places: set[str]) -> list[tuple[Row, bool]]:
        """Remove all other rows, but those that the server had and has lost; returns those that are gone."""
        gone: list[tuple[Row, bool]] = []
        for path in self.directory.glob("*.row"):
            if path.stem in self._numbers and path.stem not in places:
                self._unsent.add(path.stem)
            elif path.stem not in places and path.stem not in self._unsent:
                before = head_of(path)
                path.unlink(missing_ok=True)
                gone += [(before, False)] if before is not None else []
        return gone

    async def _try_to_send(self, place: str) -> bool:
        """Whether a row was on the server that is none any more."""
        try:
            return await self._send([place])
        except StoreFailed as error:
            log.warning("a shared account was changed here alone, until its server can be reached", reason=str(error))
            await anyio.to_thread.run_sync(self._remember_unsent)
            return False

    def _remember_unsent(self) -> None:
        """For the next start: what is not sent by then."""
        path = self.directory / _UNSENT
        if self._unsent:
            write_private(path, "\n".join(sorted(self._unsent)).encode())
        else:
            path.unlink(missing_ok=True)

    async def _send(self, places: Sequence[str]) -> bool:
        """Write these rows to the server as they are here. Whether one was there that is none any more."""
        had = False
        for place in places:
            data = await anyio.to_thread.run_sync(_bytes_of, self.directory / f"{place}.row")
            self._sent.add(place)
            self._tried[place] = data
            if data:
                self._know(place, await self._shared.put(place, data))
            else:
                number, was_there = await self._shared.drop(place)
                self._know(place, number)
                had |= was_there
            self._unsent.discard(place)
            self._tried.pop(place, None)
        if places and (self.directory / _UNSENT).exists():
            await anyio.to_thread.run_sync(self._remember_unsent)
        return had


def _places_in(path: Path) -> set[str]:
    return set(_bytes_of(path).decode("ascii", "replace").split())


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
