"""Follows the redirects of one server, for every kind of request alike, as long as they stay on its origin.

A method is never changed: what is not read-only is sent again only where the redirect says that it is to be the same
request (307, 308). A server that redirects has not run the request, so nothing runs twice.
"""

import httpx2

from mcpbridge.base.log import get_logger
from mcpbridge.protocol.http.bearer_auth import Send
from mcpbridge.protocol.http.same_origin import redirect_target

log = get_logger("mcpbridge.http")

_MOST = 3
"""Addresses that are tried for one request."""
_KEEP_METHOD = frozenset({307, 308})
_OF_GET = frozenset({301, 302, 303, 307, 308})


class RedirectingSend:
    """Sends requests over `send`, and on to where the server says. `name` is the server's, for the log."""

    def __init__(self, send: Send, name: str) -> None:
        self._send = send
        self._name = name
        self._is_known = False

    async def __call__(self, request: httpx2.Request, /) -> httpx2.Response:
        """The answer to the request from the last of the addresses; a redirect that is not followed is one too.

        Raises:
            httpx2.TooManyRedirects: it is sent round in a circle.
            httpx2.HTTPError: as `send`.
        """
        statuses = _OF_GET if request.method == "GET" else _KEEP_METHOD
        for _ in range(_MOST):
            response = await self._send(request)
            target = redirect_target(response, statuses)
            if target is None:
                return response
            await response.aclose()
            if not self._is_known:
                self._is_known = True
                log.info("server redirects; set its url to the new path", upstream=self._name, to=target.path)
            request = httpx2.Request(
                request.method, target, headers=request.headers, stream=request.stream, extensions=request.extensions
            )
        raise httpx2.TooManyRedirects("it redirects in a circle", request=request)
