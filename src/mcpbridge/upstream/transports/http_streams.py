"""Event streams over HTTP: reading one to its end, and opening it again where it broke.

Resuming (`Last-Event-ID`) exists in the legacy revisions only. A server may use it to let go of a connection on
purpose: it sends an id and a `retry`, closes, and answers on a later GET (MCP 2025-11-25, polling).
"""

import asyncio
import random
from collections.abc import AsyncIterable, Callable, Iterator
from time import perf_counter

import httpx2
from msgspec import Struct

from mcpbridge.base.errors import UpstreamGarbled, UpstreamGone
from mcpbridge.base.log import get_logger
from mcpbridge.protocol.http.bearer_auth import Send
from mcpbridge.protocol.http.event_stream import Event, EventStreamParser, EventTooLarge
from mcpbridge.protocol.http.responses import Answers, Failure, failure_of_exception
from mcpbridge.protocol.jsonrpc import LargeFrame
from mcpbridge.protocol.reading.arriving_message import PIECE, ArrivingMessage
from mcpbridge.protocol.reading.framing import LARGE_MESSAGE
from mcpbridge.upstream.transports.http_requests import PostMaker

log = get_logger("mcpbridge.http")

_TAIL_SECONDS = 1.0
"""A stream that stays open after its answer is closed then: another request may want the connection."""
_TRIES = 5
"""Attempts in a row to resume a stream, none of which brought anything."""
_LONGEST_WAIT = 60.0
"""Seconds between attempts, at most, unless the server asks for more."""
_LONGEST_RETRY = 300.0
"""Seconds that a server may ask for."""
_POLLED = 1.0
"""Seconds between two looks, at most, at a server that names its own interval."""
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that may be gone at the next attempt."""


class _Place(Struct):
    """Where a stream stands, over all the connections it takes."""

    last_event_id: bytes = b""
    retry: float | None = None
    events: int = 0


class _Backoff:
    """How long to wait before the next attempt, in seconds."""

    def __init__(self, first: float) -> None:
        self._first = self._next = first

    def reset(self) -> None:
        self._next = self._first

    def wait(self, retry: float | None) -> float:
        """`retry` is what the server asked for."""
        grown = self._next
        self._next = min(_LONGEST_WAIT, grown * 2)
        if retry is not None:
            return max(min(retry, _LONGEST_RETRY), min(grown, _POLLED) if grown > self._first else 0.0)
        return grown * random.uniform(0.75, 1.0)


class EventStreams:
    """Reads the streams of one channel."""

    def __init__(self, name: str, send: Send, requests: PostMaker, *, max_bytes: int, reconnect_delay: float) -> None:
        self._name = name
        self._send = send
        self._requests = requests
        self._max_bytes = max_bytes
        self._reconnect_delay = reconnect_delay

    async def take(self, response: httpx2.Response, answers: Answers) -> Failure | None:
        """Hand on the events of a POST's answer until the request is answered, resuming as often as it takes."""
        place = _Place()
        failure = await self._read(response, answers, place)
        if answers.is_answered:
            return None
        if failure is not None and not isinstance(failure.error, UpstreamGone):
            return failure
        if self._requests.is_modern or not place.last_event_id:
            if failure is None and answers.noise:
                what = f"its answer cannot be read: {answers.noise}"
                return Failure(UpstreamGarbled(self._name, what), sent=True)
            return failure or self._ended("it closed the stream before the answer")
        await response.aclose()
        return await self._resume(answers, place)

    async def listen(self, answers: Answers, on_tried: Callable[[], None] = lambda: None) -> bool:
        """Hold the session's own stream open. Returns when the server has none, with False; or has lost the session.

        Runs until cancelled otherwise. `on_tried` is called when the server has answered whether it has one.
        """
        place = _Place()
        backoff = _Backoff(self._reconnect_delay)
        was_open = False
        while True:
            seen = place.events
            status = await self._attempt(answers, place, on_tried)
            if status == 200:
                was_open = True
            elif status and status not in _PASSING:
                log.debug("server offers no GET stream", upstream=self._name, status=status)
                return was_open and status in {400, 404}
            if place.events > seen:
                backoff.reset()
            await asyncio.sleep(backoff.wait(place.retry))

    async def _resume(self, answers: Answers, place: _Place) -> Failure | None:
        backoff = _Backoff(self._reconnect_delay)
        tries = 0
        while tries < _TRIES:
            await asyncio.sleep(backoff.wait(place.retry))
            seen = place.events
            status = await self._attempt(answers, place)
            if answers.is_answered:
                return None
            if place.events > seen:
                tries = 0
                backoff.reset()
            elif status != 200 or place.retry is None:
                tries += 1
            if status and status != 200 and status not in _PASSING:
                return self._ended(f"the stream broke and cannot be resumed (HTTP {status})")
        return self._ended("the stream broke and could not be resumed")

    async def _attempt(self, answers: Answers, place: _Place, on_tried: Callable[[], None] = lambda: None) -> int:
        """Open the stream and read it to its end. Returns the status; 0 when there was no answer at all."""
        try:
            response = await self._send(self._requests.listen(place.last_event_id))
        except httpx2.HTTPError as error:
            log.debug("stream not opened", upstream=self._name, error=str(error))
            return 0
        finally:
            on_tried()
        try:
            if response.status_code != 200:
                return response.status_code
            if content_type(response) != "text/event-stream":
                return 406  # an answer to GET that is no stream: it has none
            await self._read(response, answers, place)
            return 200
        finally:
            await response.aclose()

    async def _read(self, response: httpx2.Response, answers: Answers, place: _Place) -> Failure | None:
        """Hand on what one connection brings. None when it ended in order."""
        parser = EventStreamParser(self._max_bytes, last_event_id=place.last_event_id, slices=True)
        try:
            async with asyncio.timeout(None) as limit:
                async for chunk in pieces(response):
                    for piece in _parts([chunk]):
                        began = perf_counter()
                        self._take(parser.feed(piece), answers)
                        if parser.count:
                            place.events += parser.count
                            parser.count = 0
                            place.last_event_id = parser.last_event_id
                        if parser.retry is not None:
                            place.retry = parser.retry
                        if answers.is_answered and limit.when() is None:
                            limit.reschedule(asyncio.get_running_loop().time() + _TAIL_SECONDS)
                        if pause := answers.pause_after(began):
                            await asyncio.sleep(pause)
                        elif len(chunk) > PIECE:
                            await asyncio.sleep(0)
        except TimeoutError:
            pass  # the answer is there
        except EventTooLarge as error:
            return Failure(UpstreamGarbled(self._name, f"it sent {error}"), sent=True)
        except httpx2.HTTPError as error:
            return failure_of_exception(self._name, error)
        return None

    def _take(self, events: list[Event], answers: Answers) -> None:
        for event in events:
            if event.type not in {b"", b"message"}:
                continue
            if event.frame is not None:
                answers.take_frame(event.frame)
            elif event.data:
                answers.take(event.data)

    def _ended(self, what: str) -> Failure:
        return Failure(UpstreamGone(self._name, what, is_restarted=False), sent=True)


