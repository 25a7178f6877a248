"""The one way to ask a model: the client's own, by sampling, or that of a service that the configuration names.

It is for who asks to fall back to something else: asking a model may always fail.
"""

import asyncio

import msgspec
from msgspec import Raw

from mcpbridge.interaction import SAMPLE, Asker, Question, QuestionRefused
from mcpbridge.models.prompt import ModelFailed, Prompt, Written
from mcpbridge.models.service import CLIENT, Account, Service
from mcpbridge.wire.frame import encode

__all__ = ["Model"]

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

    def why_not(self, asker: Asker) -> str:
        """Why it cannot be asked on behalf of this client; empty when it can."""
        return "the client did not declare sampling" if self.is_clients and not asker.profile.sampling else ""

    async def write(self, prompt: Prompt, asker: Asker, seconds: float, *, deadline: float = 0.0) -> Written:
        """What it writes within so many seconds, and by `deadline` (loop time), if there is one.

        Cancelled, it withdraws what it asked.

        Raises:
            ModelFailed: the client does not sample or refused, the service failed, it took too long.
        """
        if reason := self.why_not(asker):
            raise ModelFailed(reason)
        now = asyncio.get_running_loop().time()
        until = min(now + seconds, deadline) if deadline else now + seconds
        try:
            async with asyncio.timeout_at(until):
                if self._service is not None:
                    return await self._service.write(prompt, until)
                return await self._sampled(prompt, asker)
        except TimeoutError:
            raise ModelFailed(f"there was none within {max(0.0, until - now):.3g} s") from None

    async def close(self) -> None:
        """Let go of connections."""
        if self._service is not None:
            await self._service.close()

    async def _sampled(self, prompt: Prompt, asker: Asker) -> Written:
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
            answer = await asker.ask(Question(self._asks, SAMPLE, Raw(encode(params))))
        except QuestionRefused as refused:
            raise ModelFailed(f"the client's model cannot be asked: {refused}") from refused
        try:
            sampled = _decode(answer)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ModelFailed("the client's answer cannot be read") from error
        parts = sampled.content if isinstance(sampled.content, list) else [sampled.content]
        text = "".join(part.text for part in parts if part.type == "text")
        return Written(text, sampled.stop == "maxTokens")
