"""Asks a language model: the client's own, by sampling, or a service over HTTP that the configuration names.

A service gets a second try where that may help, and never more time than it may take. What it says of a failure goes
to the log, not to clients: it may hold anything, even the key. Asking may always fail, so every caller has a
fallback.
"""

import asyncio
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.log import get_logger
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.core.elicitation import SAMPLE, Elicitor, Question, QuestionRefused
from mcpbridge.core.llm.messages import APIS, Api, ModelFailed, Prompt, Written
from mcpbridge.protocol.jsonrpc import encode

if TYPE_CHECKING:
    import httpx2

    from mcpbridge.protocol.http.bearer_auth import Send


log = get_logger("mcpbridge.models")

CLIENT = "client"
"""The provider that is no service: the client's own model."""

AT_ONCE = 4
"""Requests that are under way at a time; further ones wait."""
TRIES = 2
"""How often a request is sent that found the service busy, broken or out of reach."""
PAUSE = 0.5
"""Seconds before the second try, where the service does not say how long."""
LARGEST_ANSWER = 4 << 20
"""Bytes; what is asked for is far smaller."""
_ERROR_BODY_LIMIT = 2000
"""Bytes of an error answer that are looked at."""


@dataclass(frozen=True, slots=True)
class Account:
    """Which model is asked, and what for."""

    provider: str
    """One of `APIS`; or `CLIENT`, which needs nothing below but `purpose`."""
    purpose: str
    """What it is asked for, in one word: clients see that `mcpbridge: PURPOSE` asks."""
    section: str
    """Where it is configured, as messages call it: `results.summary`."""
    model: str = ""
    """As the service knows it."""
    url: str = ""
    """Base address of the service; empty: the provider's own."""
    key: str = field(default="", repr=False)
    """The service's; empty: it needs none."""


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


