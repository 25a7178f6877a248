"""A scripted model, the official client that asks it, and a bridge whose tools it works with."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from mcpbridge import Bridge
from mcpbridge.library.agent.models.anthropic import AnthropicModel
from mcpbridge.library.agent.models.model import Model
from mcpbridge.library.agent.models.openai import OpenAIModel, OpenAIResponsesModel
from support.models.scripted_models import ModelServer, ScriptedTurn, scripted_models

__all__ = ["APIS", "HELLO", "bridge_with", "model_of", "texts", "world"]

APIS = ["openai", "openai-responses", "anthropic"]

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Go on, then."}]


@asynccontextmanager
async def model_of(api: str, server: ModelServer, *, is_sync: bool = False) -> AsyncIterator[Model]:
    """The adapter of an API, over its official client."""
    import anthropic
    import openai

    if api == "anthropic":
        kind: Any = anthropic.Anthropic if is_sync else anthropic.AsyncAnthropic
        client = kind(base_url=server.address, api_key="k", max_retries=0)
        model: Model = AnthropicModel(client, model="scripted")
    else:
        kind = openai.OpenAI if is_sync else openai.AsyncOpenAI
        client = kind(base_url=server.openai, api_key="k", max_retries=0)
        made = OpenAIModel if api == "openai" else OpenAIResponsesModel
        model = made(client, model="scripted")
    try:
        yield model
    finally:
        if is_sync:
            client.close()
        else:
            await client.close()


def bridge_with(tmp_path: Path, *tools: Any, **settings: Any) -> Bridge:
    """A bridge with these tools, and a store below `tmp_path`."""
    tables = {"store": {"path": str(tmp_path / "store.db")}, **settings}
    return Bridge.open(tables, tools=tools, remember=False)


@asynccontextmanager
async def world(
    api: str, turns: Sequence[ScriptedTurn], tmp_path: Path, *tools: Any, is_sync: bool = False, **settings: Any
) -> AsyncIterator[tuple[ModelServer, Bridge, Model]]:
    """All three, for at most 90 seconds: the first loads the packages of the clients."""
    with anyio.fail_after(90):
        async with (
            scripted_models(turns) as server,
            bridge_with(tmp_path, *tools, **settings) as bridge,
            model_of(api, server, is_sync=is_sync) as model,
        ):
            yield server, bridge, model


def texts(results: Any) -> list[str]:
    """What the model sees of results."""
    return [result.text for result in results]
