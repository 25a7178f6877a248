"""What is written down of a kept result, so that it can be found again without being read."""

from msgspec import Struct

__all__ = ["Card"]


class Card(Struct, frozen=True, omit_defaults=True):
    """One kept result. Kept as JSON beside it (`label` in the store), so new fields need defaults."""

    handle: str
    tool: str
    """The tool's id, `server/tool`."""
    arguments: str = ""
    """The arguments of the call as JSON, secrets masked, cut after some hundred characters."""
    outcome: str = "ok"
    """`ok`, or `tool_error` for a result with `isError`."""
    kind: str = ""
    """See `Document.kind`; of several parts `parts`, of pictures and the like their media type."""
    headline: str = ""
    """What it is in a few words, as previews begin."""
    chars: int = 0
    """Characters of its texts."""
    at: float = 0.0
    """When it was kept; seconds since 1970."""
    client: str = ""
    """`clientInfo.name` of who called."""
