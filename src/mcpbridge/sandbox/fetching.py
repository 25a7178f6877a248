"""Fetching addresses that somebody else chose: a model, a page that redirects, a server.

Every host is resolved once, all its addresses are judged (`addresses.py`), and one of those that were judged is
dialled, so that a second answer of the resolver reaches nobody. Each redirect is a new address and is judged as the
first one; what else a request says (credentials, a body) does not follow it to another origin. No proxy, no cookies, no
connection kept from one request to the next. Time and size are limited as a whole, whatever the pace.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence

import httpx2
from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.errors import AddressRefused, UpstreamError, UpstreamGarbled, UpstreamTimeout, UpstreamUnavailable
from mcpbridge.sandbox.address_reading import Target, shown
from mcpbridge.sandbox.address_settings import GuardSettings
from mcpbridge.sandbox.addresses import Guard
from mcpbridge.sandbox.fetch_request import REDIRECTS, Ask, redirected, written
from mcpbridge.sandbox.fetched_body import AnswerTooLong, read_body
from mcpbridge.sandbox.resolving import Resolve, is_own_address, resolved
from mcpbridge.wire.dial import dial, why_not_connected
from mcpbridge.wire.http_connection import Exchange, HttpConnection
from mcpbridge.wire.http_problems import failure_of_exception
from mcpbridge.wire.network import default_ssl_context

__all__ = ["FetchLimits", "FetchTooLarge", "Fetched", "Fetcher", "Resolve"]

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
    """The answer is larger than what is taken. `most` in bytes."""

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
        ask = Ask(method, {name.lower(): value for name, value in (headers or {}).items()}, content)
        who = self._who or target.host
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await self._follow(target, ask, who)
        except TimeoutError:
            late = UpstreamTimeout(who, self._limits.seconds)
            late.advice = f"It may be slow or down. {_ELSEWHERE}"
            raise late from None

    async def _follow(self, target: Target, ask: Ask, who: str) -> Fetched:
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
                raise AddressRefused(f"{shown(str(target.url))} redirects what was sent to another server")
            ask = redirected(ask, fetched.status, is_same=is_same)
            came_from, target = target, elsewhere
        lost = UpstreamGarbled(who, f"it redirects more than {self._limits.redirects} times")
        lost.advice = "Use another address of the page."
        raise lost

    async def _hop(self, target: Target, ask: Ask, who: str, came_from: Target | None) -> Fetched:
        """As `_once`; a refusal tells who redirects there."""
        try:
            return await self._once(target, ask, who)
        except AddressRefused as refused:
            if came_from is None:
                raise
            raise AddressRefused(f"{shown(str(came_from.url))} redirects elsewhere: {refused}") from None

    async def _once(self, target: Target, ask: Ask, who: str) -> Fetched:
        """The answer of one address, unless it redirects: then only its head."""
        head = written(target, ask)
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
                    raise _unreachable(who, why_not_connected(error), target) from error
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
    error = UpstreamUnavailable(who, f"{why}: {shown(str(target.url))}")
    error.advice = "Nothing was sent. Is the address right? Otherwise try again later."
    return error


def _ignored(connection: HttpConnection) -> None:
    """Nothing waits for connections: each is used once."""
