"""Which entry of a cassette answers a request that is made again. No I/O.

Requests are equal by server, method and what their params mean. Equal ones get the answers of the recording in its
order, and the last one again and again. What was masked in a recording stands for any text where nothing is equal. A
list is the one that stood when the server had told of as many changes as it has now.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw

from mcpbridge.cassettes.entries import LISTS, OPENING, Entry, Step, key_of
from mcpbridge.cassettes.masking import resembles
from mcpbridge.redaction import MASK
from mcpbridge.wire.canonical import canonical

__all__ = ["Matching", "is_same_answer"]

Key = tuple[str, str, bytes]


class Matching:
    """The entries of one cassette while they are replayed."""

    def __init__(self, entries: Iterable[Entry], *, repeat: bool) -> None:
        """`repeat`: the last of equal entries answers all further requests."""
        self._repeat = repeat
        self._by_key: dict[Key, list[Entry]] = {}
        self._given: dict[Key, int] = {}
        self._of: dict[str, list[Entry]] = {}
        for entry in entries:
            self._of.setdefault(entry.server, []).append(entry)
            if entry.request:
                self._by_key.setdefault(key_of(entry), []).append(entry)

    @property
    def servers(self) -> Sequence[str]:
        """Those of which anything was recorded."""
        return list(self._of)

    def of(self, server: str) -> Sequence[Entry]:
        """All entries of a server."""
        return self._of.get(server, ())

    def asked_like(self, server: str, method: str) -> list[Entry]:
        """The entries of this method."""
        return [entry for entry in self.of(server) if entry.request == method]

    def take(self, server: str, method: str, params: Raw, *, changes: int = 0) -> Entry | None:
        """The entry whose turn it is for this request; None: there is none. `changes`: see `Entry`, for lists."""
        key = self._key(server, method, params)
        entries = self._by_key.get(key, []) if key is not None else []
        if not entries or key is None:
            return None
        if method in LISTS:
            return next((entry for entry in reversed(entries) if entry.changes <= changes), entries[0])
        number = self._given.get(key, 0)
        if number >= len(entries) and not (self._repeat or method in OPENING or method == "tasks/get"):
            return None
        self._given[key] = number + 1
        return entries[min(number, len(entries) - 1)]

    def other_answers(self, entry: Entry, number: int, step: Step) -> Entry | None:
        """An equal entry that was the same up to this step, where the server got this answer to its request."""
        before = entry.meanwhile[:number]
        for other in self._by_key.get(key_of(entry), []):
            steps = other.meanwhile
            if len(steps) > number and steps[:number] == before and is_same_answer(steps[number], step):
                return other
        return None

    def unused(self) -> list[Entry]:
        """Requests of the recording that were not made."""
        left: list[Entry] = []
        for key, entries in self._by_key.items():
            if key[1] not in LISTS and key[1] not in OPENING:
                left += entries[self._given.get(key, 0) :]
        return left

    def _key(self, server: str, method: str, params: Raw) -> Key | None:
        key = server, method, b"" if method in OPENING else canonical(params)
        if key in self._by_key:
            return key
        for entry in self.asked_like(server, method):
            if MASK.encode() in bytes(entry.params) and _resemble(entry.params, params):
                return key_of(entry)
        return None


def is_same_answer(recorded: Step, given: Step) -> bool:
    """Whether a request of the server was answered as in the recording. One that was not answered there goes on."""
    if not recorded.is_answered:
        return recorded.ask == given.ask
    if bool(bytes(recorded.refused)) or bool(bytes(given.refused)):  # the words of an error are the bridge's
        return bool(bytes(recorded.refused)) and bool(bytes(given.refused))
    is_equal = canonical(recorded.answer) == canonical(given.answer)
    return recorded.ask == given.ask and (is_equal or _resemble(recorded.answer, given.answer))


def _resemble(recorded: Raw, asked: Raw) -> bool:
    try:
        return resembles(msgspec.json.decode(recorded), msgspec.json.decode(asked))
    except (msgspec.DecodeError, RecursionError):
        return False
