"""Yeses and noes that are kept: for how long, for whom, and for which calls."""

from typing import Any

import pytest
from msgspec.structs import replace

from mcpbridge.pipeline.approvals.grants import Denial, Grants, recording
from mcpbridge.pipeline.approvals.request import ApprovalEvent, ApprovalRequest
from mcpbridge.storage.memory_store import MemoryStore

ONCE, SESSION = 100.0, 1000.0
REQUEST = ApprovalRequest(
    id="r1", server="up", tool="up/echo", arguments_json=b"{}", reason="", principal="ann", client="c", session="s1",
    at=0.0, expires=0.0, binding="b1",
)  # fmt: skip


class Clocked(MemoryStore):
    """A store that notes how long each thing is to be kept."""

    def __init__(self) -> None:
        super().__init__()
        self.kept_for: dict[str, float] = {}

    async def put(self, kind: str, body: bytes, **how: Any) -> str:
        handle = await super().put(kind, body, **how)
        self.kept_for[handle] = how["expires_in"]
        return handle


def grants() -> tuple[Clocked, Grants]:
    store = Clocked()
    return store, Grants(store, once_seconds=ONCE, session_seconds=SESSION)


@pytest.mark.parametrize(
    ("scope", "lasts", "seconds"), [("once", 0, ONCE), ("once", 7, 7), ("session", 0, SESSION), ("session", 7, SESSION)]
)
async def test_a_yes_is_kept_as_long_as_its_kind_and_its_request_say(scope: Any, lasts: float, seconds: float) -> None:
    store, found = grants()
    await found.put(replace(REQUEST, lasts=lasts), scope, "bob")
    assert list(store.kept_for.values()) == [seconds]
    found.configure(once_seconds=1, session_seconds=2)
    assert found.once_seconds == 1
    await found.put(replace(REQUEST, id="r2", session="s2"), scope, "bob")
    assert list(store.kept_for.values()) == [seconds, 1 if scope == "once" else 2]


@pytest.mark.parametrize(("lasts", "seconds"), [(0, ONCE), (7, 7)])
async def test_a_no_is_kept_as_long_as_a_yes_for_one_call(lasts: float, seconds: float) -> None:
    store, found = grants()
    await found.deny(replace(REQUEST, lasts=lasts), "bob")
    assert list(store.kept_for.values()) == [seconds]


async def test_a_no_is_for_its_request_and_its_principal_alone() -> None:
    _, found = grants()
    assert await found.denied("r1", principal="ann") is None
    await found.deny(REQUEST, "bob")
    assert await found.denied("r1", principal="ann") == Denial("bob")
    assert await found.denied("r2", principal="ann") is None
    assert await found.denied("r1", principal="eve") is None
    await found.deny(replace(REQUEST, id="r2"), "carl")
    assert (await found.denied("r1", principal="ann"), await found.denied("r2", principal="ann")) == (
        Denial("bob"),
        Denial("carl"),
    )


@pytest.mark.parametrize(
    "other", [{"principal": "eve"}, {"binding": "b2"}, {"binding": "b"}, {"binding": "b1-r1"}, {"binding": ""}]
)
async def test_a_yes_is_for_what_was_asked_and_for_who_asked(other: dict[str, str]) -> None:
    for scope in ("once", "session"):
        _, found = grants()
        await found.put(REQUEST, scope, "bob")  # type: ignore[arg-type]
        assert await found.use(replace(REQUEST, **other)) is None
        grant = await found.use(replace(REQUEST, id="another"))
        assert grant is not None
        assert (grant.request, grant.by, grant.scope) == ("r1", "bob", scope)


async def test_a_yes_for_a_session_is_not_used_up_and_one_for_a_call_is() -> None:
    _, found = grants()
    await found.put(REQUEST, "once", "bob")
    await found.put(replace(REQUEST, id="r2"), "once", "carl")
    given = [await found.use(REQUEST) for _ in range(3)]
    assert {grant.by for grant in given if grant is not None} == {"bob", "carl"}
    assert given[2] is None
    await found.put(REQUEST, "session", "dora")
    await found.put(REQUEST, "once", "bob")
    for _ in range(3):
        grant = await found.use(REQUEST)
        assert grant is not None
        assert grant.by == "dora"
    elsewhere = await found.use(replace(REQUEST, session="s2"))
    assert elsewhere is not None
    assert elsewhere.by == "bob"
    assert await found.use(replace(REQUEST, session="s2")) is None


async def test_noes_are_no_yeses() -> None:
    _, found = grants()
    await found.deny(REQUEST, "bob")
    assert await found.use(REQUEST) is None
    await found.put(REQUEST, "once", "bob")
    assert await found.denied("once-b1-r1", principal="ann") is None


class Quicker(Clocked):
    """A store in which somebody else takes each thing first."""

    async def take(self, kind: str, handle: str, **how: Any) -> bytes | None:
        await super().take(kind, handle, **how)
        return None


async def test_a_yes_that_another_call_took_first_is_none() -> None:
    found = Grants(Quicker(), once_seconds=ONCE, session_seconds=SESSION)
    await found.put(REQUEST, "once", "bob")
    assert await found.use(REQUEST) is None


@pytest.mark.parametrize(
    ("event", "detail"),
    [
        (ApprovalEvent("granted", REQUEST, "bob", "once"), "once"),
        (ApprovalEvent("asked", replace(REQUEST, reason="it pushes"), "bob"), "it pushes"),
        (ApprovalEvent("granted", replace(REQUEST, reason="it pushes"), "bob", "session"), "session"),
        (ApprovalEvent("expired", REQUEST), ""),
    ],
)
def test_what_became_of_an_approval_is_in_the_call_log(event: ApprovalEvent, detail: str) -> None:
    rows: list[tuple[str, dict[str, Any]]] = []

    class Log:
        def append_event(self, name: str, facts: dict[str, Any]) -> None:
            rows.append((name, facts))

    recording(Log())(event)  # type: ignore[arg-type]
    [(name, facts)] = rows
    assert name == event.event
    assert facts == {
        "tool": "up/echo", "client": "c", "principal": "ann", "session": "s1", "arguments": b"{}", "who": event.by,
        "detail": detail, "approval": "r1",
    }  # fmt: skip
