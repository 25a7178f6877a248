"""The egress proxy goes through the proxy of a company where the environment names one (issue 22, Isolation)."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from mcpbridge.sandbox.egress.dns import Names
from mcpbridge.sandbox.egress.proxy import EgressProxy, Listening, outer_proxy
from mcpbridge.sandbox.egress.report import EgressReport
from mcpbridge.sandbox.egress.rules import Rules

RULES = Rules(["api.example.com:443", "api.example.com:80"])


class Company:
    """A proxy that knows every name, and answers in the place of the host."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> None:
        self.asked: list[str] = []
        self.received = b""
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head.partition(b"\r\n")[0].decode())
        writer.write(self._answer)
        self.received = await reader.read(1000)
        writer.write(b"from outside")
        await writer.drain()
        writer.close()


def listener(kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    found = socket.socket(socket.AF_INET, kind)
    found.bind(("127.0.0.1", 0))
    if kind == socket.SOCK_STREAM:
        found.listen()
    found.setblocking(False)
    return found


@asynccontextmanager
async def through(company: Company, *addresses: str) -> AsyncGenerator[int]:
    """The port of an egress proxy behind the company's; names have these addresses, or none."""
    async with await asyncio.start_server(company.serve, "127.0.0.1", 0) as server:
        outer = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

        async def resolve(host: str, port: int) -> Sequence[str]:
            if not addresses:
                raise OSError("no such name")
            return addresses

        proxy = EgressProxy(
            "a", RULES, Names(), EgressReport("a"), resolve=resolve, is_own=lambda _: False, outer=lambda *_: outer
        )
        listening = Listening(listener(), listener(socket.SOCK_DGRAM), ())
        async with asyncio.timeout(30), proxy.serving(listening):
            yield listening.proxy.getsockname()[1]


async def talk(port: int, *said: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    for one in said[:-1]:
        writer.write(one)
        answer += await reader.readuntil(b"\r\n\r\n")
    writer.write(said[-1])
    answer += await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("addresses", [(), ("93.184.215.14",)])
async def test_a_tunnel_goes_through_the_outer_proxy(addresses: tuple[str, ...]) -> None:
    """Also where only that one knows the name."""
    company = Company()
    async with through(company, *addresses) as port:
        answer = await talk(port, b"CONNECT api.example.com:443 HTTP/1.1\r\n\r\n", b"\0no tls")
    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\nfrom outside"
    assert company.asked == ["CONNECT api.example.com:443 HTTP/1.1"]
    assert company.received == b"\0no tls"


async def test_a_request_in_plain_http_does_too() -> None:
    company = Company()
    async with through(company) as port:
        answer = await talk(port, b"GET http://api.example.com/x HTTP/1.1\r\nhost: api.example.com\r\n\r\n")
    assert answer == b"from outside"
    assert company.asked == ["CONNECT api.example.com:80 HTTP/1.1"]
    assert company.received.startswith(b"GET /x HTTP/1.1\r\nHost: api.example.com\r\n")


@pytest.mark.parametrize(
    ("target", "addresses", "status"),
    [
        ("evil.example:443", (), b"403 Forbidden"),
        ("api.example.com:443", ("10.0.0.1",), b"403 Forbidden"),
        ("api.example.com:443", ("169.254.169.254",), b"403 Forbidden"),
    ],
)
async def test_what_may_not_be_reached_is_not_asked_for(target: str, addresses: tuple[str, ...], status: bytes) -> None:
    company = Company()
    async with through(company, *addresses) as port:
        answer = await talk(port, f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
    assert status in answer
    assert company.asked == []


async def test_a_refusal_of_the_outer_proxy_is_shown() -> None:
    async with through(Company(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")) as port:
        answer = await talk(port, b"CONNECT api.example.com:443 HTTP/1.1\r\n\r\n")
    assert b"502 Bad Gateway" in answer
    assert b"407 Proxy Authentication Required" in answer


def test_the_environment_says_which_proxy_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    assert outer_proxy("api.example.com", 443) == ""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.corp:3128")
    monkeypatch.setenv("NO_PROXY", ".corp")
    assert outer_proxy("api.example.com", 443) == "http://proxy.corp:3128"
    assert outer_proxy("api.example.com", 80) == ""
    assert outer_proxy("git.corp", 443) == ""
    assert outer_proxy("127.0.0.1", 443) == ""
