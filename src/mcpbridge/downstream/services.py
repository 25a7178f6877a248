"""What the fronts need of the layers behind them: the server that answers, and a running bridge."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from mcpbridge.core.identity import Identity
from mcpbridge.downstream.client import Answer, Client, Notify
from mcpbridge.downstream.elicitation.request_state import SharedSeals
from mcpbridge.downstream.express_lane import ExpressCall, ExpressLane
from mcpbridge.protocol.jsonrpc import Frame


class Core(Protocol):
    """The server that answers; `mcpbridge.downstream.server.Server` is one."""

    @property
    def views(self) -> Collection[str]:
        """Names of the servers that have an endpoint of their own; see `Client.view`."""
        ...

    @property
    def backends(self) -> Collection[str]:
        """Names of what has tools as a server has, but no endpoint."""
        ...

    @property
    def profiles(self) -> Collection[str]:
        """Names of the profiles, which have one as well; see `Client.profile_name`."""
        ...

    def restriction_of(self, principal: str, identity: Identity | None) -> Callable[[str], bool] | None:
        """Which servers there are for this caller, by its roles; None: all of them."""
        ...

    def newer_token(self, identity: Identity) -> None:
        """A token was checked: what its person has open by way of the same OAuth client is judged by what it says."""
        ...

    @property
    def express(self) -> ExpressLane | None:
        """Takes plain calls; None: there is no such lane."""
        ...

    def join(self, seals: SharedSeals) -> None:
        """Be one of several bridges: calls that wait for their clients, and tasks, may be those of the others."""
        ...

    def open(self, client: Client) -> None:
        """A legacy session begins."""
        ...

    async def came_over(self, client: Client) -> None:
        """A legacy session that another bridge of the fleet had is about to continue here."""
        ...

    def introduced(self, client: Client, revision: str) -> None:
        """A client of a channel says who it is with its first modern request, which is of this revision."""
        ...

    def close(self, client: Client, why: str = "") -> None:
        """A legacy session, or a channel, ends; what it started is cancelled. `why`: in a few words."""
        ...

    async def answer(
        self,
        client: Client,
        frame: Frame,
        notify: Notify,
        *,
        cancel_as: Client | None = None,
        sent: ExpressCall | None = None,
    ) -> Answer:
        """Answer one request; raises nothing but CancelledError, and cancelling it cancels the call upstream.

        `cancel_as` is whose `notifications/cancelled` may name the request, if it is not `client`. `Answer.data` is
        empty when the client itself cancelled the request: then nothing is sent. `sent`: the call, where it continues
        from the express lane.
        """
        ...

    def notification(self, client: Client, frame: Frame) -> None:
        """Take one notification of the client."""
        ...

    def unheard(self, client: Client, frame: Frame) -> None:
        """The answer to this request has no way to its client any more, though the client may still be there."""
        ...

    def answered(self, client: Client, frame: Frame) -> None:
        """Take the client's answer to a request that it was sent; one to nothing is dropped."""
        ...


class RunningBridge(Protocol):
    """A bridge that is up; `mcpbridge.library.bridge.Bridge` is one."""

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
