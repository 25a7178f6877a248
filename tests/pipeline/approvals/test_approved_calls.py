"""What is new in a call against the last approved one of the same tool (issue 20, Approvals)."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.pipeline.approvals.approved_calls import ApprovedCalls, Difference, differences
from mcpbridge.pipeline.approvals.request import ApprovalRequest
from mcpbridge.storage.memory_store import MemoryStore
from mcpbridge.storage.store import Store

pytestmark = pytest.mark.anyio

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def request_of(
    arguments: Any, *, tool: str = "up/pay", principal: str = "", keeps_content: bool = True
) -> ApprovalRequest:
    return ApprovalRequest(
        id="abcdefgh",
        server="up",
        tool=tool,
        arguments_json=json.dumps(arguments).encode(),
        reason="",
        principal=principal,
        client="ear",
        session="s",
        at=0,
        expires=0,
        binding="b",
        keeps_content=keeps_content,
    )


def as_written(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


@given(values, values)
def test_there_is_a_difference_where_the_values_are_written_differently(before: Any, after: Any) -> None:
    found = differences(before, after)
    assert bool(found) == (as_written(before) != as_written(after))
    assert len({one.path for one in found}) == len(found)
    assert all(one.before != one.after or "…" in (one.before or "") for one in found)


def test_each_part_that_differs_is_named() -> None:
    before = {"to": "a", "amount": 5, "tags": ["x", "y"], "deep": {"a/b": {"c": 1}}, "gone": None, "same": [1]}
    after = {"to": "b", "amount": 5.0, "tags": ["x"], "deep": {"a/b": {"c": 2}}, "new": True, "same": [1]}
    assert set(differences(before, after)) == {
        Difference("/to", '"a"', '"b"'),
        Difference("/amount", "5", "5.0"),
        Difference("/tags/1", '"y"', None),
        Difference("/deep/a~1b/c", "1", "2"),
        Difference("/gone", "null", None),
        Difference("/new", None, "true"),
    }


def test_a_change_far_down_a_long_text_is_seen() -> None:
    """Who only saw the beginning would agree to what was not there before."""
    text = "harmless. " * 5000
    (found,) = differences({"script": text + "ls"}, {"script": text + "rm -rf /"})
    assert found.before is not None
    assert found.after is not None
    assert '"' in found.before
    assert found.after.endswith('rm -rf /"')
    assert len(found.after) < 300


def test_what_cannot_be_seen_is_spelled_out() -> None:
    (found,) = differences({"a": "b"}, {"a": "b\u202e"})
    assert found.after == '"b\\u202e"'


def test_of_very_many_differences_the_first_are_listed() -> None:
    assert len(differences({str(n): n for n in range(1000)}, {})) == 200
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    assert len(differences(deep, [])) == 1


@pytest.fixture
def store() -> Store:
    return MemoryStore()


async def test_the_last_approved_call_of_a_tool_is_known_to_its_principal_alone(store: Store) -> None:
    calls = ApprovedCalls(store)
    await calls.note(request_of({"a": 1}), "cli:me")
    await calls.note(request_of({"a": 2}), "console:ui")
    last = await calls.last(request_of({"a": 3}))
    assert last is not None
    assert (last.by, last.client) == ("console:ui", "ear")
    assert calls.differences(last, request_of({"a": 3})) == [Difference("/a", "2", "3")]
    assert calls.differences(last, request_of({"a": 2})) == ()
    assert await calls.last(request_of({"a": 3}, tool="up/other")) is None
    assert await calls.last(request_of({"a": 3}, principal="another")) is None


async def test_secrets_are_masked_in_what_is_kept_and_what_is_shown(store: Store) -> None:
    calls = ApprovedCalls(store, lambda text: text.replace("hunter2", "***"))
    await calls.note(request_of({"key": "hunter2", "n": 1}), "me")
    kept = [
        await store.get("approved", one.handle, principal="") for one in await store.entries("approved", principal="")
    ]
    assert b"hunter2" not in b"".join(body or b"" for body in kept)
    last = await calls.last(request_of({}))
    assert last is not None
    assert calls.differences(last, request_of({"key": "hunter2", "n": 2})) == [Difference("/n", "1", "2")]


async def test_arguments_that_are_too_large_to_be_kept_are_known_by_their_digest(store: Store) -> None:
    calls = ApprovedCalls(store)
    large = {"text": "x" * 100_000}
    await calls.note(request_of(large), "me")
    last = await calls.last(request_of(large))
    assert last is not None
    assert last.arguments == ""
    assert calls.differences(last, request_of(large)) == ()
    assert calls.differences(last, request_of({"text": "y"})) is None


async def test_arguments_that_may_not_be_written_down_are_known_while_the_bridge_runs(store: Store) -> None:
    """Issue 20: with `call_log.enabled = false`, or `log_content = false`, nothing of arguments is on disk."""
    calls = ApprovedCalls(store)
    await calls.note(request_of({"to": "ann"}, keeps_content=False), "me")
    kept = [
        await store.get("approved", one.handle, principal="") for one in await store.entries("approved", principal="")
    ]
    assert len(kept) == 1
    assert b"ann" not in b"".join(body or b"" for body in kept)
    last = await calls.last(request_of({}))
    assert last is not None
    assert calls.differences(last, request_of({"to": "bob"})) == [Difference("/to", '"ann"', '"bob"')]
    later = ApprovedCalls(store)
    last = await later.last(request_of({}))
    assert last is not None
    assert (last.by, last.arguments) == ("me", "")
    assert later.differences(last, request_of({"to": "ann"})) == (), "its digest tells that it is the same"
    assert later.differences(last, request_of({"to": "bob"})) is None


async def test_what_another_bridge_let_pass_later_is_the_last_one(store: Store) -> None:
    """Bridges may share a store."""
    here, there = ApprovedCalls(store), ApprovedCalls(store)
    await here.note(request_of({"a": 1}), "me")
    await there.note(request_of({"a": 2}), "you")
    last = await here.last(request_of({}))
    assert last is not None
    assert last.by == "you"
