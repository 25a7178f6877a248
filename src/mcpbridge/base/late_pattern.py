"""Patterns that are compiled when they are first used.

A start has no use for most of them, and to compile all takes a tenth of it.
"""

import re
from typing import Any, AnyStr, cast


def late(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, for what is used by its methods alone. A pattern that is wrong fails at its first use."""
    return cast("re.Pattern[AnyStr]", _Late(pattern, flags))


class _Late:
    """Stands for a pattern. What it is asked for it has from then on: a use costs some 30 ns more."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # who copies it, say
            raise AttributeError(name)
        compiled: re.Pattern[Any] = re.compile(*self._given)
        found = getattr(compiled, name)
        setattr(self, name, found)
        return found
