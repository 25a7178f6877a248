"""The format of Anthropic's messages: blocks of content in turns. Pure."""

from collections.abc import Sequence
from typing import Any

from mcpbridge.core.tool_calls_and_results import CallResult
from mcpbridge.library.llm_formats.messages import (
    Media,
    Message,
    Wanted,
    blocks_of,
    id_of,
    pieces_of,
    stop_reason_of,
    text_in,
)


def tool(name: str, description: str, schema: Message, strict: bool) -> Message:
    """A tool as a request lists it."""
    listed: Message = {"name": name, "description": description, "input_schema": schema}
    return {**listed, "strict": True} if strict else listed


def wanted(response: Message) -> list[Wanted]:
    """The calls of tools; those that the API's own servers run (`server_tool_use`, `mcp_tool_use`) are not ours."""
    return [
        Wanted(str(block.get("name", "")), block.get("input"), str(block.get("id") or ""))
        for block in blocks_of(response)
        if block.get("type") == "tool_use"
    ]


def assistant(response: Message) -> list[Message]:
    """The model's turn: all blocks, its thinking included, which the API wants back unchanged."""
    content = response.get("content")
    return [{"role": "assistant", "content": content if isinstance(content, str) else blocks_of(response)}]


def _takes_media(kind: str) -> bool:
    return kind in ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")


def results(results: Sequence[CallResult[Any]]) -> list[Message]:
    """One user message with all results: the API wants the answers to a turn's calls together."""
    return [{"role": "user", "content": [_result(result) for result in results]}] if results else []


def _result(result: CallResult[Any]) -> Message:
    content = [_block(piece) for piece in pieces_of(result, _takes_media)]
    block: Message = {"type": "tool_result", "tool_use_id": id_of(result), "content": content}
    if result.is_error:
        block["is_error"] = True
        if any(one["type"] != "text" for one in content):  # errors may carry text alone
            texts = [one for one in content if one["type"] == "text"]
            left = len(content) - len(texts)
            what = "1 file of this result is" if left == 1 else f"{left} files of this result are"
            block["content"] = [*texts, {"type": "text", "text": f"[{what} left out]"}]
    return block


def _block(piece: str | Media) -> Message:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    source = {"type": "base64", "media_type": piece.type, "data": piece.data}
    return {"type": "image" if piece.is_image else "document", "source": source}


def answers(message: Message) -> list[tuple[str, str]]:
    """The calls that a message of the history answers: id, and name where there is no id."""
    blocks = blocks_of(message) if message.get("role") == "user" else []
    return [(str(block.get("tool_use_id")), "") for block in blocks if block.get("type") == "tool_result"]


def text(response: Message) -> str:
    """What the model said in words."""
    return text_in(blocks_of(response), "text")


def stop(response: Message) -> str:
    """Why it stopped: the words for all formats are this one's."""
    return stop_reason_of(str(response.get("stop_reason") or ""), {}, has_calls=bool(wanted(response)))
