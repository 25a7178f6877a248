"""The SDK's server over WebSocket (the SDK has none of its own any more); prints its URL on the first line."""

import asyncio
from contextlib import suppress

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from sdk_tools import make_server
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

__all__ = ["speak"]


async def speak(connection: ServerConnection) -> None:
    """Serve one client until it leaves: a message a text frame, either era."""
    server = make_server()._lowlevel_server
    inward, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outward = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive() -> None:
        async with inward:
            with suppress(ConnectionClosed):
                async for data in connection:
                    message = types.jsonrpc_message_adapter.validate_json(data, by_name=False)
                    await inward.send(SessionMessage(message))

    async def send() -> None:
        with suppress(ConnectionClosed):
            async for message in outward:
                await connection.send(message.message.model_dump_json(by_alias=True, exclude_unset=True))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        tasks.start_soon(send)
        await server.run(read, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def main() -> None:
    async with serve(speak, "127.0.0.1", 0, subprotocols=["mcp"], compression=None) as serving:  # type: ignore[list-item]
        print(f"ws://127.0.0.1:{serving.sockets[0].getsockname()[1]}/", flush=True)
        await serving.serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(main())
