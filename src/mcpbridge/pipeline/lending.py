"""A call that asks its client something lends out its places meanwhile, as it does with its slot at the server.

A person may take minutes. And the answer may need further calls (sampling that uses tools): would those wait for the
places of the call that waits for them, neither could go on.
"""

from collections.abc import Sequence
from contextlib import ExitStack

from msgspec import Raw

from mcpbridge.interaction import Asker, Profile, Question
from mcpbridge.model import Call
from mcpbridge.pipeline.places import Place

__all__ = ["Lending"]


class Lending:
    """The asker behind a call that holds places."""

    __slots__ = ("_call", "_places", "asker", "is_over")

    def __init__(self, call: Call, places: Sequence[Place]) -> None:
        self.asker: Asker = call.client
        """Who is really asked."""
        self.is_over = False
        """The places are given back: there is nothing to lend any more."""
        self._call, self._places = call, places

    @property
    def profile(self) -> Profile:
        """As the client's."""
        return self.asker.profile

    @property
    def owner(self) -> object:
        """As the client's."""
        return self.asker.owner

    @property
    def principal(self) -> str:
        """As the client's."""
        return self.asker.principal

    @property
    def home(self) -> object:
        """As the client's."""
        return self.asker.home

    @property
    def relays(self) -> bool:
        """As the client's."""
        return self.asker.relays

    async def ask(self, question: Question) -> Raw:
        """Ask. When the answer is there the call goes on at once, even if all places are taken then."""
        with ExitStack() as lent:
            for place in () if self.is_over else self._places:
                lent.enter_context(place.rest(self._call))
            return await self.asker.ask(question)

    def finished(self, question: Question) -> None:
        """Tell the client."""
        self.asker.finished(question)

    def give_way(self, server: str) -> bool:
        """As the client does."""
        return self.asker.give_way(server)

    async def project(self) -> str:
        """As the client's."""
        return await self.asker.project()
