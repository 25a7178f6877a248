"""The two ways in which services of language models are asked: requests and answers as values, no I/O."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from mcpbridge.models.prompt import ModelFailed, Prompt, Written
from mcpbridge.wire.frame import encode

__all__ = ["APIS", "AnthropicApi", "Api", "OpenAiApi"]

_T = TypeVar("_T")

_REASONING = 4096
"""Tokens that a model may think beside what it writes, where these count as well."""


class Api(Protocol):
    """One way to ask. What a model does not take is left out, or said otherwise, once it has refused it."""

    url: str
    """The provider's own base address."""
    path: str
    """What comes after the base address."""
    optional: tuple[str, ...]
    """Parameters that some models refuse; the ones to look for first stand first."""

    def headers(self, key: str) -> dict[str, str]:
        """The headers of a request. `key` empty: the service needs none."""
        ...

    def body(self, model: str, prompt: Prompt, refused: frozenset[str]) -> bytes:
        """The request. `refused`: those of `optional` that the model does not take."""
        ...

    def read(self, answer: bytes) -> Written:
        """What the model wrote.

        Raises:
            ModelFailed: that cannot be told from the answer.
        """
        ...


class _Part(Struct):
    type: str = ""
    text: str = ""


class _Message(Struct):
    content: str | list[_Part] | None = None


class _Choice(Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(Struct):
    choices: list[_Choice]


class _AnthropicMessage(Struct):
    content: list[_Part]
    stop_reason: str | None = None


class OpenAiApi:
    """Chat completions, as OpenAI has them and most other services and programs as well.

    What prompts have in common at the beginning is kept there without being asked for.
    """

    url = "https://api.openai.com/v1"
    path = "/chat/completions"
    # The older name of the limit is the one that all compatible servers know; OpenAI's own later models refuse it.
    optional: tuple[str, ...] = ("max_tokens", "temperature")

    def headers(self, key: str) -> dict[str, str]:
        """See `Api`."""
        return {"authorization": f"Bearer {key}"} if key else {}

    def body(self, model: str, prompt: Prompt, refused: frozenset[str]) -> bytes:
        """See `Api`."""
        said = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.whole}]
        body: dict[str, object] = {"model": model, "messages": said}
        if "max_tokens" in refused:
            body["max_completion_tokens"] = prompt.tokens + _REASONING
        else:
            body["max_tokens"] = prompt.tokens
        return encode(body | _temperature(prompt, refused))

    def read(self, answer: bytes) -> Written:
        """See `Api`."""
        completion = _decoded(answer, _Completion)
        if not completion.choices:
            raise ModelFailed("the model wrote nothing")
        first = completion.choices[0]
        content = first.message.content
        text = content if isinstance(content, str) else _text_of(content or [])
        return Written(text, first.finish_reason == "length")


class AnthropicApi:
    """Messages, as Anthropic has them."""

    url = "https://api.anthropic.com/v1"
    path = "/messages"
    optional: tuple[str, ...] = ("temperature", "cache_control")

    def headers(self, key: str) -> dict[str, str]:
        """See `Api`."""
        return {"anthropic-version": "2023-06-01"} | ({"x-api-key": key} if key else {})

    def body(self, model: str, prompt: Prompt, refused: frozenset[str]) -> bytes:
        """See `Api`."""
        content: object = prompt.whole
        if prompt.prefix and "cache_control" not in refused:
            kept = {"type": "text", "text": prompt.prefix, "cache_control": {"type": "ephemeral"}}
            content = [kept, {"type": "text", "text": prompt.text}]
        body: dict[str, object] = {
            "model": model,
            "system": prompt.system,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": prompt.tokens,
        }
        return encode(body | _temperature(prompt, refused))

    def read(self, answer: bytes) -> Written:
        """See `Api`."""
        message = _decoded(answer, _AnthropicMessage)
        return Written(_text_of(message.content), message.stop_reason == "max_tokens")


APIS: dict[str, Api] = {"openai": OpenAiApi(), "anthropic": AnthropicApi()}
"""By the name of the provider."""


def _temperature(prompt: Prompt, refused: frozenset[str]) -> dict[str, object]:
    is_said = prompt.temperature is not None and "temperature" not in refused
    return {"temperature": prompt.temperature} if is_said else {}


def _text_of(parts: Sequence[_Part]) -> str:
    return "".join(part.text for part in parts if part.type == "text")


def _decoded(answer: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ModelFailed("the service's answer cannot be read") from error
