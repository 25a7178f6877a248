"""The one way to ask a model: clients by sampling, services over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from mcpbridge.core.elicitation import NOBODY, SAMPLE
from mcpbridge.core.llm.client import Account, Model
from mcpbridge.core.llm.messages import ModelFailed, Prompt, Written
from support.models.model_services import KEY, PROVIDERS, in_turn, model_service, prompt_in
from support.upstreams.scripted_http import Ask, HttpServer, Script, reply
from support.upstreams.scripted_upstream import Someone
from support.virtual_time import pass_time

PROMPT = Prompt("be short", "the question", 50, prefix="what all have\n")


@asynccontextmanager
async def asking(provider: str, script: Script) -> AsyncIterator[tuple[Model, HttpServer]]:
    async with model_service(script) as (server, url):
        model = Model(Account(provider, "guess", "guesses", model="tiny", url=url, key=KEY))
        try:
            yield model, server
        finally:
            await model.close()


async def written(model: Model, prompt: Prompt = PROMPT, elicitor: Any = NOBODY, **more: float) -> Written:
    return await model.write(prompt, elicitor, **{"seconds": 10, **more})


# -- services


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_service_is_asked_the_whole_and_answers(provider: str) -> None:
    async with asking(provider, in_turn("an answer")) as (model, server):
        assert await written(model) == Written("an answer")
    assert prompt_in(server.asks[0]) == "what all have\nthe question"
    assert server.asks[0].message["max_tokens"] == 50


async def test_anthropic_is_asked_to_keep_what_prompts_have_in_common() -> None:
    async with asking("anthropic", in_turn("an answer")) as (model, server):
        await written(model)
        await written(model, replace(PROMPT, prefix=""))
    first, second = (ask.message["messages"][0]["content"] for ask in server.asks)
    assert first == [
        {"type": "text", "text": "what all have\n", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "the question"},
    ]
    assert second == "the question"


async def test_a_service_that_keeps_nothing_is_asked_without() -> None:
    async def script(ask: Ask) -> bytes:
        if b"cache_control" in ask.body:
            return reply(
                {"error": {"message": "messages.0.content.0.cache_control: Extra inputs are not permitted"}}, 400
            )
        return await in_turn("an answer")(ask)

    async with asking("anthropic", script) as (model, server):
        assert await written(model) == Written("an answer")
        assert await written(model) == Written("an answer")
    assert len(server.asks) == 3
    assert server.asks[-1].message["messages"][0]["content"] == "what all have\nthe question"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("temperature", [None, 0.5])
async def test_a_temperature_is_said_only_if_there_is_one(provider: str, temperature: float | None) -> None:
    async with asking(provider, in_turn("an answer")) as (model, server):
        await written(model, replace(PROMPT, temperature=temperature))
    assert server.asks[0].message.get("temperature") == temperature


async def test_failures_name_what_is_configured_and_keep_the_key_to_themselves() -> None:
    said = {"error": {"message": f"Incorrect API key: {KEY}"}}
    async with asking("openai", in_turn(reply(said, 401))) as (model, _):
        with capture_logs() as logs, pytest.raises(ModelFailed) as failed:
            await written(model)
    assert str(failed.value) == "the guess service answered with HTTP status 401; is `guesses.api_key` right?"
    assert KEY not in str(logs)
    assert [line["purpose"] for line in logs] == ["guess"]
    assert KEY not in repr(Account("openai", "guess", "guesses", key=KEY))


async def test_a_service_without_a_model_is_not_asked() -> None:
    with pytest.raises(ModelFailed, match=r"`guesses\.model` is not set"):
        await written(Model(Account("openai", "guess", "guesses")))


async def test_a_service_that_thinks_too_long_is_left() -> None:
    async def script(ask: Ask) -> None:
        await ask.gone()

    async with asking("openai", script) as (model, server):
        asked = asyncio.create_task(written(model, seconds=30))
        [ask] = await server.until("POST")
        pass_time(31)
        with pytest.raises(ModelFailed, match="none within 30 s"):
            await asked
        await ask.left.wait()
        with pytest.raises(ModelFailed, match="none within"):
            await written(model, deadline=asyncio.get_running_loop().time() + 0.1)


# -- clients


async def test_a_client_is_asked_by_name_and_told_the_whole() -> None:
    client = Someone(sampling=True)
    client.answer.set_result({"role": "assistant", "content": {"type": "text", "text": "an answer"}, "model": "m"})
    model = Model(Account("client", "guess", "guesses"))
    assert model.is_clients
    assert await written(model, replace(PROMPT, temperature=None), client) == Written("an answer")
    await model.close()
    [question] = client.asked
    params = json.loads(bytes(question.params))
    assert (question.upstream, question.method) == ("mcpbridge: guess", SAMPLE)
    assert params["messages"][0]["content"]["text"] == "what all have\nthe question"
    assert (params["systemPrompt"], params["maxTokens"]) == ("be short", 50)
    assert "temperature" not in params


async def test_only_a_client_that_samples_is_asked() -> None:
    model = Model(Account("client", "guess", "guesses"))
    client = Someone(form=True)
    assert model.reason_unavailable(client)
    with pytest.raises(ModelFailed, match="did not declare sampling"):
        await written(model, elicitor=client)
    assert not client.asked
    assert not Model(Account("openai", "guess", "guesses")).reason_unavailable(client)
