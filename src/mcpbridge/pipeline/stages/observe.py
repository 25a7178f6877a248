"""Count every call, and make the record of it for those who keep one.

Refusals count too. It changes nothing, and keeps no content unless the call log is to have it. Requests about tasks are
left out: polling says nothing of the work.
"""

import time
from collections.abc import Callable
from time import perf_counter

from msgspec import Raw
from msgspec.structs import replace

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.events import EventBus
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.observability.call_records import arguments_of, record_of
from mcpbridge.pipeline.observability.metrics import (
    KNOWN_METHODS,
    OTHER,
    TOOL_ERROR,
    Metrics,
    Series,
    error_name,
    outcome_of_error,
    outcome_of_result,
)
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body
from mcpbridge.storage.call_log.format import CallRecord, Outcome

FINISHED = "call.finished"
"""The event of a call that is over; its data is the `CallRecord`, with content only where `log_content` keeps it."""

Record = Callable[[CallRecord], object]
"""Takes the record of a call, at once."""

_MOST_CLIENTS = 1000
"""Client names that one stage remembers the series of; names are the clients' to choose."""


class Observe:
    """Counts calls in `metrics`, and gives the record of each to `record` and to whoever hears `events`."""

    def __init__(self, metrics: Metrics | None, events: EventBus, record: Record | None = None) -> None:
        """`metrics` None: nothing is counted. `record` None: there is no call log."""
        self._metrics, self._events, self._record = metrics, events, record

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """See `StageFactory`."""
        if tool is None:
            return _ObserveRest(self._metrics, self._events, self._record)
        return _Observe(tool, self._metrics, self._events, self._record, keeps_content=options.log_content)


class _Observe:
    """The stage of one tool."""

    def __init__(
        self,
        tool: Tool | None,
        metrics: Metrics | None,
        events: EventBus,
        record: Record | None,
        *,
        keeps_content: bool,
    ) -> None:
        self._tool = tool
        self._metrics, self._events, self._record = metrics, events, record
        self._keeps_content = keeps_content
        self._series: dict[str, Series] = {}
        """By client name."""

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        began = perf_counter()
        try:
            result = await proceed(call)
        except BaseException as error:
            self._ended(call, perf_counter() - began, outcome_of_error(error), b"", error)
            raise
        seconds, outcome, data = perf_counter() - began, outcome_of_result(result), result.data
        series = self._series.get(call.caller.name)
        if series is None or call.facts is not None or self._record is not None or self._events.subscribers:
            self._ended(call, seconds, outcome, data, None)
        else:  # the usual case, without a further call
            size = len(call.params.fields.get("arguments", b""))
            series.ended(outcome, seconds, call.upstream_seconds, size, len(data))
        return result

    def _ended(
        self, call: Call, seconds: float, outcome: Outcome, result: bytes | Raw, error: BaseException | None
    ) -> None:
        if self._metrics is not None:
            client = call.caller.name
            series = self._series.get(client)
            if series is None:
                series = self._series_of(self._metrics, call, client)
            series.ended(outcome, seconds, call.upstream_seconds, len(arguments_of(call)), len(result))
            if error is not None:
                series.went_wrong(outcome, error_name(error))
            if call.facts is not None:
                series.took_note(call.facts)
        if self._record is not None or self._events.is_heard:
            self._tell(call, seconds, outcome, result, error)

    def _series_of(self, metrics: Metrics, call: Call, client: str) -> Series:
        tool = self._tool
        series = metrics.series(call.upstream, tool.id if tool is not None else "", call.method, client)
        if len(self._series) < _MOST_CLIENTS:
            self._series[client] = series
        return series

    def _tell(
        self, call: Call, seconds: float, outcome: Outcome, result: bytes | Raw, error: BaseException | None
    ) -> None:
        context = call.existing_context
        record = record_of(
            call,
            at=time.time() - seconds,
            seconds=seconds,
            outcome=outcome,
            error=error_name(error) if error is not None else TOOL_ERROR if outcome == "tool_error" else "",
            result=result,
            keeps_content=self._keeps_content,
        )
        if self._record is not None:
            self._record(record)
        if self._events.is_heard:
            # Events may wait for who listens: without the content, which can be megabytes each.
            told = record if self._keeps_content else replace(record, arguments=b"", result=b"")
            self._events.publish(
                FINISHED,
                told,
                run=record.run,
                session=record.session,
                tool=record.tool,
                principal=record.principal,
                tenant=context.tenant if context is not None else "",
            )


class _ObserveRest(_Observe):
    """The same for requests that call no tool: one stage for all servers and methods."""

    def __init__(self, metrics: Metrics | None, events: EventBus, record: Record | None) -> None:
        super().__init__(None, metrics, events, record, keeps_content=False)

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        if call.method.startswith("tasks/"):
            return await proceed(call)
        return await super().__call__(call, proceed)

    def _series_of(self, metrics: Metrics, call: Call, client: str) -> Series:
        method = call.method if call.method in KNOWN_METHODS else OTHER
        return metrics.series(call.upstream, "", method, client)  # not kept: this stage serves all servers
