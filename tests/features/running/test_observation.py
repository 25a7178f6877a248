"""Counts, durations and traces of real calls through a running bridge, as those see them who operate it."""

import asyncio
import hashlib
import json
import secrets
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mcpbridge.pipeline.observability.tracing_setup import OpenTelemetry
from support.harness import Place, eventually, python_server
from support.otlp_collector import Collector
from support.rpc import HttpClient

Labels = dict[str, str]


async def scrape(client: HttpClient, token: str = "") -> httpx2.Response:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return await client.http.get(client.url.removesuffix("/mcp") + "/metrics", headers=headers)


def value(text: str, name: str, **labels: str) -> float:
    """The sum of the samples with these labels."""
    found = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert found, f"no {name} with {labels} in:\n{text}"
    return sum(found)


async def test_calls_show_at_metrics_status_and_stats(place: Place) -> None:
    """Issue 4: latency, errors, sizes, backend and tokens (estimated), per tool, server and client."""
    servers = {
        "plain": python_server("plain", tool={"release": {"permission": "deny"}, "raw_result": {"rate_limit": "1/h"}})
    }
    async with place.http_bridge(servers) as client:
        await client.initialize()
        for _ in range(3):
            assert (await client.call("plain__echo", text="hello")).text == "hello"
        assert (await client.call("plain__raw_result", raw='{"content": [], "isError": true}')).failed
        assert (await client.call("plain__raw_result", raw="{}")).failed  # refused
        response = await scrape(client)
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/plain")
        text = response.text
        echo = {"server": "plain", "tool": "plain/echo", "client": "raw", "backend": "stdio", "method": "tools/call"}
        raw = {"tool": "plain/raw_result"}
        assert value(text, "mcpbridge_calls_total", **echo, outcome="ok") == 3
        assert value(text, "mcpbridge_calls_total", **raw, outcome="tool_error") == 1
        assert value(text, "mcpbridge_refused_calls_total", **raw, error="RateLimited") == 1
        assert value(text, "mcpbridge_result_bytes_total", **echo) > 3 * len("hello")
        assert value(text, "mcpbridge_result_tokens_estimated_total", **echo) > 3
        timed = {"gen_ai_tool_name": "plain/echo", "network_transport": "pipe"}
        for side in ("server", "client"):
            assert value(text, f"mcp_{side}_operation_duration_seconds_count", **timed) == 3
        assert value(text, "mcpbridge_server_up", server="plain") == 1

        status = json.loads((await place.run("status", "--json")).out)
        (server,) = status["bridges"][0]["servers"]
        assert (server["calls"], server["errors"]) == (5, 1)
        assert 0 < server["latency"]["p50"] <= server["latency"]["p95"]

        told = json.loads((await place.run("stats", "--json")).out)
        (bridge,) = told["bridges"]
        tools = {tool["tool"]: tool for tool in bridge["tools"]}
        assert tools["plain/echo"]["calls"] == 3
        assert tools["plain/raw_result"]["refused"] == {"RateLimited": 1}
        assert tools["plain/echo"]["tokens_out_estimated"] > 3
        shown = (await place.run("stats")).out
        assert "plain/echo" in shown
        assert "est." in shown


async def test_who_may_read_metrics_where_tokens_are_asked_for(place: Place) -> None:
    tokens = {name: secrets.token_hex(16) for name in ("client", "prometheus", "admin")}
    known = [
        {"name": name, "sha256": hashlib.sha256(token.encode()).hexdigest(), name: True}
        if name == "admin"
        else {
            "name": name,
            "sha256": hashlib.sha256(token.encode()).hexdigest(),
            "metrics": name == "prometheus",
        }
        for name, token in tokens.items()
    ]
    async with place.http_bridge({"plain": python_server("plain")}, http={"tokens": known}) as client:
        assert (await scrape(client)).status_code == 401
        assert (await scrape(client, tokens["client"])).status_code == 403
        for name in ("prometheus", "admin"):
            assert (await scrape(client, tokens[name])).status_code == 200


async def test_without_metrics_there_is_no_such_page(place: Place) -> None:
    async with place.http_bridge({"plain": python_server("plain")}, observe={"metrics": False}) as client:
        assert (await scrape(client)).status_code == 404


async def test_spans_and_metrics_reach_a_collector_and_the_trace_goes_on_at_the_server(place: Place) -> None:
    """Issue 4: OpenTelemetry by the semantic conventions, over OTLP/HTTP, set up by the usual variables."""
    collector = Collector()
    listening = await asyncio.start_server(collector.handle, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    often = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "100"}
    place.env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", **often}
    measured = {"mcp.server.operation.duration", "mcp.client.operation.duration"}
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    async with listening:
        async with place.bridge({"plain": python_server("plain")}, observe={"otel": True}) as client:
            await client.initialize()
            meta = {"traceparent": f"00-{trace}-{parent}-01", "tracestate": "vendor=1"}
            await client.call("plain__echo", meta=meta, text="my secret")
            journal = json.loads((await client.call("plain__journal")).text)
            await eventually(_now(collector.spans), lambda spans: len(spans) >= 4)
            await eventually(_now(collector.metric_names), lambda names: names >= measured)
            await client.close()
            await client.command.process.wait()
        spans = [span for span in collector.spans() if span.trace_id.hex() == trace]
        assert collector.metric_names() == measured
    received, sent = sorted(spans, key=lambda span: span.start_time_unix_nano)
    assert (received.name, sent.name) == ("tools/call plain__echo", "tools/call echo")
    assert received.parent_span_id.hex() == parent
    assert sent.parent_span_id == received.span_id
    (called,) = [m for m in journal if m.get("method") == "tools/call" and m["params"]["name"] == "echo"]
    assert called["params"]["_meta"]["traceparent"] == f"00-{trace}-{sent.span_id.hex()}-01"
    assert called["params"]["_meta"]["tracestate"] == "vendor=1"
    assert not any(b"my secret" in body for bodies in collector.bodies.values() for body in bodies)


def _now(function: Any) -> Any:
    async def attempt() -> Any:
        return function()

    return attempt


async def test_what_was_not_sent_yet_reaches_the_collector_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a few seconds for that; here as many as the machine needs."""
    monkeypatch.setattr("mcpbridge.pipeline.observability.tracing_setup._LAST_WORDS", 60)
    collector = Collector()
    listening = await asyncio.start_server(collector.handle, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    async with listening:
        made = OpenTelemetry.create()
        async with made.running():
            span = made.start("x", {}, carried={}, parent=None, is_client=False)
            made.finish(span, {}, "")
            made.measure("mcp.server.operation.duration", 1, {})
            assert not collector.bodies
        assert [span.name for span in collector.spans()] == ["x"]
        assert collector.metric_names() == {"mcp.server.operation.duration"}


@pytest.mark.parametrize("front", ["stdio", "http"])
async def test_without_tracing_the_clients_own_trace_crosses_as_it_came(place: Place, front: str) -> None:
    servers = {"plain": python_server("plain")}
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
    async with place.bridge(servers) if front == "stdio" else place.http_bridge(servers) as client:
        await client.initialize()
        await client.call("plain__echo", meta={**trace, "baggage": "k=v"}, text="x")
        journal = json.loads((await client.call("plain__journal")).text)
    (called,) = [m for m in journal if m.get("method") == "tools/call" and m["params"]["name"] == "echo"]
    assert called["params"]["_meta"] == {**trace, "baggage": "k=v"}
