"""Whether this bridge serves, and whether it is to be sent more: for balancers, and for people.

`/healthz` and `/healthz/ready` are for programs that have no token, and say nothing of what is behind the bridge.
`/readyz` lists its servers.
"""

from collections.abc import Callable

from mcpbridge.downstream.auth.bearer_tokens import Authenticator
from mcpbridge.downstream.http.exchange import NO_HEADERS, Exchange, Refused
from mcpbridge.downstream.services import RunningBridge
from mcpbridge.protocol.jsonrpc import encode

_GET_ONLY = ((b"allow", b"GET"),)
SOON = ((b"retry-after", b"1"),)


class Readiness:
    """Answers the three paths."""

    def __init__(self, bridge: RunningBridge, auth: Authenticator, why_not: Callable[[], str]) -> None:
        """`why_not`: why it is to be sent nothing new, `draining` or `stopping`; empty: nothing speaks against it."""
        self._bridge, self._auth, self._why_not = bridge, auth, why_not

    @property
    def status(self) -> str:
        """`ready`, `starting`, `draining` or `stopping`."""
        return self._why_not() or ("ready" if self._bridge.has_settled else "starting")

    async def live(self, exchange: Exchange) -> None:
        """The process serves; nothing is said about what is behind it."""
        _check_method(exchange)
        await exchange.send_json(b'{"status":"ok"}')

    async def ready(self, exchange: Exchange) -> None:
        """Whether a balancer is to send it new clients."""
        _check_method(exchange)
        await self._send(exchange, {})

    async def explained(self, exchange: Exchange) -> None:
        """The bridge is worth asking: its servers had their time to start.

        A server that is down is shown, but does not make the bridge unready.
        """
        _check_method(exchange)
        is_admin = self._auth.is_admin(exchange.headers.get(b"authorization"))
        sees = None if is_admin else self._bridge.server.restriction_of(exchange.principal, exchange.identity)
        servers = [
            {"name": server["name"], "state": server["state"]}
            for server in self._bridge.status()["servers"]
            if sees is None or sees(server["name"])
        ]
        # Else their names are for those alone whose roles open them.
        await self._send(exchange, {"servers": servers} if self._auth.resource_server is None or is_admin else {})

    async def _send(self, exchange: Exchange, more: dict[str, object]) -> None:
        status = self.status
        is_ready = status == "ready"
        document = encode({"status": status, **more})
        await exchange.send_json(document, 200 if is_ready else 503, NO_HEADERS if is_ready else SOON)


def _check_method(exchange: Exchange) -> None:
    if exchange.method not in ("GET", "HEAD"):
        raise Refused(405, "Only GET is served here", headers=_GET_ONLY)
