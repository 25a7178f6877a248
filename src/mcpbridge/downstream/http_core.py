"""What the HTTP front needs of the layers behind it."""

from collections.abc import Mapping
from typing import Any, Protocol

from mcpbridge.downstream.channel import Answer, Client, Notify
from mcpbridge.wire.frame import Frame

__all__ = ["Core", "RunningBridge"]


class Core(Protocol):
    """The server that answers; `mcpbridge.downstream.server.Server` is one."""

    def open(self, client: Client) -> None:
        """A legacy session begins."""
        ...

    def close(self, client: Client) -> None:
        """A legacy session ends; what it started is cancelled."""
        ...

    async def answer(self, client: Client, frame: Frame, notify: Notify) -> Answer:
        """Answer one request; raises nothing but CancelledError, and cancelling it cancels the call upstream.

        `Answer.data` is empty when the client itself cancelled the request: then nothing is sent.
        """
        ...

    def notification(self, client: Client, frame: Frame) -> None:
        """Take one notification of the client."""
        ...


class RunningBridge(Protocol):
    """A bridge that is up; `mcpbridge.bridge.Bridge` is one."""

    @property
    def server(self) -> Core:
        """Who answers."""
        ...

    @property
    def has_settled(self) -> bool:
        """Every server was ready or had failed once, or had its time to; true from then on."""
        ...

    def status(self) -> Mapping[str, Any]:
        """How the bridge and its servers are; `servers` is a list of objects with `name` and `state`."""
        ...
