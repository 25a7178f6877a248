"""What hooks made of calls that their clients will come back with: those send again what they sent before."""

from collections import OrderedDict

from msgspec import Raw

from mcpbridge.model import Call, Tool
from mcpbridge.wire.canonical import canonical_digest

__all__ = ["ChangeKey", "Changes"]

ChangeKey = tuple[str, str, str]

MAX_REMEMBERED, LARGEST_REMEMBERED = 1024, 64 * 1024
"""Calls, and bytes of the arguments of one. For what is not remembered its hooks are asked again."""


class Changes:
    """Arguments that hooks put in place of others, by call."""

    def __init__(self) -> None:
        self._changes: OrderedDict[ChangeKey, bytes] = OrderedDict()

    def key(self, call: Call, tool: Tool, sent: Raw | None) -> ChangeKey:
        """By what a call is known again: its session, its tool, and the arguments that its client sends."""
        return call.caller.session.id, tool.id, canonical_digest(sent)

    def of(self, key: ChangeKey) -> bytes | None:
        """The arguments to go on with; empty: those that it has. None: not known."""
        return self._changes.get(key)

    def keep(self, key: ChangeKey, arguments: bytes) -> None:
        """Remember it, if it is not too large."""
        if len(arguments) <= LARGEST_REMEMBERED:
            self._changes[key] = arguments
            self._changes.move_to_end(key)
            if len(self._changes) > MAX_REMEMBERED:
                self._changes.popitem(last=False)

    def drop(self, key: ChangeKey) -> None:
        """It is over."""
        self._changes.pop(key, None)
