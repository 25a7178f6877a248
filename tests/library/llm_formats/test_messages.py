"""Calls and results in the messages of model APIs (issue 9, model formats), through the official packages' objects."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import MessageParam
from google.genai.types import Content, GenerateContentResponse
from mcp.types import CreateMessageResultWithTools, SamplingMessage, ToolUseContent
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from openai.types.responses import Response, ResponseInputItemParam
from pydantic import TypeAdapter

from mcpbridge.base.errors import FormatError
from mcpbridge.core.tool_calls_and_results import CallResult, ToolCall
from mcpbridge.library.llm_formats.format import (
    assistant_message,
    calls_from,
    format_of,
    results_for,
    stop_reason,
    text_of,
    unanswered,
)
from mcpbridge.library.llm_formats.messages import FORMATS

BIG = 12345678901234567890123


def chat(*calls: dict[str, Any], content: str | None = None, finish: str = "tool_calls", **more: Any) -> ChatCompletion:
    message = {"role": "assistant", "content": content, "tool_calls": list(calls) or None, **more}
    choice = {"index": 0, "finish_reason": finish, "message": message}
    whole = {"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return ChatCompletion.model_validate(whole)


def chat_call(at: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": at, "type": "function", "function": {"name": name, "arguments": arguments}}


def responses(*items: dict[str, Any], **more: Any) -> Response:
    whole: dict[str, Any] = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": list(items)}
    whole |= {"tools": [], "parallel_tool_calls": True, "tool_choice": "auto", "status": "completed", **more}
    return Response.model_validate(whole)


def function_call(at: str, name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{at}", "call_id": at, "name": name, "arguments": arguments}


def claude(*blocks: dict[str, Any], stop: str = "tool_use") -> AnthropicMessage:
    whole: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": list(blocks)}
    whole |= {"stop_reason": stop, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    return AnthropicMessage.model_validate(whole)


def tool_use(at: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": at, "name": name, "input": arguments}


def gemini(*parts: dict[str, Any], finish: str = "STOP") -> GenerateContentResponse:
    content = {"role": "model", "parts": list(parts)}
    return GenerateContentResponse.model_validate({"candidates": [{"content": content, "finishReason": finish}]})


def sampled(*blocks: Any, stop: str = "toolUse") -> CreateMessageResultWithTools:
    return CreateMessageResultWithTools(role="assistant", content=list(blocks), model="m", stop_reason=stop)


MESSAGE = {
    "type": "message",
    "id": "msg",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Let me look.", "annotations": []}],
}
REASONING = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "zzz"}
SEARCH = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "q"}}
CUSTOM = {"type": "custom_tool_call", "id": "ct", "call_id": "x", "name": "theirs", "input": "free text"}
SERVER_TOOL = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "q"}}
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}

WANTED = [("a", "add", {"x": 1, "y": None}), ("b", "look", {})]
RESPONSES: dict[str, Any] = {
    "openai": chat(
        chat_call("a", "add", '{"x": 1, "y": null}'), chat_call("b", "look", ""), content="Let me look.", refusal=None
    ),
    "openai-responses": responses(
        REASONING,
        MESSAGE,
        SEARCH,
        CUSTOM,
        function_call("a", "add", '{"x":1,"y":null}'),
        function_call("b", "look", "{}"),
    ),
    "anthropic": claude(
        THINKING,
        {"type": "text", "text": "Let me look."},
        SERVER_TOOL,
        tool_use("a", "add", x=1, y=None),
        tool_use("b", "look"),
    ),
    "gemini": gemini(
        {"text": "Thinking", "thought": True},
        {"text": "Let me look."},
        {"functionCall": {"id": "a", "name": "add", "args": {"x": 1, "y": None}}, "thoughtSignature": "_wA="},
        {"functionCall": {"id": "b", "name": "look"}},
        finish="STOP",
    ),
    "mcp": sampled(
        {"type": "text", "text": "Let me look."},
        ToolUseContent(id="a", name="add", input={"x": 1, "y": None}),
        ToolUseContent(id="b", name="look", input={}),
    ),
}
HISTORY: dict[str, TypeAdapter[Any]] = {
    "openai": TypeAdapter(list[ChatCompletionMessageParam]),
    "openai-responses": TypeAdapter(list[ResponseInputItemParam]),
    "anthropic": TypeAdapter(list[MessageParam]),
    "gemini": TypeAdapter(list[Content]),
    "mcp": TypeAdapter(list[SamplingMessage]),
}


def as_json(response: Any) -> dict[str, Any]:
    return response.model_dump(mode="json", by_alias=True, exclude_none=True)


@pytest.fixture(params=FORMATS)
def api(request: pytest.FixtureRequest) -> str:
    return request.param


def test_calls_are_read_from_objects_and_from_json(api: str) -> None:
    for response in (RESPONSES[api], as_json(RESPONSES[api])):
        assert format_of(response) == api
        calls = calls_from(response, names={"add": "math__add"})
        found = [(call.id, call.name, call.arguments, call.problem) for call in calls]
        assert found == [("a", "math__add", {"x": 1, "y": None}, ""), ("b", "look", {}, "")]


def test_calls_are_read_from_single_messages() -> None:
    """A history is often all that a program has."""
    for api in ("openai", "anthropic", "gemini", "mcp"):
        (message,) = assistant_message(api, RESPONSES[api])
        assert [(call.id, call.name, call.arguments) for call in calls_from(message)] == WANTED
    items = assistant_message("openai-responses", RESPONSES["openai-responses"])
    assert [(call.id, call.name, call.arguments) for call in calls_from(items)] == WANTED
    assert [call.id for call in calls_from(RESPONSES["openai"].choices[0].message)] == ["a", "b"]
    assert [call.id for call in calls_from({"role": "assistant", "content": RESPONSES["anthropic"].content})] == [
        "a",
        "b",
    ]
    assert [call.id for call in calls_from(RESPONSES["openai-responses"].output)] == ["a", "b"]


def test_text_and_why_it_stopped(api: str) -> None:
    assert text_of(api, RESPONSES[api]) == "Let me look."
    assert stop_reason(api, RESPONSES[api]) == "tool_use"


@pytest.mark.parametrize(
    ("api", "response", "reason"),
    [
        ("openai", chat(content="x", finish="stop"), "end_turn"),
        ("openai", chat(content="x", finish="length"), "max_tokens"),
        ("openai", chat(chat_call("a", "b", "{"), finish="length"), "max_tokens"),
        ("openai-responses", responses(MESSAGE), "end_turn"),
        (
            "openai-responses",
            responses(MESSAGE, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "max_tokens",
        ),
        ("anthropic", claude({"type": "text", "text": "x"}, stop="end_turn"), "end_turn"),
        ("anthropic", claude({"type": "text", "text": "x"}, stop="pause_turn"), "pause_turn"),
        ("gemini", gemini({"text": "x"}), "end_turn"),
        ("gemini", gemini({"text": "x"}, finish="SAFETY"), "refusal"),
        ("gemini", gemini({"text": "x"}, finish="LANGUAGE"), "LANGUAGE"),
        ("gemini", GenerateContentResponse.model_validate({"promptFeedback": {"blockReason": "SAFETY"}}), "refusal"),
        ("mcp", sampled({"type": "text", "text": "x"}, stop="endTurn"), "end_turn"),
    ],
    ids=lambda case: case if isinstance(case, str) else "of",
)
def test_reasons_are_told_in_one_set_of_words(api: str, response: Any, reason: str) -> None:
    assert stop_reason(api, response) == reason


def test_a_refusal_is_what_the_model_said() -> None:
    assert text_of("openai", chat(finish="stop", refusal="No.")) == "No."
    refused = {**MESSAGE, "content": [{"type": "refusal", "refusal": "No."}]}
    assert text_of("openai-responses", responses(refused)) == "No."


# -- arguments


@pytest.mark.parametrize(
    ("written", "arguments", "problem"),
    [
        ("", {}, ""),
        ("  ", {}, ""),
        (f'{{"n": {BIG}, "f": 1.0, "i": 1}}', {"n": BIG, "f": 1.0, "i": 1}, ""),
        ('{"a": "x', {}, "they are no JSON"),
        ("[1]", {}, "they are a list, not a JSON object"),
        ("null", {}, "they are null, not a JSON object"),
        ("3", {}, "they are a number, not a JSON object"),
        ('{"a": NaN}', {}, "they are no JSON"),
        ('{"a": 1, "a": 2}', {}, "`a` is named twice"),
    ],
)
def test_arguments_are_read_or_a_problem_says_why(written: str, arguments: Mapping[str, Any], problem: str) -> None:
    """Issue 9: a call that cannot be read is answered, so that the model can write it again."""
    (call,) = calls_from(chat(chat_call("a", "add", written)))
    assert call.arguments == arguments
    assert type(call.arguments.get("i", 1)) is int
    assert problem in call.problem
    assert bool(call.problem) == bool(problem)


def test_a_problem_tells_the_model_what_to_do() -> None:
    (call,) = calls_from(chat(chat_call("a", "add", '{"x": ')))
    assert call.problem.startswith("The arguments of add cannot be read: they are no JSON: ")
    assert call.problem.endswith("Call it again with one JSON object, complete and with every string closed.")


# -- what is no response


@pytest.mark.parametrize("response", [{}, {"id": "x", "usage": 1}, "text", 3, None, {"role": "system", "content": "x"}])
def test_what_is_no_response_says_what_was_expected(response: Any) -> None:
    with pytest.raises(FormatError, match=r"is no response of a model: expected a ChatCompletion \(`choices`\)"):
        calls_from(response)


def test_a_response_of_another_format_is_refused() -> None:
    with pytest.raises(FormatError, match='the response is in the format "openai", not in "anthropic"'):
        text_of("anthropic", RESPONSES["openai"])


# -- the history


def result(at: int, *content: dict[str, Any], is_error: bool = False, structured: Any = None) -> CallResult[Any]:
    made, name, arguments = WANTED[at]
    call = ToolCall(name, arguments, made)
    return CallResult(content, structured=structured, is_error=is_error, call=call)


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def test_turns_and_results_are_messages_that_the_package_takes(api: str) -> None:
    """The model's turn goes back as it came: with its reasoning, its thinking, its signatures."""
    turn = assistant_message(api, RESPONSES[api])
    history = [*turn, *results_for(api, [result(0, text("3")), result(1, text("gone"), is_error=True)])]
    HISTORY[api].validate_python(history)
    kept = str(history)
    assert {"openai-responses": "encrypted_content", "anthropic": "'signature': 'sig'", "gemini": "_wA="}.get(
        api, ""
    ) in kept
    assert "parsed_arguments" not in kept


