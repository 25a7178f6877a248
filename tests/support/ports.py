"""Ports for servers that tests start as processes, whose addresses others must know before they listen.

None of them is one that the system gives to connections (on Linux from 32,768 on). Each worker of a test run has a
share of its own and goes through it in turn, so that nobody else takes a port before its server listens.
"""

import os
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import cycle

_FIRST, _SHARE, _SHARES = 11_000, 625, 16
_BUS = 10_000
"""So far above its port a server of a Redis cluster has another one."""


def free_port() -> int:
    """One that is free, and whose bus is."""
    for _ in range(_SHARE):
        port = next(_ports)
        with ExitStack() as stack, suppress(OSError):
            for one in (port, port + _BUS):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", one))
            return port
    raise AssertionError("no port is free")


def _in_turn() -> Iterator[int]:
    share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SHARES
    begin = random.SystemRandom().randrange(_SHARE)  # another run on this machine has the same shares
    return cycle(_FIRST + share * _SHARE + (begin + one) % _SHARE for one in range(_SHARE))


_ports = _in_turn()
