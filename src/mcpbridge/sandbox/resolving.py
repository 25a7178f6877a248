"""What hosts and addresses are: the resolver's answers, and which addresses are this machine's own."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

__all__ = ["Resolve", "is_own_address", "resolved"]

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, for a port. Raises OSError when it is not known."""


async def resolved(host: str, port: int) -> Sequence[str]:
    """What the system's resolver answers; see `Resolve`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def is_own_address(address: str) -> bool:
    """Whether an address is one of this machine's, told by trying to bind to it, so no list is out of date."""
    if not _is_bindable(address):
        return False
    # Some systems let programs bind to any address at all (Linux: ip_nonlocal_bind).
    return not _is_bindable("2001:db8::1" if ":" in address else "192.0.2.1") or _is_source(address)


def _is_bindable(address: str) -> bool:
    try:
        with socket.socket(_family(address), socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
    except OSError:
        return False
    return True


def _is_source(address: str) -> bool:
    """Whether packets to an address would come from it; none is sent."""
    try:
        with socket.socket(_family(address), socket.SOCK_DGRAM) as sock:
            sock.connect((address, 9))
            return sock.getsockname()[0] == address
    except OSError:
        return False


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
