"""A bridge's place in its fleet: the link, the lease, and the sessions, for as long as it runs."""

import hmac
import socket
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.log import get_logger
from mcpbridge.base.version import __version__
from mcpbridge.downstream.http.app import HttpFront
from mcpbridge.downstream.http.exchange import DirectExchange, Exchange
from mcpbridge.downstream.settings import HttpSettings
from mcpbridge.fleet.announcements import ANNOUNCE, Announcements
from mcpbridge.fleet.answering import Answering
from mcpbridge.fleet.breakers import BreakerGossip
from mcpbridge.fleet.counts import FleetCounts
from mcpbridge.fleet.forwarding import Forwarding
from mcpbridge.fleet.link.certificates import link_contexts
from mcpbridge.fleet.link.connections import Links
from mcpbridge.fleet.link.serving import LinkServer, Served
from mcpbridge.fleet.members import Members, new_member_id
from mcpbridge.fleet.orders import Orders
from mcpbridge.fleet.records import FleetRecords, Member
from mcpbridge.fleet.servers.channels import ATTACH, SEND
from mcpbridge.fleet.servers.leases import ServerLeases
from mcpbridge.fleet.servers.shared_servers import SharedServers
from mcpbridge.fleet.sessions.sessions import FleetSessions
from mcpbridge.fleet.settings import FleetSettings
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.storage.settings import StoreSettings, redis_address

log = get_logger("mcpbridge.fleet")


class Fleet:
    """The fleet, as one of its bridges sees it."""

    def __init__(
        self,
        members: Members,
        sessions: FleetSessions,
        orders: Orders,
        servers: SharedServers,
        announcements: Announcements,
        key: str,
    ) -> None:
        self.members, self.sessions, self.orders, self.servers = members, sessions, orders, servers
        self.announcements, self._key = announcements, key
        self.breakers = BreakerGossip(members)
        self.forwarding = sessions.forwarding
        self._front: HttpFront | None = None
        self.on_joined: Callable[[], object] = lambda: None
        """Called when another front answers."""

    def join(self, front: HttpFront) -> None:
        """Requests of the fleet's clients are answered by this front."""
        self._front = front
        front.join(self.sessions)
        self.on_joined()

    @property
    def is_open(self) -> bool:
        """Requests of the fleet's clients can be answered."""
        return self._front is not None

    def take(self, exchange: DirectExchange) -> bool:
        """Answer a plain call that another bridge sends without a task. False: nothing was done."""
        return self._front is not None and self._front.take(exchange)

    def configured(self, shared: Mapping[str, Any]) -> None:
        """This is configured from now on; see `running_fleet`."""
        self.members.configured(_digest(self._key, shared))

    async def answer(self, exchange: Exchange) -> None:
        """Answer what another bridge sends."""
        assert self._front is not None, "a session belongs to a front"
        await self._front.handle(exchange)


@asynccontextmanager
async def running_fleet(
    settings: FleetSettings, store: StoreSettings, http: HttpSettings, shared: Mapping[str, Any]
) -> AsyncGenerator[Fleet]:
    """Be a member until the end. `shared`: what is configured alike for all bridges of the fleet.

    A bridge starts though the shared records cannot be reached; it joins when they can be.

    Raises:
        ConfigError: the address of the link cannot be had.
    """
    assert settings.listen is not None, "only a fleet that is configured runs"
    assert settings.key is not None, "it has a key"
    id_ = new_member_id()
    records = FleetRecords(redis_address(store), store.prefix)
    contexts = link_contexts(settings.key, id_)
    links = Links(contexts)
    host, _, port = settings.listen.rpartition(":")

    async def answer(exchange: Exchange) -> None:
        await fleet.answer(exchange)

    async def serve(served: Served) -> None:
        if served.head.method == ANNOUNCE:
            fleet.announcements.serve(served)
        else:
            await (servers.serve if served.head.method in (ATTACH, SEND) else answering.serve)(served)

    def take(served: Served) -> bool:
        return fleet.is_open and answering.take(served)

    server = LinkServer(contexts, serve, take)
    background = OwnedTasks()
    async with server.running(host.strip("[]"), int(port)) as actual_port:
        me = Member(
            id=id_,
            address=settings.advertise or f"{host}:{actual_port}",
            name=settings.name or socket.gethostname(),
            version=__version__,
            settings=_digest(settings.key, shared),
            since=time.time(),
        )
        members = Members(records, me)
        counts = FleetCounts()
        forwarding, largest = Forwarding(links, counts), http.max_body
        idle, keep = http.session_idle, http.resume_grace
        sessions = FleetSessions(records, members, forwarding, counts, idle=idle, max_body=largest, keep=keep)
        orders = Orders(links, members, sessions, counts)
        servers = SharedServers(ServerLeases(redis_address(store), store.prefix), members, links)
        fleet = Fleet(members, sessions, orders, servers, Announcements(members, links, background), settings.key)
        answering = Answering(answer, sessions.gives_up, sessions.hand_on, orders.answer, fleet.take)
        fleet.on_joined = answering.forget_heads
        await members.look()
        log.info("this bridge has joined its fleet", member=id_, address=me.address)
        async with sessions.tasks.running(), background.running():
            background.spawn(members.keep_lease())
            background.spawn(sessions.keep())
            background.spawn(orders.measure())
            background.spawn(orders.watch())
            background.spawn(fleet.breakers.run())
            try:
                async with servers.running():
                    yield fleet
            finally:
                with anyio.CancelScope(shield=True):
                    await members.leave()
                    links.close()
    with anyio.CancelScope(shield=True):
        await records.close()


def _digest(key: str, shared: Mapping[str, Any]) -> str:
    """The same for all bridges that are configured alike, and tells nothing to whoever does not have the key."""
    return hmac.digest(key.encode(), encode(_plain(shared)), "sha256").hex()[:16]


def _plain(value: object) -> object:
    """The value as JSON has it: the same in each process, though the order of sets differs."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in cast("Mapping[object, object]", value).items()}
    if isinstance(value, set | frozenset):
        return sorted(repr(one) for one in cast("Iterable[object]", value))
    if isinstance(value, list | tuple):
        return [_plain(one) for one in cast("Iterable[object]", value)]
    return value if value is None or isinstance(value, str | int | float | bool) else repr(value)
