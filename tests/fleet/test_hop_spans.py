"""A trace shows the way of a request from one bridge to another (issue 24)."""

import asyncio
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from support.fleet_clients import Client, message, read
from support.otlp_collector import Collector
from support.real_sign_in import local_server
from support.redis_server import Server
from support.replicas import fleet, needs_fleet

pytestmark = needs_fleet

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}


async def test_a_call_by_way_of_another_bridge_is_one_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spans of both bridges are in it, each under the one before, and the client's own is the root of all."""
    collector = Collector()
    listening = await asyncio.start_server(collector.handle, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    redis = Server(tmp_path / "redis").start()
    try:
        async with listening:
            more = "[observe]\notel = true\n"
            with (
                fleet(tmp_path, redis, size=2, more=more, servers=local_server("plain", "plain")) as two,
                httpx2.Client(trust_env=False, timeout=60) as http,
            ):
                owner, other = two.replicas
                call = message("tools/call", 7, name="plain__echo", arguments={"text": "my secret"}, _meta=TRACED)
                client = await asyncio.to_thread(Client(http).begin, owner)
                answer = await asyncio.to_thread(client.post, other, call)
                assert "my secret" in answer.text
                journal = message("tools/call", 8, name="plain__journal", arguments={})
                seen = read(await asyncio.to_thread(client.post, owner, journal))["result"]["content"][0]["text"]
                with anyio.fail_after(60):
                    while len(of_the_trace(collector)) < 3:
                        await anyio.sleep(0.05)
    finally:
        redis.kill()
    spans = {span.parent_span_id.hex(): span for span in of_the_trace(collector)}
    hop = spans.pop(PARENT)
    received = spans.pop(hop.span_id.hex())
    sent = spans.pop(received.span_id.hex())
    assert not spans
    assert [hop.name, received.name, sent.name] == ["tools/call plain__echo"] * 2 + ["tools/call echo"]
    kinds = {2: "server", 3: "client"}  # the numbers of the protocol
    assert [kinds[span.kind] for span in (hop, received, sent)] == ["client", "server", "client"]
    facts = {one.key: one.value for one in hop.attributes}
    assert facts["mcpbridge.fleet.member"].string_value == owner.name
    assert facts["mcpbridge.fleet.member_id"].string_value == client.session.rpartition("-")[2]
    assert facts["mcpbridge.fleet.outcome"].string_value == "answered"
    assert facts["server.port"].int_value == owner.link
    assert sent.span_id.hex() in seen, "the server gets the last of them"
    assert not any(b"my secret" in body for body in collector.bodies["/v1/traces"])


def of_the_trace(collector: Collector) -> list[Any]:
    return [span for span in collector.spans() if span.trace_id.hex() == TRACE]
