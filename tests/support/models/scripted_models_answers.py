"""What the APIs of language models answer, in one piece and as events: one turn of a script in each wire format."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["Said", "anthropic_answer", "anthropic_events", "chat_answer", "chat_events", "responses_answer"]
__all__ += ["responses_events"]

Said = tuple[str, Sequence[tuple[str, str, str]]]
"""What a model says: text, and calls as id, name and arguments (the JSON, or what stands there in its place)."""

TEXT_PIECE, JSON_PIECE = 6, 9


def pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def event(data: Mapping[str, Any], *, is_named: bool = True) -> bytes:
    head = f"event: {data['type']}\n" if is_named else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


# -- OpenAI's chat completions

CHAT_USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def chat_answer(said: Said, turn: int) -> dict[str, Any]:
    text, calls = said
    message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None, "annotations": []}
    if calls:
        message["tool_calls"] = [chat_call(*call) for call in calls]
    choice = {"index": 0, "message": message, "finish_reason": chat_reason(calls), "logprobs": None}
    return {**chat_head("chat.completion", turn), "choices": [choice], "usage": CHAT_USAGE}


def chat_head(kind: str, turn: int) -> dict[str, Any]:
    return {"id": f"chatcmpl-{turn}", "object": kind, "created": 1, "model": "scripted"}


def chat_call(id_: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def chat_reason(calls: Sequence[Any]) -> str:
    return "tool_calls" if calls else "stop"


def chat_events(said: Said, turn: int, *, with_usage: bool) -> Iterator[bytes]:
    text, calls = said

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return event({**chat_head("chat.completion.chunk", turn), "choices": [choice]}, is_named=False)

    yield chunk({"role": "assistant", "content": ""})
    for piece in pieces(text, TEXT_PIECE):
        yield chunk({"content": piece})
    for index, call in enumerate(calls):
        begun = chat_call(call[0], call[1], "")
        yield chunk({"tool_calls": [{"index": index, **begun}]})
        for piece in pieces(call[2], JSON_PIECE):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, chat_reason(calls))
    if with_usage:
        yield event({**chat_head("chat.completion.chunk", turn), "choices": [], "usage": CHAT_USAGE}, is_named=False)
    yield b"data: [DONE]\n\n"


# -- OpenAI's responses


def responses_answer(said: Said, turn: int, *, status: str = "completed") -> dict[str, Any]:
    text, calls = said
    output: list[dict[str, Any]] = [text_item(text, turn)] if text else []
    output += [call_item(*call) for call in calls]
    usage = {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 18,
    }
    return {
        "id": f"resp_{turn}",
        "object": "response",
        "created_at": 1,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "scripted",
        "output": output if status == "completed" else [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage if status == "completed" else None,
    }


def text_item(text: str, turn: int, status: str = "completed") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    content = [part] if status == "completed" else []
    return {"type": "message", "id": f"msg_{turn}", "status": status, "role": "assistant", "content": content}


def call_item(id_: str, name: str, arguments: str, status: str = "completed") -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{id_}",
        "call_id": id_,
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def responses_events(said: Said, turn: int) -> Iterator[bytes]:
    for number, data in enumerate(_responses_events(said, turn)):
        yield event({**data, "sequence_number": number})


def _responses_events(said: Said, turn: int) -> Iterator[dict[str, Any]]:
    text, calls = said
    yield {"type": "response.created", "response": responses_answer(said, turn, status="in_progress")}
    place = 0
    if text:
        at = {"item_id": f"msg_{turn}", "output_index": 0, "content_index": 0}
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        yield {"type": "response.output_item.added", "output_index": 0, "item": text_item("", turn, "in_progress")}
        yield {"type": "response.content_part.added", **at, "part": part}
        for piece in pieces(text, TEXT_PIECE):
            yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
        yield {"type": "response.output_text.done", **at, "text": text, "logprobs": []}
        yield {"type": "response.content_part.done", **at, "part": {**part, "text": text}}
        yield {"type": "response.output_item.done", "output_index": 0, "item": text_item(text, turn)}
        place = 1
    for index, call in enumerate(calls, place):
        at = {"item_id": f"fc_{call[0]}", "output_index": index}
        item = call_item(call[0], call[1], "", "in_progress")
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        for piece in pieces(call[2], JSON_PIECE):
            yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
        yield {"type": "response.function_call_arguments.done", **at, "name": call[1], "arguments": call[2]}
        yield {"type": "response.output_item.done", "output_index": index, "item": call_item(*call)}
    yield {"type": "response.completed", "response": responses_answer(said, turn)}


# -- Anthropic's messages


def anthropic_answer(said: Said, turn: int) -> dict[str, Any]:
    text, calls = said
    content: list[dict[str, Any]] = [{"type": "text", "text": text, "citations": None}] if text else []
    content += [{"type": "tool_use", "id": id_, "name": name, "input": json.loads(raw)} for id_, name, raw in calls]
    return {
        **anthropic_head(turn),
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "usage": {"input_tokens": 11, "output_tokens": 7},
    }


def anthropic_head(turn: int) -> dict[str, Any]:
    return {
        "id": f"msg_{turn}",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "stop_sequence": None,
        "stop_reason": None,
    }


def anthropic_events(said: Said, turn: int) -> Iterator[bytes]:
    text, calls = said
    begun = {**anthropic_head(turn), "content": [], "usage": {"input_tokens": 11, "output_tokens": 1}}
    yield event({"type": "message_start", "message": begun})
    index = 0
    if text:
        yield event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        yield event({"type": "ping"})
        for piece in pieces(text, TEXT_PIECE):
            delta = {"type": "text_delta", "text": piece}
            yield event({"type": "content_block_delta", "index": 0, "delta": delta})
        yield event({"type": "content_block_stop", "index": 0})
        index = 1
    for place, (id_, name, raw) in enumerate(calls, index):
        block = {"type": "tool_use", "id": id_, "name": name, "input": {}}
        yield event({"type": "content_block_start", "index": place, "content_block": block})
        for piece in ["", *pieces(raw, JSON_PIECE)]:
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield event({"type": "content_block_delta", "index": place, "delta": delta})
        yield event({"type": "content_block_stop", "index": place})
    reason = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    yield event({"type": "message_delta", "delta": reason, "usage": {"output_tokens": 7}})
    yield event({"type": "message_stop"})
