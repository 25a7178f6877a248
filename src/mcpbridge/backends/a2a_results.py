"""From what a remote agent told to the result of a tool. Pure.

Texts are text, files are resources, images or links, data is `structuredContent`. A task that waits for the user is no
error: the result says what it wants, and how to go on with it.
"""

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from mcpbridge.backends.a2a_messages import Part, Record, text_of

__all__ = ["ABOUT", "result_of"]

ABOUT = "mcpbridge/agent"
"""In `_meta` of a result: `state`, `taskId` and `contextId`, as programs may want to know."""

_FAILED = {
    "failed": "The agent could not do it.",
    "rejected": "The agent does not do it.",
    "canceled": "The task was cancelled before it was done.",
}


def result_of(record: Record, redact: Callable[[str], str]) -> dict[str, Any]:
    """The result, as a JSON object. Files that hold what `redact` masks are left out; texts are not masked yet."""
    parts = [part for artifact in record.artifacts.values() for part in artifact.parts]
    if text_of(parts) != text_of(record.said) or not parts:
        parts += record.said
    parts = parts or record.answer
    blocks = [block for part in parts if (block := _block(part, record, redact)) is not None]
    note = _note(record)
    if note:
        blocks.append({"type": "text", "text": note})
    if not blocks:
        blocks.append({"type": "text", "text": "(the agent is done and said nothing)"})
    ids = {"taskId": record.task_id, "contextId": record.context_id}
    about = {"state": record.state, **{name: value for name, value in ids.items() if value}}
    result: dict[str, Any] = {"content": blocks, "_meta": {ABOUT: about}}
    data = [part.data for part in parts if part.is_data]
    if data:
        result["structuredContent"] = data[0] if len(data) == 1 and isinstance(data[0], dict) else {"data": data}
    if record.state in _FAILED:
        result["isError"] = True
    return result


def _note(record: Record) -> str:
    """What the caller needs to know to go on."""
    ids = {"task_id": record.task_id, "context_id": record.context_id}
    both = " and ".join(f'{name} "{value}"' for name, value in ids.items() if value)
    if record.state == "input-required":
        return f"The agent waits for an answer: call again with it as the message, with {both}."
    if record.state == "auth-required":
        return (
            "The agent waits until somebody signs in or allows something: tell the user what it wants. "
            f"To see what became of it, call again with {both} and no message."
        )
    if record.state in _FAILED:
        return _FAILED[record.state]
    return f'To go on in this conversation: context_id "{record.context_id}".' if record.context_id else ""


def _block(part: Part, record: Record, redact: Callable[[str], str]) -> dict[str, Any] | None:
    if part.is_data:
        return {"type": "text", "text": json.dumps(part.data, ensure_ascii=False, separators=(",", ":"))}
    if part.text is not None:
        return {"type": "text", "text": part.text} if part.text else None
    if part.url:
        link = {"type": "resource_link", "uri": part.url, "name": part.name or part.url.rpartition("/")[2] or part.url}
        return {**link, "mimeType": part.media_type} if part.media_type else link
    return _file(part, record, redact)


def _file(part: Part, record: Record, redact: Callable[[str], str]) -> dict[str, Any]:
    name = part.name or "file"
    try:
        size = len(base64.b64decode(part.raw, validate=True))
    except (binascii.Error, ValueError):
        return {"type": "text", "text": f"(the agent sent the file {name}, which cannot be read: it is no base64)"}
    if redact(part.raw) != part.raw:
        return {"type": "text", "text": f"(the file {name} is left out: a secret of the configuration is in it)"}
    kind = part.media_type.partition("/")[0]
    if kind in ("image", "audio") and size:
        return {"type": kind, "data": part.raw, "mimeType": part.media_type}
    media_type = part.media_type or "application/octet-stream"
    uri = f"a2a://{record.task_id or record.context_id or 'agent'}/{quote(name)}"
    return {"type": "resource", "resource": {"uri": uri, "mimeType": media_type, "blob": part.raw}}
