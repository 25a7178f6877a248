"""The program of a process that reads large results: one question on its standard input, one answer, and it ends.

Python parses in one thread at a time, and some of it cannot be interrupted: 100 MB in the bridge itself would let
everybody else wait for seconds, whatever the thread. Here it does not, and the memory goes back with the process.
"""

import sys
from collections.abc import Mapping

import msgspec

from mcpbridge.protocol.body import Body
from mcpbridge.results.errors import QueryRefused
from mcpbridge.results.query.script_input import Source
from mcpbridge.tools.builtin.recall.arguments import wanted_of
from mcpbridge.tools.builtin.recall.read import Reading

LENGTH = 8
"""Bytes, in network order, that say how long the question is. Then that comes, then the results one after the other."""


class Question(msgspec.Struct):
    """What is asked; in MessagePack."""

    params: bytes
    """Of the call."""
    sizes: dict[str, int]
    """The handles of the results, and how many bytes each has, in order."""
    room: int
    is_bound: bool
    """Asked is what a script works on (`Reading.bound`), not the answer."""


class Reply(msgspec.Struct):
    """What comes back; in MessagePack. Texts in UTF-8, and half characters as they are."""

    refused: bytes = b""
    """Why there is no answer; the rest is empty then."""
    text: bytes = b""
    binding: str = ""
    rows: bytes = b""


def bytes_of(text: str) -> bytes:
    """A text as it is in a reply."""
    return text.encode("utf-8", "surrogatepass")


def text_of(data: bytes) -> str:
    """A text that is in a reply."""
    return data.decode("utf-8", "surrogatepass")


def main() -> None:
    """Answer what is asked. What nobody foresaw ends the process with an error, and no answer."""
    question = msgspec.msgpack.decode(_read(int.from_bytes(_read(LENGTH), "big")), type=Question)
    kept = {handle: _read(size) for handle, size in question.sizes.items()}
    sys.stdout.buffer.write(msgspec.msgpack.encode(_reply(question, kept)))
    sys.stdout.buffer.flush()


def _read(size: int) -> bytes:
    data = sys.stdin.buffer.read(size)
    if len(data) < size:
        raise SystemExit(1)  # who asked is gone
    return data


def _reply(question: Question, results: Mapping[str, bytes]) -> Reply:
    try:
        reading = Reading(wanted_of(Body(question.params)), results, question.room)
        found = reading.bound() if question.is_bound else reading.answer()
    except QueryRefused as error:
        return Reply(refused=bytes_of(str(error)))
    if isinstance(found, Source):
        return Reply(text=bytes_of(found.text), binding=found.binding, rows=bytes_of(found.rows))
    return Reply(text=bytes_of(found))


if __name__ == "__main__":
    main()
