"""The pages about accounts of a running bridge, made when somebody first asks for one: nothing is loaded before.

They are served beside the MCP endpoints, at the same address: a browser has to come back there from a provider.
"""

from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mcpbridge.app.admin.control_client import Document
from mcpbridge.library.bridge import Bridge

if TYPE_CHECKING:  # loaded with the first page
    from mcpbridge.app.console.sign_in import SignIns
    from mcpbridge.app.page_sign_in.sessions import PageSessions
    from mcpbridge.core.identity import Identity
    from mcpbridge.downstream.http.app import App
    from mcpbridge.downstream.http.server import ListenAddress

PREFIX = "/connections"
"""The path that these pages are below; as `upstream/accounts/sign_ins.py` has it in its links."""


class ConnectionsDesk:
    """Who asks for the pages of this bridge comes here."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self.sessions: PageSessions | None = None
        """Who signed in at the identity provider; None: nobody can. Set by who serves the pages."""
        self._at: ListenAddress | None = None

    @property
    def origin(self) -> str:
        """Where browsers reach the bridge; empty: nowhere, or nobody said where."""
        settings = self._bridge.settings
        if settings.accounts.url is not None:
            return settings.accounts.url
        if settings.auth.resource:
            return origin_of(settings.auth.resource)
        return self._at.origin if self._at is not None and self._at.reach == "loopback" else ""

    def serve_at(self, at: "ListenAddress") -> None:
        """The bridge serves HTTP there, so links lead there."""
        self._at = at
        accounts = self._bridge.user_accounts
        accounts.origin = lambda: self.origin
        accounts.visits.append(self._sign_out)
        if at.auth.resource_server is not None:
            at.auth.resource_server.on_checked = accounts.present

    def app_at(self, at: "ListenAddress") -> "App":
        """The application for an HTTP front that is served at this address."""
        from mcpbridge.app.connections.app import make_connections
        from mcpbridge.downstream.http.exchange import Receive, Refused, Scope, Send

        async def identify(token: str) -> str | None:
            authorization, server = b"Bearer " + token.encode(), at.auth.resource_server
            try:
                if server is None:
                    return at.auth.principal(authorization)
                path = self._bridge.settings.http.path
                caller = server.caller(path, b"", authorization) or await server.check(path, authorization)
            except Refused:
                return None
            return caller.principal

        is_secure = self.origin.startswith("https://")
        is_open = at.auth.is_open

        def identity_of(user: str) -> "Identity | None":
            """As the identity provider said at the sign-in to pages, or the last token says."""
            people = at.auth.resource_server
            identity = self.sessions.latest_identity(user) if self.sessions is not None else None
            return people.latest_identity(user) if identity is None and people is not None else identity

        def sees(user: str, server: str) -> bool:
            """By the user's roles."""
            roles = self._bridge.catalog.roles
            return roles is None or roles.may_see(roles.of(user, identity_of(user)), server)

        pages = make_connections(
            self._bridge,
            self.sign_ins,
            identify,
            is_secure=is_secure,
            is_open=is_open,
            sees=sees,
            identity_of=identity_of,
            sessions=self.sessions,
        )

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            has_quotas = any(role.quota for role in self._bridge.settings.roles)
            if not (self._bridge.user_accounts.are_wanted or has_quotas):
                raise Refused(404, "No server of this bridge takes accounts of users, and no role has a quota")
            await pages(scope, receive, send)

        return app

    @cached_property
    def sign_ins(self) -> "SignIns":
        """The browsers that are signed in to these pages, and one-time links. None of them opens the console."""
        from mcpbridge.app.console.sign_in import SignIns

        return SignIns(lambda: self._bridge.settings.accounts.sign_in_lifetime)

    def _sign_out(self, user: str) -> None:
        if "sign_ins" in self.__dict__:  # else nobody ever signed in
            self.sign_ins.end_of_user(user)

    async def link(self, request: Document) -> Document:
        """Answer `connections.link`: a link that signs a browser in to the pages as this user, once."""
        if not self.origin:
            return {"code": "nowhere", "error": "the bridge serves no HTTP that a browser reaches: see `accounts.url`"}
        code = self.sign_ins.make_code("read", str(request.get("user") or ""))
        bridge = self._bridge.user_accounts.bridge
        return {"url": f"{self.origin}{PREFIX}/enter?code={code}{f'&bridge={bridge}' if bridge else ''}"}


def origin_of(url: str) -> str:
    """Scheme, host and port of an address."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
