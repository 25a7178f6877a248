"""The end of every plan: hand the call to the upstream that owns its target."""

from collections.abc import Awaitable, Mapping

from mcpbridge.errors import UpstreamUnavailable
from mcpbridge.model import Call
from mcpbridge.upstream.supervisor import Upstream
from mcpbridge.wire.body import Body

__all__ = ["Deliver"]


class Deliver:
    """Delivers calls to upstreams by name."""

    def __init__(self, upstreams: Mapping[str, Upstream]) -> None:
        self._upstreams = upstreams

    def __call__(self, call: Call) -> Awaitable[Body]:
        """The upstream's result. Not a coroutine of its own: every call would pay for one more.

        Raises:
            UpstreamError, Overloaded: as `Upstream.request`.
        """
        upstream = self._upstreams.get(call.upstream)
        if upstream is None:
            raise UpstreamUnavailable(call.upstream, "it is not configured any more")
        return upstream.request(call)
