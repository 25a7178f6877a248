"""A model chooses tools for a request; where it does not, the ranker does."""

import asyncio
import json
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anyio import fail_after
from msgspec import Raw
from structlog.testing import capture_logs

from mcpbridge.catalog.search.llm_router import AGAIN, MOST, MOST_FAILURES, Choice, Chosen, Kept, ModelRouter
from mcpbridge.catalog.search.ranker import Hit, ToolText
from mcpbridge.catalog.settings import RouterSettings
from mcpbridge.core.elicitation import NOBODY, Question, QuestionRefused
from support.models.model_services import KEY, PROVIDERS, good, in_turn, model_service, prompt_in
from support.upstreams.scripted_http import Ask, HttpServer, Script, reply
from support.upstreams.scripted_upstream import Someone
from support.virtual_time import pass_time

ANIMALS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "koi", "lynx"]
TOOLS = {
    f"zoo__feed_{name}": ToolText(f"zoo/feed_{name}", "zoo", f"feed_{name}", "", f"Feeds a {name}.") for name in ANIMALS
}


class Words:
    """A `Ranker`: tools whose name has a word of the request, in the order of the request."""

    def rank(self, query: str, limit: int, *, among: Container[str] | None = None) -> list[Hit]:
        ids = [f"zoo/feed_{word}" for word in query.split() if word in ANIMALS]
        return [Hit(id_, 1.0) for id_ in ids if among is None or id_ in among][:limit]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def choose(router: ModelRouter, request: str = "feed cat and dog", **more: Any) -> Choice:
    how = {"key": "snapshot", "tools": TOOLS, "ranker": Words(), **more}
    with fail_after(60):
        return await router.choose(request, how.pop("tools"), how.pop("ranker"), **how)


@asynccontextmanager
async def routing(
    script: Script, provider: str = "openai", *, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[tuple[ModelRouter, HttpServer]]:
    async with model_service(script) as (server, url):
        how = {"provider": provider, "url": url, "model": "tiny", "api_key": KEY, **settings}
        router = ModelRouter(RouterSettings.model_validate(how), clock=clock or Clock())
        try:
            yield router, server
        finally:
            await router.close()


def by_client(clock: Clock | None = None, **settings: Any) -> ModelRouter:
    return ModelRouter(RouterSettings.model_validate({"provider": "client", **settings}), clock=clock or Clock())


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"}


def client(text: str | None = None) -> Someone:
    """A client that samples; without a text it thinks until it is given an answer."""
    someone = Someone(sampling=True)
    if text is not None:
        someone.answer.set_result(said(text))
    return someone


async def settled() -> None:
    """Let everybody go as far as they get."""
    for _ in range(50):
        await asyncio.sleep(0)


CHOSEN = '["zoo__feed_hen","feed_gnu","nothing"]'
BY_MODEL = Choice(("zoo__feed_hen", "zoo__feed_gnu"), "model")
RANKED = ("zoo__feed_cat", "zoo__feed_dog")


# -- who chooses


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_service_chooses_among_all_tools(provider: str) -> None:
    async with routing(in_turn(CHOSEN), provider) as (router, server):
        assert await choose(router) == BY_MODEL
    told = prompt_in(server.asks[0])
    assert told.startswith("<tools>\nzoo__feed_ant: Feeds a ant.\nzoo__feed_bee: ")
    assert told.index("zoo__feed_lynx: ") < told.index("<request>\nfeed cat and dog\n</request>")
    assert server.asks[0].message["temperature"] == 0
    assert ("cache_control" in str(server.asks[0].message)) == (provider == "anthropic")


async def test_the_clients_own_model_chooses() -> None:
    someone = client(CHOSEN)
    assert await choose(by_client(temperature=None), elicitor=someone) == BY_MODEL
    [question] = someone.asked
    params = json.loads(bytes(question.params))
    assert question.upstream == "mcpbridge: router"
    assert "zoo__feed_ant: " in params["messages"][0]["content"]["text"]
    assert "temperature" not in params


async def test_a_model_may_choose_nothing() -> None:
    async with routing(in_turn("[]")) as (router, _):
        assert await choose(router) == Choice((), "model")


async def test_no_more_tools_than_configured_are_chosen() -> None:
    async with routing(in_turn(json.dumps(list(TOOLS))), max_tools=3) as (router, _):
        assert await choose(router) == Choice(tuple(TOOLS)[:3], "model")


async def test_where_there_is_nothing_to_choose_nobody_is_asked() -> None:
    async with routing(in_turn(CHOSEN)) as (router, server):
        few = dict(list(TOOLS.items())[:8])
        choice = await choose(router, tools=few)
        assert (choice.names, choice.by) == (tuple(few), "all")
        assert (await choose(router, tools={})).names == ()
        assert not server.asks


@pytest.mark.parametrize("request_", ["cat dog ", " \n"])
async def test_without_a_model_or_a_request_the_ranker_chooses(request_: str) -> None:
    choice = await choose(ModelRouter(RouterSettings()), request_)
    assert choice.by == ("ranker" if request_.strip() else "all")
    async with routing(in_turn(CHOSEN)) as (router, server):
        assert (await choose(router, " \n")).reason == "there is no request; the ranker found nothing"
        assert not server.asks


# -- what fails


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply(status=500, retry_after="0"), "the router service answered with HTTP status 500"),
        (reply({"error": {"message": f"Bad key {KEY}"}}, 401), "is `router.api_key` right?"),
        (reply(b"<html>"), "cannot be read"),
        ("I am only a poet.", "no tool that there is"),
        ('["delete_all","zoo__feed_unicorn"]', "no tool that there is"),
    ],
)
async def test_when_the_model_fails_the_ranker_chooses_and_if_that_finds_nothing_nobody(
    answer: Any, reason: str
) -> None:
    async with routing(in_turn(answer)) as (router, _):
        with capture_logs() as logs:
            ranked = await choose(router)
            everything = await choose(router, "nothing of this kind")
    assert (ranked.names, ranked.by) == (RANKED, "ranker")
    assert (everything.names, everything.by) == (tuple(TOOLS), "all")
    assert reason in ranked.reason
    assert reason in everything.reason
    assert [line["event"] for line in logs].count("the model did not choose tools") == 2
    assert KEY not in f"{ranked}{logs}"


