"""Kept results: handles that stay the same, summaries that are found again, and nobody else's (issue 5)."""

import os
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbridge.base.errors import ValueTooLarge
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.results.kept_results import RESULTS, KeptResults, ResultSummary, searched_words
from mcpbridge.storage.memory_store import MemoryStore
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import StoreSettings
from mcpbridge.storage.sqlite.store import SqliteStore
from mcpbridge.storage.store import Store

DATA = b'{"content":[{"type":"text","text":"' + b"row " * 5000 + b'"}]}'


class Clock:
    """Time that passes when a test says so."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


STORES: dict[str, Callable[[Path, Clock], Store]] = {
    "memory": lambda path, clock: MemoryStore(clock=clock),
    "sqlite": lambda path, clock: SqliteStore(path, clock=clock),
    "sealed": lambda path, clock: SqliteStore(path, clock=clock, key="5a" * 32),
    "lazy": lambda path, clock: LazyStore(StoreSettings(path=str(path)), clock=clock),
}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    store = STORES[request.param](tmp_path / "a.db", clock)
    yield store
    await store.close()


@pytest.fixture
def kept_results(store: Store, clock: Clock) -> KeptResults:
    return KeptResults(store, lifetime=1000, redact=Redactor(["hunter2hunter2"]), clock=clock)


async def keep(
    kept_results: KeptResults, data: bytes = DATA, *, principal: str = "ann", tool: str = "git/log", **facts: str
) -> str:
    handle = await kept_results.handle_of(data, principal=principal)
    await kept_results.keep(data, ResultSummary(handle=handle, tool=tool, **facts), principal=principal)
    return handle


async def test_a_result_is_kept_as_it_came_with_its_card(kept_results: KeptResults, clock: Clock) -> None:
    handle = await kept_results.handle_of(DATA, principal="ann")
    assert re.fullmatch("[a-z2-7]{26}", handle)
    assert await kept_results.get(handle, principal="ann") is None
    assert await kept_results.summary(handle, principal="ann") is None
    summary = ResultSummary(
        handle=handle,
        tool="git/log",
        arguments='{"n":1}',
        outcome="tool_error",
        kind="JSON",
        headline="JSON array of 33 objects",
        chars=41_709,
        at=5.5,
        client="ear",
    )
    await kept_results.keep(DATA, summary, principal="ann")
    assert await kept_results.get(handle, principal="ann") == DATA
    assert await kept_results.summary(handle, principal="ann") == summary
    assert await kept_results.summaries(principal="ann") == [summary]
    assert await kept_results.drop(handle, principal="ann")
    assert not await kept_results.drop(handle, principal="ann")
    assert await kept_results.summaries(principal=None) == []


async def test_others_see_nothing(kept_results: KeptResults) -> None:
    handle = await keep(kept_results)
    for principal in ("bob", ""):
        assert await kept_results.get(handle, principal=principal) is None
        assert await kept_results.summary(handle, principal=principal) is None
        assert await kept_results.summaries(principal=principal) == []
        assert not await kept_results.drop(handle, principal=principal)
    assert [summary.handle for summary in await kept_results.summaries(principal=None)] == [handle]


async def test_a_handle_is_told_from_principal_and_bytes(kept_results: KeptResults, store: Store) -> None:
    large = os.urandom(300_000)  # hashed in a thread
    for data in (b"", DATA, large):
        handle = await kept_results.handle_of(data, principal="ann")
        assert handle == await KeptResults(store, lifetime=5).handle_of(data, principal="ann")
        assert handle != await kept_results.handle_of(data, principal="bob")
        assert handle != await kept_results.handle_of(data + b" ", principal="ann")
    assert await kept_results.handle_of(b"bc", principal="a") != await kept_results.handle_of(b"c", principal="ab")


async def test_handles_outlive_the_process_and_differ_between_stores(tmp_path: Path) -> None:
    handles: list[str] = []
    for name in ("a.db", "a.db", "b.db"):
        store = SqliteStore(tmp_path / name)
        handles.append(await KeptResults(store, lifetime=5).handle_of(DATA, principal=""))
        await store.close()
    assert handles[0] == handles[1] != handles[2]


async def test_what_is_used_or_kept_again_lives_anew(kept_results: KeptResults, clock: Clock) -> None:
    used, again, forgotten = [await keep(kept_results, DATA + b"%d" % number) for number in range(3)]
    clock.now += 900
    assert await kept_results.get(used, principal="ann")
    assert await keep(kept_results, DATA + b"1", tool="git/show") == again
    assert [summary.tool for summary in await kept_results.summaries(principal="ann")] == [
        "git/show",
        "git/log",
        "git/log",
    ]
    clock.now += 900
    assert await kept_results.get(forgotten, principal="ann") is None
    summaries = await kept_results.summaries(principal="ann")
    assert [summary.handle for summary in summaries] == [again, used]
    assert summaries[0].at == 1_000_900
    assert await kept_results.get(again, principal="ann") == DATA + b"1"


async def test_cards_are_found_by_all_their_words(kept_results: KeptResults, clock: Clock) -> None:
    await keep(kept_results, b"1", arguments='{"path":"/Etc/Hosts"}', client="Ear")
    clock.now += 1
    await keep(kept_results, b"2", tool="k8s/pods", headline="JSON array of 33 objects", kind="JSON")
    clock.now += 1
    await keep(kept_results, b"3", tool="k8s/logs", outcome="tool_error", headline="12 lines of STRASSE", kind="log")

    async def found(search: str, limit: int = 50) -> list[str]:
        return [summary.tool for summary in await kept_results.summaries(principal="ann", search=search, limit=limit)]

    assert await found("") == await found("  ") == ["k8s/logs", "k8s/pods", "git/log"]
    assert await found("etc/hosts EAR") == ["git/log"]
    assert await found("k8s") == ["k8s/logs", "k8s/pods"]
    assert await found("k8s", limit=1) == await found("", limit=1) == ["k8s/logs"]
    assert await found("33 k8s json") == ["k8s/pods"]
    assert await found("straße tool_error") == ["k8s/logs"]
    assert await found("k8s etc") == []


async def test_of_a_search_a_few_different_words_count(kept_results: KeptResults) -> None:
    await keep(kept_results, tool="k8s/pods", headline="h" * 150)
    assert searched_words("K8s pods k8s " + "x" * 500) == ["k8s", "pods", "x" * 100]
    assert len(searched_words(" ".join(map(str, range(100))))) == 20
    assert await kept_results.summaries(principal="ann", search="k8s pods " * 100_000 + "other")
    assert await kept_results.summaries(principal="ann", search="h" * 150)


async def test_cards_hold_no_secrets_and_are_short(kept_results: KeptResults, store: Store) -> None:
    arguments = "x" * 290 + "hunter2hunter2" + "y" * 1_000_000
    handle = await keep(
        kept_results, arguments=arguments, tool="t" * 9999, client="hunter2hunter2", headline="a\ud800" + "h" * 9999
    )
    summary = await kept_results.summary(handle, principal="ann")
    assert summary
    assert summary.arguments.startswith("x" * 290 + "[redacte")
    assert len(summary.arguments) == len(summary.headline) == 300
    assert summary.headline.startswith("a?h")
    assert summary.client == "[redacted]"
    [entry] = await store.entries(RESULTS, principal="ann")
    assert len(entry.label) < 2000
    assert b"hunter2" not in entry.label


@pytest.mark.parametrize("label", [b"", b"{", b"[1]", b'{"tool":7}', b"\xff"])
async def test_results_without_a_card_have_a_handle_and_a_time(
    kept_results: KeptResults, store: Store, clock: Clock, label: bytes
) -> None:
    """Those of calls whose client stopped waiting, of earlier versions, and damaged ones."""
    await store.put(RESULTS, b"late", principal="ann", expires_in=60, handle="0f" * 16, label=label)
    summary = ResultSummary(handle="0f" * 16, tool="", at=clock.now)
    assert await kept_results.summaries(principal="ann") == [summary]
    assert await kept_results.summary("0f" * 16, principal="ann") == summary
    assert await kept_results.get("0f" * 16, principal="ann") == b"late"
    assert await kept_results.summaries(principal="ann", search="late") == []


async def test_cards_of_other_versions_are_read(kept_results: KeptResults, store: Store) -> None:
    label = b'{"handle":"another","tool":"a/b","novelty":[1]}'
    await store.put(RESULTS, b"v", principal="ann", expires_in=60, handle="mine", label=label)
    assert await kept_results.summaries(principal="ann") == [ResultSummary(handle="mine", tool="a/b")]


async def test_what_does_not_fit_says_so(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    store.bound(RESULTS, 1000)
    with pytest.raises(ValueTooLarge):
        await keep(KeptResults(store, lifetime=5), os.urandom(2000))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=5000), principal=st.text(max_size=20), text=st.text(max_size=500))
async def test_any_bytes_come_back(data: bytes, principal: str, text: str) -> None:
    kept_results = KeptResults(MemoryStore(), lifetime=60)
    handle = await keep(kept_results, data, principal=principal, tool=text, arguments=text, headline=text, client=text)
    assert await kept_results.get(handle, principal=principal) == data
    assert len(await kept_results.summaries(principal=principal)) == 1
