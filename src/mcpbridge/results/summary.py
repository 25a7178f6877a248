"""Summaries of results by a model: the strategy `summarize`.

Asked is the client's own model, by sampling, or a service that the configuration names (`models/`). It is for who asks
to fall back to something else: a summary may always fail.
"""

from mcpbridge.model import Call
from mcpbridge.models.asking import Model
from mcpbridge.models.prompt import ModelFailed
from mcpbridge.models.service import Account
from mcpbridge.result_settings import SummarySettings
from mcpbridge.results.summary_prompt import SMALLEST_ROOM, SummaryFailed, prompt_for, usable

__all__ = ["Summarizer", "SummaryFailed"]


class Summarizer:
    """Asks the client's own model, or a configured service."""

    def __init__(self, settings: SummarySettings) -> None:
        """Nothing is contacted before the first summary."""
        self._settings = settings
        self._model = Model(
            Account(
                settings.provider,
                "summary",
                "results.summary",
                model=settings.model or "",
                url=settings.url or "",
                key=settings.api_key or "",
            )
        )

    async def summarize(self, call: Call, text: str, room: int) -> str:
        """A summary of at most `room` characters. Cancelled, it withdraws what it asked.

        Raises:
            SummaryFailed: the client does not sample, the service failed, it took too long, or nothing came of it.
        """
        if room < SMALLEST_ROOM:
            raise SummaryFailed("there is no room for one")
        if reason := self._model.why_not(call.client):
            raise SummaryFailed(reason)
        tool = call.tool.id if call.tool is not None else call.target
        arguments = str(memoryview(call.params.get("arguments") or b""), "utf-8", "replace")
        prompt = prompt_for(tool, arguments, text, room=room, max_input=self._settings.max_input)
        try:
            written = await self._model.write(prompt, call.client, self._settings.timeout, deadline=call.deadline)
        except ModelFailed as failed:
            raise SummaryFailed(str(failed)) from failed
        return usable(written, room)

    async def close(self) -> None:
        """Let go of connections."""
        await self._model.close()
