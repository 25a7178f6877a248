"""Find the entry of a cassette that answers a request, or say in words why there is none. No I/O.

Requests are equal by server, method and the meaning of their params. Equal requests get the recorded answers in their
order, and then the last one again and again. If nothing is equal, text that was masked in the recording matches any
text. A list is the one that held after as many changes as the server has announced now.
"""

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, unified_diff

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from mcpbridge.base.log import get_logger
from mcpbridge.base.masking.mask import MASK
from mcpbridge.base.suggestions import nearest
from mcpbridge.engine.cassettes.format import LISTS, OPENING, Entry, Step, key_of
from mcpbridge.engine.cassettes.masking import Masker, resembles
from mcpbridge.protocol.json_values import canonical

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


_MOST_COMPARED = 200
_MOST_LINES = 30
_LONGEST_LINE = 200


def unmatched(file: str, server: str, method: str, params: Raw, recorded: Sequence[Entry], *, used_up: bool) -> str:
    """`recorded`: what there is of this server and method. `used_up`: equal ones are, but all have been given."""
    said = f"The cassette {file} has no answer to {_described(server, method, params)}"
    if used_up:
        return f"{said} any more: it was made more often than in the recording. {how_to_record(file)}"
    same = [entry for entry in recorded if _name(entry.params) == _name(params)]
    if same:
        text = _pretty(params)
        near = max(same[:_MOST_COMPARED], key=lambda entry: _likeness(_pretty(entry.params), text))
        difference = _difference(_pretty(near.params), text)
        return f"{said}. The nearest that was recorded differs so:\n{difference}\n{how_to_record(file)}"
    names = sorted({name for entry in recorded if (name := _name(entry.params))})
    close = nearest(_name(params), names) or names[:5]
    known = f" Recorded of this kind: {', '.join(close)}." if close else " Nothing of this kind was recorded."
    return f"{said}.{known} {how_to_record(file)}"


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


log = get_logger("mcpbridge.cassette")


class Script:
    """One cassette while it is replayed."""

    def __init__(self, file: str, entries: Iterable[Entry], masker: Masker, *, repeat: bool) -> None:
        """`masker`: what is asked is masked as it was when it was recorded."""
        self._file, self._masker, self._repeat = file, masker, repeat
        self._matching = Matching(entries, repeat=repeat)
        self.unmatched: list[str] = []
        """What was said of requests that are not in the recording."""

    def knows(self, server: str, method: str) -> bool:
        """A request of this method was recorded."""
        return bool(self._matching.asked_like(server, method))

    def why_unavailable(self, server: str) -> str:
        """Why this server cannot be reached; empty: it can."""
        entries = self._matching.of(server)
        if not entries:
            return nothing_of_server(self._file, self._matching.servers)
        return next((entry.unavailable for entry in entries if entry.unavailable), "")

    def take(self, server: str, method: str, params: Raw, *, changes: int = 0) -> Entry | str:
        """The entry that answers a request, or what is wrong."""
        params = params if method in OPENING else self._masker.raw(params)
        entry = self._matching.take(server, method, params, changes=changes)
        if entry is not None:
            return entry
        recorded = self._matching.asked_like(server, method)
        used_up = not self._repeat and any(bytes(one.params) == bytes(params) for one in recorded)
        return self._note(unmatched(self._file, server, method, params, recorded, used_up=used_up))

    def going_on(self, entry: Entry, number: int, given: Step) -> Entry | str:
        """The entry that goes on after this answer to a request of the server, or what is wrong."""
        step = entry.meanwhile[number]
        given = replace(given, answer=self._masker.raw(given.answer), refused=self._masker.raw(given.refused))
        if is_same_answer(step, given):
            return entry
        other = self._matching.other_answers(entry, number, given)
        if other is not None:
            return other
        answers = (step.answer or step.refused, given.answer or given.refused)
        return self._note(another_answer(self._file, entry.server, entry, step.ask, *answers))

    def unprompted(self, server: str, when: str) -> Sequence[Entry]:
        """What a server sent without being asked."""
        return [entry for entry in self._matching.of(server) if entry.told == when]

    def unused(self) -> list[Entry]:
        """Requests of the recording that were not made."""
        return self._matching.unused()

    def _note(self, problem: str) -> str:
        self.unmatched.append(problem)
        log.warning("request not in the cassette", file=self._file, requests=len(self.unmatched))
        return problem
