"""The model class for Anthropic's messages API, over the official client."""

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from mcpbridge.library.agent.models.api_client import ask, events_of, is_async, the_client
from mcpbridge.library.agent.models.model import INVALID_JSON, Delta, ModelRequest
from mcpbridge.library.calls.run_events import ArgumentsDelta, TextDelta


class AnthropicModel:
    """A model behind the messages API: `AnthropicModel(AsyncAnthropic(), model="claude-sonnet-4-5")`. Meets `Model`."""

    format = "anthropic"

    def __init__(self, client: Any = None, *, model: str, max_tokens: int = 4096, **params: Any) -> None:
        """`client`: `anthropic.AsyncAnthropic` or `Anthropic`; None: one as the environment says.

        `max_tokens` of one answer. `params` go along with each request: `system`, `thinking`, `tool_choice`, and so on.
        """
        self._client, self._params = client, {"model": model, "max_tokens": max_tokens, **params}

    async def __call__(self, request: ModelRequest) -> dict[str, Any]:
        """See `Model`. Raises what the client raises.

        Raises:
            ConfigError: no client was given, and none can be made.
        """
        self._client = client = the_client(self._client, "anthropic", "AsyncAnthropic")
        params = {**self._params, "messages": list(request.messages)}
        if request.tools:
            params["tools"] = list(request.tools)
        else:
            params.pop("tool_choice", None)
        create = client.messages.create
        if request.emit is None:
            return await ask(create, params, is_async=is_async(client))
        return await _heard(create, params, request.emit, is_async=is_async(client))


async def _heard(
    create: Callable[..., Any], params: dict[str, Any], emit: Callable[[Delta], object], *, is_async: bool
) -> dict[str, Any]:
    pieces = _Pieces()
    async with aclosing(events_of(create, params, is_async=is_async)) as events:
        async for event in events:
            delta = pieces.take(event)
            if delta is not None:
                emit(delta)
    return pieces.message


class _Pieces:
    """Makes the one answer of the events in which it came."""

    def __init__(self) -> None:
        self.message: dict[str, Any] = {"role": "assistant", "content": []}
        self._json: dict[int, str] = {}
        """The arguments of calls so far, by the place of the block."""

    def take(self, event: Mapping[str, Any]) -> Delta | None:
        """Take an event; returns what is new in it for people."""
        match event.get("type"):
            case "message_start":
                self.message = {**event["message"], "content": []}
            case "content_block_start":
                self.message["content"].append(dict(event["content_block"]))
            case "content_block_delta":
                return self._add(event["index"], event["delta"])
            case "content_block_stop":
                self._close(event["index"])
            case "message_delta":
                self.message |= event["delta"]
                usage: Mapping[str, Any] = event.get("usage") or {}
                said = {key: value for key, value in usage.items() if value is not None}
                self.message["usage"] = {**(self.message.get("usage") or {}), **said}
            case _:
                pass
        return None

    def _add(self, index: int, delta: Mapping[str, Any]) -> Delta | None:
        block = self.message["content"][index]
        match delta.get("type"):
            case "text_delta":
                block["text"] = block.get("text", "") + delta["text"]
                return TextDelta(delta["text"])
            case "input_json_delta":
                self._json[index] = self._json.get(index, "") + delta["partial_json"]
                if delta["partial_json"] and block.get("type") == "tool_use":
                    return ArgumentsDelta(block["id"], block["name"], delta["partial_json"])
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
            case "signature_delta":
                block["signature"] = block.get("signature", "") + delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
            case _:
                pass
        return None

    def _close(self, index: int) -> None:
        if raw := self._json.get(index):
            try:
                value: Any = msgspec.json.decode(raw)
            except msgspec.DecodeError:
                value = None
            self.message["content"][index]["input"] = value if isinstance(value, dict) else {INVALID_JSON: raw}
