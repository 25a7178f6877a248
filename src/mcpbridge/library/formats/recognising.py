"""Which format a model's response is in, by its shape. Pure."""

from typing import Any, cast

from mcpbridge.errors import FormatError
from mcpbridge.library.formats.messages import Message, items_of, plain
from mcpbridge.library.formats.names import Format

__all__ = ["format_of"]

_EXPECTED = (
    "a ChatCompletion (`choices`) or a Response (`output`) of openai, a Message of anthropic (`content` blocks), a "
    "GenerateContentResponse of google-genai (`candidates`), a CreateMessageResult of mcp, or one message of the "
    "model out of these, as objects or as JSON"
)
_ITEM_ENDS = ("_call", "_call_output", "_list_tools", "_approval_request")


def format_of(response: Any) -> Format:
    """The format of a response, or of one message of the model.

    Raises:
        FormatError: it is in none; says what was expected.
    """
    message = plain(response)
    if not isinstance(message, dict):
        raise FormatError(f"{_shown(response)} is no response of a model: expected {_EXPECTED}")
    found = _of_response(cast("Message", message)) or _of_message(cast("Message", message))
    if found is None:
        raise FormatError(f"{_shown(response)} is no response of a model: expected {_EXPECTED}")
    return found


def _of_response(message: Message) -> Format | None:
    if "choices" in message:
        return "openai"
    if "candidates" in message or "promptFeedback" in message or "prompt_feedback" in message:
        return "gemini"
    if isinstance(message.get("output"), list) and "type" not in message:
        return "openai-responses"
    return None


def _of_message(message: Message) -> Format | None:
    kind = message.get("type")
    if "parts" in message:
        return "gemini"
    if "tool_calls" in message or message.get("role") == "tool":
        return "openai"
    if isinstance(kind, str) and kind != "message" and (kind == "reasoning" or kind.endswith(_ITEM_ENDS)):
        return "openai-responses"
    if message.get("role") not in ("assistant", "user"):
        return None
    kinds = {block.get("type") for block in items_of(message.get("content"))}
    if kinds & {"output_text", "refusal"}:
        return "openai-responses" if kind == "message" else "openai"
    if "stopReason" in message or isinstance(message.get("content"), dict) or ("model" in message and kind is None):
        return "mcp"
    if isinstance(message.get("content"), list):
        return "anthropic"
    return "openai"


def _shown(response: Any) -> str:
    kind = type(response).__name__
    if isinstance(response, dict):
        keys = ", ".join(f"`{key}`" for key in list(cast("Message", response))[:6])
        return f"An object with {keys or 'nothing in it'}"
    return f"A value of type {kind}"
