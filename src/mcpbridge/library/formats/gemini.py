"""Gemini's contents: parts in turns. Pure.

Its older APIs give calls no id: then one is made up (`MADE_UP`), results are told without it, and belong to the calls
by name and order.
"""

from collections.abc import Sequence
from typing import Any

from mcpbridge.library.formats.content import Media, id_of, pieces_of, text_alone
from mcpbridge.library.formats.messages import Message, Wanted, items_of, nested
from mcpbridge.library.formats.names import name_in
from mcpbridge.library.formats.stops import told_stop
from mcpbridge.toolcalls import CallResult

__all__ = ["MADE_UP", "answers", "assistant", "results", "stop", "text", "tool", "wanted"]

MADE_UP = "made-up-"
"""What ids begin with that Gemini did not give."""
_REFUSALS = ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY")
_STOPS = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens", **dict.fromkeys(_REFUSALS, "refusal")}


def tool(name: str, description: str, schema: Message) -> Message:
    """A function as a tool of a request declares it."""
    return {"name": name, "description": description, "parametersJsonSchema": schema}


def _content(response: Message) -> Message:
    """The model's content: of the first candidate, or the response itself."""
    candidates = items_of(response.get("candidates"))
    return nested(candidates[0].get("content")) if candidates else response


def _get(part: Message, name: str, other: str) -> Any:
    """A field by either of the spellings that the API and its package take."""
    return part.get(name, part.get(other))


def wanted(response: Message) -> list[Wanted]:
    """The calls of functions; code that the API runs itself is not ours."""
    found: list[Wanted] = []
    for part in items_of(_content(response).get("parts")):
        call = nested(_get(part, "functionCall", "function_call"))
        if call:
            found.append(Wanted(str(call.get("name", "")), call.get("args"), str(call.get("id") or "")))
    return found


def assistant(response: Message) -> list[Message]:
    """The model's turn: all parts, with the signatures of its thoughts, which the API wants back."""
    return [{"role": "model", **_content(response)}]


def _is_shown(kind: str) -> bool:
    return kind in ("image/png", "image/jpeg", "image/webp", "application/pdf")


def results(results: Sequence[CallResult[Any]]) -> list[Message]:
    """One content with the answers to all calls of a turn."""
    parts = [{"functionResponse": _response(result)} for result in results]
    return [{"role": "user", "parts": parts}] if parts else []


def _response(result: CallResult[Any]) -> Message:
    pieces = pieces_of(result, _is_shown)
    told = text_alone(pieces)
    media = [piece for piece in pieces if isinstance(piece, Media)]
    said: Message = {"error": told} if result.is_error else {"result": told}
    if result.structured is not None and not result.is_error:
        said = {"result": result.structured}
        if any(block.get("type") != "text" for block in result.content):
            said["content"] = told  # the structured result does not tell what else there is
    name = name_in("gemini", result.call.name if result.call is not None else "")
    answer: Message = {"name": name, "response": said}
    if id_of(result) and not id_of(result).startswith(MADE_UP):
        answer["id"] = id_of(result)
    if media:
        answer["parts"] = [{"inlineData": {"mimeType": one.type, "data": one.data}} for one in media]
    return answer


def answers(message: Message) -> list[tuple[str, str]]:
    """The calls that a content of the history answers: id, and name where there is no id."""
    found: list[tuple[str, str]] = []
    for part in items_of(message.get("parts")):
        answer = nested(_get(part, "functionResponse", "function_response"))
        if answer:
            found.append((str(answer.get("id") or ""), str(answer.get("name", ""))))
    return found


def text(response: Message) -> str:
    """What the model said in words, without its thoughts."""
    parts = items_of(_content(response).get("parts"))
    return "".join(str(part["text"]) for part in parts if part.get("text") and not part.get("thought"))


def stop(response: Message) -> str:
    """Why it stopped."""
    candidates = items_of(response.get("candidates"))
    reason = _get(candidates[0], "finishReason", "finish_reason") if candidates else ""
    if not candidates and _get(response, "promptFeedback", "prompt_feedback"):
        return "refusal"
    return told_stop(str(reason or ""), _STOPS, has_calls=bool(wanted(response)))
