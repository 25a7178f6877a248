"""The file of a cassette while it is recorded: entries are appended at once, and sorted at the end.

Each entry is appended to `NAME.part` as it arrives, so a recording that ends in a crash keeps what it has. A recording
that ends well is masked, sorted, and replaces the cassette in one step.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from mcpbridge.base.errors import ConfigError
from mcpbridge.engine.cassettes.format import HEADER, LISTS, OPENING, Entry, Failure, Step, as_line, in_order, key_of
from mcpbridge.engine.cassettes.masking import Masker
from mcpbridge.engine.cassettes.plain_form import alias, minted_in
from mcpbridge.protocol.jsonrpc import encode

_DEFINITIONS = OPENING | {"tools/list", "prompts/list"}
"""Requests whose answers define things."""
_PASSING = frozenset({"SessionExpired", "SignInNeeded"})
"""Failures after which the same request is made again, which is all that counts."""


class CassetteFile:
    """What one recording writes, from `open` to `keep` or `leave`."""

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        """Touches nothing yet."""
        self._path, self._part = path, path.with_name(f"{path.name}.part")
        self.masker = Masker(redact)
        self._entries: list[tuple[int, Entry]] = []
        """With the number of the request, by which equal ones are told apart."""
        self._requests = 0
        self._minted: Counter[tuple[str, tuple[str, str, bytes]]] = Counter()
        self._file: BinaryIO | None = None

    def open(self) -> None:
        """Begin the partial file.

        Raises:
            ConfigError: it cannot be written there.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.fdopen(_opened(self._part), "wb")
            for line in (HEADER, *(as_line(entry) for _, entry in self._entries)):
                self._write(line)
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def next_number(self) -> int:
        """The number of a request that is sent now."""
        self._requests += 1
        return self._requests

    def add(self, entry: Entry, number: int = 0) -> int:
        """Write down one entry, masked. Returns its place, for `amend`."""
        self._mint(entry)
        entry = _masked(entry, self.masker)
        self._entries.append((number, entry))
        with suppress(OSError):  # the disk is full: `keep` tells
            self._write(as_line(entry))
        return len(self._entries) - 1

    def amend(self, place: int, step: Step) -> None:
        """This came after the answer of an entry."""
        number, entry = self._entries[place]
        steps = (*entry.meanwhile, _masked_step(step, self.masker))
        self._entries[place] = number, replace(entry, meanwhile=steps)

    def mint(self, entry: Entry, data: bytes) -> None:
        """Name what the server named anew in `data`, which belongs to the request of this entry."""
        for kind, name in minted_in(data):
            if name not in self.masker.aliases and name not in self.masker.aliases.values():
                key = kind, key_of(_masked(entry, self.masker))
                self._minted[key] += 1
                # The state of one round is as good as that of its equal: the answers that go with it tell them apart.
                number = self._minted[key] if kind != "state" else 1
                self.masker.aliases[name] = alias(kind, key[1], number)

    def keep(self) -> None:
        """It went well: put all in order and in the place of the file.

        Raises:
            ConfigError: it cannot be written.
        """
        self._close()
        try:
            self._write_all(in_order(_settled(self._masked_anew())))
            self._part.replace(self._path)
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def leave(self) -> None:
        """It did not go well: the file stays what it was, and what came stays beside it."""
        if self._file is not None:
            self._close()
            with suppress(OSError):
                self._write_all(self._masked_anew())

    def _masked_anew(self) -> list[Entry]:
        """What came, in the order of the requests, without the secrets that were met later."""
        entries = sorted(self._entries, key=lambda one: one[0])  # by when it was sent, not answered
        return [_masked(entry, self.masker) for _, entry in entries]

    def _write_all(self, entries: Iterable[Entry]) -> None:
        with os.fdopen(_opened(self._part), "wb") as file:
            file.write(b"\n".join([HEADER, *map(as_line, entries)]) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def _mint(self, entry: Entry) -> None:
        if entry.request and entry.request not in LISTS and entry.request not in OPENING:
            for step in entry.meanwhile:
                self.mint(entry, bytes(step.params))
            self.mint(entry, bytes(entry.result))

    def _write(self, line: bytes) -> None:
        if self._file is not None:  # else it has not begun, or has ended
            self._file.write(line + b"\n")
            self._file.flush()


def _opened(path: Path) -> int:
    """For its owner alone, whatever stood there."""
    with suppress(FileNotFoundError):
        path.unlink()
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the cassette cannot be written: {error.strerror or error}", file=str(path))


def _masked(entry: Entry, masker: Masker) -> Entry:
    by_name = entry.request not in _DEFINITIONS
    return replace(
        entry,
        params=masker.raw(entry.params),
        meanwhile=tuple(_masked_step(step, masker) for step in entry.meanwhile),
        result=masker.raw(entry.result, by_name=by_name),
        error=masker.raw(entry.error),
        failed=_masked_failure(entry.failed, masker) if entry.failed is not None else None,
        unavailable=masker.text(entry.unavailable),
    )


def _masked_step(step: Step, masker: Masker) -> Step:
    params, answer, refused = masker.raw(step.params), masker.raw(step.answer), masker.raw(step.refused)
    return replace(step, params=params, answer=answer, refused=refused)


def _masked_failure(failed: Failure, masker: Masker) -> Failure:
    facts = msgspec.json.decode(masker.raw(encode(failed.facts)))
    return replace(failed, message=masker.text(failed.message), facts=facts)


def _settled(entries: list[Entry]) -> Iterable[Entry]:
    """Without what happened only on the way: attempts before the one that worked, and looks that found nothing new."""
    begun = {entry.server for entry in entries if entry.request in OPENING and bytes(entry.result)}
    heard = {entry.server for entry in entries if entry.request and not entry.unanswered}
    good = {key_of(entry) for entry in entries if bytes(entry.result) and entry.request in LISTS}
    later: set[object] = set()
    kept: list[Entry] = []
    for entry in reversed(entries):
        key, is_good = key_of(entry), bool(bytes(entry.result))
        is_passing = entry.failed is not None and entry.failed.kind in _PASSING and key in later
        is_attempt = not is_good and (entry.server in begun if entry.request in OPENING else key in good)
        is_moot = bool(entry.unavailable) and entry.server in heard
        look = _look(entry)
        is_old = look is not None and look in later
        if not (is_passing or is_attempt or is_moot or is_old):
            kept.append(entry)
            later |= {key, look}
    return _without_repeats(reversed(kept))


def _look(entry: Entry) -> object:
    """What of several is needed once: how often the bridge looks is a matter of time. None: each is."""
    if entry.request in LISTS:
        return key_of(entry), entry.changes
    if entry.request in OPENING:
        return entry.server, entry.request
    if entry.told == "first":
        return as_line(entry)
    return (entry.server, "unavailable") if entry.unavailable else None


def _without_repeats(entries: Iterable[Entry]) -> Iterable[Entry]:
    """A task is looked at until it has ended: of looks that find the same, one is enough."""
    last: dict[object, bytes] = {}
    for entry in entries:
        if entry.request == "tasks/get":
            key, line = key_of(entry), as_line(entry)
            if last.get(key) == line:
                continue
            last[key] = line
        yield entry
