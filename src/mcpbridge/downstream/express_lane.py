"""The express lane: plain calls of tools, from the client's frame to the answer without a task.

A call is plain if nothing has to be waited for or decided on its way: its tool has only stages that do their part at
once (`pipeline/plan.py`), its server is up and has a free slot, and its calls take no turns. The call is sent in the
turn of the loop in which its frame comes, and its answer leaves in the turn in which the server's comes. Progress goes
on to the client meanwhile, and so does a question of the server.

All else is the business of the full lane (`Server.answer`), which gives the same answers, counts and logs. A call that
turns out to be less plain after it was sent continues there from where it is, in a task: its answer is an error, large
or late, it is cancelled, its client or its server leaves, or somebody asks which calls are under way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import BridgeError
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.core.context import BridgeContext
from mcpbridge.core.elicitation import NO_CAPABILITIES
from mcpbridge.core.model import CURRENT_CALL, Call, ignore_update
from mcpbridge.downstream.client import Client, Notify
from mcpbridge.downstream.elicitation.ask import LegacyElicitor
from mcpbridge.downstream.progress import CallUpdates, own_log
from mcpbridge.downstream.requests.lists import Listing
from mcpbridge.downstream.revisions.downgrade import lower, news_for
from mcpbridge.downstream.sessions import Sessions
from mcpbridge.pipeline.plan import Pipelines
from mcpbridge.pipeline.stage import ExpressPlan
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import OBJECT_START, Frame, decode_text, encode_response, first_byte
from mcpbridge.protocol.log_levels import LEVELS
from mcpbridge.protocol.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    OWN,
    PREFIX,
    PROTOCOL_VERSION,
    complete_for_modern,
)
from mcpbridge.protocol.payload import Payload
from mcpbridge.protocol.peer import Update
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.requests import WHOLE, SentCall

_UNREADABLE = (KeyError, msgspec.MsgspecError, RecursionError)
_MEANS_SOMETHING = (OWN, PREFIX)
_SENDER = frozenset({PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO})
"""What a modern request says of its client."""
_SHORTEST = len('{"name":,"arguments":}')


class Channel(Protocol):
    """The way of a client's answers; see `Conversation`, which is one."""

    @property
    def answers_at_once(self) -> bool:
        """`deliver` may be called before `ExpressLane.take` has returned."""
        ...

    def notify(self, message: bytes) -> object:
        """Send a message that belongs to a call under way."""
        ...

    def deliver(self, frame: Frame, answer: bytes) -> None:
        """Send the answer to this request."""
        ...

    def continue_in_task(self, frame: Frame, sent: "ExpressCall") -> asyncio.Task[Any]:
        """Answer this request in a task (`Server.answer`), with a call that was sent already."""
        ...


class ExpressCall(SentCall, eq=False, kw_only=True):
    """A call on the express lane."""

    lane: "ExpressLane"
    ref: ToolRef
    plan: ExpressPlan
    client: Client
    owner: Client
    """Of the id; see `ExpressLane.take`."""
    frame: Frame
    id: bytes
    """Of the client's request."""
    channel: Channel
    news: Sequence[bytes]
    """A result with one of these may say what the client does not know."""
    spoken: str
    """The revision of a modern server whose client is of an older one; empty: its results need not be lowered."""

    def answered(self, frame: Frame) -> None:
        """Answer the client, if the result is a plain one."""
        call, lane, uris = self.call, self.lane, self.lane.catalog.snapshot.uris
        result = self.requests.plain_result(self, frame)
        if result is None or (call.upstream in uris.searched and uris.may_hold_uris(call.upstream, Body(result))):
            self._continue_with(frame)
            return
        for word in self.news:
            if bytes(result).find(word) >= 0:
                self._continue_with(frame)
                return
        seconds = perf_counter() - call.began
        plan = self.plan
        for end in plan.end:
            if not end(call, result, seconds):
                self._continue_with(frame)
                return
        for over in plan.over:
            over(call)
        for observe in plan.observe:
            observe(call, result, seconds)
        self.requests.finish(self)
        if call.wants_progress and isinstance(call.update, CallUpdates):
            call.update.flush()
        if self.owner.modern:
            del lane.calls[self.owner]  # of one request
        else:
            del lane.calls[self.owner][self.id]
        if self.client.modern:
            result = complete_for_modern(Body(result), lane.server_info).data
        elif self.spoken:
            lower("tools/call", body := Body(result), spoken=self.spoken, understood=self.client.version)
            result = body.data
        self.channel.deliver(self.frame, encode_response(self.id, result))

    def _continue_with(self, frame: Frame) -> None:
        self.lane.continue_in_task(self).set_result(frame)

    def failed(self, error: BridgeError) -> None:
        """There will be none."""
        future = self.lane.continue_in_task(self)
        future.set_exception(error)
        future.exception()  # the task may be cancelled before it reads it


