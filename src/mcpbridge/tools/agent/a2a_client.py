"""Requests to a remote agent: JSON-RPC over HTTP, answered at once or by a stream of events (A2A, JSON-RPC binding).

An agent that streams is listened to. For any other agent, or when the stream breaks off, the task is polled. A task
that the bridge began and nobody waits for any more is cancelled.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import anyio
import msgspec
from msgspec import Raw

from mcpbridge.base.errors import UpstreamError, UpstreamGarbled, UpstreamGone, UpstreamHttpError, UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.core.model import Call
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.agent.a2a_card import Interface
from mcpbridge.tools.agent.a2a_messages import Method, Record, method_name, params_of_task
from mcpbridge.tools.http.client import HttpCaller, describe_redirect, failure_of, request_of
from mcpbridge.tools.http.request import Answer, Outgoing

if TYPE_CHECKING:
    import httpx2


_VERSION_HEADER = "a2a-version"


class AgentAnsweredError(Exception):
    """The agent answered with an error of JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class AgentCaller(HttpCaller):
    """The connections to one agent."""

    _ids = count(1)

    async def request(self, upstream: str, interface: Interface, method: Method, params: Mapping[str, Any]) -> object:
        """The result of a request.

        Raises:
            AgentAnsweredError: the agent answers with an error.
            UpstreamError: there is no answer.
        """
        answer = await self.send(upstream, self._outgoing(interface, method, params))
        if answer.is_cut:
            raise UpstreamGarbled(upstream, f"its answer is larger than {self._settings.max_response} bytes")
        return _result_of(upstream, answer, self._credentials.redactor)

    async def events(
        self, upstream: str, interface: Interface, params: Mapping[str, Any]
    ) -> AsyncGenerator[object, None]:
        """What the agent reports while it works on a message, and None for what only keeps the connection alive.

        Close it to hear no more.

        Raises:
            AgentAnsweredError: the agent answers with an error.
            UpstreamError: there is no answer, or it breaks off.
        """
        import httpx2

        try:
            response = await self._opened(upstream, self._outgoing(interface, "stream", params))
            try:
                async with aclosing(self._read(upstream, response)) as events:
                    async for event in events:
                        yield event
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise failure_of(upstream, error) from error

    async def _opened(self, upstream: str, outgoing: Outgoing) -> "httpx2.Response":
        """The beginning of an answer. A token that was called back is replaced, once."""
        if not self._is_running:
            raise UpstreamUnavailable(upstream, "it does not run")
        was_refused = False

        async def ask(outgoing: Outgoing) -> Answer:
            return await self.send(upstream, outgoing, shows_credentials=False)

        while True:
            extra = await self._credentials.for_request(upstream, ask)
            request = request_of(outgoing, extra, self._headers)
            response = await self._way_to(upstream, request.url).handle_async_request(request)
            response.request = request
            if was_refused or response.status_code != 401 or not self._credentials.is_fetched:
                return response
            await response.aclose()
            self._credentials.refused(extra)
            was_refused = True

    async def _read(self, upstream: str, response: "httpx2.Response") -> AsyncGenerator[object, None]:
        from mcpbridge.protocol.http.event_stream import EventStreamParser, EventTooLarge
        from mcpbridge.tools.http.request import read_body

        most = self._settings.max_response
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            body, is_cut = await read_body(upstream, response, most)
            answer = Answer(response.status_code, response.headers, body, "", is_cut)
            yield _result_of(upstream, answer, self._credentials.redactor)
            return
        parser, size = EventStreamParser(most), 0
        async for piece in response.aiter_raw():
            size += len(piece)
            if size > most:
                raise UpstreamGarbled(upstream, f"it sent more than {most} bytes")
            try:
                events = parser.feed(piece)
            except EventTooLarge as error:
                raise UpstreamGarbled(upstream, str(error)) from error
            for event in events:
                yield _unpacked(upstream, event.data)
            if not events:
                yield None

    def _outgoing(self, interface: Interface, method: Method, params: Mapping[str, Any]) -> Outgoing:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method_name(interface, method), "params": params}
        accept = "text/event-stream, application/json" if method == "stream" else "application/json"
        headers = [("content-type", "application/json"), ("accept", accept)]
        if method == "stream":  # what is packed arrives in gusts
            headers.append(("accept-encoding", "identity"))
        if interface.version == "1.0":  # 0.3 knows no such header, and its absence means 0.3
            headers.append((_VERSION_HEADER, interface.version))
        return Outgoing("POST", interface.url, tuple(headers), encode(message))


def _result_of(upstream: str, answer: Answer, redact: Callable[[str], str]) -> object:
    """The result in an answer; an error status counts only where no JSON-RPC is in it."""
    from mcpbridge.protocol.http.responses import seconds_to_wait

    if 300 <= answer.status < 400:
        what = describe_redirect(answer, redact)
        raise UpstreamHttpError(upstream, answer.status, f"HTTP {answer.status}: {what}")
    if 200 <= answer.status < 300:
        return _unpacked(upstream, answer.body)
    if answer.status not in (401, 403, 429):
        try:
            return _unpacked(upstream, answer.body)
        except UpstreamError:
            pass
    wait = seconds_to_wait(answer.headers.get("retry-after", ""), datetime.now(UTC))
    error = UpstreamHttpError(upstream, answer.status, f"HTTP {answer.status}", retry_after=wait)
    if answer.status == 401:
        error.advice = "The agent requires credentials: `auth` or `headers` of this tool in the configuration has them."
    raise error


