"""The streamable HTTP transport: every message is a POST, its answer a JSON body or an event stream.

Both eras (spec, streamable HTTP). Legacy servers may give a session, which then has a GET stream for what belongs to
no request, and may cut a stream that the client resumes by event id. Modern servers have neither: a request is one
POST, and closing it cancels the request.

A POST that fails fails its own request only; nothing here ends the channel but the end of its session.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Unpack

import anyio
import httpx2

from mcpbridge.base.background_tasks import FirstStep, TaskGroup
from mcpbridge.base.errors import (
    Overloaded,
    SessionExpired,
    UpstreamError,
    UpstreamGarbled,
    UpstreamGone,
    UpstreamHttpError,
)
from mcpbridge.base.log import get_logger
from mcpbridge.base.version import __version__
from mcpbridge.protocol.error_codes import METHOD_NOT_FOUND, code_of
from mcpbridge.protocol.http.bearer_auth import Send
from mcpbridge.protocol.http.client import ClientFactory, DirectWay, continuing, direct_way, open_client
from mcpbridge.protocol.http.redirects import RedirectingSend
from mcpbridge.protocol.http.responses import (
    Answers,
    Failure,
    answer_in,
    failure_of_exception,
    failure_of_status,
    is_same_id,
)
from mcpbridge.protocol.jsonrpc import Frame, LargeFrame
from mcpbridge.protocol.transport import Channel, Outgoing, Receiver, TransportKind
from mcpbridge.upstream.transports.continued_sessions import Continued, SessionKeeper
from mcpbridge.upstream.transports.direct_posts import DirectPost
from mcpbridge.upstream.transports.http_requests import ACCEPTED_ENCODINGS, PostMaker
from mcpbridge.upstream.transports.http_streams import EventStreams, content_type, read_beginning, read_body
from mcpbridge.upstream.transports.remote import RemoteOptions, RemoteTransport

log = get_logger("mcpbridge.http")

_ERROR_BODY = 64 << 10
"""Bytes of an error's body that are looked at."""
_ERROR_SECONDS = 5.0
"""An error's body is waited for so long; the status has said most."""
_TELL_SECONDS = 30.0
"""A notification that is not accepted by then is given up."""
_INTRODUCTION_SECONDS = 5.0
"""What follows `notifications/initialized` waits so long for the server to take that."""
_WITHDRAWN_SECONDS = 30.0
"""A legacy request that was cancelled is listened to for so long: its end frees the connection in order."""
_ELSEWHERE_SECONDS = 1.0
"""A request whose answer came on another stream is cut then: its own stream may never end."""
_END_SECONDS = 2.0
"""The goodbye to a session may take so long."""
_STREAM_SECONDS = 1.0
"""A call waits so long for the session's stream to open, and only the first ones do."""
_MAY_ASK_BACK = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})


class StreamableHttpTransport(RemoteTransport):
    """Opens channels to one MCP endpoint."""

    kind: TransportKind = "streamable-http"

    def __init__(
        self,
        name: str,
        url: str,
        *,
        client_factory: ClientFactory | None = None,
        reconnect_delay: float = 1.0,
        **options: Unpack[RemoteOptions],
    ) -> None:
        """`client_factory` makes the HTTP client of a channel, for authentication of its own.

        `reconnect_delay` (seconds) is the first wait before a stream is opened again.
        """
        super().__init__(name, url, **options)
        self._client_factory = client_factory
        self._reconnect_delay = reconnect_delay
        self._last_words = ""
        self._keeper: SessionKeeper | None = None

    def keep_in(self, keeper: SessionKeeper) -> None:
        """Write its sessions down there, for other bridges. Before the first `connect`."""
        self._keeper = keeper

    def last_words(self) -> str:
        """The last trouble over HTTP, secrets masked; or what a person has to do before there can be any."""
        authorizer = self._network.authorizer
        return self._last_words or (authorizer.waits_for if authorizer is not None else "")

    @asynccontextmanager
    async def connect(self, receiver: Receiver) -> AsyncGenerator[Channel]:
        """Open a channel. Nothing is sent yet: the first message connects.

        Raises:
            ConfigError: the URL, a header, a certificate or the proxy cannot be used.
        """
        requests = PostMaker(
            self._url,
            self._headers,
            connect_timeout=self._connect_timeout,
            user_agent=f"mcpbridge/{__version__}",
        )
        self._last_words = ""
        failure: Exception | None = None
        continued = None
        if self._keeper is not None:
            continued = receiver = Continued(self._keeper, receiver, await self._keeper.load())
        async with open_client(requests.url, self._client_factory, self._network) as send:
            channel: _HttpChannel | None = None
            try:
                async with TaskGroup() as tasks:
                    channel = _HttpChannel(
                        self.name,
                        RedirectingSend(send, self.name),
                        requests,
                        receiver,
                        tasks,
                        max_bytes=self._max_bytes,
                        max_posts=self.max_posts,
                        reconnect_delay=self._reconnect_delay,
                        on_trouble=self._heard_trouble,
                        redact=self.redact,
                        way=direct_way(send, requests.url),
                    )
                    if continued is not None:
                        channel.begins = continued.begin_with(requests)
                    try:
                        yield channel
                    except Exception as error:  # noqa: BLE001 - raised again below; the group would wrap it in its own
                        failure = error
                    finally:
                        channel.stop()
            finally:
                if continued is not None:
                    continued.end()
                if channel is not None:
                    with anyio.move_on_after(_END_SECONDS, shield=True):
                        await channel.end_session()
        if failure is not None:
            raise failure

    def _heard_trouble(self, text: str) -> None:
        self._last_words = text


