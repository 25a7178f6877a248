"""Connects a socket to a server through a proxy: HTTP `CONNECT`, or SOCKS5 (RFC 1928, 1929).

With SOCKS5 the proxy resolves the name. This is for WebSocket, whose library has no proxies; HTTP goes through them by
httpx2. It holds for protocols in which the client speaks first. Which proxy is used is decided in `tls_and_proxy.py`.
"""

import asyncio
import base64
import socket
from urllib.parse import unquote

import httpx2

from mcpbridge.protocol.http.connect import dial

_HEAD_LIMIT = 64 << 10
_SOCKS_REFUSALS = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "TTL expired",
    7: "command not supported",
    8: "address type not supported",
}


class TunnelError(OSError):
    """The proxy gives no way to the server; says why."""


async def open_tunnel(proxy: str, host: str, port: int) -> socket.socket:
    """A connected, non-blocking socket to the server; the caller closes it and bounds the time.

    Raises:
        OSError: the proxy cannot be reached, or refuses.
    """
    try:
        url = httpx2.URL(proxy)
    except httpx2.InvalidURL as error:
        raise TunnelError("not the URL of a proxy") from error
    speak = {"http": _socks_connect, "socks5": _socks5, "socks5h": _socks5}.get(url.scheme)
    if speak is None:
        raise TunnelError(f"a proxy of the kind {url.scheme}:// is not supported here")
    sock = await dial(url.host, url.port or (80 if url.scheme == "http" else 1080))
    try:
        await speak(sock, unquote(url.username), unquote(url.password), host, port)
    except BaseException:
        sock.close()
        raise
    return sock


async def _socks_connect(sock: socket.socket, user: str, password: str, host: str, port: int) -> None:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    head = f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n"
    if user:
        head += f"Proxy-Authorization: Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}\r\n"
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, f"{head}\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        data = await loop.sock_recv(sock, 4096)
        answer += data
        if not data or len(answer) > _HEAD_LIMIT:
            raise TunnelError("the proxy did not answer CONNECT")
    status = answer.partition(b"\r\n")[0].decode("latin-1")
    code = status.split(" ")[1:2]
    if not code or not code[0].startswith("2"):
        raise TunnelError(f"the proxy refused: {status[:100]}")


async def _socks5(sock: socket.socket, user: str, password: str, host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, b"\x05\x02\x00\x02" if user else b"\x05\x01\x00")
    version, method = await _exactly(sock, 2)
    if version != 5:
        raise TunnelError("the proxy does not speak SOCKS5")
    if method == 2 and user:
        name, secret = user.encode()[:255], password.encode()[:255]
        await loop.sock_sendall(sock, b"\x01%c%b%c%b" % (len(name), name, len(secret), secret))
        if (await _exactly(sock, 2))[1]:
            raise TunnelError("the proxy refused user and password")
    elif method:
        raise TunnelError("the proxy requires a user and a password")
    name = host.encode("idna")
    await loop.sock_sendall(sock, b"\x05\x01\x00\x03%c%b%b" % (len(name), name, port.to_bytes(2)))
    _, reply, _, kind = await _exactly(sock, 4)
    if reply:
        raise TunnelError(f"the proxy refused: {_SOCKS_REFUSALS.get(reply, f'code {reply}')}")
    size = (await _exactly(sock, 1))[0] if kind == 3 else {1: 4, 4: 16}.get(kind, 0)
    await _exactly(sock, size + 2)


async def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await asyncio.get_running_loop().sock_recv(sock, size - len(data))
        if not more:
            raise TunnelError("the proxy closed the connection")
        data += more
    return data