def test_calls_without_a_result_are_found(api: str) -> None:
    """What is needed to go on with a history after a pause."""
    turn = assistant_message(api, RESPONSES[api])
    answer = results_for(api, [result(0, text("3"))])
    left = unanswered(api, [*_question(api), *turn, *answer])
    assert [(call.id, call.name, call.arguments) for call in left] == WANTED[1:]
    assert unanswered(api, [*turn, *answer, *results_for(api, [result(1, text("4"))])]) == []
    assert [call.id for call in unanswered(api, [*turn])] == ["a", "b"]
    if api != "openai-responses":
        whole = RESPONSES[api].choices[0].message if api == "openai" else turn[0]
        assert [call.id for call in unanswered(api, [whole])] == ["a", "b"]


def _question(api: str) -> list[dict[str, Any]]:
    return [{"role": "user", "parts": [{"text": "?"}]}] if api == "gemini" else [{"role": "user", "content": "?"}]


def test_results_for_chat_completions() -> None:
    assert results_for("openai", [result(0, text("3"), text("4")), result(1, text("gone"), is_error=True)]) == [
        {"role": "tool", "tool_call_id": "a", "content": "3\n4"},
        {"role": "tool", "tool_call_id": "b", "content": "Error: gone"},
    ]


PICTURE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
SOUND = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt", "mimeType": "text/plain", "description": "A."}
INSIDE = {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "Text of b", "mimeType": "text/plain"}}
PDF = {"type": "resource", "resource": {"uri": "file:///c.pdf", "blob": "aGk=", "mimeType": "application/pdf"}}
ZIP = {"type": "resource", "resource": {"uri": "file:///d.zip", "blob": "aGk=", "mimeType": "application/zip"}}
ODD = {"type": "hologram", "data": "x"}
EVERYTHING = [text("Here."), PICTURE, SOUND, LINK, INSIDE, PDF, ZIP, ODD]


