"""OpenAI's responses, through the official client."""

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from mcpbridge.library.models.clients import ask, events_of, is_async, the_client
from mcpbridge.library.models.model import Delta, ModelRequest
from mcpbridge.library.run_events import ArgumentsDelta, TextDelta

__all__ = ["OpenAIResponsesModel"]

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
        return await _heard(create, params, request.emit, is_async=is_async(client))


async def _heard(
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
