"""A hook that is an address: the event as a POST, the answer in the body of what comes back."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from mcpbridge.errors import ConfigError
from mcpbridge.hooks.answers import LARGEST_ANSWER, HookFailedError

if TYPE_CHECKING:
    from mcpbridge.wire.bearer import Send

__all__ = ["HookUrl"]


class HookUrl:
    """Asks the address of one hook. Connections are kept for the next call."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url, self._headers = url, headers
        self._stack: AsyncExitStack | None = None
        self._send: Send | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """It may be asked meanwhile; leaving closes its connections."""
        async with AsyncExitStack() as stack:
            self._stack = stack
            try:
                yield
            finally:
                self._stack = self._send = None

    async def __call__(self, event: bytes) -> bytes:
        """What it answers to the event; empty for 204.

        Raises:
            HookFailedError: it cannot be reached, answered with another status than 2xx, or too much.
        """
        import httpx2  # takes long to import, and is seldom needed here

        send = self._send or await self._opened()
        headers = {"content-type": "application/json", "accept": "application/json", **self._headers}
        # Nothing limits the single steps: the time of the whole is limited.
        none = {"connect": None, "read": None, "write": None, "pool": None}
        request = httpx2.Request("POST", self._url, headers=headers, content=event, extensions={"timeout": none})
        try:
            response = await send(request)
            try:
                if not 200 <= response.status_code < 300:
                    raise HookFailedError(f"it answered with HTTP status {response.status_code}")
                answer = bytearray()
                async for piece in response.aiter_bytes():
                    answer += piece
                    if len(answer) > LARGEST_ANSWER:
                        raise HookFailedError(f"its answer is larger than {LARGEST_ANSWER >> 20} MiB")
                return bytes(answer)
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise HookFailedError(f"it cannot be asked: {error}") from error

    async def _opened(self) -> "Send":
        import httpx2

        from mcpbridge.wire.http_client import open_client

        async with self._opening:
            if self._send is None:
                if self._stack is None:
                    raise HookFailedError("the bridge is not running")
                try:
                    self._send = await self._stack.enter_async_context(open_client(httpx2.URL(self._url), None))
                except ConfigError as error:
                    raise HookFailedError(f"it cannot be asked: {error}") from error
            return self._send
