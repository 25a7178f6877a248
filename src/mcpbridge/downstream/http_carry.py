"""An event stream as the whole of a response: written until it is finished, or its client leaves."""

import asyncio

from mcpbridge.downstream.http_exchange import Exchange
from mcpbridge.downstream.http_streams import Stream, deliver

__all__ = ["carry"]


async def carry(exchange: Exchange, stream: Stream, position: int, *, keep_alive: float) -> None:
    """Write the events after `position`, and those that follow, to a response that has begun.

    `keep_alive`: see `deliver`. The response is ended in good order unless the client left first.
    """
    leaving = asyncio.create_task(exchange.until_client_leaves())
    writing = asyncio.create_task(deliver(stream, position, exchange.write, keep_alive=keep_alive))
    try:
        await asyncio.wait((leaving, writing), return_when=asyncio.FIRST_COMPLETED)
        if not leaving.done():
            await exchange.end_stream()
    finally:
        leaving.cancel()
        writing.cancel()
        await asyncio.wait((leaving, writing))
