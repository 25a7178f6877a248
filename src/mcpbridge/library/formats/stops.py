"""Why a model stopped, in one set of words for all formats."""

from collections.abc import Mapping

__all__ = ["STOPS", "told_stop"]

STOPS = ("end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn")
"""It was done; it wants tools called; it ran out of tokens, so that its last call may be cut off; it met a text to stop
at; it, or a filter, refuses; it wants to go on. Another reason is told in the API's own words."""


def told_stop(reason: str, words: Mapping[str, str], *, has_calls: bool) -> str:
    """A format's reason in these words; calls that are there are wanted, whatever the reason says of the rest."""
    told = words.get(reason, reason)
    if has_calls and told in ("", "end_turn"):
        return "tool_use"
    return told or "end_turn"
