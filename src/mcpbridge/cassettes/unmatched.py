"""What is said of a request that a cassette does not have: which it is, what comes nearest, and what to do. Pure."""

from collections.abc import Sequence
from difflib import SequenceMatcher, unified_diff

import msgspec
from msgspec import Raw

from mcpbridge.cassettes.entries import Entry
from mcpbridge.errors import nearest
from mcpbridge.wire.canonical import canonical

__all__ = ["another_answer", "how_to_record", "nothing_of_server", "unmatched"]

_MOST_COMPARED = 200
_MOST_LINES = 30
_LONGEST_LINE = 200


def unmatched(file: str, server: str, method: str, params: Raw, recorded: Sequence[Entry], *, used_up: bool) -> str:
    """`recorded`: what there is of this server and method. `used_up`: equal ones are, but all have been given."""
    said = f"The cassette {file} has no answer to {_shown(server, method, params)}"
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
    asked = f"In the cassette {file}, {ask} during {_shown(server, entry.request, entry.params)} was answered otherwise"
    return f"{asked}:\n{difference}\n{how_to_record(file)}"


def nothing_of_server(file: str, servers: Sequence[str]) -> str:
    """A server that is not in the recording."""
    known = f"; it has {', '.join(sorted(servers))}" if servers else ""
    return f"the cassette {file} has nothing of this server{known}. {how_to_record(file)}"


def how_to_record(file: str) -> str:
    """What to do."""
    return f'To record anew, delete {file} or open it with mode="record".'


def _shown(server: str, method: str, params: Raw) -> str:
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
