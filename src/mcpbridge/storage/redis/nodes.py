"""Which node of the servers a command goes to: the only one, the one that Sentinels name, or the one of a slot.

All keys of a command have one hash tag (`scripts.py`), so they lie in one slot of a cluster. What is known of nodes is
forgotten when one of them fails, or says that it is not the one, and asked for again with the next command.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import Struct

from mcpbridge.base.errors import StoreFailed
from mcpbridge.storage.settings import RedisAddress

SLOTS = 16384


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
        self._sentinels = [Node(host, port) for host, port in address.nodes]
        self._service, self._ask = address.service, ask
        self._master: Node | None = None

    async def of(self, key: str) -> Node:
        """The one that takes writes. See `Nodes`."""
        if self._master is None:
            self._master = await self._look()
        return self._master

    async def is_alone(self, key: str) -> bool:
        """More than half of all Sentinels say so: the others cannot appoint a successor without them. See `Nodes`."""
        said = await asyncio.gather(*(self._are_replicas_down(sentinel) for sentinel in self._sentinels))
        return 2 * sum(are_down for are_down, _ in said) > max((count for _, count in said), default=0)

    async def _are_replicas_down(self, sentinel: Node) -> tuple[bool, int]:
        """Whether this Sentinel finds all replicas down; and how many Sentinels it knows, itself among them."""
        try:
            about = _facts(await self._ask(sentinel, ("SENTINEL", "MASTER", self._service)))
            replicas = await self._ask(sentinel, ("SENTINEL", "REPLICAS", self._service))
        except StoreFailed:
            return False, 0
        flags = [_facts(one)[b"flags"] for one in replicas]
        are_down = all(b"down" in one or b"disconnected" in one for one in flags)
        return are_down, 1 + int(about[b"num-other-sentinels"])

    def forget(self) -> None:
        """See `Nodes`."""
        self._master = None

    def moved(self, slot: int, host: str, port: int) -> None:
        """It is no cluster. See `Nodes`."""

    async def _look(self) -> Node:
        reason = ""
        for number, sentinel in enumerate(self._sentinels):
            try:
                facts = await self._ask(sentinel, ("SENTINEL", "MASTER", self._service))
            except StoreFailed as error:
                reason = error.what
                continue
            about = _facts(facts)
            if b"down" in about[b"flags"]:
                reason = f"its server {about[b'ip'].decode()} is down"
                continue
            if number:  # it answers: begin with it the next time
                self._sentinels.insert(0, self._sentinels.pop(number))
            return Node(about[b"ip"].decode(), int(about[b"port"]), int(about[b"num-slaves"]))
        raise StoreFailed(f"no Sentinel names a server of {self._service!r} that can be used: {reason}")


class NodesOfCluster:
    """The servers of a cluster, each with some of the slots."""

    fails_over = True

    def __init__(self, address: RedisAddress, ask: Ask) -> None:
        self._first = [Node(host, port) for host, port in address.nodes]
        self._ask = ask
        self._slots: list[Node | None] = []
        self._alone = frozenset[Node]()
        """Those whose replicas are all down."""

    async def of(self, key: str) -> Node:
        """The node that has the slot of the key. See `Nodes`."""
        if not self._slots:
            self._slots = await self._look()
        if not key:
            return next(node for node in self._slots if node is not None)
        from redis.crc import key_slot

        node = self._slots[key_slot(key.encode())]
        if node is None:
            self.forget()
            raise StoreFailed("no node of the cluster has the slot of a key")
        return node

    async def is_alone(self, key: str) -> bool:
        """Most of the cluster's nodes find them to be down. See `Nodes`."""
        self.forget()
        node = await self.of(key)
        return node in self._alone or not node.replicas

    def forget(self) -> None:
        """See `Nodes`."""
        known = {node for node in self._slots if node is not None}
        self._first = sorted({*self._first, *(Node(node.host, node.port) for node in known)}, key=str)
        self._slots = []

    def moved(self, slot: int, host: str, port: int) -> None:
        """See `Nodes`."""
        if self._slots:
            known = self._slots[slot]
            self._slots[slot] = Node(host or (known.host if known else ""), port, known.replicas if known else 0)

    async def _look(self) -> list[Node | None]:
        reason = ""
        for node in self._first:
            try:
                ranges = await self._ask(node, ("CLUSTER", "SLOTS"))
                replicas = _replicas(await self._ask(node, ("CLUSTER", "NODES")))
            except StoreFailed as error:
                reason = error.what
                continue
            slots: list[Node | None] = [None] * SLOTS
            alone = set[Node]()
            for (
                begin,
                end,
                master,
                *_,
            ) in ranges:  # it names no replica of which nothing was heard yet, or which is down
                flags = replicas.get(_text(master[2]), [])
                taker = Node(_text(master[0]) or node.host, master[1], len(flags))
                slots[begin : end + 1] = [taker] * (end + 1 - begin)
                if all("fail" in one for one in flags):
                    alone.add(taker)
            if any(slot is not None for slot in slots):
                self._alone = frozenset(alone)
                return slots
            reason = "it has no slots"
        raise StoreFailed(f"no node of the cluster says which has what: {reason}")


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
