"""Paths as models write them: which are refused as written, how names are compared, how they are shown. Pure.

A path is taken apart by one rule for every system: `/` separates, `..` goes up at once, and what would be read in
another way by another system (drive letters, backslashes, dots that are none) is refused rather than interpreted.

`Sealed` are the bridge's own files, which no tool touches: its configuration has secrets, its store the results of
others.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from unicodedata import category, normalize

from mcpbridge.base.errors import PathRefused

Parts = tuple[str, ...]
"""The names on the way from a root down to a file; empty: the root itself."""

LONGEST_PATH, LONGEST_NAME, MOST_NAMES = 4000, 255, 100
"""Bytes of a path, bytes of one name in it, and names."""

_DISPLAY_LENGTH = 200
_DRIVE = re.compile(r"[A-Za-z]:")
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u3164\uffa0") | {
    chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
}
"""Characters without a look that are of no category that says so."""


def parts_of(path: str) -> Parts:
    """The names that a path consists of, `.` and `..` resolved; a leading `/` is dropped.

    Raises:
        PathRefused: it leads above its start, or is no path as they are written here.
    """
    if why := _why_no_path(path):
        raise refused(path, why)
    parts: list[str] = []
    for name in path.split("/"):
        if name in ("", "."):
            continue
        if name == "..":
            if not parts:
                raise refused(path, "it leads out of the directories that are open to tools")
            parts.pop()
            continue
        if why := _why_no_name(name):
            raise refused(path, why)
        parts.append(name)
    if len(parts) > MOST_NAMES:
        raise refused(path, f"it is more than {MOST_NAMES} directories deep")
    if parts[:1] == ["~"]:
        raise refused(path, "`~` is not expanded; give it relative to a root, or absolute")
    return tuple(parts)


def _why_no_path(path: str) -> str:
    if len(path.encode(errors="surrogatepass")) > LONGEST_PATH:
        return f"it is longer than {LONGEST_PATH} bytes"
    if strange := next((one for one in path if _is_strange(one)), ""):
        return f"it contains the control character U+{ord(strange):04X}"
    if "://" in path:
        return "it is an address; give the path alone"
    if path.startswith(("//", "\\\\")) or _DRIVE.match(path.lstrip("/")):
        return "drive letters and network shares are not paths here"
    if "\\" in path:
        return "it contains a backslash; names are separated by `/`"
    return ""


def _why_no_name(name: str) -> str:
    if len(name.encode()) > LONGEST_NAME:
        return f"a name in it is longer than {LONGEST_NAME} bytes"
    plain = fold(name)
    if not plain:
        return "a name in it consists of dots, spaces or characters that are not seen"
    if "/" in plain or "\\" in plain:
        return "a character in it looks like a separator and is none"
    if ":$" in name:
        return "streams of files are not paths here"
    return ""


def _is_strange(character: str) -> bool:
    return character in _BIDI or category(character) in {"Cc", "Cs", "Zl", "Zp"}


def fold(name: str) -> str:
    """The name as names are compared that must not be touched: what some file system takes for the same, is the same.

    Case, width and composition, unseen characters, dots and spaces at the end, and the stream (`name:stream`) do not
    count.
    """
    if name.isascii():
        plain = name.lower()
    else:
        plain = normalize("NFKC", name)
        plain = "".join(one for one in plain if category(one) != "Cf" and one not in _UNSEEN)
        plain = normalize("NFKC", plain.casefold()).replace("ı", "i")
    return plain.partition(":")[0].rstrip(". ")


def display_name(name: str) -> str:
    """A name or path for an answer or a message: on one line, without what changes how it is read, not too long."""
    plain = "".join(one if not _is_strange(one) else _escaped(one) for one in name)
    return (
        plain if len(plain) <= _DISPLAY_LENGTH else f"{plain[: _DISPLAY_LENGTH // 2]}…{plain[-_DISPLAY_LENGTH // 2 :]}"
    )


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code & 0xFF:02x}" if code < 0x100 or 0xDC80 <= code < 0xDD00 else f"\\u{code:04x}"


def refused(path: str, why: str) -> PathRefused:
    """The error that says why this path, as it was given, is not touched."""
    return PathRefused(f"'{display_name(path)}' is refused: {why}")


_BESIDE = ("-wal", "-shm", "-journal", ".lock", ".tmp", ".bak", ".new", ".old", "~")
"""Ends of names of what programs put beside a file; it holds the same."""


class Sealed:
    """Files and directories of the bridge itself, such as its configuration and store."""

    def __init__(self, paths: Iterable[Path | str] = ()) -> None:
        """They need not exist yet."""
        self._paths = [Path(os.path.realpath(path)) for path in paths]
        self._names = [tuple(fold(part) for part in path.parts) for path in self._paths]

    def holds(self, path: Sequence[str], status: os.stat_result | None) -> bool:
        """The place is one of them, beside one or beneath one; also a second name of such a file (a hard link).

        `path`: from the root of the file system down, without links; `status`: what is there.
        """
        if not self._paths:
            return False
        names = tuple(fold(part) for part in path)
        return any(_is_within(names, own) for own in self._names) or (
            status is not None and status.st_nlink > 1 and any(_is_same(own, status) for own in self._paths)
        )


def _is_within(names: tuple[str, ...], own: tuple[str, ...]) -> bool:
    if names[: len(own)] == own:
        return True
    is_beside = len(names) == len(own) and names[:-1] == own[:-1] and names[-1].startswith(own[-1])
    return is_beside and names[-1].removeprefix(own[-1]) in _BESIDE


def _is_same(path: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), status)
    except OSError:
        return False
