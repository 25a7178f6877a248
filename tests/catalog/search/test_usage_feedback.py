"""Tools that served before come a little earlier: for the same principal, within bounds, over restarts."""

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from mcpbridge.base.errors import StoreFailed
from mcpbridge.catalog.search.ranker import Hit
from mcpbridge.catalog.search.usage_feedback import Feedback, Prior
from mcpbridge.catalog.search.weights import FEEDBACK
from mcpbridge.storage.memory_store import MemoryStore

HITS = [Hit("github/create_issue", 0.90), Hit("jira/create_issue", 0.89), Hit("notion/create_page", 0.5)]
QUERY = "create an issue"


def ids(hits: list[Hit]) -> list[str]:
    return [hit.id for hit in hits]


def used(tool: str, times: int, query: str = QUERY) -> Prior:
    prior = Prior()
    for _ in range(times):
        prior.observe(query, tool)
    return prior


# -- one principal's prior


def test_without_notes_nothing_moves() -> None:
    assert Prior().adjust(QUERY, HITS) == HITS
    assert used("other/tool", 3).adjust(QUERY, HITS) == HITS
    assert used("other/tool", 3).adjust(QUERY, []) == []


def test_what_served_for_the_same_words_wins_a_near_tie() -> None:
    assert ids(used("jira/create_issue", 2).adjust("issue: create one", HITS))[0] == "jira/create_issue"


def test_however_often_it_served_it_passes_nothing_that_is_much_better() -> None:
    moved = used("notion/create_page", 500).adjust(QUERY, HITS)
    assert ids(moved) == ids(HITS)
    assert moved[2].score <= 0.5 + FEEDBACK * 0.9


def test_however_often_it_served_it_passes_nothing_that_is_named() -> None:
    hits = [Hit("a", 0.3, is_named=True), Hit("b", 0.2, is_named=True), Hit("c", 0.199), Hit("d", 0.198)]
    moved = used("d", 100).adjust(QUERY, hits)
    assert ids(moved) == ["a", "b", "d", "c"]
    assert moved[:2] == hits[:2]
    assert used("b", 100).adjust(QUERY, hits) == hits


def test_other_words_are_moved_by_much_less() -> None:
    prior = used("jira/create_issue", 3)
    same = prior.adjust(QUERY, HITS)[0].score
    other = {hit.id: hit.score for hit in prior.adjust("weather tomorrow", HITS)}["jira/create_issue"]
    assert 0.89 < other < same == 0.9


def test_notes_fade_with_further_notes() -> None:
    prior = used("jira/create_issue", 5)
    for number in range(400):
        prior.observe("something else entirely", f"other/{number % 7}")
    assert ids(prior.adjust(QUERY, HITS)) == ids(HITS)


def test_filters_of_a_query_are_no_words() -> None:
    assert used("jira/create_issue", 3, "server:jira weather").adjust("server:jira rain", HITS) == pytest.approx(
        used("jira/create_issue", 3, "weather").adjust("rain", HITS)
    )


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=30), st.sampled_from(["a", "b", "c", "d"])), max_size=60),
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.floats(0, 1), st.booleans()), max_size=8),
    st.text(max_size=30),
)
def test_what_is_moved_is_the_same_hits_in_order_and_within_bounds(
    notes: list[tuple[str, str]], said: list[tuple[str, float, bool]], query: str
) -> None:
    prior = Prior()
    for noted, tool in notes:
        prior.observe(noted, tool)
    named = [Hit(id_, 1.0, is_named=True) for id_, _, is_named in said if is_named]
    others = sorted((Hit(id_, score) for id_, score, is_named in said if not is_named), key=lambda hit: -hit.score)
    moved = prior.adjust(query, named + others)
    assert moved[: len(named)] == named
    assert sorted(ids(moved)) == sorted(ids(named + others))
    scores = [hit.score for hit in moved]
    assert scores == sorted(scores, reverse=True)
    assert all(score <= 1 for score in scores)
    top = max((hit.score for hit in others), default=0)
    for place, hit in enumerate(moved[len(named) :]):
        assert hit.score <= max(one.score for one in others if one.id == hit.id) + FEEDBACK * top + 1e-9
        assert place < len(others)
    again = Prior.from_bytes(prior.to_bytes())
    assert again.adjust(query, named + others) == moved


def test_notes_are_bounded() -> None:
    prior = Prior()
    for number in range(500):
        prior.observe(" ".join(f"word{number}x{place}" for place in range(40)), f"server/tool{number}")
        prior.observe(" ".join(f"other{number}y{place}" for place in range(40)), "server/same")
    prior.observe("x", "y" * 10_000)
    prior.observe("z" * 10**6, "server/z")
    assert len(prior.to_bytes()) < 400_000
    latest = [Hit("server/tool0", 0.9), Hit("server/tool499", 0.88)]
    assert prior.adjust("word499x0 word499x1", latest)[0].id == "server/tool499", "the latest are remembered"


@pytest.mark.parametrize("body", [b"", b"nonsense", b"\x93\x01", msgspec.msgpack.encode([2, 0, {}]), b"\x93" * 5000])
def test_notes_that_cannot_be_read_are_none(body: bytes) -> None:
    assert Prior.from_bytes(body).adjust(QUERY, HITS) == HITS


