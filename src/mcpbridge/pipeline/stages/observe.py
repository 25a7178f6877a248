"""Count every call, and make the record of it for those who keep one.

Refusals count too. It changes nothing, and keeps no content unless the call log is to have it. Requests about tasks are
left out: polling says nothing of the work. There are two of each stage: one for calls that are recorded, and one for
those that are only counted unless they fail (`observability/recorder.py`).
"""

import asyncio
import time
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from msgspec import Raw
from msgspec.structs import replace

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.events import EventBus
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.observability.call_records import (
    MESSAGE,
    Decides,
    RuleOf,
    decided,
    deciding,
    message_of,
    record_of,
)
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
"""The event of a call that is over; its data is the `CallRecord`, with content only where `log_content` asks for it."""

Record = Callable[[CallRecord], object]
"""Takes the record of a call, at once."""

_TELLS_OUTCOME = (b'"isError"', b'"resultType"', b"\\")
"""What a result has that is not `ok`, or may have in another spelling."""
_MOST_CLIENTS = 1000
"""Client names that one stage remembers the series of; names are the clients' to choose."""


class Recording(Protocol):
    """Records calls; see `Recorder`, which is one."""

    def keeps_content(self, call: Call, asked: bool | None) -> bool:  # noqa: D102 - as in `Recorder`
        ...

    def begin(self, call: Call, asked: bool | None, sent_at: float = 0.0) -> None: ...  # noqa: D102 - as in `Recorder`
    def ended(self, record: CallRecord) -> None: ...  # noqa: D102 - as in `Recorder`
    def failed(self, record: CallRecord) -> None: ...  # noqa: D102 - as in `Recorder`


class Observe:
    """Counts calls in `metrics`, and gives the record of each to `record` and to whoever hears `events`."""

    def __init__(
        self,
        metrics: Metrics | None,
        events: EventBus,
        record: Record | None = None,
        *,
        recorder: Recording | None = None,
        is_recorded: bool = False,
        rule_of: RuleOf | None = None,
        role_of: RuleOf | None = None,
        is_audited: bool = False,
    ) -> None:
        """`metrics` None: nothing is counted. `record` None: nobody wants all records.

        `recorder`: the call log, if there is one; it gets all records with `is_recorded`, else those of failures.
        `rule_of`, `role_of`: records say which rule decided, and by which role. `is_audited`: calls that were given up
        have a record, too.
        """
        self._metrics, self._events, self._record = metrics, events, record
        self._recorder, self._is_recorded, self._is_audited = recorder, is_recorded, is_audited
        self._rule_of, self._role_of = rule_of, role_of

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """See `StageFactory`."""
        if self._is_recorded:
            kind = _Recorded if tool is not None else _RecordedRest
        elif self._is_audited:
            kind = _Audited if tool is not None else _ObserveRest
        else:
            kind = _Observe if tool is not None else _ObserveRest
        keeps_content = options.log_content if tool is not None else False
        stage = kind(tool, self._metrics, self._events, self._record, self._recorder, keeps_content=keeps_content)
        stage.decides = deciding(self._rule_of, self._role_of, tool, options)
        return stage


