"""What runs scripts over results, as their callers see it; the engine is loaded with the first script.

Also the suffix behind a tool's name: `list_commits | transform: result.slice(0, 5)`.
"""

import re
from collections.abc import Callable
from typing import Literal, Protocol

Binding = Literal["json", "ndjson", "text"]
"""What `result` is: the parsed JSON of the text, the list of its parsed lines, or the text itself."""


class TransformFailed(Exception):
    """The expression failed: a mistake in it, no time or memory left, or there is no engine."""


class Scripts(Protocol):
    """Evaluates expressions."""

    async def evaluate(self, expression: str, text: str, *, binding: Binding, rows: str = "", owner: str = "") -> str:
        """See `JavaScript.evaluate`. `owner`: whose expression it is; owners take turns."""
        ...

    async def close(self) -> None:
        """End what runs them."""
        ...


class LazyScripts:
    """`Scripts` that touch nothing before the first."""

    def __init__(self, make: Callable[[], Scripts]) -> None:
        """`make` gives the engine, which is loaded there."""
        self._make = make
        self._engine: Scripts | None = None
        self._is_closed = False

    async def evaluate(self, expression: str, text: str, *, binding: Binding, rows: str = "", owner: str = "") -> str:
        """See `JavaScript.evaluate`."""
        if self._engine is None:
            if self._is_closed:
                raise TransformFailed("the bridge is stopping")
            self._engine = self._make()
        return await self._engine.evaluate(expression, text, binding=binding, rows=rows, owner=owner)

    async def close(self) -> None:
        """End the engine, if there is one; from now on nothing is evaluated."""
        self._is_closed = True
        if self._engine is not None:
            await self._engine.close()


_SUFFIX = re.compile(r"\|[ \t]*_?transform[ \t]*:")


def transform_suffix(text: str) -> tuple[str, str] | None:
    """What is before the first `| transform:`, and the expression behind it; None if there is no such suffix."""
    found = _SUFFIX.search(text)
    if found is None:
        return None
    expression = text[found.end() :].strip()
    return (text[: found.start()].rstrip(), expression) if expression else None
