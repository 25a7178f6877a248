"""The values that travel through the bridge with a call."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Raw

from mcpbridge.interaction import NOBODY, Asker
from mcpbridge.wire.body import Body
from mcpbridge.wire.peer import Update

__all__ = ["Call", "Instance", "Plan", "ignore_update"]


def ignore_update(method: str, params: Raw) -> None:
    """For calls whose sender wants to hear nothing meanwhile."""


class Instance(Protocol):
    """One connection to a server, of which there may be several."""

    def request(self, call: "Call") -> Awaitable[Body]:
        """Pass a call on and wait for its result."""
        ...


@dataclass(slots=True, eq=False)
class Call:
    """One request of a client on its way to the upstream that owns its target."""

    method: str
    upstream: str
    """Name of the server that gets it."""
    target: str
    """Tool or prompt name, or resource URI, in the upstream's own spelling."""
    params: Body
    """The params to send; its `_meta` is made anew on the way."""
    meta: Body | None = None
    """The `_meta` that the client sent."""
    wants_progress: bool = False
    log_level: str = ""
    """The least severe log message the client wants during this call; empty: none."""
    update: Update = field(default=ignore_update)
    """Gets progress and log messages that belong to this call."""
    headers: tuple[tuple[str, str], ...] = ()
    """HTTP headers of this call alone (`Mcp-Param-*`)."""
    client: Asker = NOBODY
    """Who can be asked what the upstream wants to know meanwhile."""
    roots: bytes = b""
    """The result of `roots/list` that the configuration gives in place of the client; empty: it gives none."""
    extensions: bytes = b""
    """The `extensions` that a modern upstream is told of with this call, encoded; empty: the bridge's own."""
    needs_task: bool = False
    """The tool runs as a task only (2025-11-25, `taskSupport: "required"`): the bridge makes and follows it."""
    takes_task: bool = False
    """A task may be the result: the client follows it itself. Else the bridge does, and the result is the final one."""
    instance: "Instance | None" = None
    """Where a task lives: the instance that made this one, or that must get this request about one."""
    progress_token: bytes = b""
    """What the upstream names in progress of this call, once it was sent; if the answer is a task, it outlives that."""


Plan = Callable[[Call], Awaitable[Body]]
"""What happens to a call, compiled when the snapshot is built; the result is the upstream's."""
