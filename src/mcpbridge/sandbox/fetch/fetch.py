"""Fetches an address that somebody else chose: a model, a page that redirects, a server.

Every host is resolved once, all its addresses are judged (`address_rules.py`), and one of those that were judged is
dialled, so that a second answer of the resolver reaches nobody. Each redirect is a new address and is judged as the
first one; what else a request says (credentials, a body) does not follow it to another origin. No proxy, no cookies, no
connection kept from one request to the next. Time and size are limited as a whole, whatever the pace; a body may be too
long, a decompression bomb, or in a coding that nobody asked for.
"""

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterable, Callable, Mapping, Sequence

import httpx2
from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.base.errors import AddressRefused, UpstreamError, UpstreamGarbled, UpstreamTimeout, UpstreamUnavailable
from mcpbridge.base.version import __version__
from mcpbridge.protocol.http.connect import connection_failure, dial
from mcpbridge.protocol.http.connection import Exchange, HttpConnection
from mcpbridge.protocol.http.responses import failure_of_exception
from mcpbridge.protocol.http.tls_and_proxy import default_ssl_context
from mcpbridge.sandbox.fetch.address_rules import Guard, Resolve, Target, display_url, is_own_address, resolved
from mcpbridge.sandbox.fetch.settings import GuardSettings

REDIRECTS = frozenset({301, 302, 303, 307, 308})
"""Statuses that lead elsewhere, by the `location` header."""
_HARMLESS = frozenset({"accept", "accept-language", "user-agent"})
"""Headers that go to another origin as well; any other may be a credential."""
_OURS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "te", "trailer", "upgrade"}
    | {"keep-alive", "expect", "proxy-authorization", "proxy-connection"}
)
"""Headers that are of the connection."""


class FetchRequest(Struct, frozen=True):
    """One request."""

    method: str
    headers: Mapping[str, str]
    content: bytes


def request_bytes(target: Target, ask: FetchRequest) -> bytes:
    """Request line, headers and body, as bytes.

    Raises:
        AddressRefused: a header, or the method, would be read as something else.
    """
    host = f"[{target.host}]" if ":" in target.host else target.host
    netloc = host if target.url.port is None else f"{host}:{target.port}"
    lines = [f"{ask.method} {target.url.raw_path.decode('ascii')} HTTP/1.1", f"host: {netloc}"]
    headers = {"accept": "*/*", "user-agent": f"mcpbridge/{__version__}", **ask.headers}
    lines += [f"{name}: {value}" for name, value in headers.items() if name not in _OURS]
    lines += ["accept-encoding: gzip", "connection: close"]
    if ask.content or ask.method in ("POST", "PUT", "PATCH"):
        lines.append(f"content-length: {len(ask.content)}")
    is_method = ask.method.isascii() and ask.method.isalpha()
    if not is_method or any("\r" in line or "\n" in line or "\0" in line for line in lines):
        raise AddressRefused(f"{display_url(str(target.url))}: a header holds a line break, or the method is none")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + ask.content


def redirected_request(ask: FetchRequest, status: int, *, is_same: bool) -> FetchRequest:
    """The request that follows a redirect (RFC 9110, 15.4). `is_same`: to the same origin."""
    headers = ask.headers if is_same else {name: value for name, value in ask.headers.items() if name in _HARMLESS}
    if ask.method == "HEAD":
        return FetchRequest("HEAD", headers, b"")
    if ask.method != "GET" and status in (307, 308):
        return FetchRequest(ask.method, headers, ask.content)
    return FetchRequest("GET", {name: value for name, value in headers.items() if name != "content-type"}, b"")


_CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Content codings that are read, and how zlib calls them."""
_RAW_DEFLATE = -15
"""What some servers send as `deflate`: without the header that belongs to it."""


_GZIP = b"\x1f\x8b"
"""What such a file begins with."""
_MOST_STREAMS = 100
"""Compressed files in one answer; each costs a copy of what follows it."""


class AnswerTooLong(Exception):
    """There is more than what is taken."""


async def read_body(pieces: AsyncIterable[bytes], headers: Mapping[str, str], most: int) -> bytes:
    """The whole body, decompressed. No more than `most` bytes of it are ever held, nor read compressed.

    Raises:
        AnswerTooLong: there is more.
        httpx2.DecodingError: its coding is unknown, or broken.
    """
    declared = headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > most):
        raise AnswerTooLong
    coding = headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        return await _plain(pieces, most)
    if coding not in _CODINGS:
        raise httpx2.DecodingError(f"it is in the coding {coding[:40]!r}, which was not asked for")
    inflater, received = _Inflater(_CODINGS[coding], most), 0
    async for piece in pieces:
        received += len(piece)
        if received > most:  # a stream that inflates to nothing has no end either
            raise AnswerTooLong
        inflater.feed(piece)
    return inflater.end()


async def _plain(pieces: AsyncIterable[bytes], most: int) -> bytes:
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > most:
            raise AnswerTooLong
    return bytes(body)


class _Inflater:
    """Decompresses piece by piece, and stops at the limit instead of after it."""

    def __init__(self, wbits: int, most: int) -> None:
        self._wbits, self._most = wbits, most
        self._stream = zlib.decompressobj(wbits)
        self._body = bytearray()
        self._behind = b""
        """The first bytes behind a compressed file."""
        self._fed = self._streams = 0

    def feed(self, piece: bytes) -> None:
        """Take one piece."""
        try:
            self._inflate(piece)
        except zlib.error as error:
            if self._wbits != _CODINGS["deflate"] or self._fed:
                raise httpx2.DecodingError(str(error)) from error
            self._wbits = _RAW_DEFLATE
            self._stream = zlib.decompressobj(_RAW_DEFLATE)
            self._again(piece)
        self._fed += len(piece)

    def end(self) -> bytes:
        """All that came of it."""
        if self._fed and not self._stream.eof:
            raise httpx2.DecodingError("it was cut within its compression")
        return bytes(self._body)

    def _again(self, piece: bytes) -> None:
        try:
            self._inflate(piece)
        except zlib.error as error:
            raise httpx2.DecodingError(str(error)) from error

    def _inflate(self, data: bytes) -> None:
        while data:
            if self._stream.eof:
                data = self._behind + data
                self._behind = b"" if data.startswith(_GZIP) else data[: len(_GZIP) - 1]
                if not data.startswith(_GZIP):
                    return  # padding, or the first byte of another file
                self._next_stream()
            self._body += self._stream.decompress(data, self._most + 1 - len(self._body))
            if len(self._body) > self._most:
                raise AnswerTooLong
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail

    def _next_stream(self) -> None:
        """Several compressed files may follow one another (RFC 1952, 2.2)."""
        self._streams += 1
        if self._streams > _MOST_STREAMS:
            raise AnswerTooLong
        self._stream = zlib.decompressobj(self._wbits)


_ELSEWHERE = "Try again later, or use another source."
_CONNECT = 4.0
"""Seconds for one of several addresses of a host."""


class FetchLimits(Struct, frozen=True):
    """How much one fetch may take."""

    seconds: float = 10.0
    """From the name of the first host to the last byte of the last answer."""
    most: int = 5 << 20
    """Bytes of the body, compressed or not."""
    redirects: int = 5


DEFAULT_LIMITS = FetchLimits()


class Fetched(Struct, frozen=True):
    """An answer, whatever its status."""

    url: str
    """Where it came from, after all redirects."""
    status: int
    headers: Mapping[str, str]
    """By their names in lower case; of several with one name the values, with commas between."""
    body: bytes
    """Decompressed; empty for HEAD."""
    redirects: int = 0
    """How many were followed."""


class FetchTooLarge(UpstreamError):
    """The answer of the address is larger than the limit. `most` is in bytes."""

    advice = "Ask for a smaller part of it, if the site has one, or use another source."

    def __init__(self, who: str, most: int) -> None:
        super().__init__(who, f"its answer is larger than {most / (1 << 20):g} MiB")
        self.most = most


class Fetcher:
    """Fetches under one set of rules. Holds nothing between two fetches."""

    def __init__(
        self,
        settings: GuardSettings | None = None,
        *,
        who: str = "",
        limits: FetchLimits = DEFAULT_LIMITS,
        is_trusted: bool = False,
        resolve: Resolve | None = None,
        is_own: Callable[[str], bool] | None = None,
        ssl_context: Callable[[], ssl.SSLContext] = default_ssl_context,
    ) -> None:
        """`who`: the server as errors call it; empty: the host that was asked.

        `is_trusted`: the URLs that `fetch` is given were written by people, so they may be of this machine or network;
        what they redirect to may not, but for the same host and port.
        """
        self._guard, self._who, self._limits, self._is_trusted = (
            Guard(settings or GuardSettings()),
            who,
            limits,
            is_trusted,
        )
        self._resolve, self._is_own, self._ssl_context = resolve or resolved, is_own or is_own_address, ssl_context

    async def fetch(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, content: bytes = b""
    ) -> Fetched:
        """The answer to one request, redirects followed.

        Raises:
            AddressRefused: the URL, an address of its host, or what it redirects to, is not to be fetched.
            UpstreamError: there is no whole answer: `UpstreamUnavailable` (nothing was sent), `UpstreamTimeout`,
                `FetchTooLarge`, `UpstreamGarbled` and so on.
        """
        target = self._guard.target_of(url, is_trusted=self._is_trusted)
        ask = FetchRequest(method, {name.lower(): value for name, value in (headers or {}).items()}, content)
        who = self._who or target.host
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await self._follow(target, ask, who)
        except TimeoutError:
            late = UpstreamTimeout(who, self._limits.seconds)
            late.advice = f"It may be slow or down. {_ELSEWHERE}"
            raise late from None

    async def _follow(self, target: Target, ask: FetchRequest, who: str) -> Fetched:
        came_from: Target | None = None
        for followed in range(self._limits.redirects + 1):
            fetched = await self._hop(target, ask, who, came_from)
            location = fetched.headers.get("location", "")
            if fetched.status not in REDIRECTS or not location:
                return replace(fetched, redirects=followed)
            if followed == self._limits.redirects == 0:
                return fetched
            elsewhere = self._guard.redirected(target, location)
            is_same = elsewhere.origin == target.origin
            if not is_same and ask.content and fetched.status in (307, 308):
                raise AddressRefused(f"{display_url(str(target.url))} redirects what was sent to another server")
            ask = redirected_request(ask, fetched.status, is_same=is_same)
            came_from, target = target, elsewhere
        lost = UpstreamGarbled(who, f"it redirects more than {self._limits.redirects} times")
        lost.advice = "Use another address of the page."
        raise lost

    async def _hop(self, target: Target, ask: FetchRequest, who: str, came_from: Target | None) -> Fetched:
        """As `_once`; a refusal tells who redirects there."""
        try:
            return await self._once(target, ask, who)
        except AddressRefused as refused:
            if came_from is None:
                raise
            raise AddressRefused(f"{display_url(str(came_from.url))} redirects elsewhere: {refused}") from None

    async def _once(self, target: Target, ask: FetchRequest, who: str) -> Fetched:
        """The answer of one address, unless it redirects: then only its head."""
        head = request_bytes(target, ask)
        answers = [target.address] if target.address else await self._answers(target, who)
        addresses = self._guard.check_answers(target, answers, self._is_own)
        connection = await self._connected(target, addresses, who)
        exchange = connection.begin(None)
        try:
            connection.write(head)
            await exchange.head()
            headers = _by_name(exchange)
            is_whole = ask.method != "HEAD" and not (exchange.status in REDIRECTS and "location" in headers)
            body = await read_body(exchange, headers, self._limits.most) if is_whole else b""
        except AnswerTooLong as error:
            raise FetchTooLarge(who, self._limits.most) from error
        except httpx2.HTTPError as error:
            failed = failure_of_exception(who, error).error
            failed.advice = _ELSEWHERE
            raise failed from error
        finally:
            connection.cut()
        return Fetched(str(target.url), exchange.status, headers, body)

    async def _answers(self, target: Target, who: str) -> Sequence[str]:
        try:
            answers = await self._resolve(target.host, target.port)
        except (OSError, UnicodeError) as error:
            raise _unreachable(who, "the host name is not known", target) from error
        if not answers:
            raise _unreachable(who, "the host name has no address", target)
        return answers

    async def _connected(self, target: Target, addresses: list[str], who: str) -> HttpConnection:
        """A connection to the first address that takes one."""
        for index, address in enumerate(addresses):
            is_last = index == len(addresses) - 1
            try:
                async with asyncio.timeout(None if is_last else _CONNECT):
                    return await self._connect(target, address)
            except (OSError, ValueError) as error:  # TimeoutError is an OSError
                if is_last:
                    raise _unreachable(who, connection_failure(error), target) from error
        raise AssertionError("a host without addresses was let through")

    async def _connect(self, target: Target, address: str) -> HttpConnection:
        """A connection to this very address; TLS is with the host that it is an address of."""
        loop = asyncio.get_running_loop()
        sock = await dial(address, target.port)
        try:
            _, connection = await loop.create_connection(
                lambda: HttpConnection(loop, _ignored, _ignored),
                sock=sock,
                ssl=self._ssl_context() if target.is_tls else None,
                server_hostname=target.host if target.is_tls else None,
            )
        except BaseException:
            sock.close()
            raise
        return connection


def _by_name(exchange: Exchange) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw_name, raw_value in exchange.headers:
        name, value = raw_name.decode("latin-1").lower(), _characters(raw_value).strip()
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _characters(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")  # what headers were once said to be in


def _unreachable(who: str, why: str, target: Target) -> UpstreamUnavailable:
    error = UpstreamUnavailable(who, f"{why}: {display_url(str(target.url))}")
    error.advice = "Nothing was sent. Is the address right? Otherwise try again later."
    return error


def _ignored(connection: HttpConnection) -> None:
    """Nothing waits for connections: each is used once."""
