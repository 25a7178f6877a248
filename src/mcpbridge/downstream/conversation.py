"""One client on a channel that carries messages both ways; of both eras (MCP, stdio transport).

A request with the modern envelope is modern, whatever came before. `initialize` opens the one legacy session of this
channel. Both may be mixed. Requests run side by side, each in one task, and each answer leaves when it is ready. The
channel itself belongs to `stdio.py`, `http/websocket.py` and `http/sse.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from mcpbridge.base.background_tasks import FirstStep, TaskGroup
from mcpbridge.base.errors import BadRequest
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.client import Answer, Client
from mcpbridge.downstream.errors import to_answer
from mcpbridge.downstream.express_lane import ExpressCall, ExpressLane
from mcpbridge.downstream.revisions.request_meta import ENVELOPE, Sender, client_on_channel, reads_as_modern
from mcpbridge.downstream.services import Core
from mcpbridge.downstream.sessions import BRIDGE_STOPPED, make_one_turn
from mcpbridge.protocol.batches import Batch, encode_batch
from mcpbridge.protocol.error_codes import INVALID_REQUEST
from mcpbridge.protocol.jsonrpc import OBJECT_START, Frame, encode_error, first_byte
from mcpbridge.protocol.payload import Pieces
from mcpbridge.protocol.reading.client_messages import USUAL_ID, VERSION, encode_refusal, validated
from mcpbridge.protocol.reading.repair import Item
from mcpbridge.protocol.reading.unreadable import Spoiled
from mcpbridge.protocol.revisions import BATCHING

log = get_logger("mcpbridge.front")

PUSH_LIMIT = 16 << 20
"""Bytes waiting for a client that does not read, above which notifications to it are dropped."""
READ_LIMIT = 64 << 20
"""Bytes waiting for a client that does not read, above which no more requests of it are read."""

FitAnswer = Callable[[bytes, Frame], bytes]
"""What is sent in place of an answer to a request that the channel would not bear; the answer itself if it does."""

FinalAnswer = Callable[[Frame], bytes]
"""What is said to a request that was taken and is not answered in time."""


class Conversation:
    """The requests of one client under way, and its one legacy session."""

    def __init__(
        self,
        core: Core,
        client: Client,
        *,
        send: Callable[[bytes], object],
        pending: Callable[[], int],
        fit: FitAnswer | None = None,
        send_large: Callable[[Pieces], object] | None = None,
    ) -> None:
        """`client` is the session of this channel; its `push` is set here.

        `send` takes one message, at once, and returns False when the channel will not carry it. `pending`: bytes taken
        by it that have not left yet. `send_large`: as `send`, without a copy; None: large answers are copied.
        """
        self._core = core
        self._client = client
        self._send = send
        self._pending = pending
        self._fit = fit
        self._send_large = send_large
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """What is being answered, by the identity of the message. Each takes itself out as its last step: that is
        cheaper than a callback of the loop for every call."""
        self._listens: list[asyncio.Task[None]] = []
        """Open listen streams: they have no end of their own to wait for."""
        self._idle: asyncio.Event | None = None
        """Set when nothing is being answered any more; made only where somebody waits for that."""
        self._hears = True
        """Messages of the client still come in."""
        self._last_words: FinalAnswer | None = None
        self._is_modern = False
        """The client has sent a modern request. If it opens no session, a request without the envelope lacks it."""
        self._sender = Sender()
        self._express = core.express
        client.push = self.notify
        core.open(client)

    @property
    def running(self) -> int:
        """Requests that are being answered."""
        return len(self._tasks) + (self._express.count(self._client) if self._express is not None else 0)

    # -- in

    def take(self, items: Iterable[Item]) -> None:
        """What the client sent, in its order."""
        express = self._express
        for read in items:
            item = read
            if isinstance(item, Frame) and not (
                # `is_usual_request`, without a further function: it is asked for every request.
                item.jsonrpc == VERSION
                and item.method
                and bytes(item.id).isdigit()
                and len(item.id) < USUAL_ID
                and (not item.params or first_byte(item.params) == OBJECT_START)
            ):
                item = validated(item)
            if isinstance(item, Frame):
                if item.method and item.id:
                    if express is not None:
                        if (
                            item.method == "tools/call"
                            and (not express.recorded.writes_first or express.plans.timed.has_express)
                            and (
                                self._take_modern(express, item)
                                if self._is_modern
                                else express.take(self._client, item, self)
                            )
                        ):
                            continue
                        express = None  # what follows must not overtake this one, which begins in the next turn
                    task = self._tasks[id(item)] = self._loop.create_task(self._answer(item))
                    if item.method == "subscriptions/listen":
                        self._listens.append(task)
                        task.add_done_callback(self._listens.remove)
                elif item.method:
                    # A request begins in the first turn of its task: what may concern it must not overtake it. Nor may
                    # what follows overtake this: the same call again, behind the notification that gives the first up.
                    self._loop.call_soon(self._core.notification, self._client, item)
                    express = None
                else:
                    self._core.answered(self._client, item)
            elif isinstance(item, Batch):
                self._tasks[id(item)] = self._loop.create_task(self._answer_batch(item))
            elif refusal := encode_refusal(item):
                self._send(refusal)

    def _take_modern(self, lane: ExpressLane, frame: Frame) -> bool:
        """Send the call of a client that sends modern requests, if it is plain. False: nothing was done."""
        client = self._sender.of(frame, self._client)
        if client is None:  # its session is called in the same way as that of others
            return not reads_as_modern(frame) and lane.take(self._client, frame, self)
        return lane.take(client, frame, self, owner=self._client)

    # -- the end

    def input_ended(self) -> None:
        """The client says nothing more; it may still read. What it is being asked gets no answer."""
        self._hears = False
        if self._client.requests is not None:
            self._client.requests.end()

    async def finish(self, grace: float, *, last_words: FinalAnswer | None = None) -> None:
        """End everything: listen streams at once, requests when they are answered or `grace` seconds are over.

        With `last_words` these get an answer all the same. Listen streams do not: they may continue elsewhere.
        """
        self.input_ended()
        listens = list(self._listens)
        for task in listens:
            task.cancel()
        await asyncio.gather(*listens, return_exceptions=True)
        self._last_words = last_words
        if self._express is not None:
            self._express.continue_all(self._client)
        # One that was cancelled before its first step had no last one.
        self._tasks = {key: task for key, task in self._tasks.items() if not task.done()}
        if self._tasks and grace:
            self._idle = asyncio.Event()
            try:
                async with asyncio.timeout(grace):
                    await self._idle.wait()
            except TimeoutError:
                log.info("client disconnected with requests in flight; cancelling them", requests=len(self._tasks))
        tasks = list(self._tasks.values())
        self.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cancel(self) -> None:
        """Cancel what is under way; nobody is there to hear the answers."""
        if self._express is not None:
            self._express.continue_all(self._client)
        for key, task in list(self._tasks.items()):
            task.cancel()
            task.add_done_callback(lambda _, key=key: self._over(key))

    def close(self) -> None:
        """The client is gone: its requests are cancelled, its session is over."""
        self._hears = False
        self.cancel()
        self._core.close(self._client, BRIDGE_STOPPED if self._last_words is not None else "its client left")

    # -- answering

    def _over(self, key: int) -> None:
        self._tasks.pop(key, None)
        if self._idle is not None and not self._tasks:
            self._idle.set()

    def continue_in_task(self, frame: Frame, sent: ExpressCall) -> asyncio.Task[None]:
        """Answer a request whose call was sent on the express lane.

        Its task takes its first step even if it is cancelled before: only then does a call that a person stops in this
        turn get its answer.
        """
        task = self._tasks[id(frame)] = self._loop.create_task(FirstStep(self._answer(frame, sent)))
        return task

    answers_at_once = True
    """See `Channel` of the express lane."""

    def deliver(self, frame: Frame, answer: bytes) -> None:
        """Send the answer to a request."""
        self._send(answer if self._fit is None else self._fit(answer, frame))

    async def _answer(self, frame: Frame, sent: ExpressCall | None = None) -> None:
        try:
            if sent is None:
                answer = await self._ask(frame)
            else:
                cancel_as = sent.owner if sent.client is not sent.owner else None
                answer = await self._core.answer(sent.client, frame, self.notify, cancel_as=cancel_as, sent=sent)
            data = answer.data
            if isinstance(data, Pieces):
                if self._send_large is not None and self._fit is None:
                    self._send_large(data)
                    return
                data = bytes(data)
            if data:
                self._send(data if self._fit is None else self._fit(data, frame))
        except asyncio.CancelledError:
            if self._last_words is not None:
                self._send(self._last_words(frame))
            raise
        finally:
            self._tasks.pop(id(frame), None)
            if self._idle is not None:  # as nearly never: somebody waits for the end
                self._over(id(frame))

    def _ask(self, frame: Frame) -> Awaitable[Answer]:
        if bytes(frame.params).find(ENVELOPE) >= 0 and reads_as_modern(frame):
            self._is_modern = True
            return self._ask_as_modern(frame)
        if self._is_modern and not self._client.version and frame.method not in _WITHOUT_SESSION:
            return self._ask_as_modern(frame)  # which says what its envelope lacks
        return self._core.answer(self._client, frame, self.notify)

    async def _ask_as_modern(self, frame: Frame) -> Answer:
        session = self._client
        try:
            client = client_on_channel(frame, session)
        except BadRequest as error:
            return to_answer(error, bytes(frame.id), frame.method, modern=True)
        if not session.info:
            session.introduce(client.info)  # who is there, for who looks
            self._core.introduced(session, client.version)
        # Cancelling goes by the channel: the ids of all its requests are of one space.
        return await self._core.answer(client, frame, self.notify, cancel_as=session)

    async def _answer_batch(self, batch: Batch) -> None:
        try:
            await self._answer_members(batch)
        except asyncio.CancelledError:
            if self._last_words is not None:
                asked = [one for one in batch.members if isinstance(one, Frame) and one.method and bytes(one.id)]
                self._send(encode_batch(map(self._last_words, asked)))
            raise
        finally:
            self._over(id(batch))

    async def _answer_members(self, batch: Batch) -> None:
        if self._client.version != BATCHING or not batch.members:
            text = "An empty batch" if not batch.members else f"Batches are part of revision {BATCHING} only"
            self._send(encode_error(b"null", INVALID_REQUEST, text))
            return
        make_one_turn(member for member in batch.members if isinstance(member, Frame))
        said: list[bytes | asyncio.Task[bytes]] = []
        async with TaskGroup() as tasks:
            for member in batch.members:
                if isinstance(member, Spoiled):
                    said.append(encode_refusal(member))
                elif member.method and bytes(member.id):
                    said.append(tasks.create_task(self._gather(member)))
                elif member.method:
                    self._core.notification(self._client, member)
                else:
                    self._core.answered(self._client, member)
        answers = [data for one in said if (data := one if isinstance(one, bytes) else one.result())]
        if answers and self._send(encode_batch(answers)) is False:
            for answer in answers:  # together they were too much for the channel
                self._send(answer)

    async def _gather(self, frame: Frame) -> bytes:
        data = bytes((await self._ask(frame)).data)
        return self._fit(data, frame) if data and self._fit is not None else data

    # -- out

    def notify(self, message: bytes) -> bool:
        """Who has closed its side may still read what is sent, but can answer no more: that counts as no way."""
        if self._pending() >= PUSH_LIMIT:
            return False
        return self._send(message) is not False and self._hears


_WITHOUT_SESSION = frozenset({"initialize", "ping"})
"""What a legacy client may send before its session is open."""
