import asyncio

import anyio
import pytest

from mcpbridge.catalog.definitions.check import Kind
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.catalog.upstream_filter import Offer
from mcpbridge.pipeline.permissions.policy import ANYBODY
from support.catalog.definitions import prompt, resources, settings, tool, tools
from support.catalog.policies import policy_of

pytestmark = pytest.mark.anyio


class Listener:
    """Keeps what it is told and lets a test wait for it."""

    def __init__(self) -> None:
        self.told: list[frozenset[Kind]] = []
        self.snapshots: list[Snapshot] = []
        self._event = asyncio.Event()

    def __call__(self, snapshot: Snapshot, changed: frozenset[Kind]) -> None:
        self.told.append(changed)
        self.snapshots.append(snapshot)
        self._event.set()

    async def wait(self) -> None:
        with anyio.fail_after(30):
            await self._event.wait()
        self._event.clear()


async def test_a_burst_of_changes_becomes_one_snapshot() -> None:
    catalog, listener = Catalog({}), Listener()
    catalog.on_change(listener)
    for i in range(20):
        catalog.update(tools("a", *(f"t{n}" for n in range(i + 1))))
    catalog.update(tools("b", "x"))
    assert len(catalog.snapshot.tools) == 0, "not yet"
    await listener.wait()
    assert listener.told == [{"tools"}]
    assert len(catalog.snapshot.tools) == 21
    assert listener.snapshots == [catalog.snapshot]


async def test_later_changes_become_later_snapshots() -> None:
    catalog, listener = Catalog({}, settle=0), Listener()
    catalog.on_change(listener)
    catalog.update(tools("a", "x"))
    await listener.wait()
    catalog.update(Offer("a", tools=(tool("x"),), prompts=(prompt("p"),)))
    await listener.wait()
    catalog.remove("a")
    await listener.wait()
    assert listener.told == [{"tools"}, {"prompts"}, {"tools", "prompts"}]


async def test_a_steady_stream_of_changes_defers_nothing() -> None:
    """The time runs from the first change: a server that never rests must not hide the others' news."""
    catalog, listener = Catalog({}), Listener()
    catalog.on_change(listener)

    async def never_rest() -> None:
        i = 0
        while True:
            i += 1
            catalog.update(tools("restless", f"t{i}"))
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        stream = group.create_task(never_rest())
        await listener.wait()
        await listener.wait()
        stream.cancel()


async def test_flush_makes_the_snapshot_at_once_and_only_once() -> None:
    catalog, listener = Catalog({}, settle=3600), Listener()
    catalog.on_change(listener)
    catalog.update(tools("a", "x"))
    assert list(catalog.flush().tools) == ["a__x"]
    assert catalog.flush() is catalog.snapshot
    assert listener.told == [{"tools"}]


async def test_a_change_that_nobody_sees_is_not_announced() -> None:
    """Clients that cache prompts lose them with each list, so one is announced only if what they see has changed."""
    catalog, listener = Catalog({"a": settings(tools={"exclude": ["secret*"]})}, settle=3600), Listener()
    catalog.update(tools("a", "x"))
    catalog.flush()
    catalog.on_change(listener)
    catalog.update(tools("a", "x", "secret"))
    catalog.flush()
    catalog.update(tools("a", "secret2", "x"))
    catalog.flush()
    assert listener.told == []


async def test_the_same_offer_again_makes_nothing() -> None:
    catalog = Catalog({}, settle=3600)
    catalog.update(tools("a", "x"))
    before = catalog.flush()
    catalog.update(tools("a", "x"))
    catalog.remove("unknown")
    assert catalog.flush() is before


async def test_other_settings_make_another_view() -> None:
    catalog, listener = Catalog({}, settle=3600), Listener()
    catalog.update(tools("a", "x", "y"))
    catalog.flush()
    catalog.on_change(listener)
    catalog.configure({"a": settings(tools={"exclude": ["y"]})})
    assert list(catalog.flush().tools) == ["a__x"]
    assert listener.told == [{"tools"}]


async def test_who_stopped_listening_is_told_no_more() -> None:
    catalog, first, second = Catalog({}, settle=3600), Listener(), Listener()
    stop = catalog.on_change(first)
    catalog.on_change(second)
    stop()
    stop()
    catalog.update(resources("a", "x:y"))
    catalog.flush()
    assert (first.told, second.told) == ([], [{"resources"}])


async def test_a_closed_catalog_leaves_no_timer_behind() -> None:
    catalog, listener = Catalog({}, settle=0), Listener()
    catalog.on_change(listener)
    catalog.update(tools("a", "x"))
    catalog.close()
    catalog.close()
    for _ in range(3):
        await asyncio.sleep(0)
    assert listener.told == []


async def test_the_builder_decides_how_the_snapshots_are_cut() -> None:
    catalog = Catalog({}, SnapshotBuilder(name_length=16, page_size=1), settle=3600)
    catalog.update(tools("a", "a_rather_long_name", "b"))
    snapshot = catalog.flush()
    assert max(map(len, snapshot.tools)) == 16
    assert b"nextCursor" in snapshot.page("tools", None, revision="2025-11-25")


async def test_another_builder_cuts_all_from_now_on_and_knows_what_the_one_before_learned() -> None:
    """A reload changes how names begin; whose a link out of a result is stays known."""
    catalog = Catalog({}, SnapshotBuilder(), settle=3600)
    for server in ("a", "b"):
        catalog.update(tools(server, "x"))
    catalog.expect_large(frozenset({"a/x"}))
    before = catalog.flush()
    before.published_uri("a", "note://unlisted")
    own = catalog.view("a")
    catalog.configure({}, SnapshotBuilder(prefix="never", name_length=20))
    after = catalog.flush()
    assert [name.partition("_")[0] for name in after.tools] == ["x", "x"]
    assert after.seen_in("note://unlisted") == "a"
    assert list(catalog.view("a").tools) == ["x"]
    assert catalog.view("a") is not own
    catalog.configure({}, SnapshotBuilder(prefix="never", name_length=20))
    assert catalog.flush().tools == after.tools


async def test_another_policy_counts_at_once() -> None:
    catalog = Catalog({}, settle=3600)
    assert catalog.audience("first", "") == ANYBODY
    catalog.update(tools("a", "x", "y"))
    catalog.flush()
    catalog.configure({}, policy=policy_of({"clients": "first", "tools": "y", "permission": "deny"}))
    assert list(catalog.view("", catalog.audience("first", "")).tools) == ["a__x"]
    assert list(catalog.view("", catalog.audience("other", "")).tools) == ["a__x", "a__y"]
    catalog.configure({}, policy=policy_of())
    assert list(catalog.view("", catalog.audience("first", "")).tools) == ["a__x", "a__y"]
    catalog.close()
