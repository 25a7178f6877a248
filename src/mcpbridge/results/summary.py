"""Summaries of results by a model: the strategy `summarize`.

Asked is the client's own model, by sampling, or a service that the configuration names (`summary_service`). It is for
who asks to fall back to something else: a summary may always fail.
"""

import asyncio

import msgspec
from msgspec import Raw

from mcpbridge.interaction import SAMPLE, Question, QuestionRefused
from mcpbridge.model import Call
from mcpbridge.result_settings import SummarySettings
from mcpbridge.results.summary_prompt import SMALLEST_ROOM, Prompt, SummaryFailed, Written, prompt_for, usable
from mcpbridge.results.summary_service import SummaryService
from mcpbridge.wire.frame import encode

__all__ = ["Summarizer", "SummaryFailed"]

_ASKS = "mcpbridge: summary"
"""Who asks the client: no server's name has a colon and a blank."""
_CHEAP = {"costPriority": 0.8, "speedPriority": 0.8, "intelligencePriority": 0.2}


class _Part(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Sampled(msgspec.Struct):
    content: _Part | list[_Part]
    stop: str | None = msgspec.field(default=None, name="stopReason")


_decode = msgspec.json.Decoder(_Sampled).decode


class Summarizer:
    """Asks the client's own model, or a configured service."""

    def __init__(self, settings: SummarySettings) -> None:
        """Nothing is contacted before the first summary."""
        self._settings = settings
        self._service = None if settings.provider == "client" else SummaryService(settings)

    async def summarize(self, call: Call, text: str, room: int) -> str:
        """A summary of at most `room` characters. Cancelled, it withdraws what it asked.

        Raises:
            SummaryFailed: the client does not sample, the service failed, it took too long, or nothing came of it.
        """
        if room < SMALLEST_ROOM:
            raise SummaryFailed("there is no room for one")
        if self._service is None and not call.client.profile.sampling:
            raise SummaryFailed("the client did not declare sampling")
        tool = call.tool.id if call.tool is not None else call.target
        arguments = str(memoryview(call.params.get("arguments") or b""), "utf-8", "replace")
        prompt = prompt_for(tool, arguments, text, room=room, max_input=self._settings.max_input)
        now = asyncio.get_running_loop().time()
        until = now + self._settings.timeout
        if call.deadline:
            until = min(until, call.deadline)
        try:
            async with asyncio.timeout_at(until):
                if self._service is not None:
                    written = await self._service.write(prompt, until)
                else:
                    written = await _sampled(call, prompt)
        except TimeoutError:
            raise SummaryFailed(f"there was none within {max(0.0, until - now):.3g} s") from None
        return usable(written, room)

    async def close(self) -> None:
        """Let go of connections."""
        if self._service is not None:
            await self._service.close()


async def _sampled(call: Call, prompt: Prompt) -> Written:
    """What the client's model writes (spec, client/sampling)."""
    params = {
        "messages": [{"role": "user", "content": {"type": "text", "text": prompt.text}}],
        "systemPrompt": prompt.system,
        "includeContext": "none",
        "modelPreferences": _CHEAP,
        "temperature": 0,
        "maxTokens": prompt.tokens,
    }
    try:
        answer = await call.client.ask(Question(_ASKS, SAMPLE, Raw(encode(params))))
    except QuestionRefused as refused:
        raise SummaryFailed(f"the client's model cannot be asked: {refused}") from refused
    try:
        sampled = _decode(answer)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise SummaryFailed("the client's answer cannot be read") from error
    parts = sampled.content if isinstance(sampled.content, list) else [sampled.content]
    text = "".join(part.text for part in parts if part.type == "text")
    return Written(text, sampled.stop == "maxTokens")
