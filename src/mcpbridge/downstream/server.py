"""The server that clients see: the table of methods, and the way of each request to its handler.

There is one `Server` for all clients and both eras. A front decodes messages and hands them in. What goes wrong
becomes an answer in `errors.py`, the one place for that. Handlers are in `requests/`, `notifications/` and `tasks/`.
"""

import asyncio
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from mcpbridge.base.errors import BadRequest, BridgeError, CallCancelled
from mcpbridge.base.log import get_logger
from mcpbridge.catalog.listing.profiles import Scope
from mcpbridge.catalog.listing.tool_lists import Exposed
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.core.context import NOWHERE, BridgeContext, Session
from mcpbridge.core.identity import Identity as TokenIdentity
from mcpbridge.core.model import OWN, Call
from mcpbridge.downstream.client import Answer, Client, Notify, client_behind
from mcpbridge.downstream.elicitation.parked_calls import Parking
from mcpbridge.downstream.elicitation.request_state import Sealer, SharedSeals
from mcpbridge.downstream.errors import to_answer
from mcpbridge.downstream.express_lane import ExpressCall, ExpressLane
from mcpbridge.downstream.handler import EMPTY, Handler, NameLookup, Startup, text
from mcpbridge.downstream.notifications.from_upstreams import UpstreamNotifications
from mcpbridge.downstream.notifications.list_changes import ListChanges
from mcpbridge.downstream.notifications.listeners import Listeners
from mcpbridge.downstream.notifications.subscriptions import Subscriptions
from mcpbridge.downstream.notifications.task_status import TaskStatusStreams
from mcpbridge.downstream.requests.calls import Calls, ignore_unplanned
from mcpbridge.downstream.requests.delivery import Delivery
from mcpbridge.downstream.requests.initialize import Handshake, Identity
from mcpbridge.downstream.requests.lists import Listing
from mcpbridge.downstream.requests.result_resources import ResultResources
from mcpbridge.downstream.requests.timeouts import CallTimeouts, says_timeout
from mcpbridge.downstream.requests.unknown_methods import UnknownMethods
from mcpbridge.downstream.session_events import Note, SessionEvents, ignore
from mcpbridge.downstream.sessions import Sessions
from mcpbridge.downstream.settings import AskingSettings
from mcpbridge.downstream.tasks.session_tasks import LegacyTasks
from mcpbridge.downstream.tasks.tasks import TaskIds, Tasks
from mcpbridge.pipeline.plan import Pipelines
from mcpbridge.pipeline.stages.abandoned_calls import AbandonedCalls
from mcpbridge.pipeline.stages.permission import judge_again
from mcpbridge.protocol.body import LARGE, Body
from mcpbridge.protocol.error_codes import INVALID_PARAMS, INVALID_REQUEST
from mcpbridge.protocol.jsonrpc import Frame, encode, encode_large_response, encode_response
from mcpbridge.protocol.log_levels import LEVELS
from mcpbridge.protocol.meta import cancelled_id, cancelled_reason
from mcpbridge.protocol.payload import Payload, Pieces
from mcpbridge.results.kept_results import KeptResults
from mcpbridge.upstream.pool import Pool

log = get_logger("mcpbridge.server")


class Service(Struct, frozen=True):
    """What one reading of the settings says of how clients are served. Replaced whole."""

    identity: Identity
    """Its name and version stay the same for the life of a server: clients know them."""
    asking: AskingSettings
    listing: Listing
    """Which tools clients are listed."""


