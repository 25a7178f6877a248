"""Summaries by the client's own model: what it is asked, and what its answers are worth."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw

from mcpbridge.core.elicitation import SAMPLE, ClientCapabilities, Question, QuestionRefused
from mcpbridge.core.result_settings import SummarySettings
from mcpbridge.downstream.elicitation.question_forms import phrase
from mcpbridge.protocol.body import Body
from mcpbridge.results.summary import Summarizer, SummaryFailed
from support.upstreams.scripted_upstream import Someone, call_of


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m", **more}


def someone(answer: Any = None) -> Someone:
    """A client that samples; it thinks until it is given an answer."""
    client = Someone(sampling=True)
    if answer is not None:
        client.answer.set_result(answer)
    return client


async def summary(client: Any, text: str = "data", room: int = 500, **settings: Any) -> str:
    return await Summarizer(SummarySettings(**settings)).summarize(call_of(client=client), text, room)


async def test_the_clients_model_is_asked_for_a_cheap_exact_summary() -> None:
    client = someone(said("33 items"))
    call = call_of(client=client)
    call.params = Body(b'{"name":"echo","arguments":{"repo":"a/b"}}')
    assert await Summarizer(SummarySettings()).summarize(call, "the data", 500) == "33 items"
    [question] = client.asked
    params = json.loads(bytes(question.params))
    assert question.method == SAMPLE
    assert set(params) == {
        "messages",
        "systemPrompt",
        "includeContext",
        "modelPreferences",
        "temperature",
        "maxTokens",
    }
    assert (params["includeContext"], params["temperature"], params["maxTokens"]) == ("none", 0, 450)
    assert params["modelPreferences"]["intelligencePriority"] < params["modelPreferences"]["speedPriority"]
    [message] = params["messages"]
    assert "<tool_result>\nthe data\n</tool_result>" in message["content"]["text"]
    assert '<arguments>\n{"repo":"a/b"}\n</arguments>' in message["content"]["text"]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
async def test_it_is_a_question_that_clients_of_every_revision_can_be_put(version: str) -> None:
    client = someone(said("33 items"))
    await summary(client)
    put = json.loads(bytes(phrase(client.asked[0], version, ClientCapabilities.declared({"sampling": {}}, version))))
    assert put["messages"][0]["content"]["type"] == "text"
    assert "systemPrompt" in put


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (said("33 items"), "33 items"),
        (said("33 items", stopReason="maxTokens"), "33 items…"),
        (
            said("")
            | {"content": [{"type": "text", "text": "33 "}, {"type": "image"}, {"type": "text", "text": "items"}]},
            "33 items",
        ),
        (said("One is here. " + "x" * 600), "x" * 486 + "…"),
    ],
)
async def test_its_answer_is_the_summary(answer: dict[str, Any], found: str) -> None:
    assert (await summary(someone(answer))).removeprefix("One is here. ") == found


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (said(" \n"), "wrote nothing"),
        (said("") | {"content": {"type": "image", "data": "AAAA", "mimeType": "image/png"}}, "wrote nothing"),
        ({"role": "assistant"}, "cannot be read"),
        (said("") | {"content": "33 items"}, "cannot be read"),
        (said("") | {"content": [7]}, "cannot be read"),
    ],
)
async def test_an_answer_without_a_text_is_no_summary(answer: dict[str, Any], reason: str) -> None:
    with pytest.raises(SummaryFailed, match=reason):
        await summary(someone(answer))


async def test_a_client_that_does_not_sample_is_not_asked() -> None:
    client = Someone(form=True)
    with pytest.raises(SummaryFailed, match="did not declare sampling"):
        await summary(client)
    assert not client.asked


async def test_without_room_nobody_is_asked() -> None:
    client = someone(said("33 items"))
    with pytest.raises(SummaryFailed, match="no room"):
        await summary(client, room=10)
    assert not client.asked


async def test_a_client_that_refuses_gives_the_reason() -> None:
    class Refusing(Someone):
        async def ask(self, question: Question) -> Raw:
            raise QuestionRefused("The user said no")

    with pytest.raises(SummaryFailed, match="The user said no"):
        await summary(Refusing(sampling=True))


async def test_a_client_that_thinks_too_long_is_not_waited_for() -> None:
    with pytest.raises(SummaryFailed, match=r"none within 0.05 s"):
        await summary(someone(), timeout=0.05)


async def test_nobody_waits_beyond_the_deadline_of_the_call() -> None:
    call = call_of(client=someone(), deadline=asyncio.get_running_loop().time() + 0.05)
    with pytest.raises(SummaryFailed, match="none within"):
        await Summarizer(SummarySettings()).summarize(call, "data", 500)


async def test_who_is_cancelled_withdraws_the_question() -> None:
    withdrawn = asyncio.Event()

    class Thinking(Someone):
        async def ask(self, question: Question) -> Raw:
            self.asked.append(question)
            try:
                return await super().ask(question)
            finally:
                withdrawn.set()

    client = Thinking(sampling=True)
    task = asyncio.ensure_future(summary(client))
    while not client.asked:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert withdrawn.is_set()
