"""A WebSocket transport for the Python SDK, which has none since version 2: two streams over `websockets`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import websockets
from mcp.shared.message import SessionMessage
from websockets.asyncio.client import connect

__all__ = ["websocket_client"]


@asynccontextmanager
async def websocket_client(url: str) -> AsyncIterator[tuple[Any, Any]]:
    """The read and the write stream of a session."""
    arriving, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    async with connect(url, subprotocols=[websockets.Subprotocol("mcp")], max_size=None, proxy=None) as socket:

        async def receive() -> None:
            async with arriving:
                async for text in socket:
                    await arriving.send(
                        SessionMessage(types.jsonrpc_message_adapter.validate_json(text, by_name=False))
                    )

        async def send() -> None:
            async with leaving:
                async for message in leaving:
                    await socket.send(message.message.model_dump_json(by_alias=True, exclude_unset=True))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            tasks.start_soon(send)
            yield read, write
            tasks.cancel_scope.cancel()
