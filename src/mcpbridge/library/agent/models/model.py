"""The Model protocol: what `Bridge.run` asks in each round. Any async function of one request satisfies it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from mcpbridge.library.calls.run_events import ArgumentsDelta, TextDelta
from mcpbridge.library.llm_formats.messages import Format, known_format

INVALID_JSON = "INVALID_JSON"
"""The one argument of a call whose arguments a model's API wants to be an object, and that the model wrote wrongly."""

Delta: TypeAlias = TextDelta | ArgumentsDelta
"""A piece of what the model writes."""


class ModelRequest(Struct, frozen=True):
    """What a model is asked in one round."""

    messages: Sequence[Mapping[str, Any]]
    """The history, as the model's API has it."""
    tools: Sequence[Mapping[str, Any]]
    """The tools, as the model's API has them; empty: it is offered none."""
    run: str
    round: int
    """1 for the first."""
    emit: Callable[[Delta], object] | None = None
    """Takes what the model writes, piece by piece; None: nobody listens, so the answer may come whole."""


class Model(Protocol):
    """Asks a language model.

    `format`, if it has such an attribute, names the API that messages, tools and responses are of (`"openai"` without).
    """

    async def __call__(self, request: ModelRequest, /) -> Any:
        """The model's response: an object of an official client, or the same as JSON values."""
        ...


def format_of(model: object) -> Format:
    """The format that a model speaks.

    Raises:
        FormatError: there is none of this name.
    """
    return known_format(getattr(model, "format", "openai"))
