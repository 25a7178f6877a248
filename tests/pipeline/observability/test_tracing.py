"""Spans and durations by the semantic conventions of MCP, with the official SDK's own exporters in memory."""

import json
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from mcpbridge.base.errors import ConfigError, UpstreamGone
from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from mcpbridge.pipeline.observability.tracing_setup import OpenTelemetry
from support.in_process_bridge import BridgeToScripts, Ear
from support.upstreams.scripted_upstream import LEGACY_SERVER, MODERN_SERVER, Refusal, ScriptedTransport

Message = dict[str, Any]

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


class InOrder(SpanProcessor):
    """Notes which span began after which: clocks may stand still between two, and be set back."""

    def __init__(self, begun: list[int]) -> None:
        self.begun = begun

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.begun.append(span.context.span_id)


class Traced(BridgeToScripts):
    """A bridge that sends its traces into memory."""

    def __init__(self, settings: Settings, transports: dict[str, ScriptedTransport], tracers: TracerProvider) -> None:
        super().__init__(settings, transports)
        self.spans, self.begun = InMemorySpanExporter(), list[int]()
        self.reader = InMemoryMetricReader()
        tracers.add_span_processor(InOrder(self.begun))
        tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.opened = OpenTelemetry(tracers, MeterProvider([self.reader], shutdown_on_exit=False))

    def finished(self) -> list[ReadableSpan]:
        """The spans so far, in the order in which they began."""
        return sorted(self.spans.get_finished_spans(), key=lambda span: self.begun.index(span.context.span_id))

    def durations(self) -> dict[str, list[Any]]:
        """The points of each histogram."""
        data = self.reader.get_metrics_data()
        assert data
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@dataclass
class World:
    bridge: Traced
    transport: ScriptedTransport
    ear: Ear


@asynccontextmanager
async def traced(
    script: Any = LEGACY_SERVER,
    *,
    server: Message | None = None,
    tracers: TracerProvider | None = None,
    **sections: Any,
) -> AsyncIterator[World]:
    transport = ScriptedTransport(script)
    how = {"servers": {"up": {"command": "scripted", **(server or {})}}, "observe": {"otel": True}, **sections}
    bridge = Traced(Settings.model_validate(how), {"up": transport}, tracers or TracerProvider(shutdown_on_exit=False))
    with anyio.fail_after(20), pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenTelemetry, "create", lambda: bridge.opened)
        async with bridge:
            assert await bridge.settled(30)
            ear = Ear(bridge.server)
            await ear.initialize()
            yield World(bridge, transport, ear)


async def call(world: World, **more: Any) -> Message:
    return await world.ear.ask("tools/call", {"name": "up__echo", "arguments": {"text": "a secret"}, **more})


async def test_a_call_makes_a_span_of_each_side_by_the_conventions() -> None:
    async with traced() as world:
        await call(world)
        received, sent = world.bridge.finished()
        session = world.ear.client.session.id
        [request] = world.transport.asked("tools/call")
    assert (received.name, received.kind) == ("tools/call up__echo", SpanKind.SERVER)
    assert (sent.name, sent.kind) == ("tools/call echo", SpanKind.CLIENT)
    assert received.attributes == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-11-25",
        "mcp.session.id": session,
        "jsonrpc.request.id": "1",
        "gen_ai.tool.name": "up__echo",
        "gen_ai.operation.name": "execute_tool",
        "mcpbridge.server": "up",
    }
    assert sent.attributes == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-06-18",
        "jsonrpc.request.id": str(request["id"]),
        "gen_ai.tool.name": "echo",
        "gen_ai.operation.name": "execute_tool",
        "network.transport": "pipe",
        "mcpbridge.server": "up",
    }
    assert received.parent is None
    assert sent.parent is not None
    assert sent.parent.span_id == received.context.span_id
    assert received.status.status_code is sent.status.status_code is StatusCode.UNSET


async def test_the_id_of_a_request_is_told_as_a_text() -> None:
    async with traced() as world:
        params = {"name": "up__echo", "arguments": {"text": "x"}}
        assert "result" in await world.ear.ask("tools/call", params, id_=b'"call \\u00e9"')
        received, _ = world.bridge.finished()
    assert (received.attributes or {})["jsonrpc.request.id"] == "call é"


