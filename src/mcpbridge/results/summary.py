"""Summaries of results by a model: the strategy `summarize`."""

from mcpbridge.model import Call
from mcpbridge.result_settings import SummarySettings

__all__ = ["Summarizer", "SummaryFailed"]


class SummaryFailed(Exception):
    """No summary came of it; the message says why."""


class Summarizer:
    """Asks the client's own model, or a configured service."""

    def __init__(self, settings: SummarySettings) -> None:
        """Nothing is contacted before the first summary."""
        self._settings = settings

    async def summarize(self, call: Call, text: str, room: int) -> str:
        """A summary of at most `room` characters.

        Raises:
            SummaryFailed: the client does not sample, the service failed, it took too long, or nothing came of it.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of connections."""
