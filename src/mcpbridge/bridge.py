"""`Bridge`: the bridge as programs have it. `mcpbridge serve` and the daemon run this same class."""

from mcpbridge.engine import Engine, RequestFailed

__all__ = ["Bridge", "RequestFailed"]


class Bridge(Engine):
    """One bridge: `async with Bridge.open("servers.toml") as bridge`. Leaving ends every upstream and its processes."""
