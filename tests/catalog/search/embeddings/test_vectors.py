"""Vectors in the background, and a ranker that uses them when they are there."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from math import acos, cos, radians, sin
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from structlog.testing import capture_logs

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.catalog.search.embeddings.embedder import (
    EmbedderFailed,
    Prefixes,
    VectorCache,
    direction,
    texts_of_query,
)
from mcpbridge.catalog.search.embeddings.ranker import EmbeddedRankers, fused, nearness, open_vectors
from mcpbridge.catalog.search.embeddings.vectors import Vectors
from mcpbridge.catalog.search.index import CatalogRankers
from mcpbridge.catalog.search.ranker import Hit, ServerText, ToolText
from mcpbridge.catalog.settings import EmbedderSettings

ABOUT = {"pet": [1.0, 0.1, 0.0], "dog": [1.0, 0.2, 0.0], "invoice": [0.0, 1.0, 0.2], "rain": [0.1, 0.0, 1.0]}
"""What a text is about, by a word in it."""


class Words:
    """An embedder that knows four words. It works when it is let to."""

    name, prefixes = "words", Prefixes("? ", "! ")

    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.has_asked = asyncio.Event()
        self.failures = 0
        self.is_closed = False

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked.append(texts)
        self.has_asked.set()
        await self.may_answer.wait()
        if self.failures:
            self.failures -= 1
            raise EmbedderFailed("out of order")
        return [next((about for word, about in ABOUT.items() if word in text), [0.1, 0.1, 0.1]) for text in texts]

    async def close(self) -> None:
        self.is_closed = True


@asynccontextmanager
async def running(embedder: Words, cache: VectorCache | None = None, *, timeout: float = 5) -> AsyncIterator[Vectors]:
    tasks = OwnedTasks()
    with anyio.fail_after(60):
        async with tasks.running():
            vectors = Vectors(embedder, cache, tasks, timeout=timeout, pauses=(0,))
            try:
                yield vectors
            finally:
                await vectors.close()


def catalog(*names: str) -> list[tuple[ServerText, list[ToolText]]]:
    tools = [ToolText(f"s/{name}", "s", name, description=f"Something with a {name}") for name in names]
    return [(ServerText("s"), tools)]


CATALOG = catalog("dog", "invoice", "rain", "printer")


async def ranker_of(vectors: Vectors, servers: list[tuple[ServerText, list[ToolText]]] = CATALOG, weight: float = 0.9):
    """As the bridge makes it: in a thread."""
    return await anyio.to_thread.run_sync(EmbeddedRankers(CatalogRankers, vectors, weight).of, servers)


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.id for hit in hits]


# -- vectors


async def test_tools_are_read_in_the_background_and_answers_do_not_wait() -> None:
    embedder = Words()
    embedder.may_answer.clear()
    async with running(embedder) as vectors:
        ranker = await ranker_of(vectors)
        await embedder.has_asked.wait()
        assert not vectors.is_ready
        assert not await vectors.prepare(["a pet"])
        assert ids(ranker.rank("something with an invoice", 1)) == ["s/invoice"]
        embedder.may_answer.set()
        await vectors.settled()
        assert vectors.is_ready
        assert await vectors.prepare(["a pet"])
    assert embedder.is_closed
    assert [text[:2] for texts in embedder.asked for text in texts] == ["! "] * 4 + ["? "]


async def test_a_query_that_takes_too_long_is_answered_without_and_its_vector_serves_later() -> None:
    embedder = Words()
    async with running(embedder, timeout=0.02) as vectors:
        vectors.want(["a dog"])
        await vectors.settled()
        embedder.may_answer.clear()
        assert not await vectors.prepare(["a pet"])
        asked = len(embedder.asked)
        assert not await vectors.prepare(["a car"]), "it rests"
        assert len(embedder.asked) == asked
        embedder.may_answer.set()
        while not vectors.query(["a pet"]):
            await asyncio.sleep(0)
        assert await vectors.prepare(["a pet"])


async def test_the_same_query_is_asked_once() -> None:
    embedder = Words()
    async with running(embedder) as vectors:
        vectors.want(["a dog"])
        await vectors.settled()
        async with asyncio.TaskGroup() as group:
            found = [group.create_task(vectors.prepare(["a pet"])) for _ in range(3)]
        assert [task.result() for task in found] == [True] * 3
        assert len(embedder.asked) == 2


async def test_a_model_that_fails_is_asked_again_and_complained_of_once() -> None:
    embedder = Words()
    embedder.failures = 3
    with capture_logs() as logs:
        async with running(embedder) as vectors:
            vectors.want(["a dog"])
            await vectors.settled()
            assert vectors.tool("a dog") == direction(ABOUT["dog"])
    assert [entry["event"] for entry in logs] == ["searching tools without the embedding model"]


async def test_a_query_that_fails_is_answered_without() -> None:
    embedder = Words()
    async with running(embedder) as vectors:
        vectors.want(["a dog"])
        await vectors.settled()
        embedder.failures = 1
        assert not await vectors.prepare(["a pet"])
        assert not await vectors.prepare(["a pet"]), "it rests"
        assert embedder.failures == 0


async def test_a_newer_catalog_is_seen_to_and_the_old_one_forgotten() -> None:
    embedder = Words()
    embedder.may_answer.clear()
    async with running(embedder) as vectors:
        vectors.want([f"{number}" for number in range(100)])
        await embedder.has_asked.wait()
        vectors.want(["a dog"])
        embedder.may_answer.set()
        await vectors.settled()
        assert vectors.tool("a dog")
        assert vectors.tool("0") is None
        assert sum(map(len, embedder.asked)) == 33


async def test_what_one_bridge_made_the_next_one_finds(tmp_path: Path) -> None:
    first, second = Words(), Words()
    async with running(first, VectorCache(tmp_path / "v.db")) as vectors:
        vectors.want(["a dog", "an invoice"])
        await vectors.settled()
    async with running(second, VectorCache(tmp_path / "v.db")) as vectors:
        vectors.want(["a dog", "an invoice", "rain"])
        await vectors.settled()
        assert vectors.tool("an invoice") == direction(ABOUT["invoice"])
    assert [list(texts) for texts in second.asked] == [["! rain"]]


class Odd(Words):
    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        await super().embed(texts)
        if len(self.asked) == 1:
            return [[float("nan")]]
        return [[1.0]] * (len(texts) + len(self.asked) % 2) if len(self.asked) < 4 else [[1.0]] * len(texts)


async def test_a_model_that_answers_nonsense_counts_as_one_that_fails() -> None:
    async with running(Odd()) as vectors:
        vectors.want(["a dog"])
        await vectors.settled()
        assert vectors.tool("a dog") == b"\x7f"


async def test_nothing_is_begun_when_the_bridge_has_stopped() -> None:
    async with running(Words()) as vectors:
        pass
    vectors.want(["a dog"])
    assert vectors.is_settled
    assert not await vectors.prepare(["a pet"])


# -- the ranker


async def test_what_a_query_means_is_found_by_the_model() -> None:
    async with running(Words()) as vectors:
        ranker = await ranker_of(vectors)
        await vectors.settled()
        query = "something with a pet"
        before = ranker.rank(query, 4)
        assert await EmbeddedRankers(CatalogRankers, vectors, 0.9).prepare(query)
        after = ranker.rank(query, 4)
        assert after[0].id == "s/dog"
        assert ids(ranker.rank(query, 2)) == ids(after)[:2]
        assert sorted(ids(before)) == sorted(ids(after))
        assert [hit.score for hit in after] == sorted([hit.score for hit in after], reverse=True)
        assert all(0 <= hit.score <= 1 for hit in after)


async def test_the_points_of_an_explanation_are_the_score_with_the_model_s_share() -> None:
    """Issue 20: which words and vectors made the ranking."""
    async with running(Words()) as vectors:
        ranker = await ranker_of(vectors, weight=0.4)
        await vectors.settled()
        query = "something for a pet"
        assert await vectors.prepare(texts_of_query(query))
        explained, hits = ranker.explain(query, 4), ranker.rank(query, 4)
        assert {hit.id: round(min(1, explained[hit.id].score), 2) for hit in hits} == {
            hit.id: round(hit.score, 2) for hit in hits
        }
        assert explained["s/dog"].model_nearness == 1
        assert explained["s/dog"].model > explained["s/rain"].model
        without = ranker.explain("another query that nobody prepared", 4)
        assert all(one.model_nearness is None for one in without.values())


async def test_filters_and_who_may_see_what_are_obeyed() -> None:
    servers = [*CATALOG, (ServerText("t"), [ToolText("t/dog", "t", "dog", description="Something with a dog")])]
    async with running(Words()) as vectors:
        ranker = await ranker_of(vectors, servers)
        await vectors.settled()
        assert await vectors.prepare(texts_of_query("server:t something with a pet"))
        assert ids(ranker.rank("server:t something with a pet", 8)) == ["t/dog"]
        assert "s/dog" not in ids(ranker.rank("something with a pet", 8, among={"s/rain", "t/dog"}))
        assert ranker.rank("something with a pet", 0) == []


async def test_a_tool_that_is_named_stays_first() -> None:
    async with running(Words()) as vectors:
        ranker = await ranker_of(vectors)
        await vectors.settled()
        query = "a pet, with `printer`"
        assert await vectors.prepare(texts_of_query(query))
        first = ranker.rank(query, 4)[0]
        assert (first.id, first.is_named) == ("s/printer", True)


async def test_a_catalog_that_changes_is_told_anew() -> None:
    embedder = Words()
    async with running(embedder) as vectors:
        rankers = EmbeddedRankers(CatalogRankers, vectors, 0.9)
        for names in (["dog", "rain"], ["dog", "invoice"]):
            servers = catalog(*names)
            await anyio.to_thread.run_sync(rankers.of, servers)
            await vectors.settled()
        servers = [(ServerText("s", "Renamed"), servers[0][1])]
        ranker = await anyio.to_thread.run_sync(rankers.of, servers)
        await vectors.settled()
        assert await rankers.prepare("something with a pet")
        assert ranker.rank("something with a pet", 1)[0].id == "s/dog"
    told = [text.partition(":")[0] for texts in embedder.asked for text in texts]
    assert told == ["! s"] * 3 + ["! s Renamed"] * 2 + ["? something with a pet"]


async def test_the_same_question_has_the_same_answer() -> None:
    answers: list[list[Hit]] = []
    for _ in range(2):
        async with running(Words()) as vectors:
            ranker = await ranker_of(vectors)
            await vectors.settled()
            await vectors.prepare(texts_of_query("something with a pet"))
            answers.append(ranker.rank("something with a pet", 8))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("query", ["", "server:s", "\ud800\0", "x " * 50_000])
async def test_any_query_is_answered(query: str) -> None:
    async with running(Words()) as vectors:
        ranker = await ranker_of(vectors)
        await vectors.settled()
        await vectors.prepare(texts_of_query(query))
        found = ranker.rank(query, 3)
    assert len(found) == len({hit.id for hit in found}) <= 3
    assert all(0 <= hit.score <= 1 for hit in found)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"kind": "http", "url": "http://127.0.0.1:1/v1", "model": "tiny"}, "tiny at 127.0.0.1:1/v1/embeddings"),
        ({"kind": "local", "model": "/nowhere"}, "no model"),
    ],
)
async def test_the_settings_say_which_model(given: dict[str, str], name: str, tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    vectors = open_vectors(EmbedderSettings.model_validate(given), OwnedTasks(), environ=environ)
    assert vectors is not None
    assert vectors.name == name
    await vectors.close()
    assert list(tmp_path.iterdir()) == [], "nothing is made before there is something to keep"


def test_without_an_embedder_nothing_is_made() -> None:
    assert open_vectors(EmbedderSettings(), OwnedTasks()) is None


# -- how judgements are put together


def test_both_judgements_count_by_their_weight() -> None:
    hits = [Hit("a", 0.8), Hit("b", 0.7), Hit("c", 0.1)]
    near = {"a": 0.0, "b": 1.0, "c": 0.5}
    assert ids(fused(hits, near, 0)) == ["a", "b", "c"]
    assert ids(fused(hits, near, 1)) == ["b", "c", "a"]
    half = fused(hits, near, 0.5)
    assert ids(half) == ["b", "a", "c"]
    assert [hit.score for hit in half] == pytest.approx([0.75, 0.4, 0.25])


def test_a_tool_without_a_vector_is_judged_by_its_score_alone() -> None:
    assert fused([Hit("a", 0.8), Hit("b", 0.7)], {"b": 0.5}, 0.5) == [Hit("a", 0.8), Hit("b", 0.55)]
    assert fused([Hit("a", 0.8)], {}, 0.5) == [Hit("a", 0.8)]
    assert fused([Hit("a", 0.0)], {"a": 1.0}, 0.5) == [Hit("a", 0.0)]


def test_the_best_of_each_part_of_a_request_is_near() -> None:
    vectors = {name: direction(about) for name, about in ABOUT.items()}
    near = nearness([vectors["pet"], vectors["rain"]], vectors)
    assert near["pet"] == pytest.approx(1)
    assert near["rain"] == pytest.approx(0.85)
    assert near["invoice"] < 0.4
    assert nearness([], vectors) == dict.fromkeys(vectors, 0.0)
    assert nearness([vectors["pet"]], {"x": vectors["pet"], "y": vectors["pet"]}) == {"x": 1, "y": 1}
    assert nearness([vectors["pet"]], {}) == {}


def test_between_which_numbers_a_model_lies_does_not_matter() -> None:
    """Some put all texts between 0.7 and 0.9, others between 0 and 0.6."""
    angles = [0, 10, 20, 30, 40]

    def near(factor: float) -> list[float]:
        turned = [acos(1 - factor * (1 - cos(radians(angle)))) for angle in angles]
        vectors = {str(place): direction([cos(turn), sin(turn)]) for place, turn in enumerate(turned)}
        return list(nearness([direction([1.0, 0.0])], vectors).values())

    assert near(1) == pytest.approx(near(2), abs=0.05)
    assert near(1)[:3:2] == pytest.approx([1, 1 / 3], abs=0.01)
