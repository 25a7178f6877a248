"""Puts a server's bearer token on its requests, and asks for another one when the server refuses it.

A request is repeated only after the server refused it, so nothing runs twice. How a token is obtained is left to the
`Authorizer` (`upstream/auth/`); which origins it may reach is decided in `same_origin.py`.
"""

from typing import Protocol

import httpx2

from mcpbridge.base.errors import BridgeError
from mcpbridge.protocol.http.same_origin import is_same_origin

SENT_WITH = "mcpbridge.bearer"
"""The extension of a request that was sent already, outside `BearerSend`: the token that it had."""
_ROUNDS = 3
"""How often one request is repeated: a refreshed token, a new sign-in, more rights."""


class Unauthorized(httpx2.HTTPError):
    """There is no token to be had; `reason` is the reason for the caller. Nothing was executed by the server."""

    def __init__(self, reason: BridgeError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Authorizer(Protocol):
    """Whoever keeps the token of one server."""

    @property
    def ready(self) -> str | None:
        """The token to use, empty for none; None when `token` has to be awaited first."""
        ...

    @property
    def waits_for(self) -> str:
        """What a person has to do before there is a token; empty when nobody is waited for."""
        ...

    async def token(self) -> str:
        """The token to use, renewed if it is about to expire; empty for none.

        Raises:
            BridgeError: there will be none; says why.
        """
        ...

    async def refused(self, used: str, status: int, challenge: str) -> bool:
        """The server answered 401 or 403 with this `WWW-Authenticate`. True: there is another token to try.

        Raises:
            BridgeError: none can be had now; says why.
        """
        ...

    def accepted(self) -> None:
        """The server took the token."""
        ...


class Send(Protocol):
    """Sends a request, following no redirects; the answer's body is still to be read, and the answer to be closed."""

    async def __call__(self, request: httpx2.Request, /) -> httpx2.Response:
        """The answer, whatever its status."""
        ...


class BearerSend:
    """Sends requests with the token of `authorizer`, over `send` (`over`)."""

    def __init__(self, send: Send, authorizer: Authorizer, url: httpx2.URL) -> None:
        self.over = send
        self.authorizer = authorizer
        self._url = url

    async def __call__(self, request: httpx2.Request, /) -> httpx2.Response:
        """The answer to the request, or to its last repetition.

        Raises:
            Unauthorized: no token can be had.
            httpx2.HTTPError: as `send`.
        """
        authorizer = self.authorizer
        used = request.extensions.get(SENT_WITH, authorizer.ready)
        if used is None:
            used = await self._token()
        if used:
            self._put(used, request)
        response = await self.over(request)
        if response.status_code not in (401, 403):
            if used:
                authorizer.accepted()
            return response
        return await self._try_again(request, response, used)

    async def _try_again(self, request: httpx2.Request, response: httpx2.Response, used: str) -> httpx2.Response:
        if not is_same_origin(request.url, self._url):
            return response
        for _ in range(_ROUNDS):
            challenge = response.headers.get("www-authenticate", "")
            try:
                if not await self.authorizer.refused(used, response.status_code, challenge):
                    return response
            except BridgeError as reason:
                await response.aclose()
                raise Unauthorized(reason) from reason
            except BaseException:
                await response.aclose()
                raise
            await response.aclose()
            used = await self._token()
            self._put(used, request)
            response = await self.over(request)
            if response.status_code not in (401, 403):
                self.authorizer.accepted()
                break
        return response

    async def _token(self) -> str:
        try:
            return await self.authorizer.token()
        except BridgeError as reason:
            raise Unauthorized(reason) from reason

    def _put(self, token: str, request: httpx2.Request) -> None:
        if token and is_same_origin(request.url, self._url):
            request.headers["Authorization"] = f"Bearer {token}"