def _unpacked(upstream: str, data: bytes) -> object:
    """What a JSON-RPC response has in it."""
    try:
        value: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UpstreamGarbled(upstream, "its answer is no JSON") from error
    response: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
    error: object = response.get("error")
    if isinstance(error, dict):
        details = cast("Mapping[str, Any]", error)
        code, message = details.get("code"), details.get("message")
        raise AgentAnsweredError(code if isinstance(code, int) else 0, message if isinstance(message, str) else "")
    if "result" not in response:
        raise UpstreamGarbled(upstream, "its answer is no JSON-RPC response")
    return response["result"]


log = get_logger("mcpbridge.backends")

FIRST_WAIT, LONGEST_WAIT, GROWTH = 0.2, 5.0, 1.5
"""Seconds between two looks at a task, and by how much they grow."""
MOST_MISSED = 4
"""Looks in a row that may fail on the way."""
CANCEL_SECONDS = 3.0
"""Seconds that the request to stop may take."""
_NO_STREAMS = frozenset({-32004, -32601})
"""Errors of agents that cannot report on their work, whatever their card says: nothing was begun."""
_PROGRESS_LENGTH = 500
"""Characters of an agent's report that progress shows."""


class Exchange:
    """One call on its way."""

    def __init__(self, caller: AgentCaller, interface: Interface, call: Call, redact: Callable[[str], str]) -> None:
        """`redact` masks secrets in what progress shows."""
        self._caller, self._interface, self._call, self._redact = caller, interface, call, redact
        self.record = Record()
        """What the agent has told so far."""
        self._steps = 0
        self._named = asyncio.Event()
        """The agent has named the task that it began, or there is none."""

    async def send(self, params: Mapping[str, Any], *, streams: bool) -> Record:
        """What came of a message.

        Raises:
            AgentAnsweredError: the agent answers with an error.
            UpstreamError: there is no answer.
        """
        # A task of its own: when the call is cancelled before the agent has named the task that it began, this still
        # hears the name.
        work = asyncio.create_task(self._work(params, streams=streams))
        work.add_done_callback(lambda _: self._named.set())
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            await self._stop()
            raise
        finally:
            work.cancel()
            with anyio.move_on_after(CANCEL_SECONDS, shield=True):
                await asyncio.wait([work])
            if work.done() and not work.cancelled():
                work.exception()  # what became of it after the call was cancelled concerns nobody
        return self._whole()

    async def _work(self, params: Mapping[str, Any], *, streams: bool) -> None:
        if not (streams and await self._listen(params)):
            self._take(await self._caller.request(self._call.upstream, self._interface, "send", params))
        await self._to_the_end()

    async def look(self, task_id: str) -> Record:
        """What became of a task that was begun earlier; if it runs on, this waits, and lets it continue when cancelled.

        Raises: as `send`.
        """
        self.record.task_id = task_id
        self._take(await self._ask())
        await self._to_the_end()
        return self._whole()

    def _whole(self) -> Record:
        if not self.record.state:
            raise UpstreamGarbled(self._call.upstream, "its answer is neither a message nor a task")
        return self.record

    async def _listen(self, params: Mapping[str, Any]) -> bool:
        """Follow what the agent tells; False: it cannot, and nothing was begun."""
        has_reported = False
        try:
            events = self._caller.events(self._call.upstream, self._interface, params)
            async with aclosing(events):
                async for event in events:
                    has_reported |= event is not None
                    self._take(event, reports_always=True)
                    if self.record.state and not self.record.goes_on:
                        break
        except AgentAnsweredError as error:
            if error.code in _NO_STREAMS and not self.record.state:
                return False
            raise
        except UpstreamError as error:
            if not self.record.goes_on:
                raise
            log.info(
                "the agent's stream ended early; polling its task", upstream=self._call.upstream, reason=error.what
            )
        if not has_reported:
            raise UpstreamGone(self._call.upstream, "it ended its answer without saying anything")
        return True

    async def _to_the_end(self) -> None:
        wait, missed = FIRST_WAIT, 0
        while self.record.goes_on:
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT, wait * GROWTH)
            try:
                self._take(await self._ask(), reports_always=True)
                missed = 0
            except (UpstreamGone, UpstreamUnavailable, UpstreamHttpError) as error:
                missed += 1
                lasts = isinstance(error, UpstreamHttpError) and error.status < 500 and error.status != 429
                if lasts or missed == MOST_MISSED:
                    raise

    async def _ask(self) -> object:
        params = params_of_task(self._interface, self.record.task_id)
        return await self._caller.request(self._call.upstream, self._interface, "get", params)

    def _take(self, value: object, *, reports_always: bool = False) -> None:
        """`reports_always`: that it is still there is progress as well, with which the time of the call begins anew."""
        news = self.record.take(value)
        if self.record.task_id:
            self._named.set()
        if (news or reports_always) and self._call.wants_progress and self.record.goes_on:
            self._steps += 1
            params = {"progress": self._steps, "message": self._redact(news or self.record.state)[:_PROGRESS_LENGTH]}
            self._call.update("notifications/progress", Raw(encode(params)))

    async def _stop(self) -> None:
        """Tell the agent that nobody waits any more, if it began a task."""
        with anyio.move_on_after(CANCEL_SECONDS, shield=True) as waiting:
            await self._named.wait()
            if not self.record.goes_on:
                return
            params = params_of_task(self._interface, self.record.task_id)
            try:
                await self._caller.request(self._call.upstream, self._interface, "cancel", params)
            except (AgentAnsweredError, UpstreamError) as error:
                log.info(
                    "the agent's task may still be running", upstream=self._call.upstream, reason=type(error).__name__
                )
        if waiting.cancelled_caught:
            log.info("the agent's task may still be running", upstream=self._call.upstream, reason="it did not answer")
