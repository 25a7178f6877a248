"""Kept results as arguments: `{"$ref": "HANDLE#/json/pointer"}` stands for what the pointer finds in that result.

So a large body goes from one tool to another without passing through a model. Resolved before hooks, rules and checks
see the call: they decide about what the tool gets. `HANDLE` alone is the text of the result as it was sent, `HANDLE#`
its value, `HANDLE#/a/0` a part (RFC 6901). Inside longer texts `{{result:HANDLE#/a/0}}` does the same.
"""

import re
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast

import anyio.to_thread
from msgspec import Raw

from mcpbridge.conduct import Conduct
from mcpbridge.errors import ArgumentsRefused
from mcpbridge.model import Call, Plan, Tool
from mcpbridge.pipeline.stage import Stage
from mcpbridge.results.exact_json import NotReadable, parse_json, write_json
from mcpbridge.results.pointers import NotThere, pointed_at
from mcpbridge.results.shelf import Shelf
from mcpbridge.wire.body import Body

if TYPE_CHECKING:  # loaded with the first reference
    from mcpbridge.results.document import Document

__all__ = ["References"]

_HANDLE = r"(?:mcpbridge://results/)?([a-z2-7]{26})(#[^{}]*)?"
_WHOLE = re.compile(_HANDLE)
_INSIDE = re.compile(r"\{\{\s*result:" + _HANDLE + r"\s*\}\}")

MOST = 64 * 1024**2
"""Characters that all references of a call may stand for together."""
_MOST_REFERENCES = 1000


class References:
    """Concern: puts what handles stand for into the arguments of calls."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def stage(self, tool: Tool | None, conduct: Conduct) -> Stage | None:
        """For every tool: any argument may be one."""
        return None if tool is None else self._look

    def _look(self, call: Call, proceed: Plan) -> Awaitable[Body]:
        """No coroutine of its own where there is nothing to resolve: every call would pay for it."""
        arguments = call.params.fields.get("arguments")
        if arguments is not None:
            data = bytes(arguments)
            if (b'"$ref"' in data or b"{{" in data) and _may_refer(data):
                return self._resolved(call, data, proceed)
        return proceed(call)

    async def _resolved(self, call: Call, data: bytes, proceed: Plan) -> Body:
        try:
            value = parse_json(data.decode())
        except (NotReadable, UnicodeDecodeError):
            return await proceed(call)
        resolving = _Resolving(self._shelf, call)
        try:
            resolved = await resolving.of(value)
        except RecursionError:
            raise ArgumentsRefused("The arguments are nested too deep") from None
        if resolving.found:
            try:
                call.params.put("arguments", Raw(write_json(resolved).encode()))
            except NotReadable as error:
                raise ArgumentsRefused(f"What the arguments refer to cannot be sent: {error}") from error
            call.note("references", sorted(resolving.found))
        return await proceed(call)


def _may_refer(data: bytes) -> bool:
    return b"result" in data or re.search(rb"[a-z2-7]{26}", data) is not None


class _Resolving:
    """The references of one call."""

    def __init__(self, shelf: Shelf, call: Call) -> None:
        self._shelf, self._principal = shelf, call.caller.principal
        self.found: set[str] = set()
        self._data: dict[str, bytes] = {}
        self._documents: dict[str, Document] = {}
        self._size = self._count = 0

    async def of(self, value: Any) -> Any:
        """The value with what its references stand for; that is not looked through again."""
        if isinstance(value, str):
            return await self._within(value) if "{{" in value else value
        if isinstance(value, list):
            return [await self.of(item) for item in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        members = cast("dict[str, Any]", value)
        if len(members) == 1 and isinstance(members.get("$ref"), str):
            match = _WHOLE.fullmatch(members["$ref"].strip())
            if match is not None:
                return await self._stands_for(match[1], match[2])
        return {name: await self.of(item) for name, item in members.items()}

    async def _within(self, text: str) -> str:
        parts: list[str] = []
        end = 0
        for match in _INSIDE.finditer(text):
            found = await self._stands_for(match[1], match[2])
            parts += [text[end : match.start()], found if isinstance(found, str) else write_json(found)]
            end = match.end()
        return "".join([*parts, text[end:]])

    async def _stands_for(self, handle: str, pointer: str | None) -> Any:
        """What a reference stands for.

        Raises:
            ArgumentsRefused: no such result is kept for who calls, or nothing is there.
        """
        from mcpbridge.results.contents import document_of, text_of

        self._count += 1
        if self._count > _MOST_REFERENCES:
            raise ArgumentsRefused(f"More than {_MOST_REFERENCES} references in one call")
        data = self._data.get(handle)
        if data is None:
            kept = await self._shelf.get(handle, principal=self._principal)
            if kept is None:
                raise _unknown(handle)
            data = self._data[handle] = kept
        self.found.add(handle)
        if pointer is None:
            return self._counted(await anyio.to_thread.run_sync(text_of, data))
        document = self._documents.get(handle)
        if document is None:
            document = self._documents[handle] = await anyio.to_thread.run_sync(document_of, data)
        value: Any = document.value if document.is_structured else document.text
        try:
            return self._counted(pointed_at(value, pointer[1:]))
        except NotThere as error:
            raise ArgumentsRefused(f"The reference {handle}{pointer} finds nothing: {error}") from error

    def _counted(self, value: Any) -> Any:
        try:
            self._size += len(value) if isinstance(value, str) else len(write_json(value))
        except NotReadable as error:
            raise ArgumentsRefused(f"What a reference stands for cannot be sent: {error}") from error
        if self._size > MOST:
            raise ArgumentsRefused(f"The references stand for more than {MOST // 1024**2} MiB together")
        return value


def _unknown(handle: str) -> ArgumentsRefused:
    error = ArgumentsRefused(f"No result is kept under {handle}")
    error.advice = "Nothing was sent. Handles expire; `recall` without arguments lists what is kept."
    return error
