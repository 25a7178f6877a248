"""The HTTP client of the sign-in: every address it visits was named by a server, so none is trusted.

https only, except on this machine; no address inside a network that the MCP server itself is not in (SSRF); names are
resolved once and the checked address is dialled (rebinding); small answers, short waits, no redirects to elsewhere.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx2

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.base.version import __version__
from mcpbridge.protocol.http.tls_and_proxy import Network
from mcpbridge.sandbox.fetch.address_rules import Reach, reach_of

_SECONDS = 15.0
"""One request, from the name to the last byte."""
_LARGEST_ANSWER = 1 << 20


class SignInRefused(UpstreamUnavailable):
    """The sign-in was stopped: what the server or its authorization server says about it is unsafe or incomplete."""

    advice = "The server's sign-in metadata is wrong; nothing was sent to the server."


class OAuthHttp:
    """Sends the requests of one sign-in."""

    def __init__(self, name: str, client: httpx2.AsyncClient) -> None:
        self._name = name
        self._client = client

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """The whole answer.

        Raises:
            SignInRefused: the address is one that a server must not send us to.
            UpstreamUnavailable: there is no answer.
        """
        request.headers["Accept-Encoding"] = "identity"
        request.headers["User-Agent"] = f"mcpbridge/{__version__}"
        request.headers.setdefault("Accept", "application/json")
        where = request.url.copy_with(query=None, fragment=None)
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._client.send(request, follow_redirects=False)
        except TimeoutError:
            raise UpstreamUnavailable(self._name, f"no answer from {where} within {_SECONDS:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise UpstreamUnavailable(self._name, f"no answer from {where}: {reason}") from error


@asynccontextmanager
async def open_oauth_http(
    name: str, server_url: str, issuer: str | None, network: Network
) -> AsyncGenerator[OAuthHttp]:
    """A client for the sign-in of the server at `server_url`; `issuer` is the authorization server trusted already."""
    guard = _Guard(name, server_url, issuer, network)
    async with httpx2.AsyncClient(transport=guard, timeout=_SECONDS, trust_env=False) as client:
        client.cookies.jar.clear()
        yield OAuthHttp(name, client)


def check_page(name: str, url: str) -> None:
    """Make sure that an address may be opened in a browser: https, or http of this machine.

    Raises:
        SignInRefused: it may not.
    """
    parts = urlsplit(url)
    is_ours = parts.scheme == "http" and is_loopback_host(parts.hostname or "")
    if not (parts.scheme == "https" or is_ours) or not parts.hostname or parts.username is not None:
        raise SignInRefused(name, f"it asks to open a page that is not https: {parts.scheme}://{parts.hostname}")
    if not url.isascii() or not url.isprintable() or any(character in url for character in ' "<>\\^`{|}'):
        raise SignInRefused(name, "it asks to open a page whose address is not a plain URL")


def is_loopback_host(host: str) -> bool:
    """Whether a host as it is in a URL is this machine, without asking anyone."""
    if host == "localhost":
        return True
    try:
        return reach_of(host.strip("[]")) is Reach.LOOPBACK
    except ValueError:
        return False


class _Guard(httpx2.AsyncBaseTransport):
    """Checks every address, then sends to exactly the one that was checked."""

    def __init__(self, name: str, server_url: str, issuer: str | None, network: Network) -> None:
        self._name = name
        self._network = network
        self._named_by_people = {httpx2.URL(url).host for url in (server_url, issuer) if url}
        self._server = httpx2.URL(server_url)
        self._transports: dict[tuple[str, str], httpx2.AsyncHTTPTransport] = {}
        self._reached: Reach | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        if url.scheme not in ("http", "https") or not url.host or url.userinfo:
            raise SignInRefused(self._name, f"it names an address that is not https: {url.scheme}://{url.host}")
        if url.scheme == "http" and not is_loopback_host(url.host):
            raise SignInRefused(self._name, f"it names an address that is not https: {url.copy_with(query=None)}")
        if url.port == 0:
            raise SignInRefused(self._name, "it names port 0")
        response = await self._answer(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise SignInRefused(self._name, f"{url.host} answers in an encoding that was not asked for")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream)
        return response

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        proxy = self._network.proxy_for(url)
        if proxy:
            if _literal_reach(url.host) not in (None, Reach.PUBLIC) and url.host not in self._named_by_people:
                raise SignInRefused(self._name, f"it names an address inside a network: {url.host}")
            return await self._transport(proxy, url.host).handle_async_request(request)
        addresses = await self._checked_addresses(url)
        while True:
            extensions = {**request.extensions, "sni_hostname": url.host}
            target = url.copy_with(host=addresses.pop(0))
            direct = httpx2.Request(
                request.method, target, headers=request.headers, stream=request.stream, extensions=extensions
            )
            try:
                return await self._transport("", url.host).handle_async_request(direct)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if not addresses:
                    raise

    def _transport(self, proxy: str, host: str) -> httpx2.AsyncHTTPTransport:
        # One for each name: a connection is found again by the address dialled, and was verified for one name only.
        way = proxy, host
        if way not in self._transports:
            tls = self._network.tls
            context = tls.ssl_context() if host == self._server.host else tls.elsewhere()
            self._transports[way] = httpx2.AsyncHTTPTransport(
                verify=context, trust_env=False, proxy=httpx2.Proxy(proxy, ssl_context=context) if proxy else None
            )
        return self._transports[way]

    async def _checked_addresses(self, url: httpx2.URL) -> list[str]:
        """The addresses of the host, all of which are allowed.

        Reserved addresses are never allowed, unless people named the very host.
        """
        addresses = await _addresses(url)
        if url.host not in self._named_by_people:
            worst = max(map(reach_of, addresses))
            allowed = await self._allowed()
            if worst > allowed or worst is Reach.RESERVED:
                what = {Reach.PRIVATE: "a private network", Reach.LOOPBACK: "this machine"}.get(
                    worst, "a reserved range"
                )
                raise SignInRefused(
                    self._name, f"it sends the sign-in to {url.host}, which is in {what}, and it is not"
                )
        return addresses

    async def _allowed(self) -> Reach:
        """How far inside the server itself is: what it names may be as far, but not further."""
        if self._reached is None:
            self._reached = min(map(reach_of, await _addresses(self._server)))
        return self._reached


class _Bounded(httpx2.AsyncByteStream):
    """A body that ends with an error when it is too large."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > _LARGEST_ANSWER:
                raise httpx2.RemoteProtocolError("the answer is too large")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _addresses(url: httpx2.URL) -> list[str]:
    loop = asyncio.get_running_loop()
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        resolved = await loop.getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpx2.ConnectError(f"the host name {url.host} is not known") from error
    addresses = [str(address[0]).partition("%")[0] for *_, address in resolved]
    return list(dict.fromkeys(addresses))


def _literal_reach(host: str) -> Reach | None:
    try:
        return reach_of(host.strip("[]"))
    except ValueError:
        return None
