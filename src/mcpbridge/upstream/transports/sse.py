"""The HTTP+SSE transport of revision 2024-11-05: a GET brings an event stream, whose first event names where to POST.

Answers come as `message` events only; a POST is answered with 202. The stream is the session: when it ends, so does the
channel, and whoever supervises it connects anew. The handshake of the legacy revisions is the only way to open one.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Unpack

import httpx2

from mcpbridge.base.background_tasks import TaskGroup
from mcpbridge.base.errors import Overloaded, UpstreamError, UpstreamGone, UpstreamHttpError, UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.base.version import __version__
from mcpbridge.protocol.http.bearer_auth import Send
from mcpbridge.protocol.http.client import open_client
from mcpbridge.protocol.http.event_stream import Event, EventStreamParser
from mcpbridge.protocol.http.redirects import RedirectingSend
from mcpbridge.protocol.http.responses import Failure, failure_of_exception, failure_of_status
from mcpbridge.protocol.http.same_origin import is_same_origin
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.reading.framing import read_message
from mcpbridge.protocol.reading.unreadable import find_ids
from mcpbridge.protocol.transport import Channel, Outgoing, Receiver, TransportKind
from mcpbridge.upstream.transports.http_requests import PostMaker
from mcpbridge.upstream.transports.http_streams import content_type, pieces, read_beginning
from mcpbridge.upstream.transports.remote import RemoteOptions, RemoteTransport

log = get_logger("mcpbridge.sse")

BODY_LIMIT = 64 << 10
"""Bytes of an answer's body that are looked at."""
_BODY_SECONDS = 5.0
"""An error's body is waited for so long; the status has said most."""


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
                began = perf_counter()
                self._take(events, receiver)
                if receiver.has_unasked and (pause := receiver.pause_after(perf_counter() - began)):
                    await asyncio.sleep(pause)
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
        response = await self._send(self._requests.listen())
        if response.status_code == 200 and content_type(response) == "text/event-stream":
            return response
        try:
            raise await self._refusal(response)
        finally:
            await response.aclose()

    async def _refusal(self, response: httpx2.Response) -> Exception:
        status = response.status_code
        if 200 <= status < 300:
            kind = content_type(response) or "no content type"
            what = f"it answers GET with {kind} (HTTP {status}) instead of an event stream: is the URL right?"
            return UpstreamHttpError(self._name, status, what)
        body = await beginning(response)
        return failure_of_status(self._name, response, body, had_session=False, redact=self._redact).error

    async def _read_events(self, response: httpx2.Response) -> AsyncGenerator[list[Event]]:
        async for chunk in pieces(response):
            events = self._parser.feed(chunk)
            if events:
                yield events

    async def _endpoint(self, url: httpx2.URL, events: AsyncGenerator[list[Event]]) -> httpx2.URL:
        """Where to POST, by the first `endpoint` event. Only to the origin of the stream: we send credentials there."""
        async for batch in events:
            for number, event in enumerate(batch):
                if event.type == b"endpoint":
                    self._early = batch[number + 1 :]
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


_TELL_SECONDS = 30.0
"""A notification that is not accepted by then is given up."""
_WITHDRAWN_SECONDS = 30.0
"""The POST of a request that was cancelled is waited for so long: its end frees the connection in order."""
_ORDER_SECONDS = 2.0
"""A notification waits so long for earlier messages; some servers answer a POST only when its work is done."""


class SseTransport(RemoteTransport):
    """Opens channels to one address. `max_bytes` bounds an event; `connect_timeout` (seconds) includes the endpoint."""

    kind: TransportKind = "sse"

    def __init__(self, name: str, url: str, **options: Unpack[RemoteOptions]) -> None:
        """See the class."""
        super().__init__(name, url, **options)
        self._last_words = ""

    def last_words(self) -> str:
        """The last trouble with a POST, secrets masked."""
        return self._last_words

    @asynccontextmanager
    async def connect(self, receiver: Receiver) -> AsyncGenerator[Channel]:
        """Open the stream and wait for its endpoint; leaving closes it.

        Raises:
            ConfigError: the URL, a header, a certificate or the proxy cannot be used.
            UpstreamUnavailable, UpstreamHttpError: it cannot be reached, refuses, or is no such server.
        """
        requests = PostMaker(
            self._url, self._headers, connect_timeout=self._connect_timeout, user_agent=f"mcpbridge/{__version__}"
        )
        self._last_words = ""
        failure: Exception | None = None
        async with open_client(requests.url, None, self._network) as send_once:
            send = RedirectingSend(send_once, self.name)
            stream = SseStream(self.name, send, requests, self._max_bytes, self.redact)
            try:
                endpoint = await stream.open(self._connect_timeout)
                async with TaskGroup() as tasks:
                    channel = _SseChannel(self, send, requests, endpoint, receiver, tasks)
                    reading = tasks.create_task(channel.listen(stream))
                    try:
                        yield channel
                    except Exception as error:  # noqa: BLE001 - raised again below; the group would wrap it in its own
                        failure = error
                    finally:
                        reading.cancel()
                        channel.stop()
            finally:
                await stream.close()
        if failure is not None:
            raise failure

    def heard_trouble(self, failure: Failure) -> None:
        """Keep what went wrong with a POST."""
        self._last_words = failure.error.what if isinstance(failure.error, UpstreamError) else str(failure.error)
        log.debug("HTTP error", upstream=self.name, reason=self._last_words)


