"""A tool that somebody does by hand. Its calls say that they wait; there is nothing that is slow, and nothing fails."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from mcpbridge.core.context import BridgeContext
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.storage.memory_store import MemoryStore
from mcpbridge.tools.human_in_the_loop.manual import ManualBackend
from support.backends.backend_case import BackendCase


class _WithStore(ManualBackend):
    """Its calls come from a bridge, which has a store."""

    def __init__(self, *given: object, **named: object) -> None:
        super().__init__(*given, **named)  # type: ignore[arg-type]
        self._around = BridgeContext(store=MemoryStore())

    async def run(self, call: Call) -> Body:
        call.around = self._around
        return await super().run(call)


@asynccontextmanager
async def case(directory: Path) -> AsyncGenerator[BackendCase]:
    """A question to somebody."""
    schema = {"properties": {"question": {"type": "string"}}, "required": ["question"]}
    backend = _WithStore.of("ask", "Ask somebody.", schema, {"type": "string"})
    yield BackendCase(backend, "ask", {"question": "When?"}, "paused")
