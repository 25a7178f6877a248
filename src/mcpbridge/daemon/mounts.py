"""What a process serves over HTTP beside MCP, by the path that it begins with; each is made when it is asked for."""

from collections.abc import Callable, Mapping

from mcpbridge.bridge import Bridge
from mcpbridge.downstream.http_mounts import App

__all__ = ["mounts_of"]


def mounts_of(bridge: Bridge) -> Mapping[str, Callable[[], App]]:
    """The applications of this bridge."""
    mounts = {"/api": lambda: _api(bridge)}
    if bridge.settings.observe.metrics:
        mounts["/metrics"] = lambda: _metrics(bridge)
    return mounts


def _metrics(bridge: Bridge) -> App:
    from mcpbridge.admin.prometheus import make_metrics

    return make_metrics(bridge, readers=frozenset(token.name for token in bridge.settings.http.tokens if token.metrics))


def _api(bridge: Bridge) -> App:
    from mcpbridge.admin.api import make_api

    return make_api(bridge.approvals, bridge.results.shelf, bridge.results.ledger, bridge)
