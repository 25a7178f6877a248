"""The way of a `Client` to a URL, which can say in one sentence why it did not come to anything."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, cast
from urllib.parse import urlsplit

from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from mcpbridge.errors import ConfigError, NotConnected

__all__ = ["Endpoint", "endpoint_of", "leaves", "plain"]

_HERE = ("localhost", "127.0.0.1", "::1")
_ENDPOINT = "/mcp"

_PATIENCE, _SILENCE = 30.0, 300.0
"""Seconds to connect in, and between two signs of life of an answer: as the SDK has them."""

_START = "Is the bridge running there? `mcpbridge serve --http HOST:PORT` starts one."
_PATH = "Look at the URL: a bridge is at `/mcp`, one of its servers or profiles at `/mcp/NAME`."


class Endpoint:
    """A transport: streamable HTTP to one URL. For one connection, as a client is."""

    def __init__(self, url: str, token: str = "") -> None:
        """`token` is sent along, if it is not empty.

        Raises:
            ConfigError: the token cannot be in a header.
        """
        if not (token.isascii() and token.isprintable()):
            raise ConfigError("`token` has characters that no header can have: only printable ones of ASCII can be")
        self.url, self._token = url, token
        self._status: int | None = None  # of the last answer
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Any:
        import httpx2

        async def note(response: httpx2.Response) -> None:
            self._status = response.status_code

        http = httpx2.AsyncClient(
            headers={"authorization": f"Bearer {self._token}"} if self._token else None,
            timeout=httpx2.Timeout(_PATIENCE, read=_SILENCE),
            # A bridge on this machine, and a token for it, are no business of a proxy.
            trust_env=urlsplit(self.url).hostname not in _HERE,
            event_hooks={"response": [note]},
        )
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(http)
            streams = await stack.enter_async_context(streamable_http_client(self.url, http_client=http))
            self._open = stack.pop_all()
        return streams

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._open.__aexit__(kind, error, trace)

    def problem(self, error: BaseException) -> tuple[NotConnected, BaseException] | None:
        """What an error that came from here means, and its part that says so; None: it is no matter of this."""
        import httpx2

        parts = list(leaves(error))
        if not all(isinstance(part, (MCPError, httpx2.HTTPError, httpx2.InvalidURL, OSError)) for part in parts):
            return None
        for part in parts:
            if isinstance(part, (httpx2.HTTPError, httpx2.InvalidURL, OSError)):
                return self._unreached(part, isinstance(part, (httpx2.TimeoutException, TimeoutError))), part
        return self._answered(), parts[0]

    def _unreached(self, error: BaseException, is_late: bool) -> NotConnected:
        import httpx2

        if is_late:
            why = "no answer in time"
        elif isinstance(error, httpx2.InvalidURL):
            why = "it is no valid URL"
        elif isinstance(error, httpx2.ConnectError):
            why = "no connection: nobody answers there"
        else:
            why = "the connection broke"
        return NotConnected(plain(self.url), why, _START)

    def _answered(self) -> NotConnected:
        """What stands in the answers is the peer's: only their status is told."""
        status = self._status
        if status == 401 and self._token:
            why, advice = "it refuses this token", "Is it one of the bridge's `http.tokens`, and still valid?"
        elif status == 401:
            why, advice = "it wants a token", "Give `token=`: whoever runs the bridge has it, or makes one."
        elif status == 403:
            why, advice = "it lets this client not in (HTTP 403)", "Whoever runs it can say what is missing."
        elif status is not None and status >= 500:
            why, advice = f"it fails (HTTP {status})", "Its log says more; try again later."
        elif status is not None and 300 <= status < 400:
            why, advice = f"it refers elsewhere, where no client follows (HTTP {status})", _PATH
        elif status is None:
            why, advice = "no answer in time", _START
        else:
            why, advice = f"what answers there is no MCP server for this client (HTTP {status})", _PATH
        return NotConnected(plain(self.url), why, advice, status=status)


def endpoint_of(url: str) -> str:
    """The URL, which means the endpoint of all servers where it has no path.

    Raises:
        ConfigError: it is no URL of HTTP.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts._replace(path=_ENDPOINT).geturl() if parts.path in ("", "/") else url
    except ValueError:  # its port is no number, or larger than any
        pass
    raise ConfigError(
        f"'{plain(url)}' is no address of a bridge: it begins with http:// or https:// and a host, perhaps with "
        "the number of a port"
    )


def plain(url: str) -> str:
    """Without what may be a secret."""
    scheme, mark, rest = url.rpartition("://")
    authority, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}"


def leaves(error: BaseException) -> Iterator[BaseException]:
    """An error, or in its place those that a group holds, and the groups in it."""
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(part)
    else:
        yield error
