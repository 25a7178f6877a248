"""Sessions that belong to the fleet: any bridge takes any request, and the one that has the session answers it.

The id of a session ends with the id of the bridge that opened it, so that nobody is asked where it is. Only when that
bridge is gone the shared record says who has it, or whoever gets a request takes it over: the record has the messages
that made the session what it is, and they are taken again in its new place. Streams of the former bridge are lost.

A request that may have reached a bridge that is lost is not made again: its client learns that the outcome is unknown.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable
from weakref import WeakValueDictionary

from mcpbridge.base.background_tasks import OwnedTasks, repeat
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.http.body_deadline import BODY_SECONDS, Deadline
from mcpbridge.downstream.http.event_streams import Request
from mcpbridge.downstream.http.exchange import DirectExchange, Exchange, Refused
from mcpbridge.downstream.http.readiness import SOON
from mcpbridge.downstream.http.sessions import Session, SessionFront
from mcpbridge.downstream.sessions import BRIDGE_STOPPED
from mcpbridge.fleet.counts import FleetCounts
from mcpbridge.fleet.forwarding import LOST, MOVED, MOVED_STATUS, Continue, Forwarding, PassedOn, not_sent
from mcpbridge.fleet.link.connections import NotSent, OutcomeUnknown
from mcpbridge.fleet.members import ID_LENGTH, Members
from mcpbridge.fleet.records import OF_ANOTHER_VERSION, FleetRecords, Member, read_session
from mcpbridge.fleet.sessions.lapses import Lapses
from mcpbridge.fleet.sessions.streams import StreamRecords
from mcpbridge.fleet.sessions.written import WrittenSessions, who_uses
from mcpbridge.protocol.jsonrpc import Frame, decode_frame

log = get_logger("mcpbridge.fleet")

_KEEP_EVERY = 60.0
"""Seconds between two times that the records of sessions are kept for longer."""
_WRITE_AGAIN = 1.0
"""Seconds after which records are written again that could not be."""
_TRIES = 3
"""Times that a session is looked for while it moves."""
_KNOWN_MOVES = 10_000
"""Sessions whose new owner is remembered."""
_LOOK_AGAIN = 0.05
"""Seconds between two looks at calls under way, while this bridge drains."""
_LOOK_SELDOM = 1.0
"""The same, while there are no sessions."""


class FleetSessions:
    """The sessions of all bridges, as this one sees them. See `Elsewhere`."""

    def __init__(
        self,
        records: FleetRecords,
        members: Members,
        forwarding: Forwarding,
        counts: FleetCounts,
        *,
        idle: float,
        max_body: int,
        keep: float,
    ) -> None:
        """`idle`: seconds after which an unused session ends. `max_body`: bytes of a request.

        `keep`: seconds that the answer on a stream stays for a client that resumes it.
        """
        self._records, self._members, self.forwarding, self._counts = records, members, forwarding, counts
        self._max_body = max_body
        self._deadline = Deadline(BODY_SECONDS)
        self._written = WrittenSessions(records, members.me.id, idle + _KEEP_EVERY, self._keep_soon)
        self._writing_again: asyncio.Task[None] | None = None
        self._writing_ends: asyncio.Task[None] | None = None
        self._lapses = Lapses()
        self._moved = OrderedDict[bytes, str]()
        self._taking = WeakValueDictionary[bytes, asyncio.Lock]()
        self._front: SessionFront | None = None
        self._drains = False
        self._handing_over: asyncio.Task[None] | None = None
        self.is_cut_off = False
        """Others may have this bridge's sessions by now, and it cannot know which: it takes nothing new."""
        self.tasks = OwnedTasks()
        self._streams = StreamRecords(records, self.tasks, open_for=idle + _KEEP_EVERY, kept_for=keep)
        members.on_gone = self._forget_member
        members.on_lapsed = self._lapsed

    def serve_by(self, front: SessionFront) -> None:
        """Where this bridge's own sessions are."""
        self._front = front

    # -- see `Elsewhere`

    @property
    def me(self) -> str:
        """The id of this bridge."""
        return self._members.me.id

    @property
    def is_draining(self) -> bool:
        """This bridge takes nothing new."""
        return self._drains or self.is_cut_off

    def new_id(self) -> bytes:
        """128 random bits, and this bridge's id."""
        return f"{secrets.token_hex(16)}-{self._members.me.id}".encode()

    def pass_on(self, exchange: DirectExchange, session: bytes, rest: Continue) -> bool:
        """Send a call to the bridge that has its session without a task, if that bridge is known and takes it."""
        named = self._moved.get(session)
        member = self._members.find(session.rpartition(b"-")[2].decode("latin-1") if named is None else named)
        if member is None or member.id == self._members.me.id:
            return False
        return self.forwarding.pass_on(member, exchange, exchange.whole_body, rest)

    async def serve(self, exchange: Exchange, session: bytes, sent: object = None) -> bool:
        """Have it answered by the bridge that has its session, or take the session over.

        What another bridge sends is not sent on: that one learns that the session is not here.
        """
        passed = sent if isinstance(sent, PassedOn) else None
        try:
            return await self._serve(exchange, session, passed)
        finally:
            if passed is not None:
                passed.close()

    async def _serve(self, exchange: Exchange, id_: bytes, passed: PassedOn | None) -> bool:
        if passed is None and id_ in self._written.ended:
            return False
        if exchange.is_forwarded:
            if await self._is_still_here(id_):
                return False
            if self._front is None or self.is_draining or await self._take(id_, exchange, self._front) is not None:
                raise Refused(MOVED_STATUS, "this session is another bridge's")
            return False
        for _ in range(_TRIES):
            # What was sent is not safe to repeat, whatever is known of the session by now.
            if passed is None and await self._is_still_here(id_):
                return False
            owner = await self._owner(id_, exchange) if passed is None else passed.member
            if owner is None:
                return False
            if exchange.method == "POST" and exchange.early_body is None:
                exchange.early_body = await exchange.body(self._max_body, self._deadline)
            try:
                stream, body = None if passed is None else passed.take_stream(), exchange.early_body or b""
                passed = None
                if await self.forwarding.ask(owner, exchange, body, stream=stream) is not MOVED:
                    return True
            except NotSent as error:
                if not await self._members.is_still(owner.id, self.tasks):  # it has just left
                    continue
                raise not_sent(owner, str(error)) from error
            except OutcomeUnknown as error:
                raise Refused(502, LOST) from error
            self._remember(id_, "")  # its owner gave it up: ask the record
        raise Refused(503, "not sent: this session is on its way from one bridge to another", headers=SOON)

    async def _is_still_here(self, id_: bytes) -> bool:
        """Whether a session is this bridge's though that was not sure for a while; waits until it is.

        Raises:
            Refused: it is not known in time.
        """
        if self._front is None or id_ not in self._front.sessions.unsure:
            return False
        await self._lapses.until_sure()
        return id_ in self._front.sessions

    async def is_there(self, bridge: str) -> bool:
        """Whether another bridge has this id."""
        return bridge != self.me and len(bridge) == ID_LENGTH and await self._members.get(bridge) is not None

    async def serve_at(self, bridge: str, exchange: Exchange, session: Session | None = None) -> bool:
        """Have it answered by the bridge with this id, if there is one."""
        if bridge == self.me or len(bridge) != ID_LENGTH:
            return False
        member = await self._members.get(bridge)
        if member is None:
            return False
        guest = list[bytes]()
        if session is not None:
            guest = self._written.beginning(session.id)
            if not guest:
                return False
        try:
            return await self.forwarding.ask(member, exchange, exchange.early_body or b"", guest) is not MOVED
        except NotSent as error:
            if not await self._members.is_still(bridge, self.tasks):  # it has just left
                return False
            raise not_sent(member, str(error)) from error
        except OutcomeUnknown as error:
            raise Refused(502, LOST) from error

    async def is_first_use(self, seal: bytes, seconds: float) -> bool:
        """Whether no bridge has used it."""
        return await self._records.is_first_use(seal, seconds)

    async def open_elsewhere(self, exchange: Exchange) -> bool:
        """Have a session opened by another bridge, while this one takes nothing new. False: there is none that does."""
        another = self._another()
        if another is None:
            return False
        try:
            return await self.forwarding.ask(another, exchange, exchange.early_body or b"") is not MOVED
        except NotSent as error:
            if self.is_cut_off:  # others would not know what is opened here
                raise not_sent(another, str(error)) from error
            return False
        except OutcomeUnknown as error:
            raise Refused(502, LOST) from error

    def _another(self) -> Member | None:
        """A bridge that takes what this one does not."""
        me = self._members.me.id
        able = [one for one in self._members.all() if one.id != me and not one.is_draining]
        return secrets.choice(able) if able else None

    async def opened(self, session: Session, frame: Frame) -> None:
        """Write it down, before its client knows it."""
        await self._written.open(session, frame)

    async def heard(self, session: Session, frame: Frame) -> None:
        """Write down what changed."""
        await self._written.change(session, frame)

    def stream_opened(self, session: Session, stream: bytes, request: Request) -> None:
        """Write down that nobody knows what becomes of the request."""
        self._streams.opened(session.id, stream, request)

    async def stream_answered(
        self, session: Session, stream: bytes, request: Request, answer: bytes, number: int
    ) -> None:
        """Write down the answer."""
        await self._streams.answered(session.id, stream, request, answer, number)

    async def lost_answer(self, session: Session, stream: bytes) -> tuple[int, bytes] | None:
        """What was written down."""
        try:
            return await self._streams.answer(session.id, stream)
        except StoreFailed as error:
            text = "not sent: the answer is in the fleet's records, which cannot be reached; it is safe to ask again"
            raise Refused(503, text, headers=SOON) from error

    def ended(self, session: Session) -> None:
        """Forget it, or leave it to the others where this bridge stops."""
        is_over = session.why != BRIDGE_STOPPED
        is_ours = self._written.end(session.id) if is_over else self._written.forget(session.id)
        self._streams.session_ended(session.id, is_over=is_ours and is_over)
        if not is_ours:
            return
        if is_over:
            self._write_ends_soon()
            return
        session.client.is_handed_on = True
        self.tasks.spawn(self._quietly(self._records.give_up(session.id, self._members.me.id)))

    async def drain(self, seconds: float) -> None:
        """Let calls under way end, then hand on all sessions."""
        self._drains = True
        await self._members.drain()
        front = self._front
        end = asyncio.get_running_loop().time() + seconds
        while front is not None and asyncio.get_running_loop().time() < end:
            for session in front.sessions.all():
                session.streams.channel.finish()
            # A stream of HTTP+SSE is busy until it ends, and nobody can take it over.
            in_use = any(session.is_in_use for session in front.sessions.all() if session.client.front != "sse")
            if not in_use and not self.forwarding.under_way:
                break
            await asyncio.sleep(_LOOK_AGAIN)
        for session in self.own():
            await self._quietly(self._records.give_up(session.id, self._members.me.id))
            session.client.is_handed_on = True
            self._written.forget(session.id)

    # -- a bridge that stays, and takes nothing new

    @property
    def passing_on(self) -> int:
        """Requests that other bridges answer by way of this one now."""
        return self.forwarding.under_way

    def own(self) -> list[Session]:
        """The sessions of this bridge."""
        return [] if self._front is None else self._front.sessions.all()

    async def start_draining(self) -> None:
        """Take nothing new, and hand on each session once it has no call under way, until `resume`."""
        if not self._drains:
            log.info("this bridge takes nothing new")
            self._drains = True
            self._begin_handing_over()
        await self._members.drain()

    async def resume(self) -> None:
        """Take new sessions again."""
        if self._drains:
            log.info("this bridge takes new sessions again")
            self._drains = False
        await self._members.drain(is_draining=False)

    def step_back(self) -> None:
        """Others may have its sessions: hand on those without calls, and take nothing new until it is a member again.

        Requests of the others wait a moment, and are refused then.
        """
        if self._front is None:
            return
        log.warning("this bridge is cut off from its fleet's records, which others may reach: it takes nothing new")
        self.is_cut_off = True
        self._lapsed()
        self._begin_handing_over()

    def _begin_handing_over(self) -> None:
        if self._handing_over is None or self._handing_over.done():
            self._handing_over = self.tasks.spawn(self._hand_over())

    async def _hand_over(self) -> None:
        while self.is_draining:
            for session in self.own():
                # A stream of its own for what nobody asked for does not keep it: the client opens it again elsewhere.
                # HTTP+SSE (which is not in the records) is nothing but such a stream, and stays.
                is_idle = session.busy <= session.streams.channel.readers and not session.outliving
                if session.id in self._written and is_idle:
                    await self.hand_on(session.id)
            await asyncio.sleep(_LOOK_AGAIN if self.own() else _LOOK_SELDOM)

    # -- requests of other members

    def gives_up(self, id_: bytes) -> bool:
        """Whether a request of this session is for another bridge now: this one drains, and has no call of it."""
        if not self.is_draining or self._front is None or not id_:
            return False
        session = self._front.sessions.get(id_)
        return session is None or not session.is_in_use

    async def hand_on(self, id_: bytes) -> None:
        """The session is for whoever asks first."""
        self._let_go(id_)  # at once: a call that came meanwhile would end with it
        self._remember(id_, "")
        self._counts.handed_on += 1
        if not self.is_cut_off:  # else the lease has ended, and the records cannot be reached
            await self._quietly(self._records.give_up(id_, self._members.me.id))

    # -- owners

    async def _owner(self, id_: bytes, exchange: Exchange) -> Member | None:
        """Who has the session. None: this bridge has it (now), or there is no such session."""
        me = self._members.me.id
        named = self._moved.get(id_)
        if named is None:
            named = id_.rpartition(b"-")[2].decode("latin-1")
            if len(named) != ID_LENGTH:
                return None
        if named and named != me and (member := await self._members.get(named)) is not None:
            return member
        if self.is_draining and (another := self._another()) is not None:
            return another
        if self._front is None or self.is_draining:
            raise Refused(503, "not sent: this bridge is about to stop", headers=SOON)
        return await self._take(id_, exchange, self._front)

    async def _take(self, id_: bytes, exchange: Exchange, front: SessionFront) -> Member | None:
        """Take the session over, unless another bridge has it, which is returned."""
        lock = self._taking.setdefault(id_, asyncio.Lock())  # there as long as somebody has it, or waits for it
        async with lock:
            return await self._claim(id_, exchange, front)

    async def _claim(self, id_: bytes, exchange: Exchange, front: SessionFront) -> Member | None:
        if id_ in front.sessions or id_ in self._written.ended:
            return None
        me = self._members.me.id
        try:
            is_own = id_.endswith(f"-{me}".encode()) and id_ not in self._moved
            claim = await self._records.claim(id_, me, who_uses(exchange.principal, exchange), is_own=is_own)
        except StoreFailed as error:
            text = "not sent: the bridge that had this session is gone, and the fleet's records cannot be reached"
            raise Refused(503, text, headers=SOON) from error
        if claim is None:
            return None
        if not claim.owner:
            text = (
                "not sent: the fleet's records were away, and the bridge that has this session may be about to return"
            )
            raise Refused(503, text, headers=SOON)
        if claim.owner != me:
            self._remember(id_, claim.owner)
            member = await self._members.get(claim.owner)
            if member is None:
                raise Refused(503, "not sent: the bridge that has this session is not known yet", headers=SOON)
            return member
        record = read_session(claim.record)
        if record is None:
            await self._quietly(self._records.give_up(id_, me))
            if any(member.version != self._members.me.version for member in self._members.all()):
                raise Refused(503, OF_ANOTHER_VERSION, headers=SOON)
            log.warning("a session that another version of the bridge wrote down cannot be taken over")
            return None
        try:
            has_room = await front.take_over(
                exchange, id_, [decode_frame(bytes(one)) for one in record.messages.values()]
            )
        except BaseException:
            self.tasks.spawn(self._quietly(self._records.give_up(id_, me)))
            raise
        if not has_room:
            await self._quietly(self._records.give_up(id_, me))
            raise Refused(503, "not sent: all sessions of this bridge are busy (`http.max_sessions`)", headers=SOON)
        self._written.take(id_, record, claim.moves)
        self._moved.pop(id_, None)
        self._counts.taken_over += 1
        log.info("a session was taken over from a bridge that is gone")
        return None

    def _remember(self, id_: bytes, owner: str) -> None:
        self._moved[id_] = owner
        while len(self._moved) > _KNOWN_MOVES:
            self._moved.popitem(last=False)

    def _forget_member(self, member: str) -> None:
        self.forwarding.forget(member)
        for id_, owner in list(self._moved.items()):
            if owner == member:
                self._moved[id_] = ""

    # -- records

    async def keep(self) -> None:
        """Keep the records of sessions until cancelled, as long as these live."""
        while True:  # `repeat` ends when all of it is kept
            await repeat(_KEEP_EVERY, self._keep_once)

    def _write_ends_soon(self) -> None:
        """By one task for all: each command may wait for a replica, and takes up to 1000 ends."""
        if self._writing_ends is None or self._writing_ends.done():
            self._writing_ends = self.tasks.spawn(self._written.write_ends())

    async def _keep_once(self) -> bool:
        """Keep the records for longer, and write down what they lack. False: not all of it could be."""
        if self._front is None:
            return True
        if self.is_cut_off and not self._members.has_lease:
            return False
        lapses = self._lapses.count
        try:
            kept = await self._written.keep()
        except StoreFailed:
            return False
        for id_ in kept.lost:
            self._let_go(id_)
        if not self._lapses.end(self._front.sessions, lapses):
            return False
        if self.is_cut_off:
            log.info("this bridge is a member of its fleet again")
            self.is_cut_off = False
        missing = set(kept.missing)
        for id_ in missing | self._written.unwritten | set(kept.undone):
            session = self._front.sessions.get(id_)
            if session is not None and id_ in self._written:
                await self._written.write(session, is_new=id_ in missing)
        if self._written.ended:
            self._write_ends_soon()  # by itself: all may be well but a replica, which nothing else here waits for
        return not self._written.unwritten and not self._written.ended

    def _keep_soon(self) -> None:
        if self._writing_again is None or self._writing_again.done():
            self._writing_again = self.tasks.spawn(self._keep_until_done())

    async def _keep_until_done(self) -> None:
        await repeat(_WRITE_AGAIN, self._keep_once, at_once=True)

    def _let_go(self, id_: bytes) -> None:
        """End a session here, and leave its record to whoever has it."""
        self._written.forget(id_)
        if self._front is not None and (session := self._front.sessions.get(id_)) is not None:
            session.client.is_handed_on = True
            self._front.sessions.end(session, "another bridge has it now")

    def _lapsed(self) -> None:
        if self._front is not None:
            self._lapses.begin(self._front.sessions, self._written.ids)
        self._keep_soon()

    async def _quietly(self, work: Awaitable[None]) -> None:
        try:
            await work
        except StoreFailed as error:
            log.warning("the fleet's record of a session was not changed", reason=str(error))
