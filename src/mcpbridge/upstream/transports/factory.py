"""From the settings of a server to the transport that reaches it. What is not used is not imported: each costs time."""

import os
import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mcpbridge.base.log import get_logger
from mcpbridge.base.process.environment import child_environment
from mcpbridge.base.process.process import ProcessSpec
from mcpbridge.protocol.transport import Transport
from mcpbridge.sandbox.job import Runner
from mcpbridge.upstream.auth.context import AuthContext
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.transports.stdio import StdioTransport

if TYPE_CHECKING:
    from mcpbridge.protocol.http.bearer_auth import Authorizer
    from mcpbridge.protocol.http.tls_and_proxy import Network
    from mcpbridge.sandbox.egress.report import EgressReport
    from mcpbridge.upstream.accounts.accounts import UserAccounts
    from mcpbridge.upstream.auth.authorization import Authorization
    from mcpbridge.upstream.transports.in_fleet import Membership


log = get_logger("mcpbridge.upstream")


class TransportMaker:
    """Makes the transports of one bridge. `max_bytes` bounds a message; `redact` masks secrets in what servers say.

    `around` is what signing in to servers takes; without it nobody signs in.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        redact: Callable[[str], str],
        around: AuthContext | None = None,
        runner: Callable[[], Runner] | None = None,
    ) -> None:
        """`runner`: the sandbox, for servers that are started in one; asked at each start."""
        self._runner = runner
        self._max_bytes = max_bytes
        self._redact = redact
        self._around = around
        self.users: UserAccounts | None = None
        """The accounts of single users; None: there are none."""
        self.authorizations: dict[str, Authorization] = {}
        """Of the servers that may ask for a sign-in: one for all the instances of a server."""
        self._authorized_for: dict[str, object] = {}
        """What each of them was made for: with another address or account a server needs another one."""
        self.signed_in: Callable[[str], None] = lambda _: None
        """Told which server there is a token for again; see `Authorization.on_signed_in`."""
        self.before_start: Callable[[str], None] = lambda _: None
        """Called with the name of a server each time that a program of it is about to be started; may refuse that."""
        self._egress_reports: dict[str, EgressReport] = {}
        """What servers with a list of hosts reached and were refused, all processes of a server together."""
        self._sse_urls: set[str] = set()
        """Addresses that have turned out to speak HTTP+SSE, for further instances of their servers."""

    def __call__(self, name: str, settings: ServerSettings, user: str | None = None) -> Transport:
        """A transport to this server; nothing is started or sent yet.

        `user`: whose account it uses, where users have their own; None: it is of the instance that lists.
        """
        own = self._own(name, settings, user)
        if settings.share != "fleet":
            return own
        from mcpbridge.upstream.transports.in_fleet import InFleetTransport

        return InFleetTransport(name, own, self.membership)

    @cached_property
    def membership(self) -> "Membership":
        """Of this bridge in its fleet."""
        from mcpbridge.upstream.transports.in_fleet import Membership  # few bridges are in one

        return Membership()

    def _own(self, name: str, settings: ServerSettings, user: str | None) -> Transport:
        """What reaches it from this bridge alone."""
        if settings.auth.variables and self.users is not None:
            own = self.users.environment(name, settings, user)
            settings = settings.model_copy(update={"env": {**settings.env, **own}})
        if settings.sandbox is not None:
            return self._sandboxed(name, settings)
        if settings.image is not None:
            from mcpbridge.upstream.transports.container import ContainerTransport

            return ContainerTransport(name, settings, max_bytes=self._max_bytes, redact=self._redact)
        if settings.command is not None:
            command, args = settings.command, tuple(settings.args)

            def spec() -> ProcessSpec:  # asked at each start: a daemon learns further places of programs from clients
                self.before_start(name)
                environment = child_environment(settings.env, settings.inherit_env, os.environ)
                return ProcessSpec(command, args, environment, settings.cwd)

            return StdioTransport(
                name, spec, max_bytes=self._max_bytes, redact=self._redact, memory_limit=settings.memory_limit
            )
        return self._remote(name, settings, user)

    def _sandboxed(self, name: str, settings: ServerSettings) -> Transport:
        from mcpbridge.upstream.transports.sandboxed_stdio import SandboxedTransport

        make = self._runner

        def runner() -> Runner:
            self.before_start(name)
            assert make is not None  # below
            return make()

        return SandboxedTransport(
            name,
            settings,
            runner if make is not None else None,
            max_bytes=self._max_bytes,
            redact=self._redact,
            reports=self._egress_reports,
        )

    def _authorization(self, name: str, settings: ServerSettings, network: "Network") -> "Authorization | None":
        has_header = any(header.lower() == "authorization" for header in settings.headers)
        if self._around is None or has_header or settings.auth.type == "none":
            return None
        identity = settings.url, settings.auth, network
        if settings.auth.account in ("exchange", "id-jag"):
            return None
        if name not in self.authorizations or self._authorized_for[name] != identity:
            from mcpbridge.upstream.auth.authorization import Authorization
            from mcpbridge.upstream.auth.oauth_tokens import Account

            # A WebSocket begins as an HTTP request, and its server describes itself over HTTP.
            url = re.sub(r"^ws", "http", settings.url or "", flags=re.IGNORECASE)
            authorization = Authorization(Account(name, url, settings.auth, self._around, network), self._around)
            authorization.on_signed_in = lambda: self.signed_in(name)
            self.authorizations[name], self._authorized_for[name] = authorization, identity
        return self.authorizations[name]

    def forget(self, name: str) -> None:
        """A server is not configured any more."""
        self.authorizations.pop(name, None)
        self._egress_reports.pop(name, None)
        self._authorized_for.pop(name, None)

    def _remote(self, name: str, settings: ServerSettings, user: str | None) -> Transport:
        url = settings.url or ""
        if not settings.tls.verify:
            log.warning("the server's TLS certificate is not verified", upstream=name)
        network = network_of(settings)
        authorizer: Authorizer | None = self._authorization(name, settings, network)
        if settings.auth.is_per_user and self.users is not None:
            authorizer = self.users.authorizer(name, settings, user, self.authorizations.get(name))
        network = replace(network, authorizer=authorizer)
        if settings.kind == "websocket":
            from mcpbridge.upstream.transports.websocket import WebSocketTransport

            return WebSocketTransport(
                name, url, headers=settings.headers, network=network, max_bytes=self._max_bytes, redact=self._redact
            )
        from mcpbridge.upstream.transports.sse import SseTransport

        sse = SseTransport(
            name, url, headers=settings.headers, network=network, max_bytes=self._max_bytes, redact=self._redact
        )
        if settings.kind == "sse":
            return sse
        from mcpbridge.upstream.transports.streamable_http import StreamableHttpTransport

        streamable = StreamableHttpTransport(
            name, url, headers=settings.headers, network=network, max_bytes=self._max_bytes, redact=self._redact
        )
        if settings.transport is not None or settings.era == "modern":
            return streamable
        from mcpbridge.upstream.transports.http_detect import HttpOrSse

        return HttpOrSse(name, streamable, sse, is_known=url in self._sse_urls, on_sse=lambda: self._sse_urls.add(url))


def network_of(settings: ServerSettings) -> "Network":
    """How the server of these settings is reached, without a token."""
    from mcpbridge.protocol.http.tls_and_proxy import Network, TlsOptions

    tls = settings.tls
    options = TlsOptions(tls.ca or "", tls.cert or "", tls.key or "", tls.key_password or "", tls.verify)
    return Network(options, settings.proxy or "")
