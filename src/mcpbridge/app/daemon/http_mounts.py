"""What a process serves over HTTP beside MCP, by the path that it begins with; each is made when it is asked for."""

from collections.abc import Callable, Mapping

from mcpbridge.downstream.http.app import App
from mcpbridge.library.bridge import Bridge


def mounts_of(bridge: Bridge) -> Mapping[str, Callable[[], App]]:
    """The applications of this bridge."""
    mounts = {"/api": lambda: _api(bridge)}
    if bridge.settings.observe.metrics:
        mounts["/metrics"] = lambda: _metrics(bridge)
    return mounts


def _metrics(bridge: Bridge) -> App:
    from mcpbridge.app.admin.prometheus import make_metrics

    return make_metrics(bridge, readers=frozenset(token.name for token in bridge.settings.http.tokens if token.metrics))


def _api(bridge: Bridge) -> App:
    from mcpbridge.app.admin.http_api import make_api

    return make_api(bridge.approvals, bridge.results.shelf, bridge.results.ledger, bridge)
