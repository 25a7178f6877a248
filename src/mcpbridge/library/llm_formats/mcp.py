"""The format of MCP sampling with tools (`sampling/createMessage`; MCP 2025-11-25, Sampling). Pure."""

from collections.abc import Sequence
from typing import Any

from mcpbridge.core.tool_calls_and_results import CallResult
from mcpbridge.library.llm_formats.messages import Message, Wanted, blocks_of, id_of, stop_reason_of, text_in

_STOPS = {"endTurn": "end_turn", "toolUse": "tool_use", "maxTokens": "max_tokens", "stopSequence": "stop_sequence"}


def wanted(response: Message) -> list[Wanted]:
    """The calls of tools."""
    return [
        Wanted(str(block.get("name", "")), block.get("input"), str(block.get("id") or ""))
        for block in blocks_of(response)
        if block.get("type") == "tool_use"
    ]


def assistant(response: Message) -> list[Message]:
    """The model's turn."""
    return [{"role": "assistant", "content": blocks_of(response)}]


def results(results: Sequence[CallResult[Any]]) -> list[Message]:
    """One user message with all results, each as the tool gave it."""
    return [{"role": "user", "content": [_result(result) for result in results]}] if results else []


def _result(result: CallResult[Any]) -> Message:
    block: Message = {"type": "tool_result", "toolUseId": id_of(result), "content": list(result.content)}
    if result.structured is not None:
        block["structuredContent"] = result.structured
    return {**block, "isError": True} if result.is_error else block


def answers(message: Message) -> list[tuple[str, str]]:
    """The calls that a message of the history answers: id, and name where there is no id."""
    return [(str(block.get("toolUseId")), "") for block in blocks_of(message) if block.get("type") == "tool_result"]


def text(response: Message) -> str:
    """What the model said in words."""
    return text_in(blocks_of(response), "text")


def stop(response: Message) -> str:
    """Why it stopped."""
    reason = str(response.get("stopReason") or response.get("stop_reason") or "")
    return stop_reason_of(reason, _STOPS, has_calls=bool(wanted(response)))
