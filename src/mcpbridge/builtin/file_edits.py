"""Changes of a text: pieces of it replaced by others, each found exactly and once. Pure."""

from collections.abc import Sequence

from msgspec import Struct

__all__ = ["Edit", "Unfit", "edited"]

_SHOWN = 60
"""Characters of a piece in a message."""


class Edit(Struct, frozen=True):
    """One piece, and what stands in its place afterwards."""

    old: str
    new: str
    all: bool = False
    """Wherever it stands; else it must stand in one place."""


class Unfit(Exception):
    """An edit cannot be made; the message says which and why, for a model."""


def edited(text: str, edits: Sequence[Edit]) -> str:
    """The text after all edits, one after the other. Line ends stay what they are.

    Raises:
        Unfit: one of them does not fit, so none is made.
    """
    for number, edit in enumerate(edits, 1):
        text = _edited(text, edit, f"Edit {number}" if len(edits) > 1 else "The edit")
    return text


def _edited(text: str, edit: Edit, which: str) -> str:
    old, new = edit.old, edit.new
    if not old:
        raise Unfit(f"{which}: `old` is empty; to add text give some that stands beside it, in `old` and `new`.")
    if old == new:
        raise Unfit(f"{which}: `old` and `new` are the same.")
    found = text.count(old)
    if "\r\n" in text and "\r\n" not in old:  # models see and write `\n` alone
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
        found = text.count(old)
    if not found:
        raise Unfit(f"{which}: {_clipped(edit.old)} does not stand in the file{_hint(text, edit.old)}.")
    if found > 1 and not edit.all:
        raise Unfit(
            f"{which}: {_clipped(edit.old)} stands in {found} places (lines {_lines(text, old)}): give more of what is "
            "around it, or `all`."
        )
    return text.replace(old, new)


def _hint(text: str, old: str) -> str:
    """Why it may not have been found."""
    wanted = " ".join(old.split())
    if wanted and wanted in " ".join(text.split()):
        return "; with other spaces, tabs or line ends it does"
    if wanted and wanted.casefold() in " ".join(text.split()).casefold():
        return "; in other case it does"
    return "; read it again, and copy it exactly"


def _lines(text: str, old: str) -> str:
    numbers: list[str] = []
    at = text.find(old)
    while at >= 0 and len(numbers) < 5:
        numbers.append(str(text.count("\n", 0, at) + 1))
        at = text.find(old, at + len(old))
    return ", ".join(numbers) + (", …" if at >= 0 else "")


def _clipped(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
