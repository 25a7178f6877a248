"""Asks a service of language models over HTTP: with a second try where that may help, and never for more than it may.

What the service says of a failure goes to the log, not to clients: it may hold anything, the key too.
"""

import asyncio
import re
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from mcpbridge.errors import ConfigError
from mcpbridge.redaction import Redactor
from mcpbridge.result_settings import SummarySettings
from mcpbridge.results.summary_apis import APIS, Api
from mcpbridge.results.summary_prompt import Prompt, SummaryFailed, Written

if TYPE_CHECKING:
    import httpx2

    from mcpbridge.wire.bearer import Send

__all__ = ["SummaryService"]

log = structlog.get_logger("mcpbridge.results")

AT_ONCE = 4
"""Requests that are under way at a time; further ones wait."""
TRIES = 2
"""How often a request is sent that found the service busy, broken or out of reach."""
PAUSE = 0.5
"""Seconds before the second try, where the service does not say how long."""
LARGEST_ANSWER = 4 << 20
"""Bytes; a summary is far smaller."""
_MOST_SAID = 2000
"""Bytes of an error answer that are looked at."""


class _Passing(Exception):
    """It may work when it is tried again, after so many seconds if the service says so."""

    def __init__(self, reason: str, seconds: float | None = None) -> None:
        super().__init__(reason)
        self.seconds = PAUSE if seconds is None else seconds


class _Unwanted(Exception):
    """The model does not take one of the parameters."""

    def __init__(self, parameter: str) -> None:
        super().__init__(parameter)
        self.parameter = parameter


class SummaryService:
    """One service with its connections, which are kept for the next summary."""

    def __init__(self, settings: SummarySettings) -> None:
        """`settings.provider` is one of `APIS`. Nothing is contacted yet."""
        self._api: Api = APIS[settings.provider]
        self._url = (settings.url or self._api.url).rstrip("/") + self._api.path
        self._model, self._key = settings.model or "", settings.api_key or ""
        self._redactor = Redactor([self._key] if self._key else [])
        self._refused = frozenset[str]()
        """Parameters that the model has refused."""
        self._places = asyncio.Semaphore(AT_ONCE)
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._send: Send | None = None
        self._is_closed = False

    async def write(self, prompt: Prompt, until: float) -> Written:
        """What the model writes. `until`: the loop time at which the caller gives up; no pause goes beyond it.

        Raises:
            SummaryFailed: the service cannot be reached, refused, or answered with what is no text of a model.
        """
        if not self._model:
            raise SummaryFailed("`results.summary.model` is not set")
        async with self._places:
            tries, refused = 1, self._refused
            while True:
                try:
                    written = self._api.read(await self._asked(prompt, refused))
                except _Unwanted as unwanted:
                    refused |= {unwanted.parameter}
                except _Passing as passing:
                    left = until - asyncio.get_running_loop().time()
                    if tries == TRIES or passing.seconds >= left:
                        raise SummaryFailed(str(passing)) from passing
                    tries += 1
                    await asyncio.sleep(passing.seconds)
                else:
                    self._refused |= refused
                    return written

    async def close(self) -> None:
        """Close the connections; what is under way fails."""
        self._is_closed = True
        self._send = None
        await self._stack.aclose()

    async def _asked(self, prompt: Prompt, refused: frozenset[str]) -> bytes:
        """The body of a good answer."""
        import httpx2  # takes long to import, and is seldom needed here

        content = self._api.body(self._model, prompt, refused)
        headers = {"content-type": "application/json", "accept": "application/json", **self._api.headers(self._key)}
        # Nothing limits the single steps: the time of the whole is limited.
        none = {"connect": None, "read": None, "write": None, "pool": None}
        try:
            request = httpx2.Request("POST", self._url, headers=headers, content=content, extensions={"timeout": none})
            response = await (self._send or await self._opened())(request)
            try:
                if response.status_code == 200:
                    return await _body(response, LARGEST_ANSWER)
                said = await _beginning(response)
            finally:
                await response.aclose()
        except (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.InvalidURL, UnicodeError) as error:
            log.warning("a summary service cannot be asked", error=type(error).__name__)
            raise SummaryFailed("`results.summary` has an address or a key that cannot be used") from error
        except (httpx2.HTTPError, OSError) as error:
            log.warning("a summary service is out of reach", error=self._redactor(str(error)))
            raise _Passing("the summary service cannot be reached") from error
        raise self._refusal(response, said, refused)

    def _refusal(self, response: "httpx2.Response", said: bytes, refused: frozenset[str]) -> Exception:
        """What another status than 200 means."""
        from mcpbridge.wire.http_problems import excerpt, seconds_to_wait

        status = response.status_code
        if status in (400, 422):
            for parameter in self._api.optional:
                if parameter not in refused and re.search(rb"\b%b\b" % parameter.encode(), said):
                    return _Unwanted(parameter)
        log.warning("a summary service refused", status=status, answer=excerpt(said, self._redactor))
        reason = f"the summary service answered with HTTP status {status}"
        if status in (408, 429) or status >= 500:
            return _Passing(reason, seconds_to_wait(response.headers.get("retry-after", ""), datetime.now(UTC)))
        if status in (401, 403):
            reason += "; is `results.summary.api_key` right?"
        if status in (301, 302, 303, 307, 308, 404):
            reason += "; are `results.summary.url` and `model` right?"
        return SummaryFailed(reason)

    async def _opened(self) -> "Send":
        import httpx2

        from mcpbridge.wire.http_client import open_client

        async with self._opening:
            if self._is_closed:
                raise SummaryFailed("the bridge stops")
            if self._send is None:
                try:
                    self._send = await self._stack.enter_async_context(open_client(httpx2.URL(self._url), None))
                except ConfigError as error:
                    raise SummaryFailed(f"the summary service cannot be asked: {error}") from error
            return self._send


async def _body(response: "httpx2.Response", largest: int) -> bytes:
    answer = bytearray()
    async for piece in response.aiter_bytes():
        answer += piece
        if len(answer) > largest:
            raise SummaryFailed(f"the summary service's answer is larger than {largest >> 20} MiB")
    return bytes(answer)


async def _beginning(response: "httpx2.Response") -> bytes:
    said = bytearray()
    async for piece in response.aiter_bytes():
        said += piece
        if len(said) > _MOST_SAID:
            break
    return bytes(said[:_MOST_SAID])
