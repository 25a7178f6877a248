"""What a cassette says to requests that are made again: an entry, or in words why there is none. No I/O."""

from collections.abc import Iterable, Sequence

from msgspec import Raw
from msgspec.structs import replace

from mcpbridge.cassettes.entries import OPENING, Entry, Step
from mcpbridge.cassettes.masking import Masker
from mcpbridge.cassettes.matching import Matching, is_same_answer
from mcpbridge.cassettes.unmatched import another_answer, nothing_of_server, unmatched
from mcpbridge.logs import get_logger

__all__ = ["Script"]

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

    def told(self, server: str, when: str) -> Sequence[Entry]:
        """What a server told by itself."""
        return [entry for entry in self._matching.of(server) if entry.told == when]

    def unused(self) -> list[Entry]:
        """Requests of the recording that were not made."""
        return self._matching.unused()

    def _note(self, said: str) -> str:
        self.unmatched.append(said)
        log.warning("request not in the cassette", file=self._file, requests=len(self.unmatched))
        return said
