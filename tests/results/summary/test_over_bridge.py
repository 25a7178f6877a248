"""Summaries by the models of real clients, of either era, behind a real front."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.answering_clients import Person, world
from support.rpc import Message
from support.virtual_time import pass_time

LONG = "".join(f"measured {number} mm\n" for number in range(600))
SAMPLED: Message = {"role": "assistant", "content": {"type": "text", "text": "600 lengths, 0 to 599 mm"}, "model": "m"}
ERAS = pytest.mark.parametrize("is_modern", [False, True], ids=["legacy", "modern"])


def results(**summary: Any) -> Message:
    return {"strategy": "summarize", "summary": summary}


async def text_of(person: Person, answer: Message) -> str:
    reply = await person.calls("up__echo", lambda question: answer, text=LONG)
    return reply.text


@ERAS
async def test_the_client_is_asked_and_the_summary_is_marked_as_one(tmp_path: Path, is_modern: bool) -> None:
    async with world("http", tmp_path, {"up": ["legacy", "stdio"]}, results=results()) as around:
        person = await around.person(modern=is_modern)
        line, _, body = (await text_of(person, SAMPLED)).partition("\n")
        assert "summary by a model" in line
        assert body == "600 lengths, 0 to 599 mm"
        [question] = person.asked
        assert "measured 599 mm" in question["params"]["messages"][0]["content"]["text"]


@ERAS
async def test_a_client_that_does_not_sample_is_shown_the_beginning_unasked(tmp_path: Path, is_modern: bool) -> None:
    async with world("http", tmp_path, {"up": ["legacy", "stdio"]}, results=results()) as around:
        person = await around.person(modern=is_modern, elicitation={})
        assert "measured 0 mm" in await text_of(person, SAMPLED)
        assert not person.asked


async def test_a_model_that_says_no_costs_nobody_the_result(tmp_path: Path) -> None:
    async with world("http", tmp_path, {"up": ["legacy", "stdio"]}, results=results()) as around:
        person = await around.person()
        refusal = {"error": {"code": -1, "message": "User rejected sampling request"}}
        assert "measured 0 mm" in await text_of(person, refusal)


async def test_a_modern_client_that_comes_back_too_late_gets_the_result_all_the_same(tmp_path: Path) -> None:
    async with world("http", tmp_path, {"up": ["legacy", "stdio"]}, results=results(timeout=3)) as around:
        person = await around.person(modern=True)
        params = person.params("up__echo", {"text": LONG}, None)
        asked = (await person.client.request("tools/call", params)).result
        [key] = asked["inputRequests"]
        pass_time(3.5)  # longer than a summary may take, and not for so long that the connection is given up
        await asyncio.sleep(0.01)
        again = {**params, "requestState": asked["requestState"], "inputResponses": {key: SAMPLED}}
        reply = await person.client.request("tools/call", again)
        assert "measured 0 mm" in reply.text
        assert "summary" not in reply.text
