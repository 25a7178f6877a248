"""Kept results: handles that stay the same, cards that are found again, and nobody else's (issue 5)."""

import os
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbridge.base.errors import ValueTooLarge
from mcpbridge.base.redaction import Redactor
from mcpbridge.results.kept_results import RESULTS, Card, Shelf, searched_words
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
def shelf(store: Store, clock: Clock) -> Shelf:
    return Shelf(store, lifetime=1000, redact=Redactor(["hunter2hunter2"]), clock=clock)


async def keep(shelf: Shelf, data: bytes = DATA, *, principal: str = "ann", tool: str = "git/log", **facts: str) -> str:
    handle = await shelf.handle_of(data, principal=principal)
    await shelf.keep(data, Card(handle=handle, tool=tool, **facts), principal=principal)
    return handle


async def test_a_result_is_kept_as_it_came_with_its_card(shelf: Shelf, clock: Clock) -> None:
    handle = await shelf.handle_of(DATA, principal="ann")
    assert re.fullmatch("[a-z2-7]{26}", handle)
    assert await shelf.get(handle, principal="ann") is None
    assert await shelf.card(handle, principal="ann") is None
    card = Card(
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
    await shelf.keep(DATA, card, principal="ann")
    assert await shelf.get(handle, principal="ann") == DATA
    assert await shelf.card(handle, principal="ann") == card
    assert await shelf.cards(principal="ann") == [card]
    assert await shelf.drop(handle, principal="ann")
    assert not await shelf.drop(handle, principal="ann")
    assert await shelf.cards(principal=None) == []


async def test_others_see_nothing(shelf: Shelf) -> None:
    handle = await keep(shelf)
    for principal in ("bob", ""):
        assert await shelf.get(handle, principal=principal) is None
        assert await shelf.card(handle, principal=principal) is None
        assert await shelf.cards(principal=principal) == []
        assert not await shelf.drop(handle, principal=principal)
    assert [card.handle for card in await shelf.cards(principal=None)] == [handle]


async def test_a_handle_is_told_from_principal_and_bytes(shelf: Shelf, store: Store) -> None:
    large = os.urandom(300_000)  # hashed in a thread
    for data in (b"", DATA, large):
        handle = await shelf.handle_of(data, principal="ann")
        assert handle == await Shelf(store, lifetime=5).handle_of(data, principal="ann")
        assert handle != await shelf.handle_of(data, principal="bob")
        assert handle != await shelf.handle_of(data + b" ", principal="ann")
    assert await shelf.handle_of(b"bc", principal="a") != await shelf.handle_of(b"c", principal="ab")


async def test_handles_outlive_the_process_and_differ_between_stores(tmp_path: Path) -> None:
    handles: list[str] = []
    for name in ("a.db", "a.db", "b.db"):
        store = SqliteStore(tmp_path / name)
        handles.append(await Shelf(store, lifetime=5).handle_of(DATA, principal=""))
        await store.close()
    assert handles[0] == handles[1] != handles[2]


async def test_what_is_used_or_kept_again_lives_anew(shelf: Shelf, clock: Clock) -> None:
    used, again, forgotten = [await keep(shelf, DATA + b"%d" % number) for number in range(3)]
    clock.now += 900
    assert await shelf.get(used, principal="ann")
    assert await keep(shelf, DATA + b"1", tool="git/show") == again
    assert [card.tool for card in await shelf.cards(principal="ann")] == ["git/show", "git/log", "git/log"]
    clock.now += 900
    assert await shelf.get(forgotten, principal="ann") is None
    cards = await shelf.cards(principal="ann")
    assert [card.handle for card in cards] == [again, used]
    assert cards[0].at == 1_000_900
    assert await shelf.get(again, principal="ann") == DATA + b"1"


async def test_cards_are_found_by_all_their_words(shelf: Shelf, clock: Clock) -> None:
    await keep(shelf, b"1", arguments='{"path":"/Etc/Hosts"}', client="Ear")
    clock.now += 1
    await keep(shelf, b"2", tool="k8s/pods", headline="JSON array of 33 objects", kind="JSON")
    clock.now += 1
    await keep(shelf, b"3", tool="k8s/logs", outcome="tool_error", headline="12 lines of STRASSE", kind="log")

    async def found(search: str, limit: int = 50) -> list[str]:
        return [card.tool for card in await shelf.cards(principal="ann", search=search, limit=limit)]

    assert await found("") == await found("  ") == ["k8s/logs", "k8s/pods", "git/log"]
    assert await found("etc/hosts EAR") == ["git/log"]
    assert await found("k8s") == ["k8s/logs", "k8s/pods"]
    assert await found("k8s", limit=1) == await found("", limit=1) == ["k8s/logs"]
    assert await found("33 k8s json") == ["k8s/pods"]
    assert await found("straße tool_error") == ["k8s/logs"]
    assert await found("k8s etc") == []


async def test_of_a_search_a_few_different_words_count(shelf: Shelf) -> None:
    await keep(shelf, tool="k8s/pods", headline="h" * 150)
    assert searched_words("K8s pods k8s " + "x" * 500) == ["k8s", "pods", "x" * 100]
    assert len(searched_words(" ".join(map(str, range(100))))) == 20
    assert await shelf.cards(principal="ann", search="k8s pods " * 100_000 + "other")
    assert await shelf.cards(principal="ann", search="h" * 150)


async def test_cards_hold_no_secrets_and_are_short(shelf: Shelf, store: Store) -> None:
    arguments = "x" * 290 + "hunter2hunter2" + "y" * 1_000_000
    handle = await keep(
        shelf, arguments=arguments, tool="t" * 9999, client="hunter2hunter2", headline="a\ud800" + "h" * 9999
    )
    card = await shelf.card(handle, principal="ann")
    assert card
    assert card.arguments.startswith("x" * 290 + "[redacte")
    assert len(card.arguments) == len(card.headline) == 300
    assert card.headline.startswith("a?h")
    assert card.client == "[redacted]"
    [entry] = await store.entries(RESULTS, principal="ann")
    assert len(entry.label) < 2000
    assert b"hunter2" not in entry.label


@pytest.mark.parametrize("label", [b"", b"{", b"[1]", b'{"tool":7}', b"\xff"])
async def test_results_without_a_card_have_a_handle_and_a_time(
    shelf: Shelf, store: Store, clock: Clock, label: bytes
) -> None:
    """Those of calls whose client stopped waiting, of earlier versions, and damaged ones."""
    await store.put(RESULTS, b"late", principal="ann", expires_in=60, handle="0f" * 16, label=label)
    card = Card(handle="0f" * 16, tool="", at=clock.now)
    assert await shelf.cards(principal="ann") == [card]
    assert await shelf.card("0f" * 16, principal="ann") == card
    assert await shelf.get("0f" * 16, principal="ann") == b"late"
    assert await shelf.cards(principal="ann", search="late") == []


async def test_cards_of_other_versions_are_read(shelf: Shelf, store: Store) -> None:
    label = b'{"handle":"another","tool":"a/b","novelty":[1]}'
    await store.put(RESULTS, b"v", principal="ann", expires_in=60, handle="mine", label=label)
    assert await shelf.cards(principal="ann") == [Card(handle="mine", tool="a/b")]


async def test_what_does_not_fit_says_so(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    store.bound(RESULTS, 1000)
    with pytest.raises(ValueTooLarge):
        await keep(Shelf(store, lifetime=5), os.urandom(2000))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=5000), principal=st.text(max_size=20), text=st.text(max_size=500))
async def test_any_bytes_come_back(data: bytes, principal: str, text: str) -> None:
    shelf = Shelf(MemoryStore(), lifetime=60)
    handle = await keep(shelf, data, principal=principal, tool=text, arguments=text, headline=text, client=text)
    assert await shelf.get(handle, principal=principal) == data
    assert len(await shelf.cards(principal=principal)) == 1
