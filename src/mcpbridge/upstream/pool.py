"""All upstreams by name: started side by side, stopped side by side."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

import anyio

from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Observer, Upstream
from mcpbridge.wire.transport import Transport

__all__ = ["Pool"]


class Pool:
    """The upstreams of one bridge. Iterate `upstreams` for all of them, disabled ones left out."""

    def __init__(
        self,
        servers: Mapping[str, ServerSettings],
        make_transport: Callable[[str, ServerSettings], Transport],
        observer: Observer,
        *,
        client_info: dict[str, str],
    ) -> None:
        self.upstreams: dict[str, Upstream] = {
            name: Upstream(name, settings, make_transport(name, settings), observer, client_info=client_info)
            for name, settings in sorted(servers.items())
            if not settings.disabled
        }

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep every upstream connected meanwhile; leaving ends them all and their processes."""
        async with anyio.create_task_group() as tasks:
            for upstream in self.upstreams.values():
                tasks.start_soon(upstream.run, name=f"upstream {upstream.name}")
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    async def settled(self, seconds: float) -> bool:
        """Wait until every upstream is ready or has failed once. False when time was up before."""
        with anyio.move_on_after(seconds):
            for upstream in self.upstreams.values():
                while not upstream.has_settled:
                    await upstream.stepped()
            return True
        return False