@pytest.mark.parametrize(
    "served", [[9, 1.0, {}], [-1, 1.0, {}], [1, float("nan"), {}], [1, 1e9, {}], [1, 1.0, {"a": float("inf")}]]
)
def test_notes_that_were_tampered_with_are_none(served: list[object]) -> None:
    body = msgspec.msgpack.encode([1, 5, {"jira/create_issue": served}])
    assert Prior.from_bytes(body).adjust(QUERY, HITS) == HITS


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_read(body: bytes) -> None:
    assert sorted(ids(Prior.from_bytes(body).adjust(QUERY, HITS))) == sorted(ids(HITS))


# -- all principals


async def test_anothers_notes_never_change_mine() -> None:
    store = MemoryStore()
    feedback = Feedback(store)
    for _ in range(50):
        feedback.observe("ann", QUERY, "jira/create_issue")
    await feedback.flush()
    await feedback.recall("bob")
    await feedback.recall("")
    assert feedback.adjust("bob", QUERY, HITS) == HITS
    assert feedback.adjust("", QUERY, HITS) == HITS
    assert ids(feedback.adjust("ann", QUERY, HITS))[0] == "jira/create_issue"


async def test_notes_survive_a_restart() -> None:
    store = MemoryStore()
    async with Feedback(store).running() as _:
        pass
    feedback = Feedback(store)
    async with feedback.running():
        feedback.observe("ann", QUERY, "jira/create_issue")
        feedback.observe("ann", QUERY, "jira/create_issue")
        before = feedback.adjust("ann", QUERY, HITS)
    later = Feedback(store)
    assert later.adjust("ann", QUERY, HITS) == HITS, "nothing was read yet"
    await later.recall("ann")
    assert later.adjust("ann", QUERY, HITS) == before


async def test_two_bridges_of_one_user_add_up() -> None:
    store = MemoryStore()
    one, other = Feedback(store), Feedback(store)
    for feedback in (one, other, one, other):
        feedback.observe("ann", QUERY, "jira/create_issue")
        await feedback.flush()
    third = Feedback(store)
    await third.recall("ann")
    assert third.adjust("ann", QUERY, HITS) == used("jira/create_issue", 4).adjust(QUERY, HITS)


async def test_a_call_belongs_to_the_last_search_that_found_its_tool_and_counts_once() -> None:
    feedback = Feedback(MemoryStore())
    feedback.searched("ann", QUERY, ["jira/create_issue", "github/create_issue"])
    feedback.searched("ann", "weather tomorrow", ["weather/forecast"])
    for _ in range(5):
        feedback.called("ann", "jira/create_issue")
        feedback.called("ann", "unknown/tool")
        feedback.called("bob", "jira/create_issue")
    assert feedback.adjust("ann", QUERY, HITS) == used("jira/create_issue", 1).adjust(QUERY, HITS)
    assert feedback.adjust("bob", QUERY, HITS) == HITS
    for _ in range(8):
        feedback.searched("ann", "more", [])
    feedback.called("ann", "github/create_issue")
    assert feedback.adjust("ann", QUERY, HITS) == used("jira/create_issue", 1).adjust(QUERY, HITS)


async def test_what_was_forgotten_is_gone_everywhere() -> None:
    store = MemoryStore()
    feedback = Feedback(store)
    for principal in ("ann", "bob"):
        feedback.observe(principal, QUERY, "jira/create_issue")
    await feedback.flush()
    await feedback.forget("ann")
    await feedback.flush()
    assert feedback.adjust("ann", QUERY, HITS) == HITS
    later = Feedback(store)
    await later.recall("ann")
    await later.recall("bob")
    assert later.adjust("ann", QUERY, HITS) == HITS
    assert ids(later.adjust("bob", QUERY, HITS))[0] == "jira/create_issue"


class Failing(MemoryStore):
    is_broken = True

    async def get(self, kind: str, handle: str, *, principal: str, renew: float | None = None) -> bytes | None:
        if self.is_broken:
            raise StoreFailed("the disk is full", file="x")
        return await super().get(kind, handle, principal=principal, renew=renew)


async def test_what_cannot_be_written_is_written_later() -> None:
    store = Failing()
    feedback = Feedback(store)
    with capture_logs() as logs:
        await feedback.recall("ann")
        feedback.observe("ann", QUERY, "jira/create_issue")
        await feedback.flush()
        await feedback.flush()
    assert [entry["event"] for entry in logs] == ["search feedback cannot be stored"]
    store.is_broken = False
    await feedback.flush()
    later = Feedback(store)
    await later.recall("ann")
    assert later.adjust("ann", QUERY, HITS) == used("jira/create_issue", 1).adjust(QUERY, HITS)


async def test_a_store_that_hangs_holds_up_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(MemoryStore):
        async def get(self, kind: str, handle: str, *, principal: str, renew: float | None = None) -> bytes | None:
            await anyio.sleep_forever()

    monkeypatch.setattr("mcpbridge.catalog.search.usage_feedback._PATIENCE", 0.01)
    feedback = Feedback(Hanging())
    with anyio.fail_after(30):
        async with feedback.running():
            await feedback.recall("ann")
            feedback.observe("ann", QUERY, "jira/create_issue")
    assert feedback.adjust("ann", QUERY, HITS) == used("jira/create_issue", 1).adjust(QUERY, HITS)


async def test_principals_in_memory_are_bounded() -> None:
    feedback = Feedback(MemoryStore())
    for number in range(1100):
        feedback.observe(f"p{number}", QUERY, "jira/create_issue")
        feedback.searched(f"p{number}", QUERY, ["jira/create_issue"])
    assert feedback.adjust("p0", QUERY, HITS) == HITS
    assert feedback.adjust("p1099", QUERY, HITS) != HITS
