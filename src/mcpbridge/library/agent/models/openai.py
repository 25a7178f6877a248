"""The model classes for OpenAI's chat completions (and compatible APIs) and responses, over the official client."""

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from mcpbridge.library.agent.models.api_client import ask, events_of, is_async, the_client
from mcpbridge.library.agent.models.model import Delta, ModelRequest
from mcpbridge.library.calls.run_events import ArgumentsDelta, TextDelta


class OpenAIModel:
    """A model behind chat completions: `OpenAIModel(AsyncOpenAI(), model="gpt-5")`. Meets `Model`."""

    format = "openai"

    def __init__(self, client: Any = None, *, model: str, **params: Any) -> None:
        """`client`: `openai.AsyncOpenAI` or `openai.OpenAI`; None: one as the environment says (`OPENAI_API_KEY`, …).

        `params` go along with each request: `temperature`, `parallel_tool_calls`, `tool_choice`, and so on.
        """
        self._client, self._params = client, {"model": model, **params}

    async def __call__(self, request: ModelRequest) -> dict[str, Any]:
        """See `Model`. Raises what the client raises.

        Raises:
            ConfigError: no client was given, and none can be made.
        """
        self._client = client = the_client(self._client, "openai", "AsyncOpenAI")
        params = {**self._params, "messages": list(request.messages)}
        if request.tools:
            params["tools"] = list(request.tools)
        else:
            params.pop("tool_choice", None)
            params.pop("parallel_tool_calls", None)
        create = client.chat.completions.create
        if request.emit is None:
            params.pop("stream_options", None)
            return await ask(create, params, is_async=is_async(client))
        params.setdefault("stream_options", {"include_usage": True})
        if params["stream_options"] is None:  # for APIs that do not know it
            del params["stream_options"]
        return await _heard(create, params, request.emit, is_async=is_async(client))


async def _heard(
    create: Callable[..., Any], params: dict[str, Any], emit: Callable[[Delta], object], *, is_async: bool
) -> dict[str, Any]:
    pieces = _Pieces()
    async with aclosing(events_of(create, params, is_async=is_async)) as chunks:
        async for chunk in chunks:
            for delta in pieces.take(chunk):
                emit(delta)
    return pieces.whole()


class _Pieces:
    """Makes the one answer of the chunks in which it came."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: list[dict[str, Any]] = []
        self._last: dict[int, dict[str, Any]] = {}
        """The call that was begun last, by its index."""
        self._reason: str | None = None

    def take(self, chunk: Mapping[str, Any]) -> list[Delta]:
        """Take a chunk; returns what is new in it for people."""
        self._head |= {key: value for key, value in chunk.items() if key != "choices" and value is not None}
        found: list[Delta] = []
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0):
                continue
            self._reason = choice.get("finish_reason") or self._reason
            delta: Mapping[str, Any] = choice.get("delta") or {}
            for key, value in delta.items():
                if key == "content" and value:
                    found.append(TextDelta(value))
                if isinstance(value, str) and key != "role":  # also what other providers add
                    self._message[key] = (self._message.get(key) or "") + value
            found += [told for piece in delta.get("tool_calls") or () if (told := self._take_call(piece)) is not None]
        return found

    def _take_call(self, piece: Mapping[str, Any]) -> ArgumentsDelta | None:
        index, id_ = piece.get("index") or 0, piece.get("id")
        said: Mapping[str, str | None] = piece.get("function") or {}
        call = self._last.get(index)
        if call is None or (id_ and call["id"] and id_ != call["id"]):  # some providers give all calls one index
            function = {"name": "", "arguments": ""}
            call = self._last[index] = {"id": "", "type": "function", "function": function}
            self._calls.append(call)
        call["id"] = id_ or call["id"]
        call |= {key: value for key, value in piece.items() if key not in ("index", "id", "function", "type") and value}
        function = call["function"]
        function["name"] += said.get("name") or ""
        arguments = said.get("arguments") or ""
        function["arguments"] += arguments
        return ArgumentsDelta(call["id"], function["name"], arguments) if arguments else None

    def whole(self) -> dict[str, Any]:
        """The answer, as if it had come in one piece."""
        message = {**self._message, **({"tool_calls": self._calls} if self._calls else {})}
        choice = {"index": 0, "message": message, "finish_reason": self._reason}
        return {**self._head, "object": "chat.completion", "choices": [choice]}


_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class OpenAIResponsesModel:
    """A model behind the responses API: `OpenAIResponsesModel(AsyncOpenAI(), model="gpt-5")`. Meets `Model`.

    The history is kept here, not at OpenAI: each request brings all of it.
    """

    format = "openai-responses"

    def __init__(self, client: Any = None, *, model: str, **params: Any) -> None:
        """`client`: `openai.AsyncOpenAI` or `openai.OpenAI`; None: one as the environment says (`OPENAI_API_KEY`, …).

        `params` go along with each request: `instructions`, `reasoning`, `include`, and so on.
        """
        self._client, self._params = client, {"model": model, **params}

    async def __call__(self, request: ModelRequest) -> dict[str, Any]:
        """See `Model`. Raises what the client raises.

        Raises:
            ConfigError: no client was given, and none can be made.
        """
        self._client = client = the_client(self._client, "openai", "AsyncOpenAI")
        params = {**self._params, "input": list(request.messages)}
        if request.tools:
            params["tools"] = list(request.tools)
        else:
            params.pop("tool_choice", None)
            params.pop("parallel_tool_calls", None)
        create = client.responses.create
        if request.emit is None:
            return await ask(create, params, is_async=is_async(client))
        return await _read_responses_stream(create, params, request.emit, is_async=is_async(client))


async def _read_responses_stream(
    create: Callable[..., Any], params: dict[str, Any], emit: Callable[[Delta], object], *, is_async: bool
) -> dict[str, Any]:
    calls: dict[str, Mapping[str, Any]] = {}
    whole: dict[str, Any] | None = None
    async with aclosing(events_of(create, params, is_async=is_async)) as events:
        async for event in events:
            match event.get("type"):
                case "response.output_text.delta":
                    emit(TextDelta(event["delta"]))
                case "response.output_item.added":
                    calls[event["item"].get("id", "")] = event["item"]
                case "response.function_call_arguments.delta":
                    call = calls.get(event["item_id"], {})
                    emit(ArgumentsDelta(call.get("call_id", ""), call.get("name", ""), event["delta"]))
                case str(kind) if kind in _ENDS:
                    whole = event["response"]
                case _:
                    pass
    if whole is None:
        raise ConnectionError("the stream of the response ended before the response did")
    return whole
