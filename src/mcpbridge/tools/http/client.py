"""Sends the requests of one HTTP backend and reads the answers, within bounds. What they mean is decided elsewhere.

Only connections are kept between requests: a cookie of one client's call would show in another's. Redirects are
followed on their own host only: another host must not see the credentials, and nobody allowed a request to it. Nothing
is tried again here; the pipeline does that where it is harmless. A fetched token that was refused is replaced once.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mcpbridge.base.errors import BridgeError, ConfigError, UpstreamError, UpstreamGone, UpstreamUnavailable
from mcpbridge.base.masking.known_values import SECRET_NAME, Redactors
from mcpbridge.base.version import __version__
from mcpbridge.tools.backend import Health
from mcpbridge.tools.http.auth import Credentials
from mcpbridge.tools.http.request import CODINGS, Answer, Outgoing, Part, RequestCredentials, origin_of, read_body
from mcpbridge.tools.http.settings import HttpReach

if TYPE_CHECKING:
    import httpx2

    from mcpbridge.protocol.http.tls_and_proxy import Network


_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
CONNECT_SECONDS = 10.0
"""Seconds in which a connection must be there."""
_CLOSING = 2.0
"""Seconds that closing the connections may take."""


class HttpCaller:
    """The connections of one backend, opened at the first request."""

    def __init__(self, settings: HttpReach, headers: Mapping[str, str], directory: Path = Path()) -> None:
        """`headers`: those of every request, which count more than those of one. `directory`: where paths start."""
        self._settings, self._directory = settings, directory
        self._headers = {name.lower(): value for name, value in headers.items()}
        self._credentials = Credentials(settings.auth)
        # `Bearer x` has a word before the secret, which services may repeat alone.
        named = [value for name, value in headers.items() if SECRET_NAME.search(name)]
        self._credentials.redactor.know(word for value in named for word in (value, value.rpartition(" ")[2]))
        self._transport: httpx2.AsyncBaseTransport | None = None
        self._proxied: dict[str, httpx2.AsyncBaseTransport] = {}
        self._is_running = False

    def masking(self, redact: Callable[[str], str]) -> Callable[[str], str]:
        """`redact`, which masks what the configuration brought in, and with it all that these requests show."""
        return Redactors(redact, self._credentials.redactor)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Requests may be sent meanwhile; leaving closes the connections."""
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = False
            opened = [*([self._transport] if self._transport is not None else []), *self._proxied.values()]
            self._transport, self._proxied = None, {}
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING):
                    for transport in opened:
                        await transport.aclose()

    async def send(self, upstream: str, outgoing: Outgoing, *, shows_credentials: bool = True) -> Answer:
        """The answer, whatever its status. `upstream`: whom errors name.

        Raises:
            UpstreamUnavailable: nothing was sent.
            UpstreamGone, UpstreamGarbled: it was sent, and there is no answer that can be read.
        """
        if not shows_credentials:
            return await self._followed(upstream, outgoing, RequestCredentials(), {})
        given = self._headers

        async def ask(outgoing: Outgoing) -> Answer:
            return await self._followed(upstream, outgoing, RequestCredentials(), {})

        extra = await self._credentials.for_request(upstream, ask)
        answer = await self._followed(upstream, outgoing, extra, given)
        if answer.status != 401 or not self._credentials.is_fetched:
            return answer
        self._credentials.refused(extra)  # nothing ran: a token that was called back is replaced, once
        extra = await self._credentials.for_request(upstream, ask)
        return await self._followed(upstream, outgoing, extra, given)

    async def _followed(
        self, upstream: str, outgoing: Outgoing, extra: RequestCredentials, given: Mapping[str, str]
    ) -> Answer:
        """The answer of the last of several addresses of one host."""
        for _ in range(_MOST_REDIRECTS):
            answer = await self._sent(upstream, outgoing, extra, given)
            further = _redirected(outgoing, answer)
            if further is None:
                return answer
            outgoing = further
        raise UpstreamGone(upstream, f"it redirects more than {_MOST_REDIRECTS} times")

    async def _sent(
        self, upstream: str, outgoing: Outgoing, extra: RequestCredentials, given: Mapping[str, str]
    ) -> Answer:
        import httpx2

        if not self._is_running:
            raise UpstreamUnavailable(upstream, "it does not run")
        try:
            request = request_of(outgoing, extra, given)
            response = await self._way_to(upstream, request.url).handle_async_request(request)
            response.request = request
            try:
                body, is_cut = b"", False
                if outgoing.method != "HEAD":  # its answer tells the length of a body that does not come
                    body, is_cut = await read_body(upstream, response, self._settings.max_response)
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise failure_of(upstream, error) from error
        return Answer(response.status_code, response.headers, body, outgoing.url, is_cut)

    def _way_to(self, upstream: str, url: "httpx2.URL") -> "httpx2.AsyncBaseTransport":
        """The connections that lead there."""
        network = self._network()
        try:
            proxy = network.proxy_for(url)
            if proxy:
                if proxy not in self._proxied:
                    self._proxied[proxy] = _proxied(proxy, network)
                return self._proxied[proxy]
            if self._transport is None:
                from mcpbridge.protocol.http.client import LeanTransport

                has_tls = self._settings.tls != type(self._settings.tls)()
                self._transport = LeanTransport(ssl_context=network.tls.ssl_context() if has_tls else None)
        except ConfigError as error:
            raise UpstreamUnavailable(upstream, str(error)) from error
        return self._transport

    def _network(self) -> "Network":
        from mcpbridge.protocol.http.tls_and_proxy import Network, TlsOptions

        tls = self._settings.tls
        ca, cert, key = (
            str(self._directory / Path(file).expanduser()) if file else "" for file in (tls.ca, tls.cert, tls.key)
        )
        options = TlsOptions(ca, cert, key, tls.key_password or "", tls.verify)
        return Network(options, self._settings.proxy or "")


