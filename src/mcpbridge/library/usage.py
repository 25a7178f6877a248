"""How many tokens a model says that it used, in whatever words its API says it. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

__all__ = ["Usage", "usage_of"]

_INPUT = ("prompt_tokens", "input_tokens", "prompt_token_count", "promptTokenCount")
_OUTPUT = ("completion_tokens", "output_tokens", "candidates_token_count", "candidatesTokenCount")
_APART = ("cache_creation_input_tokens", "cache_read_input_tokens")
"""What Anthropic's API does not count as input though the model reads it."""
_THOUGHTS = ("thoughts_token_count", "thoughtsTokenCount")
"""What Gemini's does not count as output though the model writes it."""


class Usage(Struct, frozen=True):
    """Tokens of one answer, or of several together; 0 where the API does not say."""

    input: int = 0
    """What the model read, from caches or not."""
    output: int = 0
    """What it wrote, thoughts included."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.input + other.input, self.output + other.output)


def usage_of(response: object) -> Usage:
    """What a response says of its usage: an object of an official client, or plain JSON values."""
    for name in ("usage", "usage_metadata", "usageMetadata"):
        said = _member(response, name)
        if said is not None:
            read = _first(said, _INPUT) + sum(_number(said, one) for one in _APART)
            return Usage(read, _first(said, _OUTPUT) + _first(said, _THOUGHTS))
    return Usage()


def _first(said: object, names: tuple[str, ...]) -> int:
    return next((number for name in names if (number := _number(said, name))), 0)


def _number(said: object, name: str) -> int:
    value = _member(said, name)
    return value if isinstance(value, int) else 0


def _member(value: object, name: str) -> Any:
    return cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else getattr(value, name, None)
