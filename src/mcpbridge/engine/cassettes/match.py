"""Find the entry of a cassette that answers a request, or say in words why there is none. No I/O.

Requests are equal by server, method and the meaning of their params. Equal requests get the recorded answers in their
order, and then the last one again and again. If nothing is equal, text that was masked in the recording matches any
text. A list is the one that held after as many changes as the server has announced now.
"""

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, unified_diff

import msgspec
from msgspec import Raw

from mcpbridge.base.masking.mask import MASK
from mcpbridge.base.suggestions import nearest
from mcpbridge.engine.cassettes.format import LISTS, OPENING, Entry, Step, key_of
from mcpbridge.engine.cassettes.masking import resembles
from mcpbridge.protocol.canonical_json import canonical

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

    def not_given(self) -> list[Entry]:
        """Entries that have answered no request, lists and openings included."""
        return [entry for key, entries in self._by_key.items() for entry in entries[self._given.get(key, 0) :]]

    def _key(self, server: str, method: str, params: Raw) -> Key | None:
        key = server, method, b"" if method in OPENING else canonical(params)
        if key in self._by_key:
            return key
        for entry in self.asked_like(server, method):
            if MASK.encode() in bytes(entry.params) and _resemble(entry.params, params):
                return key_of(entry)
        return None


def is_same_answer(recorded: Step, given: Step) -> bool:
    """Whether a request of the server was answered as in the recording. One that was not answered there continues."""
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


_MOST_COMPARED = 200
_MOST_LINES = 30
_LONGEST_LINE = 200


def unmatched(file: str, server: str, method: str, params: Raw, recorded: Sequence[Entry], *, used_up: bool) -> str:
    """`recorded`: what there is of this server and method. `used_up`: equal ones are, but all have been given."""
    no_answer = f"The cassette {file} has no answer to {_described(server, method, params)}"
    if used_up:
        return f"{no_answer} any more: it was made more often than in the recording. {how_to_record(file)}"
    same = [entry for entry in recorded if _name(entry.params) == _name(params)]
    if same:
        text = _pretty(params)
        near = max(same[:_MOST_COMPARED], key=lambda entry: _likeness(_pretty(entry.params), text))
        difference = _difference(_pretty(near.params), text)
        return f"{no_answer}. The nearest that was recorded differs so:\n{difference}\n{how_to_record(file)}"
    names = sorted({name for entry in recorded if (name := _name(entry.params))})
    close = nearest(_name(params), names) or names[:5]
    known = f" Recorded of this kind: {', '.join(close)}." if close else " Nothing of this kind was recorded."
    return f"{no_answer}.{known} {how_to_record(file)}"


def another_answer(file: str, server: str, entry: Entry, ask: str, recorded: Raw, given: Raw) -> str:
    """A request of the server was answered otherwise than in the recording, so what came then cannot come now."""
    difference = _difference(_pretty(recorded), _pretty(given))
    asked = (
        f"In the cassette {file}, {ask} during {_described(server, entry.request, entry.params)} was answered otherwise"
    )
    return f"{asked}:\n{difference}\n{how_to_record(file)}"


def nothing_of_server(file: str, servers: Sequence[str]) -> str:
    """A server that is not in the recording."""
    known = f"; it has {', '.join(sorted(servers))}" if servers else ""
    return f"the cassette {file} has nothing of this server{known}. {how_to_record(file)}"


def how_to_record(file: str) -> str:
    """What to do."""
    return f'To record again, delete {file} or open it with mode="record".'


def _described(server: str, method: str, params: Raw) -> str:
    name = _name(params)
    return f"{method} {server}/{name}" if name else f"{method} of {server}"


def _name(params: Raw) -> str:
    """What the request is about."""
    try:
        value = msgspec.json.decode(params)
    except (msgspec.DecodeError, RecursionError):
        return ""
    found = next((value[key] for key in ("name", "uri", "taskId") if isinstance(value.get(key), str)), "")
    return str(found)


def _pretty(params: Raw) -> str:
    try:
        return msgspec.json.format(canonical(params), indent=2).decode()
    except (msgspec.DecodeError, RecursionError):
        return bytes(params).decode("utf-8", "replace")


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one[:4000], other[:4000]).quick_ratio()


def _difference(recorded: str, asked: str) -> str:
    lines = list(unified_diff(recorded.splitlines(), asked.splitlines(), "recorded", "asked", lineterm="", n=2))
    shown = [line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…" for line in lines[:_MOST_LINES]]
    return "\n".join([*shown, *(["…"] if len(lines) > _MOST_LINES else [])])
