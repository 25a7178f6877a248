"""Patterns of paths: `*.py`, `src/**/test_*.py`, `*.{ts,tsx}`. Pure, and linear in the length of the path.

`*` and `?` stay within one name, `**` stands for any number of names, `{a,b}` for either. A pattern without `/` is
about single names, one with it about the path from the root (or from where is looked).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate

from mcpbridge.sandbox.paths_names import fold

__all__ = ["Globs", "WrongGlob"]

LONGEST, MOST_FORMS = 500, 64
"""Characters of a pattern, and patterns that its braces may stand for."""

_BRACES = re.compile(r"\{([^{}]*)\}")
_Names = tuple[Callable[[str], object] | None, ...]
"""What each name must look like; None: any number of names."""


class WrongGlob(ValueError):
    """No pattern of paths; the message says why."""


class Globs:
    """Some patterns, any of which may match."""

    def __init__(self, patterns: Iterable[str] = (), *, folds: bool = False) -> None:
        """`folds`: names are compared as `paths_names.fold` has them.

        Raises:
            WrongGlob: one of them is too long, or stands for too many.
        """
        self._folds = folds
        self._names: list[re.Pattern[str]] = []
        self._paths: list[_Names] = []
        for pattern in patterns:
            for form in _forms(pattern):
                self._add(form)

    def __bool__(self) -> bool:
        return bool(self._names or self._paths)

    def matches(self, parts: Sequence[str]) -> bool:
        """The path itself is meant; patterns without `/` are about its last name."""
        parts = self._folded(parts)
        return (bool(parts) and any(name.match(parts[-1]) for name in self._names)) or any(
            _reaches(path, parts, within=False) for path in self._paths
        )

    def touches(self, parts: Sequence[str]) -> bool:
        """The path is meant, or a directory that it is in."""
        parts = self._folded(parts)
        return any(name.match(part) for name in self._names for part in parts) or any(
            _reaches(path, parts, within=True) for path in self._paths
        )

    def leads(self, parts: Sequence[str]) -> bool:
        """Something beneath this directory may be meant."""
        parts = self._folded(parts)
        return bool(self._names) or any(_states(path, parts) - {len(path)} for path in self._paths)

    def _folded(self, parts: Sequence[str]) -> Sequence[str]:
        return [fold(part) for part in parts] if self._folds else parts

    def _add(self, form: str) -> None:
        names = [name for name in form.split("/") if name not in ("", ".")]
        if not names:
            return
        if self._folds:
            names = [name.casefold() for name in names]
        if len(names) == 1 and names[0] != "**" and not form.startswith("/"):
            self._names.append(re.compile(translate(names[0])))
        else:
            self._paths.append(tuple(None if name == "**" else re.compile(translate(name)).match for name in names))


def _forms(pattern: str) -> list[str]:
    """The pattern without braces, in all its forms."""
    if len(pattern) > LONGEST:
        raise WrongGlob(f"longer than {LONGEST} characters")
    forms = [pattern]
    while any(_BRACES.search(form) for form in forms):
        forms = [
            f"{form[: found.start()]}{either}{form[found.end() :]}" if found else form
            for form in forms
            for found in [_BRACES.search(form)]
            for either in (found[1].split(",") if found else [""])
        ]
        if len(forms) > MOST_FORMS:
            raise WrongGlob(f"its braces stand for more than {MOST_FORMS} patterns")
    return forms


def _reaches(wanted: _Names, parts: Sequence[str], *, within: bool) -> bool:
    """The names lead to the end of what is wanted; `within`: or the first few of them do."""
    ways = range(1, len(parts) + 1) if within else [len(parts)]
    return bool(parts) and any(len(wanted) in _states(wanted, parts[:length]) for length in ways)


def _states(wanted: _Names, parts: Sequence[str]) -> set[int]:
    """How far in what is wanted one can be after these names."""
    states = _with_skipped(wanted, {0})
    for part in parts:
        after = set[int]()
        for state in states:
            if state < len(wanted):
                name = wanted[state]
                if name is None:
                    after.add(state)
                elif name(part):
                    after.add(state + 1)
        states = _with_skipped(wanted, after)
    return states


def _with_skipped(wanted: _Names, states: set[int]) -> set[int]:
    """The same, and where one is when `**` stands for nothing."""
    for state in sorted(states):
        at = state
        while at < len(wanted) and wanted[at] is None:
            at += 1
            states.add(at)
    return states