class _HttpChannel:
    def __init__(
        self,
        name: str,
        send: Send,
        requests: PostMaker,
        receiver: Receiver,
        tasks: asyncio.TaskGroup,
        *,
        max_bytes: int,
        max_posts: int,
        reconnect_delay: float,
        on_trouble: Callable[[str], None],
        redact: Callable[[str], str],
        way: DirectWay | None,
    ) -> None:
        self._name = name
        self._send = send
        self._requests = requests
        self._receiver = receiver
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self.max_bytes = max_bytes
        self._max_posts = max_posts
        self._streams = EventStreams(name, send, requests, max_bytes=max_bytes, reconnect_delay=reconnect_delay)
        self._on_trouble = on_trouble
        self._redact = redact
        self._way = way
        self._posts: dict[bytes, asyncio.Task[None]] = {}
        self._direct: dict[bytes, DirectPost] = {}
        """The requests under way that have no task."""
        self._answers: dict[bytes, Answers] = {}
        """What has come for each of the requests under way."""
        self._telling: set[asyncio.Task[Any]] = set()
        self._listening: asyncio.Task[None] | None = None
        self._introduction: asyncio.Event | None = None
        """Set when `notifications/initialized` has been taken, or is late; what is sent after it waits for that."""
        self._stream_tried: asyncio.Event | None = None
        """Set when the session's own stream is open, or there is none; calls wait for that, once and not for long."""
        self._is_open = True
        self._is_session_lost = self._is_continued = False
        self.begins: Callable[[Outgoing], bool] | None = None
        """Answers an `initialize` in the server's place, if it can."""

    def __repr__(self) -> str:
        state = "closed" if not self._is_open else "lost its session" if self._is_session_lost else "open"
        return f"<HttpChannel {self._name!r} {state}, {len(self._posts) + len(self._direct)} requests under way>"

    # -- Channel

    def send(self, message: Outgoing) -> None:
        if not self._is_open:
            raise UpstreamGone(self._name, "the connection has ended")
        if message.method and message.id:
            if len(self._posts) + len(self._direct) >= self._max_posts:
                raise Overloaded(f"Server '{self._name}' has {self._max_posts} requests under way")
            if message.method == "initialize":
                self._start_over()
                self._is_continued = self.begins is not None and self.begins(message)
                if self._is_continued:
                    return
            if message.method == "tools/call" and self._way is not None and self._post_now(self._way, message):
                return
            self._posts[message.id] = self._tasks.create_task(self._ask(message))
            return
        if len(self._telling) >= self._max_posts:
            raise Overloaded(f"Server '{self._name}' does not take notifications: {self._max_posts} wait for it")
        if message.method == "notifications/initialized":
            self._introduction = asyncio.Event()
            if self._is_continued:  # the server knows it
                self._introduced(self._introduction)
                return
            task: asyncio.Task[Any] = self._tasks.create_task(self._introduce(message, self._introduction))
        else:
            task = self._tasks.create_task(self._tell(message))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def withdraw(self, id_: bytes) -> bool:
        if (post := self._direct.get(id_)) is not None:
            self.continue_in_task(post)
        task = self._posts.get(id_)
        if self._requests.is_modern:
            if task is not None:
                del self._posts[id_]
                task.cancel()
            return True
        if task is not None:
            self._loop.call_later(_WITHDRAWN_SECONDS, task.cancel)
        return False

    def negotiated(self, version: str) -> None:
        self._requests.agree(version)

    # -- ending

    def stop(self) -> None:
        """Cancel everything under way; the task group waits for its end."""
        self._is_open = False
        for task in (*self._posts.values(), *self._telling):
            task.cancel()
        for post in self._direct.values():
            post.leave_direct()  # its connection is cut with all others
        self._direct.clear()
        if self._listening is not None:
            self._listening.cancel()

    async def end_session(self) -> None:
        """Tell a legacy server that its session is over. Whether it cares is its business."""
        if self._requests.session and not self._is_session_lost:
            try:
                response = await self._send(self._requests.end_session())
                await response.aclose()
            except httpx2.HTTPError:
                pass

    def _start_over(self) -> None:
        self._requests.forget()
        self._is_session_lost = False
        self._introduction = self._stream_tried = None
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None

    # -- requests

    def _post_now(self, way: DirectWay, message: Outgoing) -> bool:
        """Send a call without a task. False: something has to be waited for."""
        if message.headers or (self._introduction is not None and not self._introduction.is_set()):
            return False
        if self._stream_tried is not None and not self._stream_tried.is_set():
            return False
        begun = way.begin(self._requests.post_head(message), message.data)
        if begun is None:
            return False
        connection, used = begun
        session = b"" if self._requests.is_modern else self._requests.session
        self._direct[message.id] = connection.exchange = DirectPost(connection, message, session, used, self)
        return True

    def answered(self, post: DirectPost, frame: Frame) -> None:
        """Hand over the answer to a call that has no task."""
        id_ = post.message.id
        del self._direct[id_]
        if post.used and self._way is not None:
            self._way.accepted()
        self._receiver.frame(frame, id_)

    def continue_in_task(self, post: DirectPost) -> None:
        """Continue in a task with a call that was sent without one. What the task reads has come, or comes still."""
        post.leave_direct()
        id_ = post.message.id
        if self._direct.pop(id_, None) is not None or post.is_answered:
            answers = self._answers[id_] = self._make_answers(id_)
            answers.is_answered = post.is_answered
            self._posts[id_] = self._tasks.create_task(FirstStep(self._ask(post.message, post)))

    async def _ask(self, message: Outgoing, begun: DirectPost | None = None) -> None:
        """`begun`: it was sent already."""
        answers = self._answers.get(message.id)
        if begun is None or answers is None:
            answers = self._answers[message.id] = self._make_answers(message.id)
        try:
            if begun is not None:
                pass  # it waited for all that
            elif self._introduction is not None:
                await self._introduction.wait()
            if self._stream_tried is not None and not self._stream_tried.is_set() and message.method in _MAY_ASK_BACK:
                await self._stream_opens(self._stream_tried)
            failure = await self._post(message, answers, begun)
        finally:
            self._posts.pop(message.id, None)
            del self._answers[message.id]
        if failure is not None and not answers.is_answered:
            self._report(failure)
            self._receiver.failed(message.id, failure.error, sent=failure.sent)

    async def _post(self, message: Outgoing, answers: Answers, begun: DirectPost | None) -> Failure | None:
        """Send the request and take in all that comes for it. None when it has its answer."""
        request = self._requests.post(message)
        session = b"" if self._requests.is_modern else self._requests.session
        if begun is not None:
            request, session = continuing(request, begun, begun.used), begun.session
        try:
            response = await self._send(request)
        except httpx2.HTTPError as error:
            return failure_of_exception(self._name, error)
        try:
            if response.status_code == 200:
                if message.method == "initialize":
                    self._requests.keep_session(response.headers.get("mcp-session-id", ""))
                return await self._take_answer(response, answers)
            return await self._take_refusal(response, answers, message.id, session)
        except httpx2.HTTPError as error:
            return failure_of_exception(self._name, error)
        finally:
            await response.aclose()

    async def _take_answer(self, response: httpx2.Response, answers: Answers) -> Failure | None:
        kind = content_type(response)
        if kind == "text/event-stream":
            return await self._streams.take(response, answers)
        body = await read_body(response, self.max_bytes)
        if body is None:
            return self._garbled(f"its answer is over the limit of {self.max_bytes} bytes")
        if isinstance(body, LargeFrame):
            answers.take_frame(body)
            return None if answers.is_answered else self._garbled("its answer is not to this request")
        if not body.strip():
            return self._garbled("its answer is empty")
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ACCEPTED_ENCODINGS and body.lstrip()[:1] not in {b"{", b"["}:
            return self._garbled(f"its answer is encoded as {encoding[:40]!r}, which was not asked for")
        if "json" not in kind and body.lstrip()[:1] not in {b"{", b"["}:
            what = f"it answers with {kind or 'no content type'} instead of JSON or an event stream: is the URL right?"
            return Failure(UpstreamHttpError(self._name, 200, what), sent=True)
        answers.take(body, is_whole_body=True)
        return None if answers.is_answered else self._garbled("its answer is not to this request")

    async def _take_refusal(
        self, response: httpx2.Response, answers: Answers, id_: bytes, session: bytes
    ) -> Failure | None:
        """`session`: the one that the request was sent in; empty: in none."""
        status = response.status_code
        body = await self._beginning(response)
        if 200 <= status < 300:
            return self._garbled(f"it took the request without answering it (HTTP {status})")
        failure = failure_of_status(self._name, response, body, had_session=bool(session), redact=self._redact)
        is_session_lost = isinstance(failure.error, SessionExpired)
        frame = answer_in(body, id_, status)
        # With a session, a 404 that names the request is the answer "method not found"; any other means the session.
        if frame is not None and (
            not is_session_lost
            or (is_same_id(bytes(frame.id), id_) and code_of(bytes(frame.error)) == METHOD_NOT_FOUND)
        ):
            answers.take_answer(frame)
            return None
        if session == self._requests.session:  # there may be another by now
            self._is_session_lost |= is_session_lost
        return failure

    async def _beginning(self, response: httpx2.Response) -> bytes:
        """What an error's body says, if it comes within a moment."""
        try:
            async with asyncio.timeout(_ERROR_SECONDS):
                return await read_beginning(response, _ERROR_BODY)
        except (TimeoutError, httpx2.HTTPError):
            return b""

    def _make_answers(self, via: bytes) -> Answers:
        return Answers(self._receiver, via, on_other=self._answered_elsewhere, redact=self._redact)

    def _answered_elsewhere(self, id_: bytes) -> None:
        """The answer to a request came on a stream that is not its own. Nothing more is expected on that one."""
        for own, post in list(self._direct.items()):
            if is_same_id(id_, own):
                self.continue_in_task(post)
        id_ = next((own for own in self._answers if is_same_id(id_, own)), b"")
        task = self._posts.get(id_)
        if task is not None and not self._answers[id_].is_answered:
            self._answers[id_].is_answered = True
            self._loop.call_later(_ELSEWHERE_SECONDS, task.cancel)

    # -- notifications and answers

    async def _introduce(self, message: Outgoing, done: asyncio.Event) -> None:
        """Send `notifications/initialized`; only then may other messages follow, and the session's stream open.

        A server that takes long to acknowledge it may be waiting for what follows.
        """
        patience = self._loop.call_later(_INTRODUCTION_SECONDS, done.set)
        try:
            await self._tell(message, on_taken=lambda: self._introduced(done))
        finally:
            patience.cancel()
            done.set()

    def _introduced(self, done: asyncio.Event) -> None:
        if not self._requests.is_modern:
            self._stream_tried = asyncio.Event()
            self._listening = self._tasks.create_task(self._listen(self._stream_tried))
        done.set()

    async def _stream_opens(self, tried: asyncio.Event) -> None:
        """Many servers ask back on the session's stream, whatever request it is for, and lose it if there is none."""
        with anyio.move_on_after(_STREAM_SECONDS):
            await tried.wait()
        tried.set()

    async def _tell(self, message: Outgoing, *, on_taken: Callable[[], None] | None = None) -> None:
        """Send what gets no answer. If it is not taken, there is nobody to tell but the log.

        `on_taken` is for the introduction, which waits for nothing: it is called when the server has taken it.
        """
        if self._introduction is not None and on_taken is None:
            await self._introduction.wait()
        had_session = bool(self._requests.session)
        try:
            async with asyncio.timeout(_TELL_SECONDS):
                response = await self._send(self._requests.post(message))
                try:
                    if response.is_success and on_taken is not None:
                        on_taken()  # the status has said it; some servers keep the body open
                    body = await self._beginning(response)
                finally:
                    await response.aclose()
        except TimeoutError:
            self._report(
                Failure(UpstreamGone(self._name, f"it did not take {message.method or 'an answer'}"), sent=True)
            )
            return
        except httpx2.HTTPError as error:
            self._report(failure_of_exception(self._name, error))
            return
        if not response.is_success:
            self._report(failure_of_status(self._name, response, body, had_session=had_session, redact=self._redact))

    async def _listen(self, tried: asyncio.Event) -> None:
        """Hold the session's stream open. If it finds the session gone, that ends the channel.

        Not before the requests under way have ended: their streams may live on, and bring their answers. A new session
        on this channel ends this too.
        """
        is_session_lost = await self._streams.listen(self._make_answers(b""), tried.set)
        if not is_session_lost or not self._is_open:
            return
        self._is_session_lost = True
        for post in list(self._direct.values()):
            self.continue_in_task(post)
        while self._posts:
            await asyncio.wait(list(self._posts.values()))
        self._receiver.closed("the server ended the session")

    # -- trouble

    def _garbled(self, what: str) -> Failure:
        return Failure(UpstreamGarbled(self._name, what), sent=True)

    def _report(self, failure: Failure) -> None:
        text = failure.error.what if isinstance(failure.error, UpstreamError) else str(failure.error)
        self._on_trouble(text)
        log.debug("HTTP error", upstream=self._name, reason=text)
