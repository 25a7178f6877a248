"""One subscriber of one resource, at the server that has it."""

from msgspec import Struct

from mcpbridge.upstream.wanted import Wanted

__all__ = ["Watched"]


class Watched(Struct, eq=False):
    """Counts as a subscriber from the moment that it is made until `end`."""

    wanted: Wanted | None
    """Of the server; None: nobody tells of changes."""
    uri: str
    """As the server has it."""
    waiting: int = 0
    """Requests that wait in `begun`."""
    is_held: bool = False
    """One of them was answered, so the subscriber counts on it."""

    def __post_init__(self) -> None:
        if self.wanted is not None:
            self.wanted.subscribe(self.uri)

    async def begun(self) -> None:
        """Return when the server has taken the subscription, or takes too long to.

        Where the request is withdrawn meanwhile, `is_wanted` says whether the subscription is still of use.
        """
        self.waiting += 1
        try:
            if self.wanted is not None:
                await self.wanted.follows(self.uri)
            self.is_held = True
        finally:
            self.waiting -= 1

    @property
    def is_wanted(self) -> bool:
        """A request for it was answered, or waits."""
        return self.is_held or self.waiting > 0

    def end(self) -> None:
        """One subscriber less."""
        if self.wanted is not None:
            self.wanted.unsubscribe(self.uri)
