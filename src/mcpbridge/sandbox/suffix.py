"""`list_commits | transform: result.slice(0, 5)`: an expression written behind a name."""

import re

__all__ = ["transform_suffix"]

_SUFFIX = re.compile(r"\|[ \t]*_?transform[ \t]*:")


def transform_suffix(text: str) -> tuple[str, str] | None:
    """What stands before the first `| transform:`, and the expression behind it; None if there is no such suffix."""
    found = _SUFFIX.search(text)
    if found is None:
        return None
    expression = text[found.end() :].strip()
    return (text[: found.start()].rstrip(), expression) if expression else None
