"""Servers with `share = "fleet"`: the process of one bridge, which the others reach over the link.

Whoever needs such a server first gets its lease (`leases.py`) and starts it (`process.py`). The others
attach to it: by one request over the link, whose answer brings what the server says until the end, and one request for
each message to it (`channels.py`). They name the epoch of the lease: an owner that has another one refuses them.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import monotonic

import anyio
import msgspec

from mcpbridge.base.background_tasks import OwnedTasks, repeat
from mcpbridge.base.errors import Overloaded, StoreFailed, UpstreamGone, UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.fleet.link.connections import Links, NotSent, OutcomeUnknown, Stream
from mcpbridge.fleet.link.frames import Ask, Reply
from mcpbridge.fleet.link.serving import Served
from mcpbridge.fleet.members import LEASE_SECONDS as MEMBER_SECONDS
from mcpbridge.fleet.members import Members
from mcpbridge.fleet.records import Member
from mcpbridge.fleet.servers.channels import ATTACH, BUSY, NOT_HERE, OK, SEND, Elsewhere, Here, LinkChannel, OwnChannel
from mcpbridge.fleet.servers.leases import LEASE_SECONDS, MARGIN_SECONDS, RENEW_SECONDS, VALID_SECONDS, ServerLeases
from mcpbridge.fleet.servers.process import SharedProcess
from mcpbridge.protocol.transport import Channel, Receiver, Transport

log = get_logger("mcpbridge.fleet")

_PAUSE = 0.2
"""Seconds between two looks for the owner."""
_MOST_SECONDS = LEASE_SECONDS + MARGIN_SECONDS + 2.0
"""How long an attempt to find one takes at most."""


class SharedServers:
    """The servers of the fleet, as one of its bridges sees them. Implements `FleetPlaces` and `Processes`."""

    def __init__(self, leases: ServerLeases, members: Members, links: Links) -> None:
        self._leases, self._members, self._links = leases, members, links
        self._processes = dict[str, SharedProcess]()
        self._epochs = dict[str, int]()
        self._locks = dict[str, asyncio.Lock]()
        self.tasks = OwnedTasks()
        self.is_closing = False

    def __repr__(self) -> str:
        return f"<SharedServers: {sorted(self._processes)} of {sorted(self._epochs)} here>"

    def owned(self) -> list[str]:
        """The servers whose process is here."""
        return sorted(self._processes)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Owns the processes: leaving ends them, and gives up their leases."""
        async with self.tasks.running():
            try:
                yield
            finally:
                self.is_closing = True
                for process in list(self._processes.values()):
                    process.end("its bridge stops")
                with anyio.CancelScope(shield=True):
                    if ending := self.tasks.under_way():
                        await asyncio.wait(ending, timeout=LEASE_SECONDS)
        with anyio.CancelScope(shield=True):
            await self._leases.close()

    # -- for this bridge's own calls; see `FleetPlaces` and `Processes`

    def epoch(self, server: str) -> int:
        """See `Processes`: what a bridge attaches to is of the highest epoch that it has seen."""
        return self._epochs.get(server, 0)

    async def used(self, server: str, client: str, epoch: int) -> int:
        """See `Processes`."""
        return await self._leases.used(server, client, epoch)

    @asynccontextmanager
    async def channel(self, name: str, own: Transport, receiver: Receiver) -> AsyncGenerator[Channel]:
        """See `FleetPlaces`."""
        found = await self._find(name, own)
        if isinstance(found, SharedProcess):
            number = found.attach(Here(receiver))
            try:
                yield OwnChannel(found, number)
            finally:
                found.detach(number)
            return
        member, stream, number = found
        channel = LinkChannel(name, self._epochs[name], member, number, self._links, receiver)
        reading = asyncio.ensure_future(channel.read(stream))
        sending = asyncio.ensure_future(channel.pump())
        try:
            yield channel
        finally:
            channel.close()
            reading.cancel()
            sending.cancel()
            stream.close()

    async def _find(self, name: str, own: Transport) -> "SharedProcess | tuple[Member, Stream, int]":
        """The process, or the bridge that has it and what it sends.

        Raises:
            UpstreamUnavailable: there is none for now.
        """
        until = unreachable = 0.0
        while True:
            now = monotonic()
            until = until or now + _MOST_SECONDS
            async with self._locks.setdefault(name, asyncio.Lock()):
                process, wait, owner = await self._place(name, own)
            if process is not None:
                try:
                    await process.started()
                except UpstreamGone as error:
                    raise UpstreamUnavailable(name, error.what) from error
                return process
            why = "another bridge of the fleet is about to start it"
            if owner is not None:
                try:
                    if (attached := await self._attach(name, owner)) is not None:
                        return owner, *attached
                except (NotSent, OutcomeUnknown) as error:
                    why = f"the bridge {owner.name!r} that runs it cannot be reached ({error})"
                    unreachable = unreachable or now
                    if now - unreachable > MEMBER_SECONDS and self._members.find(owner.id) is not None:
                        raise UpstreamUnavailable(name, why) from error
            if now >= until or self.is_closing:
                raise UpstreamUnavailable(name, why)
            await asyncio.sleep(min(max(wait, _PAUSE), 1.0))

    async def _place(self, name: str, own: Transport) -> tuple[SharedProcess | None, float, Member | None]:
        """Its process if it is here, else how long to wait, and who has it."""
        process = self._processes.get(name)
        if process is not None:
            return (process, 0.0, None) if process.is_valid else (None, _PAUSE, None)
        me, asked = self._members.me, monotonic()
        may_take = not (self.is_closing or me.is_draining)
        try:
            claim = await self._leases.acquire(name, me.id, self._epochs.get(name, 0), may_take=may_take)
        except StoreFailed as error:
            raise UpstreamUnavailable(name, "the fleet's records, which say who runs it, cannot be reached") from error
        self._epochs[name] = max(self._epochs.get(name, 0), claim.epoch)
        if claim.is_new:
            process = self._processes[name] = SharedProcess(name, claim.epoch, own, asked + VALID_SECONDS)
            if self.tasks.spawn(self._run(process)) is None:
                del self._processes[name]
                raise UpstreamUnavailable(name, "this bridge stops")
            log.info("this bridge runs a server for its fleet", upstream=name, epoch=claim.epoch)
            return process, 0.0, None
        owner = self._members.find(claim.owner) if claim.is_live and claim.owner != me.id else None
        if owner is None and claim.is_live and claim.owner not in ("", me.id):
            await self._members.look()  # it has just joined
            owner = self._members.find(claim.owner)
        return None, 0.0 if claim.is_live else claim.wait, owner

    async def _run(self, process: SharedProcess) -> None:
        keeping = asyncio.ensure_future(self._keep_lease(process))
        try:
            await process.run()
        finally:
            keeping.cancel()
            with anyio.move_on_after(2 * RENEW_SECONDS, shield=True):
                try:
                    await self._leases.release(process.name, self._members.me.id, process.epoch)
                except StoreFailed:  # it ends by itself
                    pass
            self._processes.pop(process.name, None)
            log.info("a server of the fleet has ended here", upstream=process.name, reason=process.reason)

    async def _keep_lease(self, process: SharedProcess) -> None:
        async def renew() -> bool:
            """Whether it is over."""
            asked = monotonic()
            try:
                is_kept = await self._leases.renew(process.name, self._members.me.id, process.epoch)
            except StoreFailed:
                return False
            if self._members.me.is_draining and process.is_idle:
                process.end("its bridge drains")
                return True
            if not is_kept:
                process.end("its lease is another bridge's")
                return True
            if process.is_valid:  # not after it was over, though nobody noticed
                process.valid_until = asked + VALID_SECONDS
            return False

        await repeat(RENEW_SECONDS, renew)

    async def _attach(self, name: str, owner: Member) -> tuple[Stream, int] | None:
        head = Ask(ATTACH, name, b"%d" % self._epochs[name], [], self._members.me.id, 0)
        stream = await self._links.ask(owner.id, owner.address, head, b"")
        try:
            async with asyncio.timeout(_MOST_SECONDS):
                reply, _, is_whole = await stream.head()
        except TimeoutError as error:
            stream.close()
            raise NotSent("it does not answer") from error
        except BaseException:  # whoever wants it is gone: the owner is not to have a party for nobody
            stream.close()
            raise
        if reply.status != OK or is_whole:
            stream.close()
            return None
        return stream, int(dict(reply.headers)[b"party"])

    # -- for the other bridges

    async def serve(self, served: Served) -> None:
        """Answer a request of another bridge."""
        head = served.head
        body = await served.body()
        process = self._processes.get(head.path)
        if body is None:
            return
        if process is None or str(process.epoch).encode() != head.query or not process.is_valid:
            served.reply_whole(Reply(NOT_HERE, []), b"")
        elif head.method == SEND:
            served.reply_whole(Reply(_send(process, int(head.peer), body), []), b"")
        else:
            await self._serve_party(served, process)

    async def _serve_party(self, served: Served, process: SharedProcess) -> None:
        try:
            await process.started()
        except UpstreamGone:
            served.reply_whole(Reply(NOT_HERE, []), b"")
            return
        party = Elsewhere()
        number = process.attach(party)
        left = asyncio.ensure_future(served.until_left())
        left.add_done_callback(lambda _: party.leave())
        try:
            served.reply(Reply(OK, [(b"party", b"%d" % number)]))
            while (line := await party.next()) is not None:
                await served.write(line)
            if not served.has_left:
                served.end()
        finally:
            left.cancel()
            process.detach(number)


def _send(process: SharedProcess, number: int, body: bytes) -> int:
    if process.party(number) is None:
        return NOT_HERE
    try:
        process.send(number, body)
    except UpstreamGone:
        return NOT_HERE
    except Overloaded:
        return BUSY
    except msgspec.DecodeError:
        log.warning("another bridge sent what is no message", upstream=process.name)
    return OK
