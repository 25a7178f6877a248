"""The format of OpenAI's responses: items in, items out. Pure."""

from collections.abc import Sequence
from typing import Any

from mcpbridge.core.tool_calls_and_results import CallResult
from mcpbridge.library.llm_formats.messages import (
    Media,
    Message,
    Wanted,
    blocks_of,
    id_of,
    items_of,
    marked_error,
    nested,
    pieces_of,
    stop_reason_of,
    text_alone,
)

_NOT_SENT_BACK = frozenset({"parsed_arguments"})
_STOPS = {"completed": "end_turn", "max_output_tokens": "max_tokens", "content_filter": "refusal"}


def tool(name: str, description: str, schema: Message, strict: bool) -> Message:
    """A tool as a request lists it."""
    return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": strict}


def _items(response: Message) -> list[Message]:
    return items_of(response["output"]) if "output" in response and "type" not in response else [response]


def wanted(response: Message) -> list[Wanted]:
    """The calls of functions; what the API runs itself (searches, its interpreter) and custom tools are not ours."""
    return [
        Wanted(str(item.get("name", "")), item.get("arguments"), str(item.get("call_id") or item.get("id") or ""))
        for item in _items(response)
        if item.get("type") == "function_call"
    ]


def assistant(response: Message) -> list[Message]:
    """The model's turn: all of its items, with its reasoning, which the API wants back in front of the calls."""
    return [{key: item[key] for key in item if key not in _NOT_SENT_BACK} for item in _items(response)]


def _takes_media(kind: str) -> bool:
    return kind in ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")


def results(results: Sequence[CallResult[Any]]) -> list[Message]:
    """One item a result: text, or a list where there are pictures or PDFs."""
    return [{"type": "function_call_output", "call_id": id_of(result), "output": _output(result)} for result in results]


def _output(result: CallResult[Any]) -> str | list[Message]:
    pieces = pieces_of(result, _takes_media)
    if all(isinstance(piece, str) for piece in pieces):
        return text_alone(pieces, is_error=result.is_error)
    parts = [_part(piece) for piece in pieces]
    if result.is_error:
        first = str(parts[0].get("text", ""))
        if not first:
            parts.insert(0, {"type": "input_text", "text": "Error:"})
        else:
            parts[0] = {"type": "input_text", "text": marked_error(first, is_error=True)}
    return parts


def _part(piece: str | Media) -> Message:
    if isinstance(piece, str):
        return {"type": "input_text", "text": piece}
    if piece.is_image:
        return {"type": "input_image", "image_url": piece.url}
    return {"type": "input_file", "filename": piece.name.rsplit("/", 1)[-1] or "file.pdf", "file_data": piece.url}


def answers(message: Message) -> list[tuple[str, str]]:
    """The calls that an item of the history answers: id, and name where there is no id."""
    return [(str(message.get("call_id")), "")] if message.get("type") == "function_call_output" else []


def text(response: Message) -> str:
    """What the model said in words, a refusal included."""
    blocks = [block for item in _items(response) if item.get("type") == "message" for block in blocks_of(item)]
    return "".join(str(block.get("text") or block.get("refusal") or "") for block in blocks)


def stop(response: Message) -> str:
    """Why it stopped."""
    reason = nested(response.get("incomplete_details")).get("reason") or response.get("status")
    return stop_reason_of(str(reason or ""), _STOPS, has_calls=bool(wanted(response)))
