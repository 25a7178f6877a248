"""What a program gets of a tool's result: data where it is data, text where it is text. Pure; parses very little."""

import msgspec
from msgspec import Raw

from mcpbridge.sandbox.program import CallFailed, Value
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import decode_batch

__all__ = ["text_of_error", "value_of"]

_NOTHING = b"null"
_MOST_BLOCKS = 20


class _Block(msgspec.Struct):
    type: object = ""
    text: Raw = Raw()


class _Error(msgspec.Struct):
    message: str = ""


_decode_block = msgspec.json.Decoder(_Block).decode
_decode_error = msgspec.json.Decoder(_Error).decode
_decode_text = msgspec.json.Decoder(str).decode


def value_of(result: Body) -> Value:
    """Its `structuredContent`; else its text, parsed where that is a JSON object or array; else its content blocks.

    Raises:
        CallFailed: it says that the call failed.
    """
    content = result.get("content")
    blocks = _blocks(content)
    if bytes(result.get("isError") or b"") == b"true":
        raise CallFailed(_text_of(blocks) or "the tool says that it failed, and not why")
    structured = result.get("structuredContent")
    if structured is not None and bytes(memoryview(structured)[:4]) != _NOTHING:
        return Value(structured)
    if not blocks:
        return Value(_NOTHING)
    if len(blocks) == 1 and (text := _text(blocks[0])) is not None:
        return Value(text, is_text_of_json=True)
    return Value(content or _NOTHING)


def text_of_error(error: bytes) -> str:
    """What a server says in a JSON-RPC error."""
    try:
        message = _decode_error(error).message
    except (msgspec.DecodeError, RecursionError):
        message = ""
    return message or "the server answered with an error"


def _blocks(content: Raw | None) -> list[Raw]:
    if content is None or bytes(memoryview(content)[:1]) != b"[":
        return []
    try:
        return decode_batch(content)
    except (msgspec.DecodeError, RecursionError):
        return []


def _text(block: Raw) -> Raw | None:
    """The text of a text block, as JSON."""
    try:
        decoded = _decode_block(block)
    except (msgspec.DecodeError, RecursionError):
        return None
    is_text = decoded.type == "text" and bytes(memoryview(decoded.text)[:1]) == b'"'
    return decoded.text if is_text else None


def _text_of(blocks: list[Raw]) -> str:
    """All texts, one after the other."""
    texts: list[str] = []
    for block in blocks[:_MOST_BLOCKS]:
        text = _text(block)
        try:
            texts.append(_decode_text(text) if text is not None else "")
        except msgspec.DecodeError:
            continue
    return "\n".join(text for text in texts if text)
