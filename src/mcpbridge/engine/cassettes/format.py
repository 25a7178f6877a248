"""The file format of a cassette: its first line, its entries, how they are written, and their order. Pure.

The first line names the format and its version. Each further line is one entry. Entries are grouped by server and
sorted, so the file is the same whatever ran side by side: failures to connect, how the session began, the lists, then
all other requests by method and params; equal requests in the order in which they were sent. JSON from peers is
copied byte for byte.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from mcpbridge.base.errors import ConfigError
from mcpbridge.protocol.canonical_json import canonical
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT, encode, one_line

HEADER = b'{"mcpbridge_cassette":1}'
"""The first line of every cassette. The number is that of the format."""

OPENING = frozenset({"initialize", "server/discover"})
"""Requests that begin a session."""

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
}
"""Requests for what a server offers, and whose `list_changed` announces another answer."""

_NOTHING = Raw(EMPTY_OBJECT)


class Failure(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A request that got no answer, as the error that the caller met."""

    kind: str
    """The name of its class in `mcpbridge.base.errors`."""
    message: str
    facts: dict[str, Any] = {}
    """What else the error carries, as JSON values."""
    sent: bool = True
    """The server may have seen the request."""


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """One message of the server besides its answer: a notification (`tell`) or a request (`ask`)."""

    tell: str = ""
    ask: str = ""
    params: Raw = _NOTHING
    apart: bool = False
    """HTTP: it did not come on the stream of the request that it is written down with."""
    after: bool = False
    """It came after the answer."""
    answer: Raw = Raw()
    """The result that a request of the server was answered with."""
    refused: Raw = Raw()
    """The error that it was answered with."""

    @property
    def is_answered(self) -> bool:
        """It is a request, and got an answer."""
        return bool(bytes(self.answer) or bytes(self.refused))


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """One line. It has a `request`; or it says what came outside of all (`told`), or why nothing came."""

    server: str
    """The name of a server, of a table of `[tools]`, or `builtin`."""
    request: str = ""
    """The method."""
    params: Raw = _NOTHING
    meanwhile: tuple[Step, ...] = ()
    """What else came of it, in its order."""
    result: Raw = Raw()
    error: Raw = Raw()
    failed: Failure | None = None
    unanswered: bool = False
    """Nothing came of it, as long as somebody waited."""
    changes: int = 0
    """Of a list: how often the server had announced by then that it had changed."""
    told: str = ""
    """`first`: it came before any call; `calls`: while several calls ran, and belongs to none that is known."""
    unavailable: str = ""
    """Why the server could not be reached."""


_decode = msgspec.json.Decoder(Entry).decode
_ANSWERS = ("result", "error", "failed", "unanswered")


def key_of(entry: Entry) -> tuple[str, str, bytes]:
    """What makes requests equal: the server, the method, and what their params mean."""
    return entry.server, entry.request, b"" if entry.request in OPENING else canonical(entry.params)


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """The entries as they are in the file. Equal requests keep their order."""
    return sorted(entries, key=_place)


def _place(entry: Entry) -> tuple[object, ...]:
    if entry.unavailable:
        rank = 0
    elif entry.request in OPENING:
        rank = 1
    elif entry.request in LISTS:
        rank = 2
    else:
        rank = 3 if entry.told else 4
    told = b"" if not entry.told else encode([_step(step) for step in entry.meanwhile])
    return entry.server, rank, entry.told, told, *key_of(entry)[1:]


def as_line(entry: Entry) -> bytes:
    """The entry as one line, without its end."""
    said: dict[str, object] = {"server": entry.server}
    for name in ("unavailable", "told", "request"):
        if value := getattr(entry, name):
            said[name] = value
    if entry.request and bytes(entry.params) != EMPTY_OBJECT:
        said["params"] = entry.params
    if entry.changes:
        said["changes"] = entry.changes
    if entry.meanwhile:
        said["meanwhile"] = [_step(step) for step in entry.meanwhile]
    for name in _ANSWERS:
        value = getattr(entry, name)
        if bytes(value) if isinstance(value, Raw) else value:
            said[name] = value
    return one_line(encode(said))


def _step(step: Step) -> dict[str, object]:
    said: dict[str, object] = {"tell": step.tell} if step.tell else {"ask": step.ask}
    if bytes(step.params) != EMPTY_OBJECT:
        said["params"] = step.params
    said |= {name: True for name in ("apart", "after") if getattr(step, name)}
    if bytes(step.answer):
        said["answer"] = step.answer
    if bytes(step.refused):
        said["refused"] = step.refused
    return said


def read_entries(data: bytes, file: str) -> list[Entry]:
    """The entries of a cassette, in the order of the file. Blank lines, and lines that begin with `//`, are skipped.

    Raises:
        ConfigError: it is none, or a line is wrong; names the line.
    """
    lines = data.splitlines()
    if not lines or not lines[0].replace(b" ", b"").startswith(HEADER[:-2]):
        raise ConfigError("not a cassette", file=f"{file}:1", hint=f"Its first line is {HEADER.decode()}.")
    if lines[0].replace(b" ", b"") != HEADER:
        raise ConfigError("a cassette of a format that this version does not read", file=f"{file}:1", hint=_ANEW)
    found: list[Entry] = []
    for number, line in enumerate(lines[1:], 2):
        if line.strip() and not line.lstrip().startswith(b"//"):
            found.append(_read_line(line, f"{file}:{number}"))
    return found


_ANEW = "Delete the file to record it again."


def _read_line(line: bytes, where: str) -> Entry:
    try:
        line.decode()  # what is spliced as it came is not looked at by the decoder
        entry = _decode(line)
        wrong = _wrong(entry)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        wrong = str(error) or type(error).__name__
    else:
        if not wrong:
            return entry
    raise ConfigError(f"not a line of a cassette: {wrong}", file=where, hint=f"Mend the line. {_ANEW}") from None


def _wrong(entry: Entry) -> str:
    """What is wrong with an entry; empty: nothing."""
    if sum(map(bool, (entry.request, entry.told, entry.unavailable))) != 1:
        return "it needs one of `request`, `told` and `unavailable`"
    answers = [name for name in _ANSWERS if _is_there(getattr(entry, name))]
    if entry.request and len(answers) != 1:
        return "a request needs one of `result`, `error`, `failed` and `unanswered`"
    if not _are_objects([entry.params, entry.result, entry.error]):
        return "`params`, `result` and `error` are objects"
    return next((wrong for step in entry.meanwhile if (wrong := _wrong_step(step))), "")


def _wrong_step(step: Step) -> str:
    if bool(step.tell) == bool(step.ask):
        return "what is in `meanwhile` has `tell` or `ask`"
    if not _are_objects([step.params, step.answer, step.refused]):
        return "`params`, `answer` and `refused` are objects"
    return ""


def _is_there(value: object) -> bool:
    return bool(bytes(value)) if isinstance(value, Raw) else bool(value)


def _are_objects(values: Sequence[Raw]) -> bool:
    return all(bytes(value)[:1] in (b"", b"{") for value in values)
