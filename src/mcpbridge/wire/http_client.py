"""What sends the requests of a channel: the lean transport alone, or an httpx2 client around something else.

Measured on loopback, a small POST costs 68 µs over the lean transport alone, 96 µs with httpx2's client around it and
390 µs with httpx2's own transport. So the client is there only when it has something to do: authentication, or a
proxy between us and the server. Requests, answers, decompression and cookies are httpx2's in either case.
"""

import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import httpx2

from mcpbridge.errors import ConfigError
from mcpbridge.wire.bearer import BearerSend, Send
from mcpbridge.wire.lean_http import LeanTransport
from mcpbridge.wire.network import Network

__all__ = ["ClientFactory", "Send", "open_client"]

ClientFactory = Callable[[httpx2.URL], httpx2.AsyncClient]
"""Makes the client for one endpoint; the channel closes it."""


@asynccontextmanager
async def open_client(
    url: httpx2.URL, factory: ClientFactory | None, network: Network | None = None
) -> AsyncGenerator[Send]:
    """The way to send requests to `url`; leaving closes every connection. A `factory` sees to its network itself.

    Raises:
        ConfigError: a certificate or the proxy cannot be used.
    """
    network = network or Network()
    proxy = network.proxy_for(url)
    if factory is not None or proxy:
        async with factory(url) if factory is not None else _proxied(proxy, network.tls.ssl_context()) as client:
            yield _authorized(lambda request: _send_with(client, request), url, network)
    else:
        context = network.tls.ssl_context() if url.scheme == "https" else None
        async with LeanTransport(ssl_context=context) as transport:
            yield _authorized(_LeanClient(transport).send, url, network)


def _authorized(send: Send, url: httpx2.URL, network: Network) -> Send:
    return BearerSend(send, network.authorizer, url) if network.authorizer is not None else send


class _LeanClient:
    """A transport and the cookies: load balancers keep the requests of a session together with them."""

    def __init__(self, transport: LeanTransport) -> None:
        self._transport = transport
        self._cookies = httpx2.Cookies()
        self._has_cookies = False

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        if self._has_cookies:
            self._cookies.set_cookie_header(request)
        response = await self._transport.handle_async_request(request)
        response.request = request
        if "set-cookie" in response.headers:
            self._cookies.extract_cookies(response)
            self._has_cookies = True
        return response


async def _send_with(client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    if client.cookies.jar:
        client.cookies.set_cookie_header(request)
    return await client.send(request, stream=True, follow_redirects=False)


def _proxied(proxy: str, context: ssl.SSLContext) -> httpx2.AsyncClient:
    # The channel bounds the number of requests.
    limits = httpx2.Limits(max_connections=None)
    try:
        return httpx2.AsyncClient(verify=context, proxy=proxy, trust_env=False, timeout=None, limits=limits)
    except (httpx2.InvalidURL, ValueError) as error:
        raise ConfigError("not the URL of a proxy", key="proxy", hint="It looks like http://host:3128") from error
