"""What every model format does, and how the format of a response is recognised by its shape. Pure.

Each format is in the module of its name. Responses are taken as objects of the official packages (recognised by their
shape, none is imported) or as the same in plain JSON values.
"""

from collections.abc import Iterable, Mapping, Sequence
from secrets import token_hex
from typing import Any, Protocol, cast

from mcpbridge.base.errors import FormatError
from mcpbridge.core.tool_calls_and_results import CallResult, ToolCall
from mcpbridge.library.llm_formats import anthropic, gemini, mcp, openai_chat, openai_responses
from mcpbridge.library.llm_formats.gemini import MADE_UP
from mcpbridge.library.llm_formats.messages import (
    Format,
    Message,
    Wanted,
    items_of,
    known_format,
    listed,
    plain,
    read_arguments,
)
from mcpbridge.library.llm_formats.tool_definitions import Described, Offered, Strictness, tools_in

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
        raise FormatError(f"{_described(response)} is no response of a model: expected {_EXPECTED}")
    found = _of_response(cast("Message", message)) or _of_message(cast("Message", message))
    if found is None:
        raise FormatError(f"{_described(response)} is no response of a model: expected {_EXPECTED}")
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


def _described(response: Any) -> str:
    kind = type(response).__name__
    if isinstance(response, dict):
        keys = ", ".join(f"`{key}`" for key in list(cast("Message", response))[:6])
        return f"An object with {keys or 'nothing in it'}"
    return f"A value of type {kind}"


class _Spoken(Protocol):
    """What the module of a format has."""

    def wanted(self, response: Message) -> list[Wanted]: ...
    def assistant(self, response: Message) -> list[Message]: ...
    def results(self, results: Sequence[CallResult[Any]]) -> list[Message]: ...
    def answers(self, message: Message) -> list[tuple[str, str]]: ...
    def text(self, response: Message) -> str: ...
    def stop(self, response: Message) -> str: ...


_SPOKEN: Mapping[Format, _Spoken] = {
    "openai": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "mcp": mcp,
}


def offered(api: str, tools: Iterable[Described], *, strict: Strictness = False) -> Offered:
    """The tools in a format: a list to hand to the API as it is, with the names that they have there.

    `strict`: where the API can hold its model to the schema, it is asked to (True), or is where no rule of the schema
    is lost by that ("auto"). What cannot be strict is sent as it is, and `Offered.not_strict` says why.

    Raises:
        FormatError: there is no such format, or they are more tools than the API takes.
    """
    return tools_in(known_format(api), tools, strict=strict)


def calls_from(
    response: Any, offered: Offered | None = None, *, names: Mapping[str, str] | None = None
) -> list[ToolCall[Any, Any]]:
    """The calls that a model's response wants made, in its order.

    Args:
        response: what a package returned, or the same as JSON; of chat completions the first choice, of Gemini the
            first candidate. A single message of the model, and a list of response items, are responses too.
        offered: what the model was offered: calls get the wire names of the tools, and lose the nulls that stand for
            optional arguments in strict calls.
        names: wire names by the names that the model knows, where `offered` is not at hand. A name that is in neither
            is taken as it is.

    Raises:
        FormatError: it is of no format that is known.
    """
    message = plain(response)
    if isinstance(message, list):
        return [call for one in cast("list[Any]", message) for call in calls_from(one, offered, names=names)]
    calls = [_call(wanted, names or {}) for wanted in _SPOKEN[format_of(message)].wanted(message)]
    return calls if offered is None else offered.restored(calls)


def _call(wanted: Wanted, names: Mapping[str, str]) -> ToolCall[Any, Any]:
    arguments, problem = read_arguments(wanted)
    name = names.get(wanted.name, wanted.name)
    return ToolCall(name, arguments, wanted.id or f"{MADE_UP}{token_hex(8)}", problem)


def results_for(api: str, results: Sequence[CallResult[Any]]) -> list[Message]:
    """The messages that give results back to the model, for the end of its history. `CallResult.call` says of which.

    Raises:
        FormatError: there is no such format.
    """
    return _SPOKEN[known_format(api)].results(results)


def user_message(api: Format, text: str) -> Message:
    """The message with which the user says something."""
    if api == "gemini":
        return {"role": "user", "parts": [{"text": text}]}
    return {"role": "user", "content": {"type": "text", "text": text} if api == "mcp" else text}


def assistant_message(api: str, response: Any) -> list[Message]:
    """The model's own turn, for the end of its history: one message, or the items of a response.

    Raises:
        FormatError: there is no such format, or the response is of another one.
    """
    return _SPOKEN[known_format(api)].assistant(_of(api, response))


def unanswered(api: str, messages: Sequence[Any]) -> list[ToolCall[Any, Any]]:
    """The calls in a history that have no result in it, in their order.

    They are as the model wrote them: `Offered.restored` makes them calls of tools.

    Raises:
        FormatError: there is no such format.
    """
    spoken = _SPOKEN[known_format(api)]
    open_calls: list[ToolCall[Any, Any]] = []
    for message in listed(plain(list(messages))):
        if not isinstance(message, dict):
            continue
        found = cast("Message", message)
        for answered, name in spoken.answers(found):
            _strike_out(open_calls, answered, name)
        if found.get("role") != "user":
            open_calls += [_call(wanted, {}) for wanted in spoken.wanted(found)]
    return open_calls


def _strike_out(calls: list[ToolCall[Any, Any]], answered: str, name: str) -> None:
    for at, call in enumerate(calls):
        if call.id == answered or (not answered and call.id.startswith(MADE_UP) and call.name == name):
            del calls[at]
            return


def text_of(api: str, response: Any) -> str:
    """What the model said in words; empty where it only calls.

    Raises:
        FormatError: there is no such format, or the response is of another one.
    """
    return _SPOKEN[known_format(api)].text(_of(api, response))


def stop_reason(api: str, response: Any) -> str:
    """Why the model stopped, in the words of `stops.STOPS`.

    Raises:
        FormatError: there is no such format, or the response is of another one.
    """
    return _SPOKEN[known_format(api)].stop(_of(api, response))


def _of(api: str, response: Any) -> Message:
    message = plain(response)
    if isinstance(message, list) and api == "openai-responses":
        return {"output": message}
    found = format_of(cast("object", message))
    if found != api and {found, api} != {"anthropic", "mcp"} and not _is_of_any(cast("Message", message)):
        raise FormatError(f'the response is in the format "{found}", not in "{api}"')
    return cast("Message", message)


def _is_of_any(message: Message) -> bool:
    """A message of text alone looks the same in several formats."""
    return isinstance(message.get("content"), str) and "choices" not in message and "output" not in message
