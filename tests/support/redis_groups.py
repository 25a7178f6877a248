"""Several real redis-servers that act as one: behind Sentinels, or as a cluster."""

import re
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from mcpbridge.base.errors import BridgeError, ConfigError, StoreFailed
from mcpbridge.storage.redis.store import RedisStore
from mcpbridge.storage.settings import StoreSettings, redis_address
from support.harness import eventually
from support.ports import free_port
from support.redis_server import PROGRAM

_T = TypeVar("_T")


async def retried(work: Callable[[], Awaitable[_T]]) -> _T:
    """What work returns, which may have to be done again: a busy replica says too late what it has."""

    async def attempt() -> tuple[_T] | BridgeError:
        try:
            return (await work(),)
        except (StoreFailed, ConfigError) as error:  # of a sign-in the store says the second
            return error

    found = await eventually(attempt, lambda found: isinstance(found, tuple), 60)
    assert isinstance(found, tuple)
    return found[0]


class Node:
    """One process, on a port of this machine."""

    def __init__(self, directory: Path, port: int, *options: str) -> None:
        self.directory, self.port, self._options = directory / str(port), port, options
        self.directory.mkdir(parents=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *first: str) -> "Node":
        """Start it."""
        assert PROGRAM
        where = ["--port", str(self.port), "--dir", str(self.directory), "--save", "", "--bind", "127.0.0.1"]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen([PROGRAM, *first, *where, *self._options], stdout=log, stderr=log)
        self.until(lambda: self.cli("PING") == "PONG", "it answers")
        return self

    def follow(self, master: "Node") -> None:
        """Be a replica of this one, from now on if it does not run, and have all that it has."""
        self._options = ("--replicaof", "127.0.0.1", str(master.port))
        if self._process is None:
            self.start()
        self.until(lambda: "master_link_status:up" in self.cli("INFO", "replication"), "it follows")
        ours = f"port={self.port},state=online"  # before that, nothing that it has counts
        master.until(lambda: ours in master.cli("INFO", "replication"), "its master counts it")

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def hang(self) -> None:
        """Do nothing any more, with all connections open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def cli(self, *command: str) -> str:
        """What redis-cli prints for a command."""
        return subprocess.run(
            ["redis-cli", "-p", str(self.port), *command], check=False, capture_output=True, text=True, timeout=60
        ).stdout.strip()

    def until_replicated(self) -> None:
        """Wait until its replicas have all that was written until now.

        `WAIT` says nothing of what others have written: on a connection of its own it is done at once.
        """
        written = int(self._replication(r"^master_repl_offset:(\d+)")[0])

        def have() -> bool:
            replicas = self._replication(r"^slave\d+:.*,offset=(\d+)")
            return bool(replicas) and all(int(one) >= written for one in replicas)

        self.until(have, "the replicas have it")

    def _replication(self, pattern: str) -> list[str]:
        return re.findall(pattern, self.cli("INFO", "replication"), re.MULTILINE)

    def until(self, is_so: Callable[[], bool], what: str, seconds: float = 90) -> None:
        """Wait for something that servers do."""
        end = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < end, f"not within {seconds:g} s: {what}\n{(self.directory / 'log').read_text()}"
            time.sleep(0.05)


class Group:
    """What both kinds have in common."""

    url: str
    nodes: list[Node]

    def settings(self, **options: Any) -> StoreSettings:
        """The section of a configuration that names it."""
        return StoreSettings(kind="redis", url=self.url, **options)

    def store(self, **options: Any) -> RedisStore:
        """A store there."""
        return RedisStore(redis_address(self.settings()), **options)

    def end(self) -> None:
        """End all processes."""
        for node in self.nodes:
            node.kill()


class Sentinels(Group):
    """A master, a replica of it, and three Sentinels."""

    def __init__(self, directory: Path) -> None:
        ports = [free_port() for _ in range(5)]
        self.master = Node(directory, ports[0]).start()
        self.replica = Node(directory, ports[1], "--replicaof", "127.0.0.1", str(ports[0])).start()
        self.nodes = [self.master, self.replica]
        self.replica.until(lambda: "master_link_status:up" in self.replica.cli("INFO", "replication"), "it follows")
        for port in ports[2:]:
            file = directory / f"sentinel-{port}.conf"
            file.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {directory}\nsentinel monitor ours 127.0.0.1 {ports[0]} 2\n"
                "sentinel down-after-milliseconds ours 1000\nsentinel failover-timeout ours 5000\n",
                "utf-8",
            )
            self.nodes.append(Node(directory, port, "--sentinel").start(str(file)))
        first = self.nodes[2]
        knows = "num-slaves\n1", "num-other-sentinels\n2"
        first.until(lambda: all(fact in first.cli("SENTINEL", "MASTER", "ours") for fact in knows), "they know all")
        self.url = f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in ports[2:])}/ours"

    def fail_over(self) -> None:
        """The master dies, and the Sentinels make the replica the master. Returns when they say so."""
        first, port = self.nodes[2], str(self.replica.port)
        self.master.kill()
        command = "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "ours"
        first.until(lambda: port in first.cli(*command).split(), "the replica is the master")
        self.replica.until(lambda: "role:master" in self.replica.cli("INFO", "replication"), "it is the master")
        self.master, self.replica = self.replica, self.master

    def find_down_after(self, milliseconds: int) -> None:
        """How long a server may say nothing until the Sentinels take it for dead."""
        for sentinel in self.nodes[2:]:
            sentinel.cli("SENTINEL", "SET", "ours", "down-after-milliseconds", str(milliseconds))

    def heal(self) -> None:
        """Whoever was killed is back as the replica, and the Sentinels know so."""
        self.replica.follow(self.master)
        first = self.nodes[2]

        def is_up() -> bool:
            facts = first.cli("SENTINEL", "REPLICAS", "ours").splitlines()
            flags = facts[facts.index("flags") + 1] if "flags" in facts else ""
            return flags == "slave" and facts[facts.index("master-port") + 1] == str(self.master.port)

        first.until(is_up, "they know the replica")


class Cluster(Group):
    """Three masters, and a replica of each if there is to be one."""

    def __init__(self, directory: Path, *, has_replicas: bool = False) -> None:
        self._options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
        ports = [free_port() for _ in range(6 if has_replicas else 3)]
        self.nodes = [Node(directory, port, *self._options).start() for port in ports]
        addresses = [f"127.0.0.1:{node.port}" for node in self.nodes]
        subprocess.run(
            ["redis-cli", "--cluster", "create", *addresses, "--cluster-yes"]
            + (["--cluster-replicas", "1"] if has_replicas else []),
            check=True,
            capture_output=True,
            timeout=120,
        )
        for node in self.nodes:
            node.until(lambda node=node: "cluster_state:ok" in node.cli("CLUSTER", "INFO"), "the cluster works")
        self.url = f"redis+cluster://{','.join(addresses)}"

    def add_replica(self, directory: Path, of: Node) -> Node:
        """One more replica, of this master, which has all that the master has."""
        port = free_port()
        node = Node(directory, port, *self._options).start()
        self.nodes.append(node)
        master_id = of.cli("CLUSTER", "MYID")
        node.cli("CLUSTER", "MEET", "127.0.0.1", str(of.port))
        node.until(lambda: master_id in node.cli("CLUSTER", "NODES"), "it knows its master")
        node.until(lambda: node.cli("CLUSTER", "REPLICATE", master_id) == "OK", "it becomes a replica")
        node.until(lambda: "master_link_status:up" in node.cli("INFO", "replication"), "it follows")
        ours = f"port={port},state=online"  # before that, nothing that it has counts
        of.until(lambda: ours in of.cli("INFO", "replication"), "its master counts it")
        return node

    def owner(self, key: str) -> Node:
        """The node that has this key."""
        slot = int(self.nodes[0].cli("CLUSTER", "KEYSLOT", key))
        for line in self.nodes[0].cli("CLUSTER", "NODES").splitlines():
            _, address, _, _, _, _, _, _, *ranges = line.split()
            for one in ranges:
                first, _, last = one.partition("-")
                if first.isdecimal() and int(first) <= slot <= int(last or first):
                    port = int(address.partition("@")[0].rpartition(":")[2])
                    return next(node for node in self.nodes if node.port == port)
        raise AssertionError(key)
