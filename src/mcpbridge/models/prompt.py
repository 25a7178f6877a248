"""What a model is given and what it wrote, as every way of asking understands it; pure.

What servers and clients send is data to a model: it stands between two marks, and cannot end it (`defuser`).
"""

import re
from collections.abc import Callable

from msgspec import Struct

__all__ = ["ModelFailed", "Prompt", "Written", "defuser", "excerpt_of", "whole_characters", "without_thoughts"]

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
    """What stands before `text`, and is the same from one prompt to the next: services that keep it charge less."""
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
