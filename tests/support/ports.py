"""Ports for servers that tests start as processes, whose addresses others must know before they listen."""

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """None of those that the system gives to connections, which could take it before its server listens."""
    for _ in range(1000):
        port = random.randrange(11_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")