@pytest.mark.parametrize("script", [LEGACY_SERVER, MODERN_SERVER], ids=["legacy", "modern"])
async def test_the_clients_trace_goes_on_through_the_bridge_to_the_server(script: Any) -> None:
    """2026-07-28, `_meta`: trace context crosses; each hop puts its own span into it."""
    async with traced(script) as world:
        meta = {"traceparent": TRACEPARENT, "tracestate": "vendor=1", "baggage": "k=v", "other/key": 1}
        await call(world, _meta=meta)
        received, sent = world.bridge.finished()
        (crossed,) = world.transport.asked("tools/call")
    assert received.parent is not None
    assert f"{received.parent.span_id:016x}" == PARENT
    assert {f"{span.context.trace_id:032x}" for span in (received, sent)} == {TRACE}
    told = crossed["params"]["_meta"]
    assert told["traceparent"] == f"00-{TRACE}-{sent.context.span_id:016x}-01"
    assert (told["tracestate"], told["baggage"], told["other/key"]) == ("vendor=1", "k=v", 1)


async def test_a_call_without_a_trace_begins_one_and_tells_the_server() -> None:
    async with traced() as world:
        await call(world)
        _, sent = world.bridge.finished()
        (crossed,) = world.transport.asked("tools/call")
    context = sent.context
    told = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert crossed["params"]["_meta"] == {"traceparent": told}


@pytest.mark.parametrize("bad", ["nonsense", 7, None, f"00-{'0' * 32}-{PARENT}-01"])
async def test_a_trace_that_cannot_be_read_is_none(bad: Any) -> None:
    async with traced() as world:
        assert "result" in await call(world, _meta={"traceparent": bad, "tracestate": "x"})
        received, sent = world.bridge.finished()
        (crossed,) = world.transport.asked("tools/call")
    assert received.parent is None
    assert f"{sent.context.span_id:016x}" in crossed["params"]["_meta"]["traceparent"]
    assert "tracestate" not in crossed["params"]["_meta"]


async def test_a_trace_that_is_not_sampled_goes_on_unsampled() -> None:
    async with traced(tracers=TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)) as world:
        await call(world, _meta={"traceparent": TRACEPARENT})
        assert world.bridge.finished() == []
        (crossed,) = world.transport.asked("tools/call")
    version, trace, span, flags = crossed["params"]["_meta"]["traceparent"].split("-")
    assert (version, trace, flags) == ("00", TRACE, "00")
    assert span


async def test_failures_have_a_type_and_none_says_what_was_in_the_call() -> None:
    async with traced() as world:
        world.transport.script["tools/call"] = {"content": [{"type": "text", "text": "secret"}], "isError": True}
        await call(world)
        world.transport.script["tools/call"] = Refusal(-32050, "a secret of the server")
        await call(world)
        spans = world.bridge.finished()
    kinds = [(span.kind, (span.attributes or {}).get("error.type")) for span in spans]
    both = [SpanKind.SERVER, SpanKind.CLIENT]
    assert kinds == [(kind, "tool_error") for kind in both] + [(kind, "-32050") for kind in both]
    assert all(span.status.status_code is StatusCode.ERROR for span in spans)
    assert [(span.attributes or {}).get("rpc.response.status_code") for span in spans[2:]] == ["-32050"] * 2
    assert not any("secret" in span.to_json() for span in spans)


async def test_what_the_bridge_refuses_has_a_span_of_the_client_alone() -> None:
    async with traced(calls={"rate_limit": "1/h"}) as world:
        await call(world)
        await call(world)
        first, _, second = world.bridge.finished()
        assert first.kind is second.kind is SpanKind.SERVER
        assert (second.attributes or {})["error.type"] == "RateLimited"


async def test_a_kept_result_is_told_apart() -> None:
    async with traced(server={"cache": "60s", "read_only": True}) as world:
        for _ in range(2):
            await call(world)
        spans = world.bridge.finished()
    told = [(span.kind.name, (span.attributes or {}).get("mcpbridge.cache")) for span in spans]
    assert told == [("SERVER", "miss"), ("CLIENT", None), ("SERVER", "hit")]


