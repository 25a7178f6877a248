"""The `observe` section of the configuration: what is counted and traced of calls, and where that is sent."""

from pydantic import BaseModel, ConfigDict, Field


class ObserveSettings(BaseModel):
    """The `observe` section: which metrics and traces of calls are collected."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    metrics: bool = True
    """Whether calls are counted per tool, server and client, for `/metrics`, `mcpbridge status` and `stats`."""

    max_tools: int = Field(default=2000, ge=1)
    """Tools with a count of their own. Further ones are counted together, as `other`, for each server."""

    max_clients: int = Field(default=50, ge=1)
    """Client names with a count of their own. Further ones are counted together, as `other`."""

    otel: bool = False
    """Whether traces and metrics are sent by OpenTelemetry. The usual `OTEL_*` environment variables say where to, such
    as `OTEL_EXPORTER_OTLP_ENDPOINT`. Needs the extra `otel`: `pip install 'mcpbridge[otel]'`."""

    otel_content: bool = False
    """Whether traces contain the arguments and results of calls. These may contain secrets."""