class Service:
    """One service with its connections, which are kept for the next question."""

    def __init__(self, account: Account) -> None:
        """`account.provider` is one of `APIS`. Nothing is contacted yet."""
        self._api: Api = APIS[account.provider]
        self._account = account
        self._url = (account.url or self._api.url).rstrip("/") + self._api.path
        self._redactor = Redactor([account.key] if account.key else [])
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
            ModelFailed: the service cannot be reached, refused, or answered with what is no text of a model.
        """
        if not self._account.model:
            raise ModelFailed(f"`{self._account.section}.model` is not set")
        async with self._places:
            tries, refused = 1, self._refused
            while True:
                try:
                    written = self._api.read(await self._asked(prompt, refused))
                except _Unwanted as unwanted:
                    refused |= {unwanted.parameter}
                except _Passing as passing:
                    left = until - asyncio.get_running_loop().time()
                    if tries == TRIES or passing.seconds >= left or self._is_closed:
                        raise ModelFailed(str(passing)) from passing
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

        content = self._api.body(self._account.model, prompt, refused)
        headers = {"content-type": "application/json", "accept": "application/json"}
        headers |= self._api.headers(self._account.key)
        # Nothing limits the single steps: the time of the whole is limited.
        none = {"connect": None, "read": None, "write": None, "pool": None}
        try:
            request = httpx2.Request("POST", self._url, headers=headers, content=content, extensions={"timeout": none})
            response = await (self._send or await self._opened())(request)
            try:
                if response.status_code == 200:
                    return await self._body(response)
                refusal = await _beginning(response)
            finally:
                await response.aclose()
        except (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.InvalidURL, UnicodeError) as error:
            log.warning("model service cannot be called", purpose=self._account.purpose, error=type(error).__name__)
            raise ModelFailed(f"`{self._account.section}` has an address or a key that cannot be used") from error
        except (httpx2.HTTPError, OSError) as error:
            reason = self._redactor(str(error))
            log.warning("model service unreachable", purpose=self._account.purpose, error=reason)
            raise _Passing(f"the {self._account.purpose} service cannot be reached") from error
        raise self._refusal(response, refusal, refused)

    def _refusal(self, response: "httpx2.Response", body: bytes, refused: frozenset[str]) -> Exception:
        """What another status than 200 means."""
        from mcpbridge.protocol.http.responses import excerpt, seconds_to_wait

        status, section = response.status_code, self._account.section
        if status in (400, 422):
            for parameter in self._api.optional:
                if parameter not in refused and re.search(rb"\b%b\b" % parameter.encode(), body):
                    return _Unwanted(parameter)
        answer = excerpt(body, self._redactor)
        log.warning("model service refused the request", purpose=self._account.purpose, status=status, answer=answer)
        reason = f"the {self._account.purpose} service answered with HTTP status {status}"
        if status in (408, 429) or status >= 500:
            return _Passing(reason, seconds_to_wait(response.headers.get("retry-after", ""), datetime.now(UTC)))
        if status in (401, 403):
            reason += f"; is `{section}.api_key` right?"
        if status in (301, 302, 303, 307, 308, 404):
            reason += f"; are `{section}.url` and `model` right?"
        return ModelFailed(reason)

    async def _opened(self) -> "Send":
        import httpx2

        from mcpbridge.protocol.http.client import open_client

        async with self._opening:
            if self._is_closed:
                raise ModelFailed("the bridge stops")
            if self._send is None:
                try:
                    self._send = await self._stack.enter_async_context(open_client(httpx2.URL(self._url), None))
                except ConfigError as error:
                    raise ModelFailed(f"the {self._account.purpose} service cannot be asked: {error}") from error
            return self._send

    async def _body(self, response: "httpx2.Response") -> bytes:
        answer = bytearray()
        async for piece in response.aiter_bytes():
            answer += piece
            if len(answer) > LARGEST_ANSWER:
                purpose, most = self._account.purpose, LARGEST_ANSWER >> 20
                raise ModelFailed(f"the {purpose} service's answer is larger than {most} MiB")
        return bytes(answer)


async def _beginning(response: "httpx2.Response") -> bytes:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > _ERROR_BODY_LIMIT:
            break
    return bytes(body[:_ERROR_BODY_LIMIT])


_CHEAP = {"costPriority": 0.8, "speedPriority": 0.8, "intelligencePriority": 0.2}


class _Part(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Sampled(msgspec.Struct):
    content: _Part | list[_Part]
    stop: str | None = msgspec.field(default=None, name="stopReason")


_decode = msgspec.json.Decoder(_Sampled).decode


class Model:
    """A model that is asked for one thing."""

    def __init__(self, account: Account) -> None:
        """Nothing is contacted before the first question."""
        self._asks = f"mcpbridge: {account.purpose}"  # no server's name has a colon and a blank
        self.is_clients = account.provider == CLIENT
        """It is the client's own."""
        self._service = None if self.is_clients else Service(account)

    def reason_unavailable(self, elicitor: Elicitor) -> str:
        """Why it cannot be asked on behalf of this client; empty when it can."""
        return "the client did not declare sampling" if self.is_clients and not elicitor.capabilities.sampling else ""

    async def write(self, prompt: Prompt, elicitor: Elicitor, seconds: float, *, deadline: float = 0.0) -> Written:
        """What it writes within so many seconds, and by `deadline` (loop time), if there is one.

        Cancelled, it withdraws what it asked.

        Raises:
            ModelFailed: the client does not sample or refused, the service failed, it took too long.
        """
        if reason := self.reason_unavailable(elicitor):
            raise ModelFailed(reason)
        now = asyncio.get_running_loop().time()
        until = min(now + seconds, deadline) if deadline else now + seconds
        try:
            async with asyncio.timeout_at(until):
                if self._service is not None:
                    return await self._service.write(prompt, until)
                return await self._sampled(prompt, elicitor)
        except TimeoutError:
            raise ModelFailed(f"there was none within {max(0.0, until - now):.3g} s") from None

    async def close(self) -> None:
        """Let go of connections."""
        if self._service is not None:
            await self._service.close()

    async def _sampled(self, prompt: Prompt, elicitor: Elicitor) -> Written:
        """What the client's model writes (spec, client/sampling)."""
        params: dict[str, object] = {
            "messages": [{"role": "user", "content": {"type": "text", "text": prompt.whole}}],
            "systemPrompt": prompt.system,
            "includeContext": "none",
            "modelPreferences": _CHEAP,
            "maxTokens": prompt.tokens,
        }
        if prompt.temperature is not None:
            params["temperature"] = prompt.temperature
        try:
            answer = await elicitor.ask(Question(self._asks, SAMPLE, Raw(encode(params))))
        except QuestionRefused as refused:
            raise ModelFailed(f"the client's model cannot be asked: {refused}") from refused
        try:
            sampled = _decode(answer)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ModelFailed("the client's answer cannot be read") from error
        parts = sampled.content if isinstance(sampled.content, list) else [sampled.content]
        text = "".join(part.text for part in parts if part.type == "text")
        return Written(text, sampled.stop == "maxTokens")
