"""Which node of the servers a command goes to: the only one, the one that Sentinels name, or the one of a slot.

All keys of a command have one hash tag (`scripts.py`), so they lie in one slot of a cluster. What is known of nodes is
forgotten when one of them fails, or says that it is not the one, and asked for again with the next command: of
whoever answered before, but last of whoever said what was just forgotten, since it may be cut off from the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import anyio
from msgspec import Struct

from mcpbridge.base.errors import StoreFailed
from mcpbridge.storage.settings import RedisAddress

SLOTS = 16384
_NEXT_AFTER = 0.05
"""Seconds that one has for its answer until the next one is asked as well."""
_ODD = (LookupError, TypeError, ValueError, AttributeError)
"""What reading a reply raises that has another form than those of Redis and Valkey."""

_T = TypeVar("_T")


class Node(Struct, frozen=True):
    """A server that takes commands. An empty host: the socket of the address."""

    host: str
    port: int
    replicas: int = 0
    """How many servers are to have what is written here, as far as is known."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


Ask = Callable[[Node, tuple[str | bytes | int, ...]], Awaitable[Any]]
"""Sends one command to a node, on a connection of its own; see `Connections`."""


class Advisers:
    """Those that can be asked which node is the one. Whoever answers is asked first the next time, others last."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._order = list(nodes)
        self._trusted: Node | None = None
        """Who gave the last answer."""
        self._asking = anyio.Lock()
        self._looks, self._problem = 0, ""

    def all(self) -> Sequence[Node]:
        """In the order in which they are asked."""
        return tuple(self._order)

    def doubt(self) -> None:
        """The last answer was of no use: another one is to be asked before whoever gave it."""
        if self._trusted is not None:
            self._order.remove(self._trusted)
            self._order.append(self._trusted)
            self._trusted = None

    def become(self, nodes: Iterable[Node]) -> None:
        """There are these from now on. New ones are asked after those that were there before."""
        wanted = dict.fromkeys(nodes)
        kept = [one for one in self._order if one in wanted]
        self._order = list(dict.fromkeys([*kept, *wanted]))
        if self._trusted not in wanted:
            self._trusted = None

    async def answer(self, known: Callable[[], _T | None], question: Callable[[Node], Awaitable[_T]]) -> _T:
        """What is known, or what the first of them says who has an answer. Whoever comes meanwhile waits for the same.

        Raises:
            StoreFailed: none of them has one; says what was wrong with the last.
        """
        looks = self._looks
        async with self._asking:
            if (found := known()) is not None:
                return found
            if self._looks != looks:  # others have just asked in vain
                raise StoreFailed(self._problem)
            try:
                found = await self._ask(question)
            except StoreFailed:
                self._looks += 1
                raise
            self._looks += 1  # not if it was cancelled: then the next one asks for itself
            return found

    async def _ask(self, question: Callable[[Node], Awaitable[_T]]) -> _T:
        self._problem = "nobody answered in time"
        answers: list[tuple[Node, _T]] = []
        asked: list[Node] = []

        async def ask(node: Node, failed: anyio.Event) -> None:
            try:
                answers.append((node, await question(node)))
                tasks.cancel_scope.cancel()
            except (StoreFailed, *_ODD) as error:
                self._problem = (
                    error.what
                    if isinstance(error, StoreFailed)
                    else f"{node} gave an odd reply ({type(error).__name__})"
                )
                failed.set()

        try:
            async with anyio.create_task_group() as tasks:
                for node in self.all():
                    asked.append(node)
                    failed = anyio.Event()
                    tasks.start_soon(ask, node, failed)
                    with anyio.move_on_after(_NEXT_AFTER):
                        await failed.wait()
        finally:  # also for whoever had no time to hear of one that answers
            for node in asked:
                self._order.remove(node)
            self._order += asked
        if not answers:
            raise StoreFailed(self._problem)
        self._trusted, found = answers[0]
        self._order.remove(self._trusted)
        self._order.insert(0, self._trusted)
        return found


class Nodes(Protocol):
    """Knows which node takes a command."""

    fails_over: bool
    """Where a node dies, a replica of it may take over."""

    async def of(self, key: str) -> Node:
        """The node that has this key. An empty one: any node.

        Raises:
            StoreFailed: nobody says which.
        """
        ...

    async def is_alone(self, key: str) -> bool:
        """Whether every replica of the node with this key is surely down, so that none can take over from it.

        Raises:
            StoreFailed: nobody says so.
        """
        ...

    def forget(self) -> None:
        """What is known may be wrong: ask again."""
        ...

    def moved(self, slot: int, host: str, port: int) -> None:
        """A node says that another one has this slot."""
        ...


class OneNode:
    """A single server."""

    fails_over = False

    def __init__(self, address: RedisAddress) -> None:
        self._node = Node(address.host, address.port)

    async def of(self, key: str) -> Node:
        """That one. See `Nodes`."""
        return self._node

    async def is_alone(self, key: str) -> bool:
        """It has no replicas that are known. See `Nodes`."""
        return True

    def forget(self) -> None:
        """It stays the one. See `Nodes`."""

    def moved(self, slot: int, host: str, port: int) -> None:
        """It is no cluster. See `Nodes`."""


class NodeOfSentinels:
    """The server that Sentinels name, which is another one after a failover."""

    fails_over = True

    def __init__(self, address: RedisAddress, ask: Ask) -> None:
        self._sentinels = Advisers(Node(host, port) for host, port in address.nodes)
        self._service, self._ask = address.service, ask
        self._master: Node | None = None

    async def of(self, key: str) -> Node:
        """The one that takes writes. See `Nodes`."""
        if self._master is None:
            try:
                self._master = await self._sentinels.answer(lambda: self._master, self._named_by)
            except StoreFailed as error:
                what = f"no Sentinel names a server of {self._service!r} that can be used: {error.what}"
                raise StoreFailed(what) from error
        return self._master

    async def is_alone(self, key: str) -> bool:
        """More than half of all Sentinels say so: the others cannot appoint a successor without them. See `Nodes`."""
        said = await asyncio.gather(*(self._are_replicas_down(sentinel) for sentinel in self._sentinels.all()))
        return 2 * sum(are_down for are_down, _ in said) > max((count for _, count in said), default=0)

    async def _are_replicas_down(self, sentinel: Node) -> tuple[bool, int]:
        """Whether this Sentinel finds all replicas down; and how many Sentinels it knows, itself among them."""
        try:
            about = _facts(await self._ask(sentinel, ("SENTINEL", "MASTER", self._service)))
            replicas = await self._ask(sentinel, ("SENTINEL", "REPLICAS", self._service))
            flags = [_facts(one)[b"flags"] for one in replicas]
            are_down = all(b"down" in one or b"disconnected" in one for one in flags)
            return are_down, 1 + int(about[b"num-other-sentinels"])
        except (StoreFailed, *_ODD):
            return False, 0

    def forget(self) -> None:
        """See `Nodes`."""
        if self._master is not None:
            self._master = None
            self._sentinels.doubt()

    def moved(self, slot: int, host: str, port: int) -> None:
        """It is no cluster. See `Nodes`."""

    async def _named_by(self, sentinel: Node) -> Node:
        about = _facts(await self._ask(sentinel, ("SENTINEL", "MASTER", self._service)))
        if b"down" in about[b"flags"]:
            raise StoreFailed(f"its server {about[b'ip'].decode()} is down")
        return Node(about[b"ip"].decode(), int(about[b"port"]), int(about[b"num-slaves"]))


class NodesOfCluster:
    """The servers of a cluster, each with some of the slots."""

    fails_over = True

    def __init__(self, address: RedisAddress, ask: Ask) -> None:
        self._first = [Node(host, port) for host, port in address.nodes]
        self._advisers = Advisers(self._first)
        self._ask = ask
        self._slots: list[Node | None] = []
        self._alone = frozenset[Node]()
        """Those whose replicas are all down."""

    async def of(self, key: str) -> Node:
        """The node that has the slot of the key. See `Nodes`."""
        slots = self._slots or await self._look()
        if not key:
            return next(node for node in slots if node is not None)
        from redis.crc import key_slot

        node = slots[key_slot(key.encode())]
        if node is None:
            self.forget()
            raise StoreFailed("no node of the cluster has the slot of a key")
        return node

    async def is_alone(self, key: str) -> bool:
        """Most of the cluster's nodes find them to be down. See `Nodes`."""
        self._slots = []
        node = await self.of(key)
        return node in self._alone or not node.replicas

    def forget(self) -> None:
        """See `Nodes`."""
        if self._slots:
            self._slots = []
            self._advisers.doubt()

    def moved(self, slot: int, host: str, port: int) -> None:
        """See `Nodes`."""
        if self._slots:
            known = self._slots[slot]
            self._slots[slot] = Node(host or (known.host if known else ""), port, known.replicas if known else 0)

    async def _look(self) -> list[Node | None]:
        try:
            slots, self._alone = await self._advisers.answer(self._known, self._seen_by)
        except StoreFailed as error:
            raise StoreFailed(f"no node of the cluster says which has what: {error.what}") from error
        self._slots = slots
        current = dict.fromkeys(Node(node.host, node.port) for node in slots if node is not None)
        self._advisers.become([*self._first, *current])  # those of before may be gone for good
        return slots

    def _known(self) -> tuple[list[Node | None], frozenset[Node]] | None:
        return (self._slots, self._alone) if self._slots else None

    async def _seen_by(self, node: Node) -> tuple[list[Node | None], frozenset[Node]]:
        """Which node has what, and which have no replica that is up."""
        ranges = await self._ask(node, ("CLUSTER", "SLOTS"))
        replicas = _replicas(await self._ask(node, ("CLUSTER", "NODES")))
        slots: list[Node | None] = [None] * SLOTS
        alone = set[Node]()
        for begin, end, master, *_ in ranges:  # it names no replica of which nothing was heard yet, or which is down
            flags = replicas.get(_text(master[2]), [])
            taker = Node(_text(master[0]) or node.host, master[1], len(flags))
            slots[begin : end + 1] = [taker] * (end + 1 - begin)
            if all("fail" in one for one in flags):
                alone.add(taker)
        if all(slot is None for slot in slots):
            raise StoreFailed("it has no slots")
        return slots, frozenset(alone)


def _replicas(nodes: bytes) -> dict[str, list[list[str]]]:
    """The flags of each replica, by the id of its master."""
    found: dict[str, list[list[str]]] = {}
    for line in nodes.decode().splitlines():
        _, _, flags, master, *_ = line.split()
        if master != "-":
            found.setdefault(master, []).append(flags.split(","))
    return found


def _facts(reply: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(reply[::2], reply[1::2], strict=False))


def _text(value: bytes | None) -> str:
    return value.decode() if value else ""


def nodes_of(address: RedisAddress, ask: Ask) -> Nodes:
    """What knows the nodes of this address."""
    if address.kind == "sentinel":
        return NodeOfSentinels(address, ask)
    return NodesOfCluster(address, ask) if address.kind == "cluster" else OneNode(address)
