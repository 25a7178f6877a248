"""What a server prints beside its messages spoils no answer (issue 2: stray output on stdout)."""

import json

import pytest

from support.harness import Place, python_server, undisturbed

OBJECT = '{ name: "debug", value: 3 }'
"""What `console.log` prints of an object."""

HEALTHY = {"healthy": python_server("plain")}


@pytest.mark.parametrize(
    "line",
    [
        OBJECT,
        '{"level":"error","error":"db timeout","msg":"retrying"}',
        '{"level":"info","id":7}',
    ],
    ids=["object", "json log with an error", "json log with an id"],
)
async def test_a_line_printed_in_mid_call_does_not_spoil_the_answer(place: Place, line: str) -> None:
    servers = {"noisy": python_server("odd", "noisy", call_timeout=30), **HEALTHY}
    async with place.bridge(servers) as client:
        await client.initialize()
        await client.tools_with("noisy__print")
        async with undisturbed(client):
            # Each the only one under way, so that noise could be taken for its answer. The bridge numbers what it
            # asks, and one of these has the number in the line.
            replies = [await client.call("noisy__print", line=line) for _ in range(5)]
            journal = json.loads((await client.call("noisy__journal")).text)
        assert [reply.text for reply in replies] == ["unspoiled"] * 5
        assert 7 in [m["id"] for m in journal if m.get("params", {}).get("name") == "print"]


async def test_a_line_printed_in_the_handshake_does_not_keep_the_server_from_becoming_ready(place: Place) -> None:
    async with place.bridge({"noisy": python_server("odd", "noisy", OBJECT), **HEALTHY}) as client:
        await client.initialize()
        assert "noisy__echo" in await client.tools_with("noisy__echo")
        assert (await client.call("noisy__echo", text="here")).text == "here"
