"""A cancellation that comes in one breath with its request finds it (docs/reference/protocol.md, Cancelling)."""

import json

import pytest

from support.harness import Place, python_server

CALL = '{{"jsonrpc":"2.0","id":{0},"method":"tools/call","params":{{"name":"held__hold"}}}}\n'
CANCEL = '{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{0}}}}}\n'


@pytest.mark.parametrize("ready", [True, False], ids=["ready", "starting"])
async def test_a_request_and_its_cancellation_in_one_write_leave_nothing_running(place: Place, *, ready: bool) -> None:
    async with place.bridge({"held": python_server("plain", call_timeout=30)}) as client:
        await client.initialize()
        if ready:
            await client.tools_with("held__hold")
        ids = range(900, 910)
        answers = [client.expect(id_) for id_ in ids]
        await client.write("".join(CALL.format(id_) + CANCEL.format(id_) for id_ in ids).encode())
        await client.tools_with("held__echo")
        assert (await client.call("held__echo", text="next")).text == "next"
        journal = json.loads((await client.call("held__journal")).text)
        held = [m["id"] for m in journal if m.get("params", {}).get("name") == "hold"]
        cancelled = [m["params"]["requestId"] for m in journal if m.get("method") == "notifications/cancelled"]
        assert cancelled == held, "the server never saw the call, or was told that nobody waits for it"
        await client.call("held__release")
        assert not any(answer.done() for answer in answers)