class _SseChannel:
    def __init__(
        self,
        transport: SseTransport,
        send: Send,
        requests: PostMaker,
        endpoint: httpx2.URL,
        receiver: Receiver,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._transport = transport
        self._name = transport.name
        self._send = send
        self._requests = requests
        self._endpoint = endpoint
        self._receiver = receiver
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._asking: dict[bytes, asyncio.Task[None]] = {}
        """Requests on their way to the server, by id."""
        self._telling: set[asyncio.Task[None]] = set()
        """Notifications and answers on their way."""
        self._introduction: asyncio.Task[None] | None = None
        """`notifications/initialized` on its way; what is sent after it waits for that."""
        self._had_answer = False
        self._is_open = True

    def __repr__(self) -> str:
        state = "open" if self._is_open else "closed"
        return f"<SseChannel {self._name!r} {state}, {len(self._asking)} requests, {len(self._telling)} others unsent>"

    # -- Channel

    def send(self, message: Outgoing) -> None:
        if not self._is_open:
            raise UpstreamGone(self._name, "the connection has ended")
        is_request = bool(message.method and message.id)
        waiting = len(self._asking if is_request else self._telling)
        if waiting >= self._transport.max_posts:
            raise Overloaded(f"Server '{self._name}' does not take messages: {waiting} wait for it")
        earlier = self._to_wait_for(message)
        if is_request:
            self._asking[message.id] = self._tasks.create_task(self._ask(message, earlier))
            return
        task = self._tasks.create_task(self._tell(message, earlier))
        if message.method == "notifications/initialized":
            self._introduction = task
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def withdraw(self, id_: bytes) -> bool:
        task = self._asking.get(id_)
        if task is not None:
            self._loop.call_later(_WITHDRAWN_SECONDS, task.cancel)
        return False

    def negotiated(self, version: str) -> None:
        self._had_answer = True
        self._requests.agree(version)

    async def listen(self, stream: SseStream) -> None:
        """Take in what the stream brings; its end is that of the channel."""
        reason = await stream.read(self._receiver)
        self.stop()
        self._receiver.closed(reason)

    def stop(self) -> None:
        """Cancel what is on its way."""
        self._is_open = False
        for task in (*self._asking.values(), *self._telling):
            task.cancel()

    # -- POSTs

    def _to_wait_for(self, message: Outgoing) -> list[asyncio.Task[None]]:
        """Earlier messages that the server must have before this one.

        Each POST may take another connection and overtake. A notification speaks of what was before it (a cancelled
        request above all), so it waits for all of that; requests and answers do not wait for each other.
        """
        if message.method and not message.id:
            return [*self._asking.values(), *self._telling]
        if self._introduction is not None and not self._introduction.done():
            return [self._introduction]
        return []

    async def _ask(self, message: Outgoing, earlier: list[asyncio.Task[None]]) -> None:
        """Send a request. However long its POST takes: the server may be at work on it, and its deadline decides."""
        try:
            if earlier:
                await asyncio.wait(earlier, timeout=_ORDER_SECONDS)
            failure = await self._post(message)
        finally:
            self._asking.pop(message.id, None)
        if failure is not None:
            self._transport.heard_trouble(failure)
            self._receiver.failed(message.id, failure.error, sent=failure.sent)

    async def _tell(self, message: Outgoing, earlier: list[asyncio.Task[None]]) -> None:
        """Send what gets no answer; if that fails there is nobody to tell but the log."""
        if earlier:
            await asyncio.wait(earlier, timeout=_ORDER_SECONDS)
        try:
            async with asyncio.timeout(_TELL_SECONDS):
                failure = await self._post(message)
        except TimeoutError:
            what = f"it did not take {message.method or 'an answer'} within {_TELL_SECONDS:g} s"
            failure = Failure(UpstreamGone(self._name, what), sent=True)
        if failure is not None:
            self._transport.heard_trouble(failure)

    async def _post(self, message: Outgoing) -> Failure | None:
        try:
            response = await self._send(self._requests.post(message, self._endpoint))
            try:
                return await self._judge(response)
            finally:
                await response.aclose()
        except httpx2.HTTPError as error:
            return failure_of_exception(self._name, error)

    async def _judge(self, response: httpx2.Response) -> Failure | None:
        if not response.is_success:
            body = await beginning(response)
            redact = self._transport.redact
            return failure_of_status(self._name, response, body, had_session=self._had_answer, redact=redact)
        if response.status_code == 200 and content_type(response) == "application/json":
            body = await beginning(response)  # no server should; the answer of one that does is not lost
            if body.lstrip()[:1] == b"{" and len(body) < BODY_LIMIT and b'"jsonrpc"' in body:
                deliver(body, self._receiver, self._transport.redact)
        elif content_type(response) == "text/html" and (await beginning(response)).lstrip()[:1] == b"<":
            # Some frameworks call an empty body or `ok` HTML: only a page is none that takes messages.
            what = "it answers a message with a web page instead of taking it: is the URL right?"
            return Failure(UpstreamHttpError(self._name, response.status_code, what), sent=True)
        return None
