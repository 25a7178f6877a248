"""Kept results as arguments: `{"$ref": "HANDLE#/json/pointer"}` stands for what the pointer finds in that result.

So a large body goes from one tool to another without passing through a model. `HANDLE` alone is the text of the result
as it was sent, `HANDLE#` its value, `HANDLE#/a/0` a part (RFC 6901). Inside longer texts `{{result:HANDLE#/a/0}}` does
the same.

Other things are called `$ref` as well. What is no handle, or only looks a little like one that is kept, is left alone.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec import Raw, Struct

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.base.late_pattern import late
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import BRIDGE, Call, Caller, CallHandler, Tool
from mcpbridge.pipeline.stage import Stage, Trigger
from mcpbridge.protocol.body import Body
from mcpbridge.results.exact_json import NotReadable, NotThere, parse_json, pointed_at, write_json
from mcpbridge.results.kept_results import KeptResults, note_references
from mcpbridge.storage.compression import Workers

if TYPE_CHECKING:  # loaded with the first reference
    from mcpbridge.results.document import Document


_HANDLE = r"(?:mcpbridge:\\?/\\?/results\\?/)?[A-Za-z2-7]{26}"
_MARK = late(rf'(?:\{{\{{\s{{0,8}}result:\s{{0,8}}|"\$ref"\s*:\s*"\s{{0,8}}){_HANDLE}'.encode())
"""In the bytes of the arguments, where slashes may be escaped. Whatever has none of these is not parsed."""
_LOOKED_FOR = b'"$ref"', b"{{"
"""One of these begins every reference: a search for them is faster than the pattern."""
_OPENING = late(rf"\{{\{{\s{{0,8}}result:\s{{0,8}}({_HANDLE})")
_REFERENCE = late(r"(?:mcpbridge://results/)?([A-Za-z2-7]{26})(#.*|/.*)?", re.DOTALL)

_LONGEST_INSIDE = 2000
"""Characters between the handle and the end of a reference in a text."""
_SLOW = 32 * 1024
"""Bytes from which work on them is done in a thread: it would hold up all other requests."""
MOST = 64 * 1024**2
"""Characters that all references of a call may stand for together."""
MOST_LOADED = 128 * 1024**2
"""Bytes of the results that they may be in."""
_MOST_REFERENCES = 1000
_MOST_DOUBTFUL = 100
"""Names that only may be handles and are looked for."""


class References:
    """The stage of all tools: puts what handles stand for into the arguments of calls."""

    trigger = Trigger(arguments=_LOOKED_FOR)

    def __init__(self, kept_results: KeptResults) -> None:
        self._kept_results = kept_results
        self._workers = Workers()

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """For every tool: any argument may be one. Not for the bridge's own, which take handles as such."""
        return None if tool is None or tool.server == BRIDGE else self

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        """No coroutine of its own where there is nothing to resolve: every call would pay for it."""
        arguments = call.params.fields.get("arguments")
        if arguments is not None:
            data = bytes(arguments)
            if any(sign in data for sign in _LOOKED_FOR) and (len(data) > _SLOW or _MARK.search(data)):
                return self._resolved(call, data, proceed)
        return proceed(call)

    async def _resolved(self, call: Call, data: bytes, proceed: CallHandler) -> Body:
        is_slow = len(data) > _SLOW
        read = await self._workers.run(_read, data, size=len(data)) if is_slow else _read(data)
        if read is not None:
            value, uses = read
            answers = await self._answers(uses, call.caller)
            if answers:
                size = len(data) + sum(len(answer.text) for answer in answers.values())
                write = partial(_written, value, answers)
                written = await self._workers.run(write, size=size) if size > _SLOW else write()
                call.params.put("arguments", Raw(written))
                note_references(call, {reference.handle for reference in answers})
        return await proceed(call)

    async def _answers(self, uses: "Counter[_Reference]", caller: Caller) -> "dict[_Reference, _Answer]":
        """What references stand for, without those that are none. One result at a time is in memory.

        Raises:
            ArgumentsRefused: no such result is kept for who calls, nothing is there, or it is too much.
        """
        if sum(count for reference, count in uses.items() if reference.is_exact) > _MOST_REFERENCES:
            raise ArgumentsRefused(f"More than {_MOST_REFERENCES} references in one call")
        answers: dict[_Reference, _Answer] = {}
        loaded = size = doubtful = 0
        for handle, references in _by_handle(uses).items():
            is_meant = any(reference.is_exact for reference in references)
            doubtful += not is_meant
            if doubtful > _MOST_DOUBTFUL and not is_meant:
                continue
            kept = await self._kept_results.get_for(handle, caller)
            if kept is None:
                if is_meant:
                    raise _unknown(handle)
                continue
            loaded += len(kept)
            if loaded > MOST_LOADED:
                most = f"{MOST_LOADED // 1024**2} MiB"
                raise ArgumentsRefused(f"The results that the references are in have more than {most} together")
            counted = [(reference, uses[reference]) for reference in references]
            found = await self._workers.run(_stand_for, kept, counted, MOST - size, size=len(kept))
            size += sum(len(found[reference].text) * count for reference, count in counted)
            answers.update(found)
        return answers


class _Reference(Struct, frozen=True):
    """What stands in the arguments."""

    handle: str
    pointer: str | None
    """None: the text of the result as it was sent."""
    is_exact: bool
    """It is nothing else: small letters, and `#` before the pointer. Others count only where such a result is kept."""
    path: str = ""
    """What follows where `#` should stand."""


class _Answer(Struct, frozen=True):
    """What a reference stands for."""

    text: str
    """Inside a text."""
    data: Raw
    """As a value."""


