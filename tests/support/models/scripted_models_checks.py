"""What the APIs of language models refuse with status 400, as far as it concerns tools: what a history must look like,
how tools may be called, and what a strict schema must say."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["Refused", "check_anthropic", "check_chat", "check_responses"]


class Refused(Exception):
    """The API answers with status 400 and this message."""


def refuse_unless(holds: object, message: str) -> None:
    if not holds:
        raise Refused(message)


# -- OpenAI's chat completions


def check_chat(body: Mapping[str, Any]) -> None:
    messages = body.get("messages")
    refuse_unless(isinstance(messages, list) and messages, "Invalid 'messages': empty array.")
    assert messages is not None
    check_openai_tools([tool.get("function") for tool in body.get("tools", ()) if tool.get("type") == "function"], body)
    open_ids: list[str] = []
    for number, message in enumerate(messages):
        role, where = message.get("role"), f"messages[{number}]"
        known = {"system", "developer", "user", "assistant", "tool"}
        refuse_unless(role in known, f"Invalid value: '{role}' at '{where}.role'.")
        if role == "tool":
            id_ = message.get("tool_call_id")
            refuse_unless(
                id_ in open_ids,
                f"Invalid parameter: {where}: messages with role 'tool' must be a response to a preceding message with "
                f"'tool_calls' (tool_call_id: {id_}).",
            )
            open_ids.remove(id_)
            check_content(message.get("content"), where, {"text"})
            continue
        refuse_unless(not open_ids, unanswered_chat(open_ids))
        if role == "assistant":
            calls = message.get("tool_calls")
            refuse_unless(calls != [], f"Invalid '{where}.tool_calls': empty array.")
            for call in calls or ():
                function = call.get("function", {})
                refuse_unless(call.get("type") == "function", f"Missing required parameter: '{where}.tool_calls.type'.")
                refuse_unless(
                    isinstance(function.get("arguments"), str),
                    f"Invalid type for '{where}.tool_calls.function.arguments'.",
                )
                check_name(function.get("name"), 64, where)
                open_ids.append(call["id"])
            refuse_unless(
                calls or message.get("content") is not None, f"Invalid value for '{where}.content': got null."
            )
        else:
            check_content(message.get("content"), where, {"text", "image_url", "input_audio", "file"})
    refuse_unless(not open_ids, unanswered_chat(open_ids))


def unanswered_chat(ids: Iterable[str]) -> str:
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(ids)}"
    )


def check_content(content: object, where: str, kinds: set[str]) -> None:
    if isinstance(content, list):
        for part in content:
            refuse_unless(part.get("type") in kinds, f"Invalid value: '{part.get('type')}' in '{where}.content'.")
    else:
        refuse_unless(isinstance(content, str), f"Invalid type for '{where}.content'.")


# -- OpenAI's responses


def check_responses(body: Mapping[str, Any]) -> None:
    items = body.get("input")
    refuse_unless(items, "Missing required parameter: 'input'.")
    assert items is not None
    check_openai_tools([tool for tool in body.get("tools", ()) if tool.get("type") == "function"], body)
    called: list[str] = []
    answered: set[str] = set()
    for number, item in enumerate([] if isinstance(items, str) else items):
        where, kind = f"input[{number}]", item.get("type", "message")
        if kind == "function_call":
            check_name(item.get("name"), 64, where)
            refuse_unless(isinstance(item.get("arguments"), str), f"Invalid type for '{where}.arguments'.")
            called.append(item["call_id"])
        elif kind == "function_call_output":
            id_ = item.get("call_id")
            refuse_unless(id_ in called, f"No tool call found for function call output with call_id {id_}.")
            refuse_unless(isinstance(item.get("output"), str | list), f"Missing required parameter: '{where}.output'.")
            answered.add(id_)
        elif kind == "message":
            refuse_unless(
                item.get("role") in ("user", "assistant", "system", "developer"), f"Invalid value: '{where}.role'."
            )
        else:
            refuse_unless(kind == "reasoning", f"Invalid value: '{kind}' at '{where}.type'.")
    for id_ in called:
        refuse_unless(id_ in answered, f"No tool output found for function call {id_}.")


# -- Anthropic's messages


def check_anthropic(body: Mapping[str, Any]) -> None:
    refuse_unless(isinstance(body.get("max_tokens"), int), "max_tokens: Field required")
    messages = body.get("messages")
    refuse_unless(isinstance(messages, list) and messages, "messages: at least one message is required")
    assert messages is not None
    names: set[str] = set()
    for number, tool in enumerate(body.get("tools", ())):
        where = f"tools.{number}"
        check_name(tool.get("name"), 128, where)
        refuse_unless(tool["name"] not in names, f"{where}: Tool names must be unique.")
        names.add(tool["name"])
        refuse_unless(
            tool.get("input_schema", {}).get("type") == "object", f"{where}.custom.input_schema.type: Field required"
        )
        if tool.get("strict"):
            check_closed(tool["input_schema"], where)
    open_ids: list[str] = []
    for number, message in enumerate(messages):
        role, where, content = message.get("role"), f"messages.{number}", message.get("content")
        refuse_unless(role in ("user", "assistant"), f"{where}: Input should be 'user' or 'assistant'")
        refuse_unless(number or role == "user", "messages: first message must use the user role")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        refuse_unless(blocks, f"{where}: all messages must have non-empty content")
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if open_ids:
            missing = [id_ for id_ in open_ids if id_ not in {block.get("tool_use_id") for block in results}]
            refuse_unless(role == "user" and not missing, unanswered_anthropic(where, missing or open_ids))
        for block in results:
            refuse_unless(
                block.get("tool_use_id") in open_ids,
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {block.get('tool_use_id')}",
            )
        refuse_unless(
            results == blocks[: len(results)], f"{where}: `tool_result` blocks must come first in the content"
        )
        check_blocks(blocks, where)
        open_ids = [block["id"] for block in blocks if block.get("type") == "tool_use"]
    refuse_unless(not open_ids, unanswered_anthropic("messages", open_ids))


def unanswered_anthropic(where: str, ids: Iterable[str]) -> str:
    return f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(ids)}"


def check_blocks(blocks: Iterable[Mapping[str, Any]], where: str) -> None:
    for block in blocks:
        if block.get("type") == "text":
            refuse_unless(block.get("text"), f"{where}: text content blocks must be non-empty")
        if block.get("type") == "tool_use":
            refuse_unless(isinstance(block.get("input"), dict), f"{where}.tool_use.input: Input should be an object")
            check_name(block.get("name"), 200, where)


# -- tools


def check_openai_tools(tools: list[Any], body: Mapping[str, Any]) -> None:
    refuse_unless(body.get("tools") != [], "Invalid 'tools': empty array.")
    refuse_unless(len(tools) <= 128, "Invalid 'tools': array too long.")
    names: set[str] = set()
    for tool in tools:
        check_name(tool.get("name"), 64, "tools")
        refuse_unless(tool["name"] not in names, f"Duplicate function name: {tool['name']}")
        names.add(tool["name"])
        parameters = tool.get("parameters") or {"type": "object"}
        refuse_unless(
            parameters.get("type") == "object", f"Invalid schema for function '{tool['name']}': type must be object"
        )
        if tool.get("strict"):
            refuse_unless("anyOf" not in parameters, "schema must not have 'anyOf' at the top level")
            check_closed(parameters, tool["name"], all_required=True)


def check_name(name: object, longest: int, where: str) -> None:
    fits = isinstance(name, str) and re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{longest}}}", name)
    refuse_unless(fits, f"Invalid '{where}.name': '{name}' does not match '^[a-zA-Z0-9_-]{{1,{longest}}}$'.")


def check_closed(schema: Mapping[str, Any], where: str, *, all_required: bool = False) -> None:
    """Strict mode: every object lists what it may have, and (with OpenAI) requires all of it."""
    for part in objects_in(schema):
        refuse_unless(
            part.get("additionalProperties") is False,
            f"Invalid schema for function '{where}': 'additionalProperties' is required to be false.",
        )
        if all_required:
            refuse_unless(
                set(part.get("required", ())) == set(part.get("properties", {})),
                f"Invalid schema for function '{where}': 'required' must include every key in properties.",
            )


def objects_in(schema: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(schema, dict):
        type_ = schema.get("type")
        if type_ == "object" or (isinstance(type_, list) and "object" in type_):
            yield schema
        for key, part in schema.items():
            if key in ("properties", "$defs", "definitions"):
                for one in part.values():
                    yield from objects_in(one)
            elif key in ("items", "additionalProperties"):
                yield from objects_in(part)
            elif key in ("anyOf", "allOf", "oneOf", "prefixItems"):
                for one in part:
                    yield from objects_in(one)
