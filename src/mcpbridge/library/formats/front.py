"""Model formats: tools as an API takes them, and back again: its calls, and messages with their results. Pure.

What each format is stands in the module of its name; here is what all of them do. Whatever the official packages
return is taken (recognised by its shape, none of them is imported), and the same as plain JSON values.
"""

from collections.abc import Iterable, Mapping, Sequence
from secrets import token_hex
from typing import Any, Protocol, cast

from mcpbridge.errors import FormatError
from mcpbridge.library.formats import anthropic, gemini, mcp, openai_chat, openai_responses
from mcpbridge.library.formats.gemini import MADE_UP
from mcpbridge.library.formats.messages import Message, Wanted, listed, plain, read_arguments
from mcpbridge.library.formats.names import FORMATS, Format, known_format, name_in
from mcpbridge.library.formats.offering import Described, Offered, Strictness, tools_in
from mcpbridge.library.formats.recognising import format_of
from mcpbridge.library.formats.unstrict import unstricted
from mcpbridge.toolcalls import CallResult, ToolCall

__all__ = [
    "FORMATS",
    "Format",
    "Offered",
    "Strictness",
    "assistant_message",
    "calls_from",
    "format_of",
    "name_in",
    "offered",
    "results_for",
    "stop_reason",
    "text_of",
    "unanswered",
    "unstricted",
    "user_message",
]


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

    `strict`: where the API can hold its model to the schema, it is told to (True), or is where no rule of the schema is
    lost by that ("auto"). What cannot be strict is sent as it is, and `Offered.not_strict` says why.

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
