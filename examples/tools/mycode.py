"""What the example configurations of this directory name."""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from mcpbridge import Pack, PackTool


def slugify(text: str, longest: Annotated[int, Field(ge=1, le=200)] = 40) -> str:
    """Make a text that can stand in a URL.

    Args:
        text: Any text.
        longest: Characters at most.
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:longest]


def count(to: int) -> Iterator[dict[str, Any]]:
    """Count, and tell of each step."""
    for number in range(1, to + 1):
        yield {"progress": number, "total": to, "message": f"at {number}"}


class Glossary:
    """What words of sailing mean."""

    def __init__(self, language: str) -> None:
        self.language, self.entries = language, dict[str, str]()

    def deploy(self) -> None:
        """Once, before the first call."""
        self.entries = {"tide": "the rise and fall of the sea", "fender": "what keeps a hull from the quay"}

    def validate_inputs(self, word: str) -> None:
        """Refuses arguments by raising."""
        if " " in word:
            raise ValueError("word: one word, without blanks")

    def execute(self, word: str) -> dict[str, str]:
        """What a word of sailing means."""
        return {"word": word, "meaning": self.entries.get(word, "not known"), "language": self.language}

    def execute_command(self, name: str, data: dict[str, Any]) -> Any:
        """Management commands: `add` puts a word in."""
        if name == "add":
            self.entries[data["word"]] = data["meaning"]
        return {"entries": len(self.entries)}


def critic(message: str, history: list[dict[str, str]]) -> str:
    """An agent: sees the message, and what was said before in the same conversation."""
    words = len(message.split())
    return f"{words} words, and you had said {len(history)} things before."


def shorten(text: str, words: int = 5) -> dict[str, Any]:
    """The first words of a text."""
    found = text.split()
    return {"text": " ".join(found[:words]), "left_out": max(0, len(found) - words)}


def warm_up(data: dict[str, Any]) -> str:
    """A management command of the pack."""
    return f"nothing to do about {sorted(data) or 'anything'}"


texts = Pack(
    name="texts",
    tools=[PackTool(function=shorten, output="{text} … ({left_out} more)"), slugify],
    commands={"warmup": warm_up},
)
