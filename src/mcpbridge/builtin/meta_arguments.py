"""Arguments of the tools that find and describe others, and their results."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from mcpbridge.errors import nearest
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import encode

__all__ = ["Refused", "arguments_of", "text_result"]


class Refused(Exception):
    """The arguments make no sense; the message says what is allowed."""


def arguments_of(params: Body, known: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The arguments by their names here; `known` has other names that models use for them.

    Raises:
        Refused: they are no object, or one of them is unknown.
    """
    raw = params.get("arguments")
    try:
        found: object = {} if raw is None else msgspec.json.decode(raw)
        if isinstance(found, str):  # as JSON in a string
            found = msgspec.json.decode(found)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused(f"arguments: an object with {', '.join(known)}")
    arguments: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", found).items():
        meant = next((own for own, others in known.items() if name in others), None)
        if meant is None:
            shown = name[:60].encode(errors="replace").decode()
            close = nearest(shown, known, limit=1)
            hint = f"; did you mean {close[0]}?" if close else "."
            raise Refused(f"{shown}: no such argument{hint} There are: {', '.join(known)}")
        if meant not in arguments or name == meant:
            arguments[meant] = value
    return arguments


def text_result(text: str, *, is_error: bool = False) -> Body:
    """A result of one text."""
    content = {"content": [{"type": "text", "text": text}]}
    return Body(encode({**content, "isError": True} if is_error else content))
