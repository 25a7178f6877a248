"""The egress proxy of one sandboxed server: connections out of its network, to the hosts on its list alone.

Three kinds of sockets lie in the network of the program; the bridge owns them and accepts from them:

1. A proxy, for programs that read `HTTPS_PROXY`: CONNECT, and requests for http:// addresses.
2. One socket for each port on the list, at every address. `dns.py` gives each allowed name an address of its own, so a
   program that knows nothing of proxies arrives here, and the address says which host it means.
3. A resolver, which answers with these addresses.

The bridge resolves a host itself, refuses private addresses (`fetch/address_rules.py`), and connects to an address that
it has checked. A client of TLS must name the host that it connects to; so must a request in plain HTTP.

Where the environment of the bridge names a proxy (`HTTPS_PROXY`, `NO_PROXY`), as in many companies, connections go
through that one. It resolves the names; an address that the bridge can resolve is checked all the same.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import cast

import httpx2
from msgspec import Struct

from mcpbridge.base.errors import AddressRefused
from mcpbridge.protocol.http.connect import connection_failure, dial
from mcpbridge.protocol.http.proxy_tunnel import open_tunnel
from mcpbridge.protocol.http.tls_and_proxy import Network
from mcpbridge.sandbox.egress import http_head
from mcpbridge.sandbox.egress.client_hello import UNRECOGNIZED_NAME, Reading, read_hello
from mcpbridge.sandbox.egress.dns import Names, answer_to, question_of
from mcpbridge.sandbox.egress.relay import Side, relay
from mcpbridge.sandbox.egress.report import EgressReport
from mcpbridge.sandbox.egress.rules import Rules, is_name, plain_host
from mcpbridge.sandbox.fetch.address_rules import Guard, Resolve, Target, is_own_address, read, resolved
from mcpbridge.sandbox.fetch.settings import GuardSettings

MOST_CONNECTIONS = 256
"""Connections of one server at a time; further ones are closed at once."""

_HTTP_PORT = 80
_HEAD_SECONDS = 30.0
"""Seconds for a program to send the head of its request to the proxy."""
_DIAL_SECONDS = 15.0
_LOOK_UP_SECONDS = 3.0
"""Seconds to resolve a name where an outer proxy does it anyway."""
_END_SECONDS = 5.0


class Listening(Struct, frozen=True):
    """The sockets in the network of a program."""

    proxy: socket.socket
    resolver: socket.socket
    ports: tuple[socket.socket, ...]


class _Refused(Exception):
    """Why a connection is not made, in words for the program."""


class EgressProxy:
    """Serves the sockets of one process of a server."""

    def __init__(
        self,
        server: str,
        rules: Rules,
        names: Names,
        report: EgressReport,
        *,
        resolve: Resolve | None = None,
        is_own: Callable[[str], bool] | None = None,
        outer: Callable[[str, int], str] | None = None,
    ) -> None:
        """`resolve`: how hosts are resolved, `is_own` which addresses are this machine's; None: as the system says.

        `outer`: the URL of the proxy in front of a host and port; empty: there is none. None: as the environment says.
        """
        self._server, self._rules, self._names, self._report = server, rules, names, report
        self._resolve, self._is_own = resolve or resolved, is_own or is_own_address
        self._outer = outer or outer_proxy
        self._guards = {
            port: Guard(GuardSettings(allow=rules.addresses(port), ports=[port])) for port in self._rules.ports
        }
        self._tasks = set[asyncio.Task[None]]()

    @asynccontextmanager
    async def serving(self, listening: Listening) -> AsyncGenerator[None]:
        """Accept connections meanwhile. Leaving closes the sockets and every connection."""
        loop = asyncio.get_running_loop()
        servers: list[asyncio.Server] = []
        transport: asyncio.DatagramTransport | None = None
        try:
            servers.append(await asyncio.start_server(self._accept(self._ask_proxy), sock=listening.proxy))
            by_address = self._accept(self._connect_by_address)
            servers += [await asyncio.start_server(by_address, sock=sock) for sock in listening.ports]
            transport, _ = await loop.create_datagram_endpoint(lambda: _Resolver(self), sock=listening.resolver)
            yield
        finally:
            for server in servers:
                server.close()
            if transport is not None:
                transport.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_END_SECONDS)

    def answer(self, query: bytes) -> bytes:
        """The answer to a question for a name."""
        asked = question_of(query)
        if asked is None:
            return answer_to(query, None)
        name = asked[0]
        if name == "localhost":
            return answer_to(query, "127.0.0.1")
        if not self._rules.knows(name):
            self._report.refuse(name, None, f"the name is not on the list; {self._report.how_to_allow(name, None)}")
            return answer_to(query, None)
        return answer_to(query, self._names.address_of(plain_host(name)) or None)

    def _accept(self, serve: "_Serve") -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._tasks) >= MOST_CONNECTIONS:
                writer.transport.abort()
                return
            task = asyncio.ensure_future(self._serve(serve, Side(reader, writer)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return accepted

    async def _serve(self, serve: "_Serve", program: Side) -> None:
        """One connection of the program. Whatever goes wrong is its end alone."""
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await serve(program)
        finally:
            program.close()

    async def _ask_proxy(self, program: Side) -> None:
        """A request to the proxy."""
        async with asyncio.timeout(_HEAD_SECONDS):
            raw = await program.reader.readuntil(b"\r\n\r\n")
        try:
            head = http_head.head_for_proxy(raw)
        except ValueError as error:
            await program.answer("400 Bad Request", f"mcpbridge: {error}\n")
            return
        try:
            outside = await self._dialled(head.host, head.port)
        except _Refused as refused:
            await program.answer("403 Forbidden", f"mcpbridge: {refused}\n")
            return
        except (OSError, TimeoutError) as error:
            text = f"mcpbridge: {head.host}:{head.port} cannot be reached: {connection_failure(error)}\n"
            await program.answer("502 Bad Gateway", text)
            return
        if head.passed_on:
            outside.writer.write(head.passed_on)
            await relay(program, outside)
            return
        program.writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await self._tunnel(program, outside, head.host, head.port)

    async def _connect_by_address(self, program: Side) -> None:
        """A connection to one of the addresses that stand for a host."""
        address, port = program.writer.get_extra_info("sockname")[:2]
        host = self._names.name_of(address) or address
        try:
            outside = await self._dialled(host, port)
        except (_Refused, OSError, TimeoutError):
            program.writer.transport.abort()  # a reset says more than an end
            return
        await self._tunnel(program, outside, host, port)

    async def _tunnel(self, program: Side, outside: Side, host: str, port: int) -> None:
        """Pass on what both say, once the program has named no other host."""
        await relay(program, outside, lambda: self._first_of(program, host, port))

    async def _first_of(self, program: Side, host: str, port: int) -> bytes | None:
        """The first bytes of the program, to be passed on; None if they are refused, which it hears."""
        data = b""
        while True:
            hello = read_hello(data)
            is_http = http_head.looks_like_http(data) if hello.reading is Reading.NOT_TLS else None
            if hello.reading is Reading.NOT_TLS and is_http is False:
                return data
            if is_http:
                return await self._checked_http(program, data, host, port)
            if hello.reading is Reading.WHOLE and (hello.name == plain_host(host) or _needs_no_name(hello.name, host)):
                return data
            if hello.reading in (Reading.WHOLE, Reading.BROKEN):
                named = f"asks for `{hello.name}`" if hello.name else "names no host"
                self._report.refuse(hello.name or host, port, f"TLS to {host}:{port} {named}")
                program.writer.write(UNRECOGNIZED_NAME)
                return None
            more = await program.reader.read(1 << 14)
            if not more:
                return data
            data += more

    async def _checked_http(self, program: Side, data: bytes, host: str, port: int) -> bytes | None:
        while b"\r\n\r\n" not in data and len(data) < http_head.LONGEST:
            more = await program.reader.read(1 << 14)
            if not more:
                break
            data += more
        raw, end, rest = data.partition(b"\r\n\r\n")
        try:
            head = http_head.head_on_connection(raw + end, port)
        except ValueError as error:
            await program.answer("400 Bad Request", f"mcpbridge: {error}\n")
            return None
        if plain_host(head.host) != plain_host(host) or head.port != port:
            why = f"a request on the connection to {host}:{port} is for another host"
            self._report.refuse(head.host, head.port, why)
            await program.answer("403 Forbidden", f"mcpbridge: {why}\n")
            return None
        return head.passed_on + rest

    async def _dialled(self, host: str, port: int) -> Side:
        """A connection to a host, if it is on the list and its address may be reached.

        Raises:
            _Refused: it is not; that is counted.
            OSError, TimeoutError: it cannot be reached.
        """
        if not self._rules.allows(host, port):
            why = f"{host}:{port} is not on the list; {self._report.how_to_allow(host, port)}"
            self._report.refuse(host, port, why)
            raise _Refused(why)
        plain = plain_host(host)
        outer = self._outer(plain, port)
        async with asyncio.timeout(_DIAL_SECONDS):
            try:
                async with asyncio.timeout(_LOOK_UP_SECONDS if outer else None):
                    addresses = await self._addresses(plain, port)
            except OSError:
                if not outer:
                    raise
                addresses = ()  # names of the world are often known to the outer proxy alone
            sock = await (open_tunnel(outer, plain, port) if outer else _dialled_one(addresses, port))
        try:
            reader, writer = await asyncio.open_connection(sock=sock)
        except BaseException:
            sock.close()
            raise
        self._report.connections += 1
        return Side(reader, writer)

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host, all of which may be reached.

        Raises:
            _Refused: they may not; that is counted.
            OSError: it has none.
        """
        target = _target(host, port)
        answers = [target.address] if target.address else await self._resolve(host, port)
        try:
            return self._guards[port].check_answers(target, answers, self._is_own)
        except AddressRefused:
            listed = ", ".join(answers[:3])
            how = self._report.how_to_allow(answers[0] if answers else "", port)
            why = f"{host}:{port} leads to an address inside or reserved ({listed}); {how} too"
            self._report.refuse(host, port, why)
            raise _Refused(why) from None


