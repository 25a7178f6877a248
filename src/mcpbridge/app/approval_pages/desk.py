"""The pages about approvals of a running bridge, made when somebody first asks for one: nothing is loaded before."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mcpbridge.library.bridge import Bridge

if TYPE_CHECKING:  # loaded with the first page
    from mcpbridge.app.page_sign_in.sessions import PageSessions
    from mcpbridge.downstream.http.app import App
    from mcpbridge.downstream.http.server import ListenAddress

PREFIX = "/approvals"
"""The path that these pages are below."""


class ApprovalDesk:
    """Who asks for the pages of this bridge comes here."""

    def __init__(self, bridge: Bridge, origin: Callable[[], str], sessions: "Callable[[], PageSessions]") -> None:
        """`origin`: where browsers reach the bridge; empty: nowhere. `sessions`: who is signed in to its pages."""
        self._bridge, self._origin, self._sessions = bridge, origin, sessions
        bridge.approvals.link_to = self._link_to

    def _link_to(self, id_: str) -> str:
        origin = self._origin()
        return f"{origin}{PREFIX}/{id_}" if origin else ""

    def app_at(self, at: "ListenAddress") -> "App":
        """The application for an HTTP front that is served at this address."""
        from mcpbridge.app.approval_pages.app import make_approval_pages
        from mcpbridge.app.page_sign_in.sessions import holder_of

        path = self._bridge.settings.http.path
        return make_approval_pages(
            self._bridge, self._sessions(), lambda token: holder_of(token, at.auth, path), prefix=PREFIX
        )
