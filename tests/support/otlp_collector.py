"""An OTLP/HTTP receiver for tests: what bridges send by OpenTelemetry."""

import asyncio
import gzip
import re
from typing import Any


class Collector:
    """An OTLP/HTTP receiver: keeps what is sent to it."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {}

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                path = head.split(" ", 2)[1]
                found = re.search(r"content-length: (\d+)", head.lower())
                assert found
                length = int(found[1])
                body = await reader.readexactly(length)
                if "content-encoding: gzip" in head.lower():
                    body = gzip.decompress(body)
                self.bodies.setdefault(path, []).append(body)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def spans(self) -> list[Any]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        return [
            span
            for body in self.bodies.get("/v1/traces", [])
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metric_names(self) -> set[str]:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        return {
            metric.name
            for body in self.bodies.get("/v1/metrics", [])
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