class ExpressLane:
    """The plain calls of all clients under way."""

    def __init__(
        self,
        catalog: Catalog,
        pool: Pool,
        plans: Pipelines,
        around: BridgeContext,
        running: dict[Client, dict[bytes, asyncio.Task[Any]]],
        waited_for: dict[asyncio.Task[Any], Call],
        sessions: Sessions,
    ) -> None:
        """`running`, `waited_for`: the requests that are answered in tasks, and the calls of these.

        Calls that continue in a task are added. `sessions`: those of modern clients.
        """
        self._sessions = sessions
        self.catalog, self._pool, self.plans, self._around = catalog, pool, plans, around
        self._running, self._waited_for = running, waited_for
        self._loop = asyncio.get_running_loop()
        self.calls: dict[Client, dict[bytes, ExpressCall]] = {}
        """Those under way, by the id of the client's request."""
        self.is_open = True
        """Plain calls that begin from now on take it."""
        self.recorded = plans.recorded
        self._has_profiles = False

    def configure(self, listing: Listing, deliver: Callable[..., Awaitable[Payload]], server_info: bytes) -> None:
        """From now on clients are listed so, and calls that continue in a task delivered so (`Delivery.deliver`).

        `server_info`: the bridge's own, for the results of modern clients.
        """
        self._has_profiles, self._deliver, self.server_info = bool(listing.exposing.profiles), deliver, server_info

    def deliver(self, sent: ExpressCall, notify: Notify) -> Awaitable[Payload]:
        """The result of a call that continues in a task, in the form of its client."""
        call = sent.call
        return self._deliver(
            sent.client, sent.frame, (call.upstream, call.target), call.params, notify, tool=sent.ref, sent=sent
        )

    def count(self, client: Client) -> int:
        """How many calls of this client are under way here."""
        return len(self.calls.get(client, ()))

    def take(self, client: Client, frame: Frame, channel: Channel, owner: Client | None = None) -> bool:
        """Send the call of a `tools/call`, if it is plain. False: nothing was done.

        `owner`: whose request ids must differ, and who may cancel them: the client of the channel that several modern
        requests share; None: `client` itself.
        """
        asking, is_modern = client.requests, client.modern
        if asking is None and not is_modern:  # it has not begun
            return False
        if not self.is_open or client.view or client.log_level or self._has_profiles:
            return False
        began = perf_counter()
        params = Body(frame.params)
        try:
            fields = params.fields
            name, arguments = fields["name"], fields["arguments"]
            ref = self.catalog.snapshot.by_wire.get(decode_text(name))
        except _UNREADABLE:
            return False
        if (
            ref is None
            or first_byte(arguments) != OBJECT_START
            or ref.task_support
            or (client.param_headers is not None and ref.is_marked)
        ):
            return False
        meta = token = None
        if len(fields) != 2:  # else there is neither `_meta`, nor a task, nor an answer to a question
            meta = self._plain_meta(params, is_modern=is_modern)
            if meta is None:
                return False
            token = meta.fields.get("progressToken")
        upstream = self._pool.upstreams.get(ref.server)
        if (
            upstream is None
            or not (
                (declared := upstream.declared).fits_all
                or (known := declared.plain_profile) is client.capabilities
                or (known is not None and declared.suits(client.capabilities))
            )
            or "extensions" in client.declared_capabilities
            or (is_modern and (client.capabilities is not NO_CAPABILITIES or not upstream.is_shared))
            or CURRENT_CALL.get() is not None
            or (plan := self.plans.express(ref, arguments)) is None
            or (plan.answer is not None and not channel.answers_at_once)
        ):
            return False
        notify, redact = channel.notify, self._around.redact
        update: Update = ignore_update if is_modern else partial(own_log, notify, ref.server, redact)
        call = Call("tools/call", ref.server, ref.name, params)
        if token is not None:
            level = "" if is_modern else LEVELS[0]
            update = CallUpdates(notify, ref.server, token, level, self._loop.time, redact)
            call.wants_progress = True
        caller = client if client.identity is None else client.caller
        call.tool, call.caller, call.around, call.meta, call.update = ref, caller, self._around, meta, update
        if asking is not None:
            call.client = client.bystander or LegacyElicitor(client, asking, notify)
        elif owner is None:
            client.sessions = self._sessions
        else:
            client.channel = owner
        owner = owner or client
        call.asked_as, call.began = frame.id, began
        calls, id_, requests = self.calls.get(owner), bytes(frame.id), upstream.requests
        if calls is not None and id_ in calls:
            return False
        if (running := self._running.get(owner)) is not None and id_ in running:
            return False
        for begin in plan.begin:
            if not begin(call, arguments):
                for unsent in plan.unsent:
                    unsent(call)
                return False
        is_older = client.version < upstream.version and not is_modern
        news = news_for(client.version) if is_older and not declared.modern else ()
        spoken = upstream.version if is_older and declared.modern else ""
        if plan.answer is not None:
            if (result := self._kept_result(call, plan, news)) is None:
                for unsent in plan.unsent:
                    unsent(call)
                return False
            channel.deliver(frame, encode_response(id_, self._for_client(client, result, spoken)))
            return True
        if calls is None:
            calls = self.calls[owner] = {}
        if plan.name is not None:
            params.put("name", plan.name)
        elif meta is not None or len(frame.params) != _SHORTEST + len(name) + len(arguments):
            params.remove_duplicate_members()
        calls[id_] = sent = ExpressCall(
            "tools/call",
            call.update,
            call,
            call=call,
            requests=requests,
            instance=upstream,
            lane=self,
            ref=ref,
            plan=plan,
            client=client,
            owner=owner,
            frame=frame,
            id=id_,
            channel=channel,
            news=news,
            spoken=spoken,
        )
        call.update = update  # a stage may have put itself before it
        if not requests.send(sent):
            del calls[id_]
            for unsent in plan.unsent:
                unsent(call)
            if owner.modern:
                del self.calls[owner]
            return False
        for part in plan.sent:
            part(call, sent.sent_at)
        return True

    def _kept_result(self, call: Call, plan: ExpressPlan, news: Sequence[bytes]) -> Raw | None:
        """The result of a call that a stage has already, when all stages have done their part; None: it is not plain.

        As for a call that is sent, and `ExpressCall.answered`.
        """
        result, uris = plan.answer(call) if plan.answer is not None else None, self.catalog.snapshot.uris
        if result is None or len(result) > WHOLE:
            return None
        data = bytes(call.original)  # the result has a mark in the bridge's name beside that
        kept = Raw(data)
        if call.upstream in uris.searched and uris.may_hold_uris(call.upstream, Body(kept)):
            return None
        for word in news:
            if data.find(word) >= 0:
                return None
        now = perf_counter()
        seconds = now - call.began
        for end in plan.end:
            if not end(call, kept, seconds):
                return None
        for part in plan.sent:
            part(call, now)
        for over in plan.over:
            over(call)
        for observe in plan.observe:
            observe(call, result, seconds)
        return result

    def _for_client(self, client: Client, result: Raw, spoken: str) -> Raw:
        """The result of a server in the form of the client. `spoken`: see `ExpressCall`.

        As in `ExpressCall.answered`, where every call that is sent would enter this.
        """
        if client.modern:
            return Raw(complete_for_modern(Body(result), self.server_info).data)
        if spoken:
            lower("tools/call", body := Body(result), spoken=spoken, understood=client.version)
            return Raw(body.data)
        return result

    def _plain_meta(self, params: Body, *, is_modern: bool) -> Body | None:
        """The `_meta` of a call, if it is all that the call has beside its name and arguments, and is plain as well.

        None: it has more, or is to mean something to the bridge itself. `is_modern`: what each request says of its
        client means nothing more.
        """
        if len(params.fields) != 3 or "_meta" not in params.fields or self._around.pauses.resuming.all:
            return None
        try:
            raw = params.fields["_meta"]
            if first_byte(raw) != OBJECT_START:
                return None
            meta, known = Body(raw), _SENDER if is_modern else ()
            for key in meta.fields:
                if key.startswith(_MEANS_SOMETHING) and key not in known:
                    return None
        except _UNREADABLE:
            return None
        return meta

    def continue_in_task(self, sent: ExpressCall) -> asyncio.Future[Frame]:
        """Let a call continue in a task, which waits for its answer as any other. Returns what it waits for."""
        call, owner = sent.call, sent.owner
        if owner.modern:
            del self.calls[owner]  # of one request
        else:
            del self.calls[owner][sent.id]
        call.upstream_seconds, call.sent = 0.0, sent
        future = sent.wait(self._loop)
        task = sent.channel.continue_in_task(sent.frame, sent)
        self._running.setdefault(owner, {})[sent.id] = task
        self._waited_for[task] = call
        task.add_done_callback(partial(self._ended, sent))
        return future

    def continue_all(self, client: Client | None = None) -> None:
        """The same for all calls of a client; None: of all clients."""
        for calls in list(self.calls.values()) if client is None else [self.calls.get(client, {})]:
            for sent in list(calls.values()):
                self.continue_in_task(sent)

    def close(self, client: Client) -> None:
        """A client is gone."""
        self.continue_all(client)
        self.calls.pop(client, None)

    def _ended(self, sent: ExpressCall, task: asyncio.Task[Any]) -> None:
        if sent.call.sent is not sent:
            return
        # It was cancelled before its first step, so nobody took the call up.
        sent.call.sent = None
        sent.requests.withdraw(sent)
        for over in sent.plan.over:
            over(sent.call)
        for withdrawn in sent.plan.withdrawn:
            withdrawn(sent.call)
        self._waited_for.pop(task, None)
        if (running := self._running.get(sent.owner)) is not None:
            running.pop(sent.id, None)
            if not running:
                del self._running[sent.owner]