async def test_a_model_that_takes_too_long_is_left() -> None:
    async def script(ask: Ask) -> None:
        await ask.gone()

    async with routing(script, timeout=30) as (router, server):
        choosing = asyncio.gather(choose(router), choose(router))
        await server.until("POST")
        pass_time(30)
        first, second = await choosing
        assert first == second
        assert (first.names, first.by) == (RANKED, "ranker")
        assert "there was none within" in first.reason
        assert len(server.asks) == 1


async def test_a_client_that_takes_too_long_is_not_waited_for() -> None:
    assert (await choose(by_client(timeout=0.05), elicitor=client())).by == "ranker"


async def test_too_few_tools_are_not_enough() -> None:
    async with routing(in_turn(CHOSEN), min_tools=3) as (router, server):
        assert await choose(router) == Choice(RANKED, "ranker", "the model chose 2 tools, not 3 or more")
        assert "at least 3" in str(server.asks[0].message)


async def test_a_client_that_refuses_or_does_not_sample_costs_nothing() -> None:
    class Refusing(Someone):
        async def ask(self, question: Question) -> Raw:
            self.asked.append(question)
            raise QuestionRefused("The user said no")

    refusing = Refusing(sampling=True)
    router = by_client()
    assert (await choose(router, elicitor=Someone(form=True))).reason == "the client did not declare sampling"
    assert (await choose(router, elicitor=NOBODY)).by == "ranker"
    assert "The user said no" in (await choose(router, elicitor=refusing)).reason
    assert (await choose(router, elicitor=refusing)).by == "ranker"
    assert len(refusing.asked) == 1


async def test_after_the_end_the_ranker_chooses() -> None:
    async with routing(in_turn(CHOSEN)) as (router, server):
        await router.close()
        assert await choose(router) == Choice(RANKED, "ranker", "the bridge stops")
        assert not server.asks


# -- what the model is told


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_of_too_many_tools_it_is_told_of_those_that_the_ranker_puts_first(provider: str) -> None:
    async with routing(in_turn('["zoo__feed_ant", "zoo__feed_dog"]'), provider, max_index=11) as (router, server):
        # what it was not told it cannot choose
        assert await choose(router, "dog or cat") == Choice(("zoo__feed_dog",), "model")
        told = prompt_in(server.asks[0])
        assert "<tools>\nzoo__feed_dog: Feeds a dog.\nzoo__feed_cat: Feeds a cat.\n</tools>" in told
        assert "cache_control" not in str(server.asks[0].message)
        assert (await choose(router, "?")).names == ("zoo__feed_ant", "zoo__feed_dog")
        assert "<tools>\nzoo__feed_ant: " in prompt_in(server.asks[1])
        assert "zoo__feed_lynx" not in prompt_in(server.asks[1])


async def test_half_a_character_is_no_obstacle() -> None:
    async with routing(in_turn(CHOSEN)) as (router, _):
        assert await choose(router, "feed \ud800", key="k\ud800") == BY_MODEL


# -- what is kept


