"""`recall`: reads, searches, lists and forgets kept results.

The work itself is in `results/query/query.py`, loaded with the first call. What is wrong with a call is reported in a
result with `isError`, so that the model reads it; a handle of somebody else looks as one that never was.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.results.kept_results import KeptResults
from mcpbridge.sandbox.javascript.scripts import Scripts, TransformFailed
from mcpbridge.tools.builtin.builtin import UNTREATED
from mcpbridge.tools.builtin.recall.definition import definition

if TYPE_CHECKING:  # loaded with the first call
    from mcpbridge.results.document import Document
    from mcpbridge.tools.builtin.recall.arguments import LoggedCall, Wanted
    from mcpbridge.tools.builtin.recall.offload import Apart


MOST_BYTES = 256 * 1024**2
"""Bytes of all results of one call."""


class Recall:
    """The tool."""

    treatment = UNTREATED

    def __init__(
        self,
        kept_results: KeptResults,
        javascript: Scripts | None,
        *,
        room: Callable[[Call], int],
        recalled: Callable[[Call, int], None],
        read: "Callable[[bytes], Document] | None" = None,
        logged: "Callable[[str, str], Awaitable[Sequence[LoggedCall]]] | None" = None,
    ) -> None:
        """`room`: characters that the answer of a call may have. `recalled` gets how many were given out.

        `javascript` None: there is no `_transform`. `logged`: calls of a principal in the call log that have all of
        some words; None: none are logged. `read`: the document of a kept result that is not read in a process of its
        own; None: `contents.document_of`, which that uses.
        """
        self._kept_results, self._javascript = kept_results, javascript
        self._room, self._recalled, self._read, self._logged = room, recalled, read, logged

    @property
    def definition(self) -> dict[str, Any]:
        """See `Builtin`."""
        return definition(transforms=self._javascript is not None)

    async def run(self, call: Call) -> Body:
        """See `Builtin`.

        Raises:
            StoreFailed: what is kept cannot be reached.
        """
        from mcpbridge.results.errors import QueryRefused
        from mcpbridge.results.header_line import defused
        from mcpbridge.tools.builtin.recall.arguments import wanted_of

        try:
            wanted = wanted_of(call.params, call.meta)
            if wanted.forget:
                text = await self._forget(call, wanted.forget)
            elif wanted.handles:
                text = await self._answer(call, wanted)
                self._recalled(call, len(text))
            else:
                text = await self._list(call, wanted)
        except (QueryRefused, TransformFailed) as error:
            text = str(error)[: max(self._room(call), 300)]
            return Body(encode({"content": [{"type": "text", "text": defused(text)}], "isError": True}))
        return Body(encode({"content": [{"type": "text", "text": defused(text)}]}))

    @cached_property
    def _apart(self) -> "Apart":
        from mcpbridge.tools.builtin.recall.offload import Apart

        return Apart()

    async def _answer(self, call: Call, wanted: "Wanted") -> str:
        from mcpbridge.tools.builtin.recall.read import Reading

        if wanted.transform and self._javascript is None:
            raise TransformFailed("_transform: scripts are turned off here; use where, select, aggregate and so on")
        kept = await self._results_of(call, [handle for handle, _ in wanted.handles])
        reading = Reading(wanted, kept, self._room(call), self._read)
        if not wanted.transform or self._javascript is None:
            return await self._apart.answer(reading, call.params)
        bound = await self._apart.bound(reading, call.params)
        owner = f"{call.caller.principal}/{call.caller.session.id}"  # as of scripts over results that are just there
        output = await self._javascript.evaluate(
            wanted.transform, bound.text, binding=bound.binding, rows=bound.rows, owner=owner
        )
        return reading.fitted(output)

    async def _results_of(self, call: Call, handles: Sequence[str]) -> Mapping[str, bytes]:
        """The results by handle.

        Raises:
            QueryRefused: one is not there, or they are too large together.
        """
        from mcpbridge.results.errors import QueryRefused

        results: dict[str, bytes] = {}
        for handle in dict.fromkeys(handles):
            data = await self._kept_results.get_for(handle, call.caller)
            if data is None:
                raise QueryRefused(
                    f"Nothing is kept under {handle[:60]!r}: handles are 26 characters, and expire. recall without "
                    "arguments lists what is kept; or call the tool again."
                )
            results[handle] = data
            if sum(map(len, results.values())) > MOST_BYTES:
                raise QueryRefused("These results are too large together: give fewer handles.")
        return results

    async def _forget(self, call: Call, handles: Sequence[str]) -> str:
        principal = call.caller.principal
        gone = [
            handle for handle in dict.fromkeys(handles) if await self._kept_results.drop(handle, principal=principal)
        ]
        missing = [handle[:60] for handle in dict.fromkeys(handles) if handle not in gone]
        text = f"Forgotten: {', '.join(gone) or 'none'}."
        return f"{text} Not kept: {', '.join(missing)}." if missing else text

    async def _list(self, call: Call, wanted: "Wanted") -> str:
        from mcpbridge.tools.builtin.recall.arguments import LOOKED_AT, listing, with_logged

        caller = call.caller
        summaries = await self._kept_results.summaries_for(caller, search=wanted.search, limit=LOOKED_AT)
        text = listing(summaries, wanted, self._room(call))
        if not wanted.search or self._logged is None:
            return text
        logged = await self._logged(caller.principal, wanted.search)
        known = [one for one in logged if self._kept_results.may_know(caller, one.tool)]
        return with_logged(text, known, self._room(call))
