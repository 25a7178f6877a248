"""The pages about approvals of a running bridge, made when somebody first asks for one: nothing is loaded before."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mcpbridge.library.bridge import Bridge

if TYPE_CHECKING:  # loaded with the first page
    from mcpbridge.downstream.http.app import App
    from mcpbridge.downstream.http.server import ListenAddress

PREFIX = "/approvals"
"""The path that these pages are below."""


class ApprovalDesk:
    """Who asks for the pages of this bridge comes here."""

    def __init__(self, bridge: Bridge, origin: Callable[[], str]) -> None:
        """`origin`: where browsers reach the bridge; empty: nowhere."""
        self._bridge, self._origin = bridge, origin
        bridge.approvals.link_to = self._link_to

    def _link_to(self, id_: str) -> str:
        origin = self._origin()
        return f"{origin}{PREFIX}/{id_}" if origin else ""

    def app_at(self, at: "ListenAddress") -> "App":
        """The application for an HTTP front that is served at this address."""
        from mcpbridge.app.approval_pages.app import make_approval_pages
        from mcpbridge.app.page_sign_in.sessions import PageSessions, holder_of

        settings = self._bridge.settings
        sessions = PageSessions(
            lambda: self._bridge.settings.console.sign_in_lifetime, is_secure=self._origin().startswith("https://")
        )
        self._bridge.user_accounts.visits.append(sessions.end_all)
        return make_approval_pages(
            self._bridge, sessions, lambda token: holder_of(token, at.auth, settings.http.path), prefix=PREFIX
        )