async def test_the_same_request_about_the_same_catalog_is_asked_once() -> None:
    async with routing(in_turn(CHOSEN, '["feed_ant"]')) as (router, server):
        assert await choose(router) == await choose(router) == BY_MODEL
        assert len(server.asks) == 1
        for other in ({"request": "feed all"}, {"key": "other"}):
            assert (await choose(router, **other)).names == ("zoo__feed_ant",)
        assert len(server.asks) == 3


async def test_what_is_kept_names_no_tool_that_is_not_there() -> None:
    async with routing(in_turn(CHOSEN)) as (router, _):
        await choose(router)
        fewer = {name: tool for name, tool in TOOLS.items() if name != "zoo__feed_hen"}
        assert (await choose(router, tools=fewer)).names == ("zoo__feed_gnu",)


async def test_a_failure_counts_for_a_while() -> None:
    clock = Clock()
    async with routing(in_turn(reply(status=400), CHOSEN), clock=clock) as (router, server):
        assert (await choose(router)).by == "ranker"
        clock.now += AGAIN - 1
        assert (await choose(router)).by == "ranker"
        assert len(server.asks) == 1
        clock.now += 1
        assert await choose(router) == BY_MODEL


async def test_a_service_that_fails_time_and_again_is_left_alone_for_a_while() -> None:
    clock = Clock()
    answers = [reply(status=400)] * (MOST_FAILURES + 1)
    async with routing(in_turn(*answers, CHOSEN), clock=clock) as (router, server):
        for number in range(2 * MOST_FAILURES):
            assert (await choose(router, f"cat {number}")).by == "ranker"
        assert len(server.asks) == MOST_FAILURES
        clock.now += AGAIN
        assert (await choose(router, "cat")).by == "ranker"
        clock.now += AGAIN
        assert await choose(router, "cat") == BY_MODEL
        assert len(server.asks) == MOST_FAILURES + 2


async def test_prose_is_no_failure_of_the_service() -> None:
    async with routing(in_turn("Hm.")) as (router, server):
        for number in range(2 * MOST_FAILURES):
            assert (await choose(router, f"cat {number}")).by == "ranker"
        assert len(server.asks) == 2 * MOST_FAILURES


def test_only_some_choices_are_kept_those_asked_for_last() -> None:
    kept = Kept()
    for number in range(MOST):
        kept.keep(b"%d" % number, Chosen((str(number),)))
    assert kept.of(b"0", 0) == Chosen(("0",))
    kept.keep(b"one more", Chosen())
    assert kept.of(b"0", 0)
    assert kept.of(b"1", 0) is None


# -- several at a time


class Held:
    """A service that answers when it is let."""

    def __init__(self) -> None:
        self.release = asyncio.Event()

    async def __call__(self, ask: Ask) -> bytes:
        await self.release.wait()
        return good(ask, CHOSEN)


async def test_who_asks_the_same_at_the_same_time_waits_for_the_one_answer() -> None:
    held = Held()
    async with routing(held) as (router, server):
        tasks = [asyncio.ensure_future(choose(router)) for _ in range(5)]
        other = asyncio.ensure_future(choose(router, "another request"))
        await server.until("POST", 2)
        await settled()
        assert len(server.asks) == 2
        tasks[3].cancel()  # one that waits; the others do not notice
        held.release.set()
        done = await asyncio.gather(*tasks, other, return_exceptions=True)
        assert [choice for choice in done if choice == BY_MODEL] == [BY_MODEL] * 5
        assert isinstance(done[3], asyncio.CancelledError)
        assert len(server.asks) == 2


async def test_when_the_first_is_cancelled_the_next_asks() -> None:
    held = Held()
    async with routing(held) as (router, server):
        first, second, third = (asyncio.ensure_future(choose(router)) for _ in range(3))
        await server.until("POST")
        first.cancel()
        await server.until("POST", 2)
        held.release.set()
        assert await second == await third == BY_MODEL
        assert first.cancelled()
        assert len(server.asks) == 2


async def test_nobody_waits_for_the_model_of_another_client_but_one_user_has_one_choice() -> None:
    router = by_client()
    absent, present, later = client(), client(CHOSEN), client("[]")
    waiting = asyncio.ensure_future(choose(router, elicitor=absent))
    await settled()
    assert await choose(router, elicitor=present) == BY_MODEL
    assert await choose(router, elicitor=later) == BY_MODEL
    assert (len(absent.asked), len(present.asked), len(later.asked)) == (1, 1, 0)
    later.principal = "somebody else"
    assert await choose(router, elicitor=later) == Choice((), "model")
    absent.answer.set_result(said('["feed_bee"]'))
    assert (await waiting).names == ("zoo__feed_bee",)


async def test_the_end_leaves_nobody_waiting() -> None:
    held = Held()
    async with routing(held) as (router, server):
        waiting = asyncio.ensure_future(choose(router))
        await server.until("POST")
        await router.close()
        assert (await waiting).by == "ranker"
