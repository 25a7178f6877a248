"""The HTTP+SSE transport of revision 2024-11-05: a GET brings an event stream, whose first event names where to POST.

Answers come as `message` events only; a POST is answered with 202. The stream is the session: when it ends, so does the
channel, and whoever supervises it connects anew. The handshake of the legacy revisions is the only way to open one.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

import httpx2

from mcpbridge._version import __version__
from mcpbridge.errors import Overloaded, UpstreamError, UpstreamGone, UpstreamHttpError
from mcpbridge.logs import get_logger
from mcpbridge.redaction import Redactor
from mcpbridge.wire.http_client import Send, open_client
from mcpbridge.wire.http_problems import Failure, failure_of_exception, failure_of_status
from mcpbridge.wire.http_requests import PostMaker
from mcpbridge.wire.http_streams import content_type
from mcpbridge.wire.network import Network
from mcpbridge.wire.same_origin import redirect_target
from mcpbridge.wire.sse_stream import BODY_LIMIT, MAX_REDIRECTS, SseStream, beginning, deliver
from mcpbridge.wire.transport import Channel, Outgoing, Receiver, TransportKind

__all__ = ["SseTransport"]

log = get_logger("mcpbridge.sse")

_TELL_SECONDS = 30.0
"""A notification that is not accepted by then is given up."""
_WITHDRAWN_SECONDS = 30.0
"""The POST of a request that was cancelled is waited for so long: its end frees the connection in order."""
_ORDER_SECONDS = 2.0
"""A notification waits so long for earlier messages; some servers answer a POST only when its work is done."""
_MAX_POSTS = 256
"""Requests that may wait to be taken; and as many notifications and answers beside them."""
_REDIRECTS = frozenset({307, 308})


class SseTransport:
    """Opens channels to one address. `max_bytes` bounds an event; `connect_timeout` (seconds) includes the endpoint."""

    kind: TransportKind = "sse"

    def __init__(
        self,
        name: str,
        url: str,
        *,
        headers: Mapping[str, str],
        network: Network | None = None,
        connect_timeout: float = 10.0,
        max_bytes: int = 64 << 20,
        max_posts: int = _MAX_POSTS,
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._name = name
        self._url = url
        self._headers = dict(headers)
        self._network = network
        self._connect_timeout = connect_timeout
        self._max_bytes = max_bytes
        self._max_posts = max_posts
        own = Redactor([part for value in headers.values() for part in (value, value.rpartition(" ")[2])])
        self._redact: Callable[[str], str] = lambda text: own(redact(text))
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
        async with open_client(requests.url, None, self._network) as send:
            stream = SseStream(self._name, send, requests, self._max_bytes, self._redact)
            try:
                endpoint = await stream.open(self._connect_timeout)
                async with asyncio.TaskGroup() as tasks:
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
        log.debug("HTTP trouble", upstream=self._name, reason=self._last_words)

    @property
    def name(self) -> str:
        """The name of the server."""
        return self._name

    @property
    def max_posts(self) -> int:
        """Requests that may wait to be taken; and as many notifications and answers beside them."""
        return self._max_posts

    def redact(self, text: str) -> str:
        """Mask the secrets that we sent."""
        return self._redact(text)


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
        url = self._endpoint
        try:
            for _ in range(MAX_REDIRECTS):
                response = await self._send(self._requests.post(message, url))
                try:
                    target = redirect_target(response, _REDIRECTS)
                    if target is None:
                        return await self._judge(response)
                finally:
                    await response.aclose()
                url = target
        except httpx2.HTTPError as error:
            return failure_of_exception(self._name, error)
        return Failure(UpstreamHttpError(self._name, 308, "it redirects in a circle"), sent=False)

    async def _judge(self, response: httpx2.Response) -> Failure | None:
        if not response.is_success:
            body = await beginning(response)
            redact = self._transport.redact
            return failure_of_status(self._name, response, body, had_session=self._had_answer, redact=redact)
        if response.status_code == 200 and content_type(response) == "application/json":
            body = await beginning(response)  # no server should; the answer of one that does is not lost
            if body.lstrip()[:1] == b"{" and len(body) < BODY_LIMIT and b'"jsonrpc"' in body:
                deliver(body, self._receiver, self._transport.redact)
        return None