def test_results_of_every_kind_are_carried_or_told(api: str) -> None:
    """Nothing that a tool gave is lost without a word."""
    messages = results_for(api, [result(0, *(EVERYTHING if api != "mcp" else EVERYTHING[:-1])), result(1, text("4"))])
    HISTORY[api].validate_python([*assistant_message(api, RESPONSES[api]), *messages])
    told = str(messages)
    for part in ("Here.", "aGk=", "file:///a.txt", "A.", "Text of b", "file:///c.pdf", "file:///d.zip", "audio/wav"):
        assert part in told, part
    if api != "mcp":
        assert "[file:///d.zip: application/zip, 2 bytes; it cannot be shown to this model]" in told
        assert "hologram" in told


def test_files_follow_the_results_of_chat_completions() -> None:
    """Tool messages carry text alone, and have to follow the model's turn without anything between."""
    first, second, shown = results_for("openai", [result(0, text("See"), PICTURE, PDF), result(1, text("4"))])
    assert first["content"] == "See\n[file:///c.pdf]\n[2 files of this result: see the message after the results]"
    assert second["role"] == "tool"
    assert shown == {
        "role": "user",
        "content": [
            {"type": "text", "text": "Of the result of add (a):"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            {"type": "file", "file": {"filename": "c.pdf", "file_data": "data:application/pdf;base64,aGk="}},
        ],
    }


def test_files_are_within_the_results_of_the_other_formats() -> None:
    (item,) = results_for("openai-responses", [result(0, text("See"), PICTURE)])
    assert item == {
        "type": "function_call_output",
        "call_id": "a",
        "output": [
            {"type": "input_text", "text": "See"},
            {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
        ],
    }
    (turn,) = results_for("anthropic", [result(0, text("See"), PICTURE)])
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert turn["content"][0]["content"] == [text("See"), {"type": "image", "source": source}]
    (content,) = results_for("gemini", [result(0, text("See"), PICTURE)])
    assert content["parts"][0]["functionResponse"] == {
        "id": "a",
        "name": "add",
        "response": {"result": "See"},
        "parts": [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}],
    }


def test_errors_with_files() -> None:
    (item,) = results_for("openai-responses", [result(0, PICTURE, is_error=True)])
    assert item["output"][0] == {"type": "input_text", "text": "Error:"}
    (item,) = results_for("openai-responses", [result(0, text("gone"), PICTURE, is_error=True)])
    assert item["output"][0] == {"type": "input_text", "text": "Error: gone"}
    (turn,) = results_for("anthropic", [result(0, text("gone"), PICTURE, is_error=True)])
    block = turn["content"][0]
    assert (block["is_error"], block["content"]) == (True, [text("gone"), text("[1 file of this result is left out]")])


def test_results_that_say_nothing() -> None:
    """The APIs refuse blocks of empty text."""
    (turn,) = results_for("anthropic", [result(0, text(" "))])
    assert turn["content"][0]["content"] == [text("(no content)")]
    assert results_for("openai", [result(0, structured={"n": 1})])[0]["content"] == '{"n":1}'
    for api in ("anthropic", "gemini", "mcp", "openai", "openai-responses"):
        assert results_for(api, []) == []


def test_gemini_gets_structured_results_as_they_are() -> None:
    """The text of a structured result tells the same again."""
    (content,) = results_for("gemini", [result(0, text('{"n": 1}'), structured={"n": 1})])
    assert content["parts"][0]["functionResponse"]["response"] == {"result": {"n": 1}}
    (content,) = results_for("gemini", [result(0, LINK, structured={"n": 1})])
    assert "file:///a.txt" in content["parts"][0]["functionResponse"]["response"]["content"]


def test_gemini_calls_without_ids_are_matched_by_name_and_order() -> None:
    """Its older APIs give none, and take none that they did not give."""
    parts: Sequence[dict[str, Any]] = [{"functionCall": {"name": "add", "args": {"x": at}}} for at in range(2)]
    response = gemini(*parts)
    first, second = calls_from(response)
    assert first.id != second.id
    messages = results_for("gemini", [CallResult([text("3")], call=first)])
    assert "id" not in messages[0]["parts"][0]["functionResponse"]
    (left,) = unanswered("gemini", [*assistant_message("gemini", response), *messages])
    assert left.arguments == {"x": 1}


def test_fields_of_other_providers_go_back_in_chat_completions() -> None:
    """Models behind the same API want their reasoning back with their calls."""
    response = chat(chat_call("a", "add", "{}"), reasoning_content="Hm.", annotations=[])
    assert assistant_message("openai", response)[0] == {
        "role": "assistant",
        "reasoning_content": "Hm.",
        "tool_calls": [chat_call("a", "add", "{}")],
    }
    silent = chat(finish="stop")
    assert assistant_message("openai", silent) == [{"role": "assistant", "content": ""}]


def test_custom_tools_of_chat_completions_are_the_programs_own() -> None:
    theirs = {"id": "c", "type": "custom", "custom": {"name": "theirs", "input": "free"}}
    assert [call.id for call in calls_from(chat(theirs, chat_call("a", "add", "{}")))] == ["a"]


def test_mcp_results_are_as_the_tool_gave_them() -> None:
    (message,) = results_for("mcp", [result(0, text("3"), structured={"n": 3}), result(1, text("gone"), is_error=True)])
    assert message == {
        "role": "user",
        "content": [
            {"type": "tool_result", "toolUseId": "a", "content": [text("3")], "structuredContent": {"n": 3}},
            {"type": "tool_result", "toolUseId": "b", "content": [text("gone")], "isError": True},
        ],
    }