async def test_every_try_has_a_span_and_the_server_is_told_of_its_own() -> None:
    async with traced(server={"retry": {"tries": 3, "backoff": 0}, "read_only": True}) as world:
        answers = iter([UpstreamGone("up", "it broke"), LEGACY_SERVER["tools/call"]])
        world.transport.script["tools/call"] = lambda _: next(answers)
        await call(world, _meta={"traceparent": TRACEPARENT, "tracestate": "vendor=1"})
        received, *sent = world.bridge.finished()
        told = [message["params"]["_meta"]["traceparent"] for message in world.transport.asked("tools/call")]
    assert told == [f"00-{TRACE}-{span.context.span_id:016x}-01" for span in sent]
    assert [(span.attributes or {}).get("error.type") for span in sent] == ["UpstreamGone", None]
    assert (received.attributes or {})["mcpbridge.retries"] == 1
    assert all(span.parent and span.parent.span_id == received.context.span_id for span in sent)


async def test_content_is_told_where_the_configuration_says_so() -> None:
    async with traced(observe={"otel": True, "otel_content": True}) as world:
        await call(world)
        spans = list(world.bridge.finished())
        assert len(spans) == 2
        for span in spans:
            attributes = span.attributes or {}
            assert json.loads(str(attributes["gen_ai.tool.call.arguments"])) == {"text": "a secret"}
            assert json.loads(str(attributes["gen_ai.tool.call.result"])) == LEGACY_SERVER["tools/call"]


async def test_prompts_and_resources_are_traced_too() -> None:
    declared = {"protocolVersion": "2025-06-18", "capabilities": {"prompts": {}, "resources": {}}, "serverInfo": {}}
    script = {
        "initialize": declared,
        "prompts/list": {"prompts": [{"name": "greet"}]},
        "prompts/get": {"messages": []},
        "resources/list": {"resources": [{"uri": "memo://one", "name": "memo"}]},
        "resources/templates/list": {"resourceTemplates": []},
        "resources/read": {"contents": []},
    }
    async with traced(script) as world:
        await world.ear.ask("prompts/get", {"name": "up__greet"})
        await world.ear.ask("resources/read", {"uri": "memo://one"})
        names = [span.name for span in world.bridge.finished()]
        attributes = [dict(span.attributes or {}) for span in world.bridge.finished()]
    assert names == ["prompts/get greet", "prompts/get greet", "resources/read", "resources/read"]
    assert [told.get("gen_ai.prompt.name") for told in attributes] == ["greet", "greet", None, None]
    assert attributes[2]["mcp.resource.uri"] == "memo://one"


async def test_durations_go_into_histograms_with_the_buckets_of_the_conventions() -> None:
    async with traced() as world:
        await call(world)
        world.transport.script["tools/call"] = {"content": [], "isError": True}
        await call(world)
        durations = world.bridge.durations()
    assert set(durations) == {"mcp.server.operation.duration", "mcp.client.operation.duration"}
    bounds = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
    for points in durations.values():
        assert [point.attributes.get("error.type") for point in points] == [None, "tool_error"]
        assert all(tuple(point.explicit_bounds) == bounds for point in points)
        assert all("mcp.session.id" not in point.attributes for point in points)


async def test_a_missing_package_is_a_mistake_in_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mcpbridge.pipeline.observability.tracing_setup", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError) as caught:
        async with Bridge(Settings.model_validate({"observe": {"otel": True}})):
            pass
    assert caught.value.key == "observe.otel"
    assert "mcpbridge[otel]" in str(caught.value)


async def test_exporters_can_be_switched_off_by_the_usual_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    made = OpenTelemetry.create()
    async with made.running():
        span = made.start("x", {}, carried={"traceparent": TRACEPARENT}, parent=None, is_client=False)
        assert made.carry(span)["traceparent"].startswith(f"00-{TRACE}-")
        made.measure("mcp.server.operation.duration", 1, {})
        made.finish(span, {}, "")


async def test_a_collector_that_does_not_answer_holds_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.pipeline.observability.tracing_setup._LAST_WORDS", 0.05)
    stuck, ended = threading.Event(), threading.Event()
    providers = TracerProvider(shutdown_on_exit=False), MeterProvider(shutdown_on_exit=False)
    made = OpenTelemetry(*providers, [stuck.wait, ended.set])
    try:
        with anyio.fail_after(60):
            async with made.running():
                pass
            while not ended.is_set():  # its thread may come to it later than that
                await anyio.sleep(0.01)
    finally:
        stuck.set()
