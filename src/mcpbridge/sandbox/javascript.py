"""JavaScript expressions over results, evaluated in a worker process of our own.

The worker has an empty environment, no files, no network, little memory, and is killed when its time is up. Each
expression gets a fresh context.
"""

from typing import Literal

__all__ = ["JavaScript", "TransformFailed"]


class TransformFailed(Exception):
    """The expression failed: a mistake in it, no time or memory left, or there is no engine."""


class JavaScript:
    """Evaluates expressions; `async with`, or `close` at the end. Workers start with the first expression."""

    async def evaluate(
        self, expression: str, text: str, *, binding: Literal["json", "ndjson", "text"], rows: str = ""
    ) -> str:
        """What the expression says of `result`: strings as they are, everything else as JSON.

        `binding`: what `result` is: the parsed JSON of `text`, the list of its parsed lines, or the text itself. `text`
        is bound as well, and so is `rows`, if given: the JSON of a list of objects (CSV and the like).

        Raises:
            TransformFailed: with a message for whoever wrote the expression.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """End the workers."""
