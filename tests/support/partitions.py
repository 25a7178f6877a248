"""A network of real links that can be cut: network namespaces, joined by one that passes packets on.

Each host of it has an address for the others (`inside`), and one that this process reaches (`outside`). What is cut is
dropped without a word, both ways, as by a switch that fails; the way from outside remains.
"""

import os
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from support.redis_server import PROGRAM, Server


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


@cache
def why_not() -> str:
    """Why there can be no such network here; empty: there can."""
    if shutil.which("ip") is None:
        return "no `ip`: Debian's iproute2 has it"
    name = f"mcpb-try{os.getpid()}"
    try:
        _run("ip", "netns", "add", name)
        try:
            _run("ip", "-n", name, "link", "add", "name", "here", "type", "veth", "peer", "name", "there")
            _run("ip", "-n", name, "rule", "add", "from", "10.0.0.1", "blackhole")
        finally:
            _run("ip", "netns", "delete", name)
    except OSError as error:
        return f"no network namespaces here: {error}"
    return ""


needs_namespaces = pytest.mark.skipif(bool(why_not()), reason=why_not() or "there are network namespaces")


@dataclass(frozen=True)
class Host:
    """One host."""

    namespace: str
    inside: str
    outside: str

    @property
    def run_there(self) -> Sequence[str]:
        """What a command begins with that is run on it."""
        return ("ip", "netns", "exec", self.namespace)


def redis_on(host: Host, directory: Path, *options: str) -> Server:
    """A Redis server that is not started yet, on this host, whose others reach it at its `url`."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "redis.sh"
    program.write_text(f'#!/bin/sh\nexec {" ".join(host.run_there)} {PROGRAM} "$@"\n', "utf-8")
    program.chmod(0o700)
    where = ("--port", "6379", "--bind", "0.0.0.0", "--protected-mode", "no")
    server = Server(directory, *where, *options, program=str(program))
    server.url = f"redis://{host.inside}:6379/0"
    return server


class Network:
    """All of them."""

    def __init__(self, size: int) -> None:
        self._prefix = f"mcpb{os.getpid()}"
        self._middle = f"{self._prefix}-m"
        # One of 254 networks for each process of tests, so that several can be there at a time.
        at = os.getpid() % 250 + 1
        self.hosts = [
            Host(f"{self._prefix}-{number}", f"10.214.{at}.{4 * number + 2}", f"10.213.{at}.{4 * number + 2}")
            for number in range(size)
        ]

    def make(self) -> None:
        """Make all links."""
        _run("ip", "netns", "add", self._middle)
        for number, host in enumerate(self.hosts):
            _run("ip", "netns", "add", host.namespace)
            _run("ip", "-n", host.namespace, "link", "set", "lo", "up")
            self._join(host, "inside", host.inside, "-n", self._middle, name=f"in{number}")
            self._join(host, "outside", host.outside, name=self._name(number))
            before = host.inside.rpartition(".")[0]
            by = _neighbour(host.inside)
            _run("ip", "-n", host.namespace, "route", "add", f"{before}.0/24", "via", by)
        _run("ip", "netns", "exec", self._middle, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

    def _name(self, number: int) -> str:
        return f"mb{os.getpid() % 10**7}x{number}"

    def _join(self, host: Host, there: str, address: str, *where: str, name: str) -> None:
        """A link from the host to another namespace, or to this one."""
        _run("ip", *where, "link", "add", "name", name, "type", "veth", "peer", "name", there, "netns", host.namespace)
        _run("ip", *where, "address", "add", f"{_neighbour(address)}/30", "dev", name)
        _run("ip", *where, "link", "set", name, "up")
        _run("ip", "-n", host.namespace, "address", "add", f"{address}/30", "dev", there)
        _run("ip", "-n", host.namespace, "link", "set", there, "up")

    def cut(self, one: Host, other: Host) -> None:
        """Nothing passes between these two any more."""
        self._rule("add", one, other)

    def mend(self, one: Host, other: Host) -> None:
        """All passes again."""
        self._rule("delete", one, other)

    def _rule(self, what: str, one: Host, other: Host) -> None:
        for source, to in ((one, other), (other, one)):
            _run("ip", "-n", self._middle, "rule", what, "from", source.inside, "to", to.inside, "blackhole")

    def end(self) -> None:
        """Take all of it away."""
        for number in range(len(self.hosts)):  # at once: the namespaces end later, in the background
            gone = ["ip", "link", "delete", self._name(number)]
            subprocess.run(gone, check=False, capture_output=True, timeout=60)
        for namespace in (*(host.namespace for host in self.hosts), self._middle):
            subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True, timeout=60)


def _neighbour(address: str) -> str:
    """The other end of its link."""
    network, _, number = address.rpartition(".")
    return f"{network}.{int(number) - 1}"


@contextmanager
def network(size: int) -> Generator[Network]:
    """So many hosts."""
    found = Network(size)
    try:
        found.make()
        yield found
    finally:
        found.end()
