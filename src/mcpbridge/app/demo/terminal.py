"""What the demo prints, and the keys that a person presses. Colours only on a terminal, and not with NO_COLOR."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

import anyio
from rich.console import Console
from rich.text import Text

_WIDEST = 100
"""Columns, on a wider terminal too, and where there is none."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Whoever read our output has seen enough. Rich would exit here, in the middle of everything."""
        raise BrokenPipeError


class Screen:
    """Prints scenes. `is_quiet`: prints nothing.

    Raises:
        BrokenPipeError: nobody reads it any more.
    """

    root = ""
    """The beginning of paths, which is left out."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._console = _Console(quiet=is_quiet, highlight=False, emoji=False, markup=False)
        if not self._console.is_terminal:
            self._console = _Console(quiet=is_quiet, highlight=False, emoji=False, markup=False, width=_WIDEST)
        elif self._console.width > _WIDEST:
            self._console.width = _WIDEST

    def rule(self, title: str) -> None:
        """Begin a scene."""
        rest = "─" * max(0, self._console.width - len(title) - 5)
        self._console.print()
        self._print(Text.assemble(("── ", "cyan"), (title, "bold"), (f" {rest}", "cyan")))

    def line(self, text: str, style: str = "") -> None:
        """One line."""
        self._print(Text(f"  {self._printable(text)}", style))

    def pair(self, name: str, text: str, style: str = "") -> None:
        """One line that begins with a name."""
        self._print(Text.assemble((f"  {name:<15} ", "dim"), (self._printable(text), style)))

    def happened(self, text: str) -> None:
        """The last line of a scene: what just happened."""
        self._console.print(Text.assemble(("  ✓ ", "bold green"), (self._printable(text), "green")))

    def failed(self, text: str) -> None:
        """Why a scene does not hold."""
        self._console.print(Text.assemble(("  ✗ ", "bold red"), (self._printable(text), "bold red")))

    def prompt(self, text: str) -> None:
        """A question; the cursor stays behind it."""
        self._console.print(Text(f"  {text} ", "bold yellow"), end="")

    def end_line(self, text: str = "") -> None:
        """Continue in the next line."""
        self._console.print(Text(text))

    def _printable(self, text: str) -> str:
        return printable(text.replace(self.root, "") if self.root else text)

    def _print(self, text: Text) -> None:
        """A line; cut where it is too long."""
        self._console.print(text, no_wrap=True, overflow="ellipsis", crop=True)


def printable(text: str) -> str:
    """The text with control characters shown, so that no terminal obeys them."""
    return "".join(char if char.isprintable() else "�" for char in text)


def has_person() -> bool:
    """Whether somebody may be looking who can press keys."""
    return sys.stdin.isatty() and sys.stdout.isatty()


async def pressed_key(seconds: float | None = None) -> str:
    """The next key that a person presses; empty if there is none within so many seconds, or no more.

    Cancelling is safe; the terminal is as it was before. What is typed ahead counts.
    """
    with _keys_at_once(sys.stdin), anyio.move_on_after(seconds):
        await anyio.wait_readable(sys.stdin)
        import os

        return os.read(sys.stdin.fileno(), 1).decode(errors="replace")
    return ""


@contextmanager
def _keys_at_once(terminal: TextIO) -> Generator[None]:
    """Keys arrive one by one and unseen meanwhile, not by lines. Ctrl-C still interrupts."""
    import termios
    import tty

    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