class Server:
    """Answers the requests of all clients."""

    def __init__(
        self,
        service: Service,
        catalog: Catalog,
        pool: Pool,
        plan: Pipelines,
        startup: Startup,
        abandoned: AbandonedCalls,
        kept_results: KeptResults,
        *,
        around: BridgeContext = NOWHERE,
        works_on: Callable[[Call], bool] | None = None,
        missing: Callable[[str], BridgeError | None] = lambda name: None,
        on_unplanned: Callable[[Client, str, BridgeError], None] = ignore_unplanned,
        note: Note = ignore,
        on_listed: Callable[[str, Exposed], object] = lambda client, exposed: None,
    ) -> None:
        """What it answers with. `around`: what is the same for all calls.

        `works_on`: whether somebody has a call; None: whether a server has it. `missing`: see `NameLookup`.
        `on_unplanned`: see `Calls`. `note`: hears of the sessions of clients. `on_listed`: hears of the first list of
        tools that each session gets, and of others that it gets later, where `note` is given.
        """
        self.on_opening: Callable[[Client], object] = lambda client: None
        """Called with each legacy client that has initialized, and with the modern sender of each list request."""
        self._session_events = SessionEvents(note)
        self._on_listed = on_listed
        self._on_unplanned = on_unplanned
        self._catalog, self._pool, self._plan, self._around = catalog, pool, plan, around
        self._sealer = Sealer(service.asking.state_key or "")
        self._loop = asyncio.get_running_loop()
        self.parking = Parking(
            plan, self._sealer, seconds=service.asking.timeout, runs_here=pool.runs_here, judge=self._judge_again
        )
        ids = TaskIds(self._sealer, catalog.sees_tool, runs_here=pool.runs_here)
        self._session_tasks = LegacyTasks(catalog, pool, plan, ids)
        self._server_info = encode({"name": service.identity.name, "version": service.identity.version})
        self._running: dict[Client, dict[bytes, asyncio.Task[Any]]] = {}
        self._withdrawn: WeakKeyDictionary[asyncio.Task[Any], Client] = WeakKeyDictionary()
        """Tasks that were cancelled since a client withdrew its request, and that client."""
        self._stopped: WeakKeyDictionary[asyncio.Task[Any], Call] = WeakKeyDictionary()
        """Tasks that were cancelled since a person stopped a call, and that call."""
        self.sessions = Sessions(
            on_begin=self._session_began,
            on_end=lambda session, why: self._session_events.ended(session, session.client, why),
        )
        """What lasts over the requests of modern clients without a channel."""
        self.listeners = Listeners(around.redact)
        self.news = UpstreamNotifications(
            catalog, pool, self.listeners, lambda: {*self._running, *self.express.calls} <= self.listeners.clients
        )
        """What upstreams tell by themselves comes in here."""
        self._tasks = Tasks(catalog, pool, plan, ids, self._server_info, self._session_tasks)
        self._finding = NameLookup(catalog, pool, startup, missing)
        self._timeouts = CallTimeouts(abandoned, works_on or pool.works_on)
        self._results = ResultResources(kept_results)
        self._watching = Subscriptions(
            self._finding, pool, self.listeners, TaskStatusStreams(pool, ids, self._tasks), self._scope_of
        )
        self._lists = ListChanges(catalog, self.listeners, self.parking, lambda: self._listing)
        self.express = ExpressLane(catalog, pool, plan, around, self._running, self._timeouts.calls, self.sessions)
        """Plain calls, which need no task."""
        self._serve(service)

    @contextmanager
    def switching(self, service: Service) -> Generator[None]:
        """Requests that come after this are answered so; those under way to their end as they began.

        The catalog is to be changed within: afterwards those who listen are notified, once, if their lists are others
        now.
        """
        with self._lists.switching():
            self._serve(service)
            yield

    def join(self, seals: SharedSeals) -> None:
        """See `Core`."""
        self._sealer.shared = seals

    def servers_changed(self) -> None:
        """There are other servers: send them what is wanted of all."""
        self._spread_log_level()

    def under_way(self) -> set[asyncio.Task[Any]]:
        """The tasks that answer requests now; not those that only listen."""
        self.express.continue_all()
        running = {task for tasks in self._running.values() for task in tasks.values()}
        return (running | self.parking.under_way()) - self._watching.listening

    def _serve(self, service: Service) -> None:
        """Answer by these settings from now on."""
        catalog, pool, asking, listing = self._catalog, self._pool, service.asking, service.listing
        self._listing, self._exposing = listing, listing.exposing
        self._sealer.seconds = self.parking.seconds = asking.timeout
        allowed = self._tasks.extensions = service.identity.extensions
        delivery = Delivery(
            catalog,
            pool,
            self._plan,
            self.parking,
            self._tasks,
            self._server_info,
            extensions=allowed,
            timeouts=self._timeouts,
            around=self._around,
        )
        calls = Calls(
            catalog,
            pool,
            self._finding,
            delivery,
            self._tasks,
            self._server_info,
            self._results,
            listing,
            on_unplanned=self._on_unplanned,
        )
        self.express.configure(listing, delivery.deliver, self._server_info)
        both = calls.handlers
        opening = Handshake(
            service.identity, catalog, pool, self._server_info, listing.exposing, seconds=asking.timeout
        )
        self._opening = opening
        self._legacy: dict[str, Handler] = {
            **both,
            **self._watching.legacy,
            **self._session_tasks.legacy,
            **opening.legacy,
            "initialize": partial(self._initialize, opening.legacy["initialize"]),
            "tools/list": (list_tools := partial(self._list_tools, both["tools/list"])),
            "ping": self._ping,
            "logging/setLevel": self._set_level,
        }
        self._modern: dict[str, Handler] = {
            **both,
            **self._watching.modern,
            **self._tasks.modern,
            **opening.modern,
            "tools/list": list_tools,
        }
        self._unknown = UnknownMethods(catalog, pool, delivery, self._legacy.keys(), self._modern.keys())

    def answers_now(self, client: Client) -> Iterator[tuple[str, str, bytes]]:
        """What such a client would be answered now to the requests with which clients begin; changes nothing.

        Method, cursor and result of each. Nothing while sessions may have tools of their own.
        """
        if self._listing.extra.are_any:
            return
        method, result = self._opening.answer_now(client)
        yield method, "", result
        yield from self._listing.answers_now(client)

    # -- for the fronts

    @property
    def views(self) -> Collection[str]:
        """Names of the servers that can be served by themselves (`Client.view`)."""
        return self._pool.upstreams.keys()

    @property
    def backends(self) -> Collection[str]:
        """Names of what has tools as a server has, and is none."""
        snapshot = self._catalog.snapshot
        found = {ref.server for ref in (*snapshot.tools.values(), *snapshot.unlisted.values())}
        return found.difference(self.views, OWN)

    @property
    def profiles(self) -> Collection[str]:
        """Names of the profiles, each with an endpoint of its own (`Client.profile_name`)."""
        return self._exposing.scopes.keys()

    def restriction_of(self, principal: str, identity: TokenIdentity | None) -> Callable[[str], bool] | None:
        """See `Core`."""
        roles = self._catalog.roles
        return None if roles is None else roles.restriction_of(principal, identity)

    def open(self, client: Client) -> None:
        """A legacy session begins: it may be sent unsolicited messages."""
        self.listeners.clients.add(client)
        self._lists.opened(client)
        self._spread_log_level()

    def introduced(self, client: Client, revision: str) -> None:
        """A client of a channel says who it is with its first modern request, which is of this revision."""
        self._session_events.began(client, client.session, revision=revision)

    def close(self, client: Client, why: str = "") -> None:
        """A client is gone: what it has under way is cancelled upstream, its subscriptions are dropped.

        `why`: in a few words.
        """
        self._session_events.ended(client.cached_session, client.name, why)
        self.listeners.clients.discard(client)
        self.express.close(client)
        for task in list(self._running.pop(client, {}).values()):
            if not task.cancelling():  # else its front has a last word for it, which a second one would take away
                task.cancel()
        if client.requests is not None:
            client.requests.end()
        self.parking.left(client)
        self._pool.release(client)
        self._watching.forget(client)
        self._session_tasks.forget(client)
        self._spread_log_level()

    def end(self) -> None:
        """The bridge stops: nothing is waited for any more."""
        self.listeners.end_all()
        self.parking.end_all()
        self._session_tasks.end()

    async def answer(
        self,
        client: Client,
        frame: Frame,
        notify: Notify,
        *,
        cancel_as: Client | None = None,
        sent: ExpressCall | None = None,
    ) -> Answer:
        """Answer one request. `notify` gets what belongs to it meanwhile. Cancel this task to cancel the call.

        `cancel_as` is whose `notifications/cancelled` may name this request: on a channel with one space of ids, the
        channel's client; else `client` itself. An empty answer means that there is nothing to send: the request
        was cancelled by that notification. `sent`: its call, which continues from the express lane.
        """
        id_ = bytes(frame.id)
        if id_[:1] not in _ID_STARTS:
            return to_answer(
                BadRequest(INVALID_REQUEST, "The id must be a string or a number"), b"null", "", modern=False
            )
        task = asyncio.current_task(self._loop)  # finding the loop costs more than the rest
        owner = cancel_as or client
        if cancel_as is not None:
            client.channel = cancel_as
        elif client.modern:
            client.sessions = self.sessions
        if client.identity is not None and self._catalog.has_roles and not client.modern:
            self._lists.came_with(client, client.identity)
        running = self._running.get(owner)
        if running is None:
            running = self._running[owner] = {}
        if (
            task is None
            or running.get(id_, task) is not task
            or ((express := self.express.calls.get(owner)) is not None and id_ in express)
        ):
            error = BadRequest(INVALID_REQUEST, "A request with this id is still being answered; ids must be unique")
            return to_answer(error, id_, frame.method, modern=client.modern)
        running[id_] = task
        before = task.cancelling()
        try:
            handler = (self._modern if client.modern else self._legacy).get(frame.method)
            if handler is None:
                handler = self._unknown.answer
            elif not client.version and frame.method not in ("initialize", "ping"):
                raise BadRequest(INVALID_REQUEST, _NOT_INITIALIZED)
            result = await (handler(client, frame, notify) if sent is None else self.express.deliver(sent, notify))
            if len(result) > LARGE or isinstance(result, Pieces):
                return Answer(encode_large_response(id_, result))
            return Answer(encode_response(id_, result))
        except asyncio.CancelledError:
            if (stopped := self._stopped.get(task)) is not None and client_behind(stopped.caller) is client:
                del self._stopped[task]
                if task.uncancel() > before:
                    raise
                if task in self._timeouts.given_up:
                    return Answer(b"")  # nobody waits for it
                cancelled = CallCancelled(stopped.upstream)
                return to_answer(cancelled, id_, frame.method, modern=client.modern, redact=self._around.redact)
            if self._withdrawn.get(task) is not owner:  # or a hook of the withdrawn one asks, in its task
                raise
            del self._withdrawn[task]
            if task.uncancel() > before:
                raise  # its channel ended in the same turn
            return Answer(b"")
        except (msgspec.DecodeError, RecursionError) as error:
            return to_answer(BadRequest(INVALID_PARAMS, f"Invalid params: {error}"), id_, "", modern=client.modern)
        except Exception as error:  # noqa: BLE001 - the error-to-wire boundary: every failure becomes an answer
            if self._timeouts.failed(task, owner, error):
                return Answer(b"")
            redact = self._around.redact
            return to_answer(error, id_, frame.method, modern=client.modern, client=client, redact=redact)
        finally:
            running.pop(id_, None)
            if not running and self._running.get(owner) is running:
                del self._running[owner]

    def notification(self, client: Client, frame: Frame) -> None:
        """Take a notification of a client."""
        if frame.method == "notifications/initialized":
            client.initialized = True
            for upstream in self.news.used_by(client) if client.capabilities.roots else ():
                if upstream.has_missed_roots:
                    upstream.roots_changed()
        elif frame.method == "notifications/cancelled":
            self._cancel(client, frame)
        elif frame.method == "notifications/roots/list_changed":
            used = self.news.used_by(client)  # first: also that of the project so far
            client.project, client.project_again_at = None, 0.0
            for upstream in used:
                upstream.roots_changed()

    @property
    def running_calls(self) -> Collection[Call]:
        """The calls of tools that are being answered."""
        self.express.continue_all()
        return self._timeouts.calls.values()

    def roles_changed(self, principal: str) -> None:
        """Somebody has other roles from now on, with the same token: notify them, and end what is theirs no more."""
        self._lists.roles_changed(principal)

    def _judge_again(self, call: Call, begun: Call) -> None:
        if (policy := self._catalog.policy) is not None:
            judge_again(policy, call, begun)

    def newer_token(self, identity: TokenIdentity) -> None:
        """See `Core`."""
        if self._catalog.has_roles:
            self._lists.newer_token(identity)

    def stop_call(self, call: Call) -> bool:
        """Cancel a call that is being answered: its client gets an error that says that a person did so.

        False: it is not, any more.
        """
        for task, running in self._timeouts.calls.items():
            if running is call and not task.done() and task not in self._withdrawn:
                self._stopped[task] = call
                task.cancel()
                return True
        return False

    def extra_tools_changed(self, session: str) -> None:
        """A session (its id; empty: each) has other tools of its own: notify whoever listens there."""
        for listener, client in self.listeners.everyone():
            if session in ("", client.session.id):
                self.listeners.tell(listener, ("tools",))

    async def came_over(self, client: Client) -> None:
        """See `Core`."""
        await self._timeouts.came_over(client)

    def unheard(self, client: Client, frame: Frame) -> None:
        """The answer to this request has no way to its client any more, though the client may still be there."""
        self.express.continue_all(client)
        task = self._running.get(client, {}).get(bytes(frame.id))
        if task is not None:
            self._timeouts.give_up(client, task)

    def answered(self, client: Client, frame: Frame) -> None:
        """Take an answer (a result or an error) of a client to a request that the bridge sent to it."""
        if client.requests is None or not client.requests.answered(frame):
            log.debug("answer to no open request from the client")

    @property
    def clients(self) -> int:
        """Open sessions and listen streams."""
        return len(self.listeners.clients) + len(self.listeners.listens)

    def _scope_of(self, client: Client) -> Scope | None:
        return self._listing.scope_of(client)

    def _session_began(self, session: Session, by: object) -> None:
        if isinstance(by, Client):
            self._session_events.began(by, session)

    async def _initialize(self, opens: Handler, client: Client, frame: Frame, notify: Notify) -> Payload:
        answer = await opens(client, frame, notify)
        self._session_events.began(client, client.session)
        self.on_opening(client)
        return answer

    async def _list_tools(self, lists: Handler, client: Client, frame: Frame, notify: Notify) -> Payload:
        answer = await lists(client, frame, notify)
        if self._session_events.is_heard:
            exposed = self._listing.listed(client)
            if self._session_events.listed(client, len(exposed.tools.entries)):
                self._on_listed(client.name, exposed)
        if client.modern:
            self.on_opening(client)
        return answer

    async def _ping(self, client: Client, frame: Frame, notify: Notify) -> bytes:
        return EMPTY

    async def _set_level(self, client: Client, frame: Frame, notify: Notify) -> bytes:
        level = text(Body(frame.params), "level")
        if level not in LEVELS:
            raise BadRequest(INVALID_PARAMS, f"Unknown log level {level[:50]!r}; known: {', '.join(LEVELS)}")
        client.log_level = level
        self._spread_log_level()
        return EMPTY

    def _spread_log_level(self) -> None:
        level = self.listeners.log_level
        for upstream in self._pool.everyone():
            upstream.wanted.want_log_level(level, is_heard=bool(self.listeners.clients))

    # -- withdrawing

    def _cancel(self, client: Client, frame: Frame) -> None:
        self.express.continue_all(client)
        task = self._running.get(client, {}).get(cancelled_id(frame.params))
        if task is None or task in self._withdrawn:
            return
        if says_timeout(cancelled_reason(frame.params)) and self._timeouts.give_up(client, task):
            return
        self._withdrawn[task] = client
        task.cancel()


_ID_STARTS = frozenset(b"%c" % digit for digit in b'"-0123456789')
_NOT_INITIALIZED = (
    "Send `initialize` first (revisions up to 2025-11-25), "
    "or put the _meta envelope of revision 2026-07-28 into every request"
)
