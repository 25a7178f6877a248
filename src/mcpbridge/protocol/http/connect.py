"""Connects a TCP socket by name: all its addresses are tried in turn (RFC 8305, "happy eyeballs").

asyncio has this built in and uvloop has not; without it, one dead IPv6 route makes a healthy server unreachable.
Through a proxy: `proxy_tunnel.py`.
"""

import asyncio
import os
import socket
import ssl
from contextlib import suppress
from itertools import chain, zip_longest
from typing import Any

_STAGGER = 0.25
"""Seconds after which the next address is tried beside those still under way."""

_Address = tuple[int, Any]


async def dial(host: str, port: int) -> socket.socket:
    """A connected, non-blocking socket; the caller closes it.

    Raises:
        OSError: no address of the name could be reached; the error of the first one.
    """
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = _alternating([(family, address) for family, _, _, _, address in infos])
    if len(addresses) == 1:
        return await _connect(*addresses[0])
    return await _race(addresses)


def connection_failure(error: Exception) -> str:
    """Why a connection could not be made, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its TLS certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


async def _race(addresses: list[_Address]) -> socket.socket:
    waiting = list(addresses)
    running: set[asyncio.Task[socket.socket]] = set()
    errors: list[OSError] = []
    try:
        while waiting or running:
            if waiting:
                running.add(asyncio.ensure_future(_connect(*waiting.pop(0))))
            done, running = await asyncio.wait(
                running, timeout=_STAGGER if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            winner: socket.socket | None = None
            for task in done:
                error = task.exception()
                if isinstance(error, OSError):
                    errors.append(error)
                elif winner is None:
                    winner = task.result()
                else:
                    task.result().close()
            if winner is not None:
                return winner
        raise errors[0]
    finally:
        for task in running:
            task.cancel()
        for result in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(result, socket.socket):
                result.close()


async def _connect(family: int, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        await asyncio.get_running_loop().sock_connect(sock, address)
        _tune(sock)
    except BaseException:
        sock.close()
        raise
    return sock


def _tune(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Let the system notice a peer that vanished: event streams may be silent for hours.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _alternating(addresses: list[_Address]) -> list[_Address]:
    """The families in turn, beginning with that of the resolver's first choice."""
    first = [address for address in addresses if address[0] == addresses[0][0]]
    others = [address for address in addresses if address[0] != addresses[0][0]]
    return [address for address in chain.from_iterable(zip_longest(first, others)) if address is not None]