def content_type(response: httpx2.Response) -> str:
    """The media type of an answer, without parameters, in lower case; empty when none is named."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(response: httpx2.Response, limit: int) -> bytes | LargeFrame | None:
    """The whole body, decompressed; a large message as it was read in slices while it came.

    None as soon as it proves larger than `limit`. The rest is not decompressed.

    Raises:
        httpx2.HTTPError: it broke off, or cannot be decompressed.
    """
    chunks: list[bytes] = []
    size = 0
    message: ArrivingMessage | None = None
    async for chunk in pieces(response):
        size += len(chunk)
        if size > limit:
            return None
        chunks.append(chunk)
        if size > LARGE_MESSAGE:
            message = message or ArrivingMessage(limit)
            for piece in _parts(chunks):
                message.add(piece)
                await asyncio.sleep(0)
            chunks.clear()
    if message is not None:
        return message.finish()
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _parts(chunks: list[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        for start in range(0, len(chunk), PIECE):
            yield chunk[start : start + PIECE]


async def read_beginning(response: httpx2.Response, limit: int) -> bytes:
    """The body, but no more than its first `limit` bytes; same errors as `read_body`."""
    body = b""
    async for chunk in pieces(response):
        body += chunk
        if len(body) >= limit:
            break
    return body[:limit]


def pieces(response: httpx2.Response) -> AsyncIterable[bytes]:
    """The body as it comes, decompressed in pieces of a megabyte at most."""
    stream = response.stream
    if "content-encoding" in response.headers or not isinstance(stream, httpx2.AsyncByteStream):
        return response.aiter_bytes()
    return stream  # `aiter_bytes` would put four generators between