def _reference(text: str) -> _Reference | None:
    match = _REFERENCE.fullmatch(text)
    if match is None:
        return None
    handle, rest = match[1].lower(), match[2] or ""
    is_exact = handle == match[1] and not rest.startswith("/")
    if rest.startswith("/"):
        return _Reference(handle, None, is_exact, path=rest)
    return _Reference(handle, rest[1:] if rest else None, is_exact)


def _whole(members: Mapping[str, Any]) -> _Reference | None:
    """The reference that an object is."""
    said = members.get("$ref") if len(members) == 1 else None
    return _reference(said.strip()) if isinstance(said, str) else None


def _inside(text: str) -> Iterator[tuple[int, int, _Reference]]:
    """The references within a text, and where they begin and end. Linear, whatever the text."""
    for match in _OPENING.finditer(text):
        end = text.find("}}", match.end(), match.end() + _LONGEST_INSIDE)
        piece = text[match.start(1) : end] if end >= 0 else "{"
        if "{" not in piece and "}" not in piece:
            reference = _reference(piece.strip())
            if reference is not None:
                yield match.start(), end + 2, reference


def _read(data: bytes) -> tuple[Any, Counter[_Reference]] | None:
    """The arguments and how often each reference is in them; None: there is none."""
    if _MARK.search(data) is None:
        return None
    try:
        value = parse_json(data.decode())
    except (NotReadable, UnicodeDecodeError):
        return None
    uses = Counter[_Reference]()
    left: list[Any] = [value]
    while left:  # not recursive: whatever the depth, what holds no reference is passed on
        value_here: Any = left.pop()
        if isinstance(value_here, str):
            if "{{" in value_here:
                uses.update(reference for _, _, reference in _inside(value_here))
        elif isinstance(value_here, list):
            left += reversed(cast("list[Any]", value_here))
        elif isinstance(value_here, dict):
            members = cast("dict[str, Any]", value_here)
            reference = _whole(members)
            if reference is None:
                left += reversed(members.values())
            else:
                uses[reference] += 1
    return (value, uses) if uses else None


def _by_handle(uses: Counter[_Reference]) -> dict[str, list[_Reference]]:
    found: dict[str, list[_Reference]] = {}
    for reference in uses:
        found.setdefault(reference.handle, []).append(reference)
    return found


def _stand_for(stored: bytes, uses: Sequence[tuple[_Reference, int]], room: int) -> dict[_Reference, _Answer]:
    """What the references to one result stand for: at most `room` characters, each as often as it is used.

    Raises:
        ArgumentsRefused: nothing is there, or it is too much, or it cannot be sent.
    """
    from mcpbridge.results.content import document_of, text_of

    answers: dict[_Reference, _Answer] = {}
    document: Document | None = None
    for reference, count in uses:
        if reference.path:
            raise _malformed(reference)
        if reference.pointer is None:
            value: Any = text_of(stored)
        else:
            document = document or document_of(stored)
            value = _part(document, reference)
        try:
            answer = _answer(value)
        except NotReadable as error:
            raise ArgumentsRefused(f"The value of a reference cannot be sent: {error}") from error
        room -= len(answer.text) * count
        if room < 0:
            raise ArgumentsRefused(f"The references refer to more than {MOST // 1024**2} MiB together")
        answers[reference] = answer
    return answers


def _part(document: "Document", reference: _Reference) -> Any:
    try:
        return pointed_at(document.value if document.is_structured else document.text, reference.pointer or "")
    except NotThere as error:
        named = f"{reference.handle}#{reference.pointer}"
        raise ArgumentsRefused(f"The reference {named[:500]} finds nothing: {error}") from error


def _answer(value: Any) -> _Answer:
    text = write_json(value)
    return _Answer(value if isinstance(value, str) else text, Raw(text.encode()))


def _written(value: Any, answers: Mapping[_Reference, _Answer]) -> bytes:
    """The arguments with what the references stand for, encoded; that is not looked through again.

    Raises:
        ArgumentsRefused: they cannot be sent.
    """
    try:
        return write_json(_with(answers, value)).encode()
    except RecursionError:
        raise ArgumentsRefused("The arguments are nested too deep") from None
    except NotReadable as error:
        raise ArgumentsRefused(f"What the arguments refer to cannot be sent: {error}") from error


def _with(answers: Mapping[_Reference, _Answer], value: Any) -> Any:
    if isinstance(value, str):
        return _filled(answers, value) if "{{" in value else value
    if isinstance(value, list):
        return [_with(answers, item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, Any]", value)
    reference = _whole(members)
    if reference is not None:
        return answers[reference].data if reference in answers else members
    return {name: _with(answers, item) for name, item in members.items()}


def _filled(answers: Mapping[_Reference, _Answer], text: str) -> str:
    parts: list[str] = []
    done = 0
    for start, end, reference in _inside(text):
        if reference in answers:
            parts += [text[done:start], answers[reference].text]
            done = end
    return "".join([*parts, text[done:]])


def _unknown(handle: str) -> ArgumentsRefused:
    error = ArgumentsRefused(f"No result is kept under {handle}")
    error.advice = "Nothing was sent. Handles expire; `recall` without arguments lists what is kept."
    return error


def _malformed(reference: _Reference) -> ArgumentsRefused:
    handle, path = reference.handle, reference.path[:200]
    error = ArgumentsRefused(f"{handle}{path} is no reference: write a # before the path, as in {handle}#{path}")
    error.advice = f"Nothing was sent. {handle} alone is the text of that result, {handle}# its whole value."
    return error
