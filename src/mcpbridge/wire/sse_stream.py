"""The event stream of HTTP+SSE (2024-11-05): opened by a GET, it names where to POST, then brings every message."""

import asyncio
from collections.abc import AsyncGenerator, Callable

import httpx2

from mcpbridge.errors import UpstreamHttpError, UpstreamUnavailable
from mcpbridge.logs import get_logger
from mcpbridge.wire.event_stream import Event, EventStreamParser
from mcpbridge.wire.frame import Frame
from mcpbridge.wire.http_client import Send
from mcpbridge.wire.http_problems import failure_of_exception, failure_of_status
from mcpbridge.wire.http_requests import PostMaker
from mcpbridge.wire.http_streams import content_type, pieces, read_beginning
from mcpbridge.wire.messages import read_message
from mcpbridge.wire.salvage import find_ids
from mcpbridge.wire.same_origin import is_same_origin, redirect_target
from mcpbridge.wire.transport import Receiver

__all__ = ["BODY_LIMIT", "MAX_REDIRECTS", "SseStream", "beginning", "deliver"]

log = get_logger("mcpbridge.sse")

BODY_LIMIT = 64 << 10
"""Bytes of an answer's body that are looked at."""
MAX_REDIRECTS = 3
_BODY_SECONDS = 5.0
"""An error's body is waited for so long; the status has said most."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class SseStream:
    """The event stream of one channel."""

    def __init__(
        self, name: str, send: Send, requests: PostMaker, max_bytes: int, redact: Callable[[str], str]
    ) -> None:
        self._name = name
        self._send = send
        self._requests = requests
        self._max_bytes = max_bytes
        self._redact = redact
        self._parser = EventStreamParser(max_bytes, skips=True)
        self._response: httpx2.Response | None = None
        self._events: AsyncGenerator[list[Event]] | None = None
        self._early: list[Event] = []
        """Events that came together with the endpoint."""

    async def open(self, seconds: float) -> httpx2.URL:
        """Open the stream; returns where to POST."""
        try:
            async with asyncio.timeout(seconds):
                self._response = await self._get()
                self._events = self._read_events(self._response)
                return await self._endpoint(self._response.request.url, self._events)
        except TimeoutError:
            what = "it opened an event stream and names no endpoint in it" if self._response else "no answer"
            raise UpstreamUnavailable(self._name, f"{what} within {seconds:g} s") from None
        except httpx2.HTTPError as error:
            raise failure_of_exception(self._name, error).error from error

    async def read(self, receiver: Receiver) -> str:
        """Hand on what comes, to the end of the stream; returns why it ended."""
        assert self._events is not None
        try:
            self._take(self._early, receiver)
            self._early = []
            async for events in self._events:
                self._take(events, receiver)
        except httpx2.HTTPError as error:
            return f"its event stream was cut{self._where}: {error}"
        return f"its event stream was cut{self._where}" if self._where else "it ended its event stream"

    async def close(self) -> None:
        """Close the stream."""
        if self._events is not None:
            await self._events.aclose()
        if self._response is not None:
            await self._response.aclose()

    @property
    def _where(self) -> str:
        return " in the middle of a message" if self._parser.is_within_event else ""

    async def _get(self) -> httpx2.Response:
        request = self._requests.listen()
        for _ in range(MAX_REDIRECTS):
            response = await self._send(request)
            if response.status_code == 200 and content_type(response) == "text/event-stream":
                return response
            try:
                target = redirect_target(response, _REDIRECTS)
                if target is None:
                    raise await self._refusal(response)
            finally:
                await response.aclose()
            log.info("server redirects; set its url to the new path", upstream=self._name, to=target.path)
            request = httpx2.Request(
                "GET", target, headers=request.headers, stream=request.stream, extensions=request.extensions
            )
        raise UpstreamHttpError(self._name, 308, "it redirects in a circle")

    async def _refusal(self, response: httpx2.Response) -> Exception:
        status = response.status_code
        if 200 <= status < 300:
            kind = content_type(response) or "no content type"
            said = f"it answers GET with {kind} (HTTP {status}) instead of an event stream: is the URL right?"
            return UpstreamHttpError(self._name, status, said)
        body = await beginning(response)
        return failure_of_status(self._name, response, body, had_session=False, redact=self._redact).error

    async def _read_events(self, response: httpx2.Response) -> AsyncGenerator[list[Event]]:
        async for chunk in pieces(response):
            events = self._parser.feed(chunk)
            if events:
                yield events

    async def _endpoint(self, url: httpx2.URL, events: AsyncGenerator[list[Event]]) -> httpx2.URL:
        """Where to POST, by the first `endpoint` event. Only to the origin of the stream: we send credentials there."""
        async for found in events:
            for number, event in enumerate(found):
                if event.type == b"endpoint":
                    self._early = found[number + 1 :]
                    return self._checked_endpoint(url, event.data)
        raise UpstreamUnavailable(self._name, "it ended its event stream before it named an endpoint")

    def _checked_endpoint(self, url: httpx2.URL, data: bytes) -> httpx2.URL:
        try:
            target = url.join(data.decode().strip())
        except (httpx2.InvalidURL, UnicodeDecodeError) as error:
            raise UpstreamUnavailable(self._name, "it names an endpoint that is no URL") from error
        if not is_same_origin(target, url):
            place = f"{target.scheme}://{target.netloc.decode('ascii', 'replace')}"[:200]
            what = f"it names an endpoint on another origin ({place}), where no message is sent"
            raise UpstreamUnavailable(self._name, what)
        return target

    def _take(self, events: list[Event], receiver: Receiver) -> None:
        for event in events:
            if not event.is_whole:
                limit = f"larger than the limit of {self._max_bytes / 2**20:g} MiB for one message"
                receiver.spoiled(find_ids(event.data), limit, b"")
            elif event.data and event.type in {b"", b"message"}:
                deliver(event.data, receiver, self._redact)


def deliver(data: bytes, receiver: Receiver, redact: Callable[[str], str]) -> None:
    """Hand on the messages in the data of one event."""
    for item in read_message(data):
        if isinstance(item, Frame):
            receiver.frame(item, b"")
        else:
            receiver.spoiled(item.ids, redact(item.reason), b"")


async def beginning(response: httpx2.Response) -> bytes:
    """What a body says, if it comes within a moment."""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            return await read_beginning(response, BODY_LIMIT)
    except (TimeoutError, httpx2.HTTPError):
        return b""