def request_of(outgoing: Outgoing, extra: RequestCredentials, given: Mapping[str, str]) -> "httpx2.Request":
    """Headers of the settings and credentials count before those of the call."""
    import httpx2

    headers = {
        "accept": "application/json, */*;q=0.8",
        "accept-encoding": CODINGS,
        "user-agent": f"mcpbridge/{__version__}",
    }
    headers |= dict(outgoing.headers)
    cookies = [headers.pop("cookie", ""), given.get("cookie", "")]
    headers |= {**given} | {name: value for name, value in extra.headers if name != "cookie"}
    cookies += [value for name, value in extra.headers if name == "cookie"]
    if cookie := "; ".join(filter(None, cookies)):
        headers["cookie"] = cookie
    url = outgoing.url
    if extra.query:
        url = f"{url}{'&' if '?' in url else '?'}{extra.query}"
    encoded = [(name.encode("ascii"), value.encode()) for name, value in headers.items()]
    # Only the connection has a time of its own: that of the whole is kept by whoever calls.
    timeout = {"timeout": {"connect": CONNECT_SECONDS, "read": None, "write": None, "pool": None}}
    if outgoing.parts is None:
        content = outgoing.content or (b"" if outgoing.method in ("POST", "PUT", "PATCH") else None)
        return httpx2.Request(outgoing.method, url, headers=encoded, content=content, extensions=timeout)
    files = [(part.name, _file(part)) for part in outgoing.parts]
    return httpx2.Request(outgoing.method, url, headers=encoded, files=files, extensions=timeout)


def _file(part: Part) -> tuple[str | None, bytes] | tuple[str | None, bytes, str]:
    name = part.name if part.is_file else None
    return (name, part.data, part.media_type) if part.media_type else (name, part.data)


