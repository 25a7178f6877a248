"""What large results cost and saved: tokens per tool, server, client and day. Estimates, and told as such.

`Line`s are counted in memory on the path of calls, and written to the store now and then, where several processes add
up.
"""

from dataclasses import dataclass

__all__ = ["Ledger", "Line"]


@dataclass(slots=True)
class Line:
    """What was counted of one tool and client since it was last written down. Tokens, but for the first two."""

    calls: int = 0
    rewritten: int = 0
    """Calls whose result was rewritten."""
    came: int = 0
    """What servers sent."""
    shown: int = 0
    """What clients were sent in its place, announcements included."""
    stored: int = 0
    """What was kept for later."""
    recalled: int = 0
    """What clients were sent later, out of what was kept."""


class Ledger:
    """The lines of one bridge."""

    def line(self, server: str, tool: str, client: str) -> Line:
        """The line of this tool (its id) and client; the same object until it is written down."""
        raise NotImplementedError
