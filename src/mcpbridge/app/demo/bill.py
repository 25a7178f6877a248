"""What a run of the demo costs and saves in tokens, and what that is worth."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mcpbridge.results.token_count import counter

PRICE = 3.0
"""Dollars for a million tokens, where no other price is given: an assumption, of the size that large models ask for
input."""

count_tokens = counter("estimate")
"""Tokens of a text, estimated, as everywhere in the bridge."""


@dataclass(frozen=True, slots=True)
class Item:
    """Tokens of one thing."""

    what: str
    without: int
    """Without the bridge."""
    through: int
    """Through the bridge."""


@dataclass(slots=True)
class Bill:
    """What has been counted so far."""

    price: float = PRICE
    """Dollars for a million tokens."""
    items: list[Item] = field(default_factory=list[Item])
    facts: dict[str, int] = field(default_factory=dict[str, int])
    """Other numbers of the run, such as how many tools there are."""

    def add(self, what: str, *, without: int, through: int) -> Item:
        """Count one thing."""
        item = Item(what, without, through)
        self.items.append(item)
        return item

    @property
    def total(self) -> Item:
        """All of it."""
        return total_of(self.items)

    def dollars(self, tokens: int) -> float:
        """What so many tokens cost."""
        return tokens * self.price / 1_000_000


def total_of(items: Sequence[Item]) -> Item:
    """The sum of some items."""
    return Item("together", sum(one.without for one in items), sum(one.through for one in items))
