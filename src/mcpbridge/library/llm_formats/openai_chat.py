"""The format of OpenAI's chat completions and of compatible APIs: calls, results, messages. Pure."""

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
    name_in,
    nested,
    pieces_of,
    stop_reason_of,
    text_alone,
    text_in,
)

_NOT_SENT_BACK = frozenset({"annotations", "audio", "function_call", "parsed"})
_STOPS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


def tool(name: str, description: str, schema: Message, strict: bool) -> Message:
    """A tool as a request lists it."""
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema, "strict": strict},
    }


def _message(response: Message) -> Message:
    """The model's message: of the first choice, or the response itself."""
    choices = items_of(response.get("choices"))
    return nested(choices[0].get("message")) if choices else response


def wanted(response: Message) -> list[Wanted]:
    """The calls of functions; custom tools are the program's own."""
    found: list[Wanted] = []
    for call in items_of(_message(response).get("tool_calls")):
        function = nested(call.get("function"))
        if call.get("type", "function") == "function" and function:
            found.append(Wanted(str(function.get("name", "")), function.get("arguments"), str(call.get("id") or "")))
    return found


def assistant(response: Message) -> list[Message]:
    """The model's turn, as the history has it. Fields that other providers added are kept."""
    message = _message(response)
    kept = {key: message[key] for key in message if key not in _NOT_SENT_BACK and message[key] is not None}
    if isinstance(message.get("audio"), dict):
        kept["audio"] = {"id": message["audio"].get("id")}
    if not kept.get("tool_calls"):
        kept.pop("tool_calls", None)
        kept.setdefault("content", "")
    return [{"role": "assistant", **kept}]


def _takes_media(kind: str) -> bool:
    return kind in ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")


def results(results: Sequence[CallResult[Any]]) -> list[Message]:
    """One message a result. Tool messages carry text alone: pictures and PDFs follow all of them in a user message."""
    told: list[Message] = []
    shown: list[Message] = []
    for result in results:
        pieces = pieces_of(result, _takes_media)
        media = [piece for piece in pieces if isinstance(piece, Media)]
        texts: list[str | Media] = [piece for piece in pieces if isinstance(piece, str)]
        if media:
            what = "1 file" if len(media) == 1 else f"{len(media)} files"
            texts.append(f"[{what} of this result: see the message after the results]")
            name = name_in("openai", result.call.name) if result.call is not None else "the tool"
            shown += [{"type": "text", "text": f"Of the result of {name} ({id_of(result)}):"}, *map(_part, media)]
        content = text_alone(texts, is_error=result.is_error)
        told.append({"role": "tool", "tool_call_id": id_of(result), "content": content})
    return [*told, {"role": "user", "content": shown}] if shown else told


def _part(media: Media) -> Message:
    if media.is_image:
        return {"type": "image_url", "image_url": {"url": media.url}}
    return {"type": "file", "file": {"filename": media.name.rsplit("/", 1)[-1] or "file.pdf", "file_data": media.url}}


def answers(message: Message) -> list[tuple[str, str]]:
    """The calls that a message of the history answers: id, and name where there is no id."""
    return [(str(message.get("tool_call_id")), "")] if message.get("role") == "tool" else []


def text(response: Message) -> str:
    """What the model said in words, a refusal included."""
    message = _message(response)
    return text_in(blocks_of(message), "text") or str(message.get("refusal") or "")


def stop(response: Message) -> str:
    """Why it stopped."""
    choices = items_of(response.get("choices"))
    reason = str(choices[0].get("finish_reason") or "") if choices else ""
    return stop_reason_of(reason, _STOPS, has_calls=bool(wanted(response)))
