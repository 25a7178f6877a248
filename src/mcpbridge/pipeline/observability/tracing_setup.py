"""OpenTelemetry as `tracing` needs it, made of its SDK (the extra `otel`) or of what the program has set up.

Imported only where `[observe] otel = true`. Where to send is in the `OTEL_*` variables that all its SDKs read.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import anyio

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.version import __version__
from mcpbridge.pipeline.observability.tracing import OPERATION_BUCKETS, Attributes

try:
    from opentelemetry import metrics, trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.metrics import MeterProvider as AnyMeterProvider
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Span, SpanKind, StatusCode
    from opentelemetry.trace import TracerProvider as AnyTracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ConfigError(
        f"OpenTelemetry is not installed ({error.name} is missing)",
        key="observe.otel",
        hint="Install the extra: `pip install 'mcpbridge[otel]'`, or set `otel = false`.",
    ) from error


_LAST_WORDS = 3.0
"""Seconds at the end for what was not sent yet."""


class OpenTelemetry:
    """An `Otel` (see `tracing`) on a pair of providers."""

    def __init__(
        self, tracers: AnyTracerProvider, meters: AnyMeterProvider, ends: Sequence[Callable[[], None]] = ()
    ) -> None:
        """`ends` let go of the providers that are ours; each may block for a while."""
        self._ends = ends
        self._tracer = tracers.get_tracer("mcpbridge", __version__)
        self._propagator = TraceContextTextMapPropagator()
        meter = meters.get_meter("mcpbridge", __version__)
        self._histograms = {
            name: meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=OPERATION_BUCKETS)
            for name, text in _HISTOGRAMS.items()
        }

    @classmethod
    def create(cls) -> Self:
        """On the providers that the program has set up for itself, else on new ones that send by OTLP over HTTP."""
        tracers, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
        ends: list[Callable[[], None]] = []
        # The API's own stand-ins are what there is where nobody has set up anything.
        if not isinstance(tracers, TracerProvider):
            tracers = TracerProvider(resource=_resource(), shutdown_on_exit=False)
            if _sends("OTEL_TRACES_EXPORTER"):
                tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
            ends.append(tracers.shutdown)
        if not isinstance(meters, MeterProvider):
            readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if _sends("OTEL_METRICS_EXPORTER") else []
            meters = MeterProvider(readers, resource=_resource(), shutdown_on_exit=False)
            ends.append(meters.shutdown)
        return cls(tracers, meters, ends)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Leaving sends what was not sent yet, within a few seconds."""
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_LAST_WORDS):
                async with anyio.create_task_group() as ending:
                    for end in self._ends:
                        ending.start_soon(_in_thread, end)

    # -- Otel

    def start(
        self, name: str, attributes: Attributes, *, carried: Mapping[str, str], parent: object, is_client: bool
    ) -> Span:
        """See `Otel`."""
        if isinstance(parent, Span):
            context = trace.set_span_in_context(parent, _NO_CONTEXT)
        else:
            context = self._propagator.extract(carried, _NO_CONTEXT)
        kind = SpanKind.CLIENT if is_client else SpanKind.SERVER
        return self._tracer.start_span(name, context, kind, attributes)

    def carry(self, span: object) -> Mapping[str, str]:
        """See `Otel`."""
        told: dict[str, str] = {}
        if isinstance(span, Span):
            self._propagator.inject(told, trace.set_span_in_context(span, _NO_CONTEXT))
        return told

    def finish(self, span: object, attributes: Attributes, error: str) -> None:
        """See `Otel`."""
        assert isinstance(span, Span)
        span.set_attributes(attributes)
        if error:
            span.set_status(StatusCode.ERROR)  # without a description: the text of an error may quote arguments
        span.end()

    def measure(self, name: str, seconds: float, attributes: Attributes) -> None:
        """See `Otel`."""
        self._histograms[name].record(seconds, attributes)


_NO_CONTEXT: Any = trace.set_span_in_context(trace.INVALID_SPAN)
"""Nothing is taken from where the code happens to run: what belongs to a call comes with it."""

_HISTOGRAMS = {
    "mcp.server.operation.duration": "Requests of clients, waiting included.",
    "mcp.client.operation.duration": "Requests to servers.",
}


async def _in_thread(work: Callable[[], None]) -> None:
    """Run it in a thread of its own, one that does not keep the program from ending: no collector is worth that."""
    loop, is_done = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        try:
            work()
        finally:
            with suppress(RuntimeError):  # the loop has closed meanwhile
                loop.call_soon_threadsafe(is_done.set)

    threading.Thread(target=run, name="telemetry end", daemon=True).start()
    await is_done.wait()


def _resource() -> Resource:
    is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    named: dict[str, str] = {} if is_named else {"service.name": "mcpbridge"}
    return Resource.create({**named, "service.version": __version__})


def _sends(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() != "none"
