"""What `code-execute` is called with."""

from msgspec import Struct, field

from mcpbridge.builtin.code_languages import Language
from mcpbridge.errors import ArgumentsRefused

__all__ = ["CodeArguments", "checked"]

_LONGEST_NAME = 255
"""Bytes of a file name."""


class CodeArguments(Struct, frozen=True):
    """The arguments."""

    language: Language
    code: str
    stdin: str = ""
    files: dict[str, str] = field(default_factory=dict[str, str])
    """Texts by name."""
    timeout: float | None = None
    """Seconds."""


def checked(given: CodeArguments, main: str, most: int) -> dict[str, bytes]:
    """The files of a program: its own, called `main`, and those that it was given.

    Raises:
        ArgumentsRefused: a name is none, or all together have more than `most` bytes.
    """
    for name in given.files:
        if not name.strip(". ") or any(mark in name for mark in "/\\\0") or len(name.encode()) > _LONGEST_NAME:
            raise ArgumentsRefused(f"`files`: {name[:80]!r} is no plain file name")
        if name == main:
            raise ArgumentsRefused(f"`files`: {name!r} is the name of the program itself")
    files = {name: text.encode() for name, text in given.files.items()}
    files[main] = _unfenced(given.code).encode()
    size = sum(map(len, files.values())) + len(given.stdin.encode())
    if size > most:
        raise ArgumentsRefused(f"code, stdin and files have {size:,} bytes together, at most {most:,} are taken")
    return files


def _unfenced(code: str) -> str:
    """Without the fence that models put around programs."""
    text = code.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") + 1 : -3]
    return code
