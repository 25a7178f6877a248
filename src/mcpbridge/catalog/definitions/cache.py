"""A cache of the work that earlier runs did on definitions: checking and shortening them.

Without it most of a start would be spent on definitions that are nearly all the same as the last time. The outcome is
kept for each server, under digests of everything that it depends on, this program included, so it is never out of
date. An entry that no run asks for any more is not saved again. `format.py` has the format in which it is saved.
"""

from collections.abc import Callable
from hashlib import blake2b

import msgspec
from msgspec import structs

from mcpbridge.base.log import get_logger
from mcpbridge.catalog.definitions.check import Changes, Definition, Kind, Unusable, check
from mcpbridge.catalog.definitions.format import (
    ListedDefinition,
    SavedDefinitions,
    decode,
    encode,
    key_of,
    program_digest,
)
from mcpbridge.catalog.definitions.scanner.finding import Scanned

log = get_logger("mcpbridge.catalog")

MAX_DEFINITIONS = 20_000
"""Definitions of one server that are remembered in one run."""


class DefinitionCache:
    """The cached definitions of all servers."""

    def __init__(self, load: Callable[[str], bytes], save: Callable[[str, bytes], None]) -> None:
        """`load` gives what was saved under a key, if there is something; `save` returns at once. Neither raises."""
        self._load, self._save = load, save
        self._program = program_digest()
        self._servers: dict[str, ServerDefinitions] = {}

    def of(self, server: str) -> "ServerDefinitions":
        """The cached definitions of this server."""
        known = self._servers.get(server)
        if known is None:
            known = self._servers[server] = ServerDefinitions(self._read(server))
        return known

    def save(self) -> None:
        """Save what is new. Call it after a snapshot: whatever is offered now has been asked for by then."""
        for server, known in self._servers.items():
            if known.is_new:
                checked = {key: structs.replace(found, raw=b"") for key, found in known.checked.items()}
                try:
                    data = encode(SavedDefinitions(self._program, checked, known.listed, known.scanned))
                except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                    log.debug("definitions cannot be stored", upstream=server, reason=str(error))
                else:
                    self._save(key_of(server), data)
            known.forget_unused()

    def _read(self, server: str) -> SavedDefinitions:
        data = self._load(key_of(server))
        if data:
            try:
                saved = decode(data)
                if saved.program == self._program:
                    return saved
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                log.debug("stored definitions cannot be read", upstream=server, reason=str(error))
        return SavedDefinitions(self._program, {}, {})


class ServerDefinitions:
    """The cached definitions of one server."""

    def __init__(self, saved: SavedDefinitions) -> None:
        self._saved: SavedDefinitions | None = saved
        """From earlier runs, until it is clear what of it is still of use."""
        self.checked: dict[bytes, Definition] = {}
        self.listed: dict[bytes, ListedDefinition] = {}
        self.scanned: dict[bytes, Scanned] = {}
        self.is_new = False
        """There is something that was not saved before."""

    def check(self, kind: Kind, raw: bytes, *, over_http: bool) -> Definition | Unusable:
        """As `definitions.check`."""
        key = blake2b(raw, digest_size=16, salt=b"%c%d" % (kind[0].encode(), over_http)).digest()
        found = self.checked.get(key) or (self._saved.checked.get(key) if self._saved is not None else None)
        if found is not None:
            # One object for here and for whoever asks, and one text where key and name are the same.
            name = found.key if found.name == found.key else found.name
            found = self.checked[key] = structs.replace(found, raw=raw, name=name)
            return found
        self.is_new = True
        checked = check(kind, raw, over_http=over_http)
        if isinstance(checked, Definition):
            self.checked[key] = checked
        return checked

    def listed_definition(
        self, definition: Definition, changes: Changes, level: str, make: Callable[[], ListedDefinition]
    ) -> ListedDefinition:
        """How a definition is listed under these changes at this level, made by `make` if it is not known."""
        all_changes = (changes, definition.changes, definition.for_legacy, definition.for_modern)
        how = repr((definition.kind, level, [tuple(some.items()) for some in all_changes])).encode()
        key = blake2b(definition.raw, digest_size=16, key=blake2b(how, digest_size=32).digest()).digest()
        listed = self.listed.get(key) or (self._saved.listed.get(key) if self._saved is not None else None)
        if listed is None:
            self.is_new = True
            listed = make()
        self.listed[key] = listed
        return listed

    def scan(self, raw: bytes, read: Callable[[bytes], Scanned]) -> Scanned:
        """What the scanner finds in a definition; `read` finds it out if it is not known."""
        key = blake2b(raw, digest_size=16).digest()
        scanned = self.scanned.get(key) or (self._saved.scanned.get(key) if self._saved is not None else None)
        if scanned is None:
            self.is_new = True
            scanned = read(raw)
        self.scanned[key] = scanned
        return scanned

    def forget_unused(self) -> None:
        """Keep all that was asked for so far, and nothing else."""
        self._saved, self.is_new = None, False
        if max(len(self.listed), len(self.scanned)) > MAX_DEFINITIONS:  # a server that says something else each time
            self.checked, self.listed, self.scanned = {}, {}, {}