def failure_of(upstream: str, error: "httpx2.HTTPError | httpx2.InvalidURL") -> BridgeError:
    """What a failed exchange means for the call: nothing was sent, or nobody knows whether it took effect."""
    import httpx2

    from mcpbridge.protocol.http.responses import failure_of_exception

    failed = error if isinstance(error, httpx2.HTTPError) else httpx2.LocalProtocolError(str(error))
    failure = failure_of_exception(upstream, failed).error
    if isinstance(failure, UpstreamGone):
        failure.advice = "Check whether the action took effect before you repeat it."
    return failure


def describe_redirect(answer: Answer, redact: Callable[[str], str]) -> str:
    """Where an answer leads that is not followed, in a few words."""
    import httpx2

    location = answer.headers.get("location", "")
    try:
        target = httpx2.URL(answer.url).join(location)
    except httpx2.InvalidURL:
        return "it redirects to nowhere"
    place = f"{target.scheme}://{target.host}" if target.host else "nowhere"
    return redact(f"it redirects to {place}, which is not followed")


def _redirected(outgoing: Outgoing, answer: Answer) -> Outgoing | None:
    """The request that a redirect on the same host asks for; None: there is none to follow."""
    import httpx2

    from mcpbridge.protocol.http.same_origin import is_same_origin

    location = answer.headers.get("location", "")
    if answer.status not in _REDIRECTS or not location:
        return None
    here = httpx2.URL(outgoing.url)
    try:
        target = here.join(location)
    except httpx2.InvalidURL:
        return None
    if not is_same_origin(target, here):
        return None
    url = str(target.copy_with(fragment=None))
    if answer.status in (307, 308) or outgoing.method in ("GET", "HEAD"):
        return replace(outgoing, url=url)
    headers = tuple((name, value) for name, value in outgoing.headers if name != "content-type")
    return Outgoing("GET", url, headers)


def _proxied(proxy: str, network: "Network") -> "httpx2.AsyncBaseTransport":
    import httpx2

    context = network.tls.ssl_context()
    try:
        way = httpx2.Proxy(proxy, ssl_context=context if proxy.startswith("https") else None)
        limits = httpx2.Limits(max_connections=None)
        return httpx2.AsyncHTTPTransport(verify=context, trust_env=False, proxy=way, limits=limits)
    except (httpx2.InvalidURL, ValueError) as error:
        raise ConfigError("not the URL of a proxy", key="proxy", hint="It looks like http://host:3128") from error


def is_elsewhere(url: str, other: str) -> bool:
    """Whether two addresses are of different hosts, ports or schemes."""
    return origin_of(url) != origin_of(other)


_SECONDS = 5.0
"""Seconds that a look may take."""


async def look_at(caller: HttpCaller, origin: str, health: str | None, redact: Callable[[str], str]) -> Health:
    """Ask `health`, an address or a path below `origin`; None: a HEAD of `/` there, where every answer is a good one.

    Credentials go to the host of the service alone.
    """
    url = f"{origin}{health}" if health is not None and health.startswith("/") else health or f"{origin}/"
    outgoing = Outgoing("GET" if health is not None else "HEAD", url)
    is_ours = health is not None and not is_elsewhere(url, origin)
    clock = asyncio.get_running_loop().time
    began = clock()
    address = redact(url.partition("?")[0])
    try:
        async with asyncio.timeout(_SECONDS):
            answer = await caller.send("health", outgoing, shows_credentials=is_ours)
    except TimeoutError:
        return Health(ok=False, detail=f"{address}: no answer within {_SECONDS:g} s", seconds=clock() - began)
    except UpstreamError as error:
        return Health(ok=False, detail=redact(f"{address}: {error.what}"), seconds=clock() - began)
    seconds = clock() - began
    if health is None:
        return Health(ok=True, detail=f"{address} answers (HTTP {answer.status}); no `health` is set", seconds=seconds)
    return Health(ok=answer.status < 400, detail=f"{address}: HTTP {answer.status}", seconds=seconds)
