"""A call that nobody waits for any more is cancelled at its server (docs/reference/protocol.md, Cancelling)."""

import asyncio
import json
from typing import Any

from support.harness import Place, eventually, python_server, undisturbed
from support.rpc import MODERN, Client, Message, envelope

SERVERS = {"held": python_server("plain", call_timeout=30), "healthy": python_server("plain")}


async def journal(client: Client, **options: Any) -> list[Message]:
    """What the server that holds calls was sent."""
    return json.loads((await client.call("held__journal", **options)).text)


async def heard(client: Client) -> list[Message]:
    """The same, where this call may be out of time itself."""
    reply = await client.call("held__journal")
    return [] if reply.failed else json.loads(reply.text)


def holds(sent: list[Message]) -> list[Message]:
    return [m for m in sent if m.get("params", {}).get("name") == "hold"]


def cancelled(sent: list[Message]) -> list[Any]:
    return [m["params"]["requestId"] for m in sent if m.get("method") == "notifications/cancelled"]


async def test_a_cancelled_notification_reaches_the_server_and_no_answer_comes(place: Place) -> None:
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        answer = client.expect("mine")
        await client.write(b'{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{"name":"held__hold"}}\n')
        await eventually(lambda: journal(client), lambda sent: len(holds(sent)) == 1)
        async with undisturbed(client):
            await client.tell("notifications/cancelled", requestId="mine", reason="changed my mind")
            sent = await eventually(lambda: journal(client), lambda sent: len(cancelled(sent)) == 1)
            assert cancelled(sent) == [holds(sent)[0]["id"]]
            await client.call("held__release")
        assert not answer.done()


async def test_cancelling_what_is_not_running_changes_nothing(place: Place) -> None:
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        for id_ in (1, 987654, "nobody", None, {}):
            await client.tell("notifications/cancelled", requestId=id_)
        await client.tell("notifications/cancelled")
        assert (await client.call("healthy__echo", text="fine")).text == "fine"


async def test_a_stdio_client_that_leaves_in_mid_call_leaves_nothing_running(place: Place) -> None:
    """The harness proves that no process is left; the bridge must not wait for the call's deadline."""
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        await client.write(b'{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"held__hold"}}\n')
        await eventually(lambda: journal(client), lambda sent: len(holds(sent)) == 1)
        await client.close()
        async with asyncio.timeout(10):
            await client.command.process.wait()


async def test_a_legacy_http_client_that_disconnects_in_mid_call_cancels_nothing_until_its_session_ends(
    place: Place,
) -> None:
    """MCP 2025-11-25, transports: disconnection SHOULD NOT be interpreted as the client cancelling its request.

    The session survives; its work upstream is cancelled on DELETE, expiry and shutdown.
    """
    async with place.http_bridge(SERVERS) as client:
        await client.initialize()
        await client.tools_with("held__hold")
        call = asyncio.create_task(client.call("held__hold", within=30))
        await eventually(lambda: journal(client), lambda sent: len(holds(sent)) == 1)
        call.cancel()  # closes the connection, since the answer has not begun
        await asyncio.wait([call])
        async with undisturbed(client):
            assert cancelled(await journal(client)) == []
        response = await client.http.delete(client.url, headers=client.session)
        assert response.status_code == 204
        client.session.clear()
        await client.initialize()
        sent = await eventually(lambda: journal(client), lambda sent: len(cancelled(sent)) == 1)
        assert cancelled(sent) == [holds(sent)[0]["id"]]


async def test_a_call_that_its_legacy_http_client_left_ends_in_its_own_time(place: Place) -> None:
    """Bounded by `call_timeout`, like any other call."""
    async with place.http_bridge({**SERVERS, "held": python_server("plain", call_timeout=1)}) as client:
        await client.initialize()
        await client.tools_with("held__hold")
        call = asyncio.create_task(client.call("held__hold", within=30))
        await eventually(lambda: heard(client), lambda sent: len(holds(sent)) == 1)
        call.cancel()
        await asyncio.wait([call])
        sent = await eventually(
            lambda: heard(client), lambda sent: bool({m["id"] for m in holds(sent)} & {*cancelled(sent)})
        )
        assert cancelled(sent).count(holds(sent)[0]["id"]) == len(holds(sent)) == 1


async def test_a_request_that_its_http_client_cancels_is_closed_with_an_error(place: Place) -> None:
    """Without one the client would take its stream for broken, and resume it."""
    async with place.http_bridge(SERVERS) as client:
        await client.initialize()
        await client.tools_with("held__hold")
        message = {"jsonrpc": "2.0", "id": "mine", "method": "tools/call", "params": {"name": "held__hold"}}
        call = asyncio.create_task(client.exchange(message, 30))
        await eventually(lambda: journal(client), lambda sent: len(holds(sent)) == 1)
        await client.tell("notifications/cancelled", requestId="mine")
        assert (await call).message["error"] == {"code": -32800, "message": "Request cancelled"}
        sent = await eventually(lambda: journal(client), lambda sent: len(cancelled(sent)) == 1)
        assert cancelled(sent) == [holds(sent)[0]["id"]]


async def test_a_modern_http_client_that_disconnects_in_mid_call_cancels_it(place: Place) -> None:
    async with place.http_bridge(SERVERS) as client:
        modern = {"meta": envelope()}
        await eventually(lambda: client.call("held__echo", **modern), lambda reply: "result" in reply.message)
        call = asyncio.create_task(client.call("held__hold", within=30, **modern))
        await eventually(lambda: journal(client, **modern), lambda sent: len(holds(sent)) == 1)
        call.cancel()
        await asyncio.wait([call])
        sent = await eventually(lambda: journal(client, **modern), lambda sent: len(cancelled(sent)) == 1)
        assert cancelled(sent) == [holds(sent)[0]["id"]]
        assert MODERN not in json.dumps(holds(sent)), "the envelope is for one hop"