_Serve = Callable[[Side], Awaitable[None]]


class _Resolver(asyncio.DatagramProtocol):
    """Answers each question as it comes."""

    def __init__(self, proxy: EgressProxy) -> None:
        self._proxy = proxy
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        answer = self._proxy.answer(data[:512])
        if answer and self._transport is not None:
            with suppress(OSError):
                self._transport.sendto(answer, addr)


def outer_proxy(host: str, port: int) -> str:
    """The proxy that the environment of the bridge names for a host; empty: none."""
    written = f"[{host}]" if ":" in host else host
    return Network().proxy_for(httpx2.URL(f"{'http' if port == _HTTP_PORT else 'https'}://{written}:{port}"))


def _needs_no_name(name: str, host: str) -> bool:
    """TLS to an address names no host (RFC 6066, 3), or the address."""
    return not is_name(plain_host(host)) and name in ("", plain_host(host))


def _target(host: str, port: int) -> Target:
    written = f"[{host}]" if ":" in host else host
    return read(f"https://{written}:{port}", is_trusted=False)


async def _dialled_one(addresses: Sequence[str], port: int) -> socket.socket:
    """A connection to the first of these very addresses that takes one."""
    failed: OSError | None = None
    for address in addresses:
        try:
            async with asyncio.timeout(_DIAL_SECONDS / len(addresses)):
                return await dial(address, port)
        except OSError as error:  # TimeoutError is one
            failed = failed or error
    raise failed or OSError("the host has no address")
