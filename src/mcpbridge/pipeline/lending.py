"""A call that asks its client something lends out its places meanwhile, as it does with its slot at the server.

A person may take minutes. And the answer may need further calls (sampling that uses tools): would those wait for the
places of the call that waits for them, neither could go on.
"""

from collections.abc import Sequence
from contextlib import ExitStack

from msgspec import Raw

from mcpbridge.interaction import Asker, Question, Through
from mcpbridge.model import Call
from mcpbridge.pipeline.places import Place

__all__ = ["Lending"]


class Lending(Through):
    """The asker behind a call that holds places."""

    __slots__ = ("_asker", "_call", "_places", "is_over")

    def __init__(self, call: Call, places: Sequence[Place]) -> None:
        self._asker, self._call, self._places = call.client, call, places
        self.is_over = False
        """The places are given back: there is nothing to lend any more."""

    @property
    def asker(self) -> Asker:
        """Who is really asked."""
        return self._asker

    async def ask(self, question: Question) -> Raw:
        """Ask. When the answer is there the call goes on at once, even if all places are taken then."""
        with ExitStack() as lent:
            for place in () if self.is_over else self._places:
                lent.enter_context(place.rest(self._call))
            return await self.asker.ask(question)
