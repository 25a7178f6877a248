"""Prompts and answers of language models as values, and the two formats of services (OpenAI, Anthropic); pure.

What servers and clients send is data to a model: it is between two marks that it cannot forge (`defuser`).
"""

import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from mcpbridge.protocol.jsonrpc import encode

_THOUGHT = re.compile(r"\s*<think(?:ing)?>")


class ModelFailed(Exception):
    """Nothing came of asking a model; the message says why, and may be shown."""


class Prompt(Struct, frozen=True):
    """What a model is given."""

    system: str
    text: str
    tokens: int
    """That its answer may have."""
    prefix: str = ""
    """What is before `text`, and is the same from one prompt to the next: services that keep it charge less."""
    temperature: float | None = 0
    """How freely it writes; None: as it does by itself."""

    @property
    def whole(self) -> str:
        """All that the user is said to say."""
        return self.prefix + self.text


class Written(Struct, frozen=True):
    """What a model wrote."""

    text: str
    is_cut: bool = False
    """It had more to say than it was allowed tokens."""


def excerpt_of(text: str, limit: int) -> tuple[str, int]:
    """The beginning and the end of a text that is longer than `limit`, and how many characters are missing between."""
    if len(text) <= limit:
        return text, 0
    last = limit // 3
    head, tail = text[: limit - last], text[len(text) - last :]
    if (end := head.rfind("\n", len(head) * 9 // 10)) > 0:
        head = head[:end]
    if (start := tail.find("\n", 0, last // 10)) >= 0:
        tail = tail[start + 1 :]
    missing = len(text) - len(head) - len(tail)
    return f"{head}\n[… {missing:,} characters are missing here …]\n{tail}", missing


def defuser(*marks: str) -> Callable[[str], str]:
    """What makes a text in which nothing looks like one of these marks, `<mark>` or `</mark>`."""
    mark = re.compile(rf"<(?=\s{{0,9}}/?\s{{0,9}}(?:{'|'.join(map(re.escape, marks))})\b)", re.IGNORECASE)
    return lambda text: mark.sub("&lt;", text)


def whole_characters(text: str) -> str:
    """The text without halves of characters (lone surrogates), which cannot be sent."""
    return text.encode("utf-8", "replace").decode()


def without_thoughts(text: str) -> str:
    """The answer alone: models that are run at home send their thoughts along. Empty: they never came to an end."""
    thought = _THOUGHT.match(text)
    if not thought:
        return text
    _, end, text = text[thought.end() :].partition("</think")
    return text.partition(">")[2].strip() if end else ""


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
    """Parameters that some models refuse; the ones to look for first come first."""

    def headers(self, key: str) -> dict[str, str]:
        """The headers of a request. `key` empty: the service needs none."""
        ...

    def body(self, model: str, prompt: Prompt, refused: frozenset[str]) -> bytes:
        """The request. `refused`: those of `optional` that the model does not take."""
        ...

    def read(self, answer: bytes) -> Written:
        """What the model wrote.

        Raises:
            ModelFailed: that cannot be seen in the answer.
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
        messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.whole}]
        body: dict[str, object] = {"model": model, "messages": messages}
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
            prefix = {"type": "text", "text": prompt.prefix, "cache_control": {"type": "ephemeral"}}
            content = [prefix, {"type": "text", "text": prompt.text}]
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
    is_sent = prompt.temperature is not None and "temperature" not in refused
    return {"temperature": prompt.temperature} if is_sent else {}


def _text_of(parts: Sequence[_Part]) -> str:
    return "".join(part.text for part in parts if part.type == "text")


def _decoded(answer: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ModelFailed("the service's answer cannot be read") from error