class _Observe:
    """The stage of one tool."""

    _is_recorded = False
    decides: Decides | None = None
    """What says which setting decided, and which role of the caller opens the tool; None: nobody asks."""

    def __init__(
        self,
        tool: Tool | None,
        metrics: Metrics | None,
        events: EventBus,
        record: Record | None,
        recorder: Recording | None,
        *,
        keeps_content: bool | None,
    ) -> None:
        self._tool = tool
        self._metrics, self._events, self._record, self._recorder = metrics, events, record, recorder
        self._keeps_content = keeps_content
        self._series: dict[str, Series] = {}
        """By client name."""

    def express_end(self, call: Call, result: Raw, seconds: float) -> bool:
        """See `pipeline/stage.py`."""
        outcome: Outcome = "ok"
        data = bytes(result)
        for sign in _TELLS_OUTCOME:
            if data.find(sign) >= 0:
                outcome = outcome_of_result(Body(result))
                break
        if self._is_recorded:
            self._ended(call, seconds, outcome, result, None)
            return True
        series = self._series.get(call.caller.name)
        if (
            series is None
            or call.facts is not None
            or self._record is not None
            or self._events.subscribers
            or outcome == "tool_error"
        ):
            self._ended(call, seconds, outcome, result, None)
        else:
            size = len(call.params.fields.get("arguments", b""))
            series.ended(outcome, seconds, call.upstream_seconds, size, len(result))
        return True

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        began = call.began or perf_counter()
        try:
            result = await proceed(call)
        except BaseException as error:
            self._ended(call, perf_counter() - began, outcome_of_error(error), b"", error)
            raise
        seconds, outcome, data = perf_counter() - began, outcome_of_result(result), result.data
        series = self._series.get(call.caller.name)
        if (
            series is None
            or call.facts is not None
            or self._record is not None
            or self._events.subscribers
            or outcome == "tool_error"
        ):
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
            arguments = call.params.data if call.tool is None else call.params.fields.get("arguments")
            sent = len(arguments) if arguments is not None else 0
            series.ended(outcome, seconds, call.upstream_seconds, sent, len(result))
            if error is not None:
                series.went_wrong(outcome, error_name(error))
            if call.facts is not None:
                series.took_note(call.facts)
        is_logged = self._recorder is not None and (error is not None or outcome == "tool_error" or self._is_recorded)
        if is_logged or self._record is not None or self._events.subscribers:
            self._tell(call, seconds, outcome, result, error, is_logged=is_logged)

    def _series_of(self, metrics: Metrics, call: Call, client: str) -> Series:
        tool = self._tool
        series = metrics.series(call.upstream, tool.id if tool is not None else "", call.method, client)
        if len(self._series) < _MOST_CLIENTS:
            self._series[client] = series
        return series

    def _tell(
        self,
        call: Call,
        seconds: float,
        outcome: Outcome,
        result: bytes | Raw,
        error: BaseException | None,
        *,
        is_logged: bool,
    ) -> None:
        recorded, recorder = call.recorded, self._recorder
        if recorded is not None and self._is_recorded:
            keeps_content = recorded.keeps_content
        else:
            asked = self._keeps_content
            keeps_content = bool(asked) if recorder is None else recorder.keeps_content(call, asked)
        if error is not None and keeps_content and (message := message_of(error)):
            call.note(MESSAGE, message)
        rule, role = decided(call, self.decides) if self.decides is not None else ("", "")
        record = record_of(
            call,
            at=time.time() - seconds,
            seconds=seconds,
            outcome=outcome,
            error=error_name(error) if error is not None else TOOL_ERROR if outcome == "tool_error" else "",
            result=result,
            keeps_content=keeps_content,
            rule=rule,
            role=role,
        )
        if recorder is not None and is_logged:
            (recorder.ended if self._is_recorded else recorder.failed)(record)
        if self._record is not None:
            self._record(record)
        if self._events.subscribers:
            self._publish(call, record)

    def _publish(self, call: Call, record: CallRecord) -> None:
        context = call.existing_context
        # Events may wait for who listens: without the content, which can be megabytes each, unless it was asked for.
        self._events.publish(
            FINISHED,
            record if self._keeps_content else replace(record, arguments=b"", result=b"", asked=b""),
            run=record.run,
            session=record.session,
            tool=record.tool,
            principal=record.principal,
            tenant=context.tenant if context is not None else "",
        )


class _Recorded(_Observe):
    """The same for calls that are recorded."""

    _is_recorded = True

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        began = call.began or perf_counter()
        if self._recorder is not None and call.sent is None:  # else `express_sent` did that
            self._recorder.begin(call, self._keeps_content)
            if self.decides is not None:
                self._lend(call)
        try:
            result = await proceed(call)
        except BaseException as error:
            self._ended(call, perf_counter() - began, outcome_of_error(error), b"", error)
            raise
        self._ended(call, perf_counter() - began, outcome_of_result(result), result.data, None)
        return result

    def express_sent(self, call: Call, at: float) -> None:
        """See `ExpressRecording`."""
        if self._recorder is not None:
            self._recorder.begin(call, self._keeps_content, at)
            if self.decides is not None:
                self._lend(call)

    def _lend(self, call: Call) -> None:
        """Let whoever writes down that it lasts find out what decided."""
        if call.recorded is not None:
            call.recorded.decides = self.decides

    def express_withdrawn(self, call: Call) -> None:
        """See `ExpressRecording`."""
        self._ended(call, perf_counter() - call.began, "cancelled", b"", asyncio.CancelledError())


class _Audited(_Observe):
    """The same for calls that go into the audit log: one that its client gives up on the express lane does, too."""

    def express_sent(self, call: Call, at: float) -> None:
        """See `ExpressRecording`."""

    def express_withdrawn(self, call: Call) -> None:
        """See `ExpressRecording`."""
        self._ended(call, perf_counter() - call.began, "cancelled", b"", asyncio.CancelledError())


class _ObserveRest(_Observe):
    """The same for requests that call no tool: one stage for all servers and methods."""

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        if call.method.startswith("tasks/"):
            return await proceed(call)
        return await super().__call__(call, proceed)

    def _series_of(self, metrics: Metrics, call: Call, client: str) -> Series:
        method = call.method if call.method in KNOWN_METHODS else OTHER
        return metrics.series(call.upstream, "", method, client)  # not kept: this stage serves all servers


class _RecordedRest(_ObserveRest, _Recorded):
    """The same for those that are recorded."""
