"""The end of every plan: hand the call to the upstream that owns its target, and answer what that asks back."""

from collections.abc import Awaitable

from mcpbridge.errors import UpstreamUnavailable
from mcpbridge.model import Call
from mcpbridge.pipeline.driving import drive, needs_driving
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.supervisor import Upstream
from mcpbridge.wire.body import Body

__all__ = ["Deliver"]


class Deliver:
    """Delivers calls to upstreams by name."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._upstreams = pool.upstreams

    def __call__(self, call: Call) -> Awaitable[Body]:
        """The upstream's result. Usually not a coroutine of its own: every call would pay for one more.

        Raises:
            UpstreamError, Overloaded: as `Upstream.request`.
            QuestionRefused: the upstream needs an answer that its client does not give.
        """
        upstream = self._upstreams.get(call.upstream)
        if upstream is None:
            raise UpstreamUnavailable(call.upstream, "it is not configured any more")
        if not upstream.serves(call.client):
            return self._elsewhere(upstream, call)
        if upstream.may_ask_back and not call.client.relays:
            return self._driven(upstream, call)
        return upstream.request(call)

    async def _elsewhere(self, base: Upstream, call: Call) -> Body:
        upstream = await self._pool.serving(base, call.client)
        return await self._driven(upstream, call)

    async def _driven(self, upstream: Upstream, call: Call) -> Body:
        result = await upstream.request(call)
        if upstream.modern and not call.client.relays and needs_driving(result):
            return await drive(call, result, upstream.request)
        return result
