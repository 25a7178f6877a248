"""Log messages of a server go to whom they can belong, and to nobody else."""

import asyncio
import contextlib

from support.harness import Place, python_server
from support.rpc import HttpClient

SERVERS = {"logs": python_server("odd", "logs")}
ROUNDS = 20


def heard(client: HttpClient) -> set[str]:
    """What the log messages that a client got said."""
    return {m["params"]["data"] for m in client.arrived if m["method"] == "notifications/message"}


async def begin(client: HttpClient) -> None:
    """A session that wants every log message."""
    await client.initialize()
    await client.tools_with("logs__tell")
    await client.request("logging/setLevel", {"level": "debug"})


async def tell(client: HttpClient, name: str) -> set[str]:
    """Call a tool that logs, again and again; what it was told to log."""
    words = [f"{name} {number}" for number in range(ROUNDS)]
    for word in words:
        assert (await client.call("logs__tell", words=word)).text == word
    return set(words)


async def test_nobody_gets_the_log_messages_of_anothers_calls(place: Place) -> None:
    async with (
        place.http_bridge(SERVERS) as first,
        HttpClient(first.url, first.command) as second,
        contextlib.AsyncExitStack() as streams,
    ):
        for client in (first, second):
            await begin(client)
            await streams.enter_async_context(client.listening())
        of_first, of_second = await asyncio.gather(tell(first, "first"), tell(second, "second"))
        assert heard(first) <= of_first
        assert heard(second) <= of_second
        # With nobody else calling there is no doubt whose a message is, and whose it is not.
        alone = await tell(first, "alone")
        await second.request("ping")
        assert alone <= heard(first) <= of_first | alone
        assert heard(second) <= of_second


async def test_a_client_alone_gets_the_log_messages_of_its_calls(place: Place) -> None:
    async with place.http_bridge(SERVERS) as client:
        await begin(client)
        assert await tell(client, "alone") == heard(client)
