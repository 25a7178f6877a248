"""`find_tools`: which tools do what somebody wants, and how they are called.

What a caller may not call is not found. What is wrong with a call is reported in a result with `isError`, so that the
model reads it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from mcpbridge.catalog.search.visible_tools import Look
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.tools.builtin.builtin import UNTREATED
from mcpbridge.tools.builtin.meta.definitions import FIND_TOOLS, Refused, arguments_of, text_result

if TYPE_CHECKING:  # loaded with the first call
    from mcpbridge.catalog.search.ranker import Hit
    from mcpbridge.catalog.search.usage_feedback import Feedback


_LIMIT_NAMES = ("limit", "top_k", "k", "n", "count", "max_results", "maxResults")
_QUERY_NAMES = ("query", "q", "search", "text", "task")
_DETAILS = ("names", "signatures", "schemas")


class FindTools:
    """The tool."""

    definition, treatment = FIND_TOOLS, UNTREATED

    def __init__(
        self,
        look: Look,
        *,
        limit: int = 8,
        tokens: int = 500,
        feedback: "Feedback | None" = None,
        on_result: Callable[[Call, Sequence[str]], object] | None = None,
    ) -> None:
        """`look`: what a caller may find. `limit`, `tokens`: of an answer, where the call does not say.

        `feedback`: what earlier calls of the same principal show about searches; None: nobody notes that.
        `on_result` is called with the ids of the tools that a search was answered with.
        """
        self._on_result = on_result
        self._look, self._limit, self._tokens, self._feedback = look, limit, tokens, feedback

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        from mcpbridge.catalog.search.answers import MOST, answer_to_search
        from mcpbridge.catalog.search.find import find

        try:
            arguments = arguments_of(call.params, {"query": _QUERY_NAMES, "limit": _LIMIT_NAMES, "detail": ("detail",)})
            query = _query(arguments.get("query"))
            limit = max(1, min(MOST, _number(arguments.get("limit"), self._limit)))
            detail = arguments.get("detail") or "signatures"
            if detail not in _DETAILS:
                raise Refused(f"detail: one of {', '.join(_DETAILS)}")
        except Refused as error:
            return text_result(str(error), is_error=True)
        visible = await self._look(call)
        principal = call.caller.principal
        if self._feedback is not None:
            await self._feedback.recall(principal)
        found = find(
            query, limit, visible, await visible.ranker(query), adjust=partial(self._adjusted, principal, query)
        )
        call.note("found", len(found.hits))
        shown = [ability.id for ability in found.abilities[:limit]] if found.fits else []
        if shown and self._feedback is not None:
            self._feedback.searched(principal, query, shown)
        if shown and self._on_result is not None:
            self._on_result(call, shown)
        map_ = "" if found.fits else visible.map
        return text_result(answer_to_search(found, limit, map_, cast("Any", detail), tokens=self._tokens))

    def _adjusted(self, principal: str, query: str, hits: "list[Hit]") -> "list[Hit]":
        return hits if self._feedback is None else self._feedback.adjust(principal, query, hits)


def _query(value: object) -> str:
    if isinstance(value, list):  # some send words one by one
        value = " ".join(str(part) for part in cast("list[object]", value)[:50])
    if not isinstance(value, str) or not value.strip():
        raise Refused('query: what the tool should do, in a few words, such as "create an issue"')
    return value


def _number(value: object, otherwise: int) -> int:
    if value is None or value == "":
        return otherwise
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 10:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise Refused("limit: how many tools, 1 to 50")
    return int(max(-1, min(value, 1000)))
