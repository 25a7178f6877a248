"""What a client says it is about to do, in `_meta["mcpbridge/query"]` of a list request: a text, or messages.

A text may be the member `query` of an object, with a `limit` beside it: how many tools it wants at most.

Messages are those of a sampling request (`role`, `content`): the newest of the user counts, with the one before it.
"""

from typing import Any, cast

import msgspec
from msgspec import Raw

LONGEST = 4000
"""Characters of a request that are looked at: the last ones of messages, the first of a text."""
_NEWEST = 2
"""Messages of the user that count."""


def request_of(hint: "Raw | bytes") -> str:
    """The request in words; empty where nothing can be read."""
    try:
        value: Any = msgspec.json.decode(hint)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return ""
    if isinstance(value, str):
        return value[:LONGEST]
    messages: Any = value
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if isinstance(text := members.get("query"), str):
            return text[:LONGEST]
        messages = members.get("messages")
    if not isinstance(messages, list):
        return ""
    texts: list[str] = []
    for message in reversed(cast("list[Any]", messages)):
        if text := _of_the_user(message):
            texts.insert(0, text)
        if len(texts) == _NEWEST:
            break
    return "\n".join(texts)[-LONGEST:]


def limit_of(hint: "Raw | bytes") -> int | None:
    """How many tools it wants at most; None where it does not say."""
    try:
        limit = msgspec.json.decode(hint, type=_Limited).limit
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    return limit if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0 else None


class _Limited(msgspec.Struct):
    limit: Any = None


def _of_the_user(message: object) -> str:
    if not isinstance(message, dict):
        return ""
    fields = cast("dict[str, Any]", message)
    if fields.get("role") != "user":
        return ""
    content = fields.get("content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else [content]
    return "\n".join(text for block in blocks if (text := _text(block)))


def _text(block: object) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, dict):
        text = cast("dict[str, Any]", block).get("text")
        return text if isinstance(text, str) else ""
    return ""
