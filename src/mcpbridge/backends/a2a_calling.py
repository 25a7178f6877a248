"""Requests to a remote agent: JSON-RPC over HTTP, answered at once or by a stream of events (A2A, JSON-RPC binding)."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import msgspec

from mcpbridge.backends.a2a_card import Interface
from mcpbridge.backends.a2a_messages import Method, method_name
from mcpbridge.backends.http_calling import HttpCaller, told_redirect
from mcpbridge.backends.http_outgoing import Answer, Outgoing, request_of
from mcpbridge.errors import UpstreamError, UpstreamGarbled, UpstreamGone, UpstreamHttpError, UpstreamUnavailable
from mcpbridge.wire.frame import encode

if TYPE_CHECKING:
    import httpx2

__all__ = ["AgentAnsweredError", "AgentCaller"]

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
        """What the agent tells while it works on a message, and None for what only keeps the connection alive.

        Close it to hear no more.

        Raises:
            AgentAnsweredError: the agent answers with an error.
            UpstreamError: there is no answer, or it breaks off.
        """
        import httpx2

        from mcpbridge.wire.http_problems import failure_of_exception

        try:
            response = await self._opened(upstream, self._outgoing(interface, "stream", params))
            try:
                async with aclosing(self._read(upstream, response)) as events:
                    async for event in events:
                        yield event
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            failed = error if isinstance(error, httpx2.HTTPError) else httpx2.LocalProtocolError(str(error))
            failure = failure_of_exception(upstream, failed).error
            if isinstance(failure, UpstreamGone):
                failure.advice = "Check whether the action took effect before you repeat it."
            raise failure from error

    async def _opened(self, upstream: str, outgoing: Outgoing) -> "httpx2.Response":
        """The beginning of an answer. A token that was called back is replaced, once."""
        if not self._is_running:
            raise UpstreamUnavailable(upstream, "it does not run")
        was_refused = False

        async def ask(outgoing: Outgoing) -> Answer:
            return await self.send(upstream, outgoing, shows_credentials=False)

        while True:
            shown = await self._credentials.shown(upstream, ask)
            request = request_of(outgoing, shown, self._headers)
            response = await self._way_to(upstream, request.url).handle_async_request(request)
            response.request = request
            if was_refused or response.status_code != 401 or not self._credentials.is_fetched:
                return response
            await response.aclose()
            self._credentials.refused(shown)
            was_refused = True

    async def _read(self, upstream: str, response: "httpx2.Response") -> AsyncGenerator[object, None]:
        from mcpbridge.backends.http_decoding import read_body
        from mcpbridge.wire.event_stream import EventStreamParser, EventTooLarge

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
                raise UpstreamGarbled(upstream, f"it told more than {most} bytes")
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
    from mcpbridge.wire.http_problems import seconds_to_wait

    if 300 <= answer.status < 400:
        what = told_redirect(answer, redact)
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
        error.advice = "The agent wants credentials: `auth` or `headers` of this tool in the configuration has them."
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
        told = cast("Mapping[str, Any]", error)
        code, message = told.get("code"), told.get("message")
        raise AgentAnsweredError(code if isinstance(code, int) else 0, message if isinstance(message, str) else "")
    if "result" not in response:
        raise UpstreamGarbled(upstream, "its answer is no JSON-RPC response")
    return response["result"]
