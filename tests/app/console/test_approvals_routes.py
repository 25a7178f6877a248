"""The inbox of the console without a browser: what it shows, who may answer, and how soon the call hears of it.

Issue 20, Approvals. That its buttons answer as every other way does is in `test_approver_contract.py`.
"""

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.app.admin.approvals import list_approvals, recent_approvals
from mcpbridge.app.console.context import PAGES
from mcpbridge.pipeline.approvals.grants import Grants
from mcpbridge.pipeline.approvals.pending import PendingApprovals
from mcpbridge.pipeline.approvals.settings import ApprovalSettings
from mcpbridge.storage.memory_store import MemoryStore
from mcpbridge.storage.settings import RunMode
from support.approvers import Way, approving, is_refused
from support.console_pages import Visitor, visiting
from support.in_process_bridge import bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport

pytestmark = pytest.mark.anyio


async def page_of(visitor: Visitor) -> str:
    answer = await visitor.get("/approvals")
    assert answer.status_code == 200
    return answer.text


@pytest.mark.parametrize("path", [*(path for path, _ in PAGES), "timeline", "sessions"])
async def test_every_page_counts_the_calls_that_wait(tmp_path: Path, path: str) -> None:
    """The page compares these numbers with those of the first event: one more is shown, and notified of."""
    async with approving(Way, tmp_path) as way, visiting(way.bridge) as visitor:
        call = way.begins(path="/tmp/a")
        [id_] = await way.is_asked()
        stream = visitor.console.live.stream()
        await anext(stream)
        page = (await visitor.get(f"/{path}")).text
        badge = re.search(r'<span class="badge" id="waiting"([^>]*)>([^<]*)</span>', page)
        assert badge
        assert badge[1].split() == ['data-count="1"', 'data-asked="1"']
        assert badge[2] == "1"
        await stream.aclose()
        await visitor.post(f"/approvals/{id_}", data={"answer": "deny"})
        assert is_refused(await call)


async def test_a_call_is_shown_with_its_rule_and_what_is_new_in_it(tmp_path: Path) -> None:
    """Issue 20: rule, reason, arguments (what is new against the last approved call of that tool)."""
    async with approving(Way, tmp_path) as way, visiting(way.bridge) as visitor:
        first = way.begins(path="/tmp/a", mode=1)
        [id_] = await way.is_asked()
        page = await page_of(visitor)
        assert "`permission` of its server" in page
        assert "the policy asks for it" in page
        assert "No call of this tool was approved before" in page
        assert (await visitor.post(f"/approvals/{id_}", data={"answer": "once"})).status_code == 303
        assert "isError" not in await first
        second = way.begins(path="/etc/passwd", mode=1)
        [id_] = await way.is_asked()
        page = await page_of(visitor)
        assert "by console:ui" in page
        assert re.search(
            r"<code>/path</code>.*?<del>&#34;/tmp/a&#34;</del>.*?<ins>&#34;/etc/passwd&#34;</ins>", page, re.DOTALL
        )
        assert "/mode" not in page
        [listed] = await list_approvals(way.bridge.approvals)
        assert listed["changes"] == [{"path": "/path", "before": '"/tmp/a"', "after": '"/etc/passwd"'}]
        assert listed["last_approved"]["by"] == "console:ui"
        await visitor.post(f"/approvals/{id_}", data={"answer": "deny"})
        assert is_refused(await second)
        third = way.begins(path="/tmp/a", mode=1)
        await way.is_asked()
        assert "Nothing: the arguments are the same" in await page_of(visitor)
        await way.says("no")
        await third


async def test_the_decision_reaches_the_waiting_call_without_another_look(tmp_path: Path) -> None:
    """Issue 20: within 200 ms. The answer itself wakes the call, which otherwise looks once a second."""
    async with approving(Way, tmp_path) as way, visiting(way.bridge) as visitor:
        call = way.begins(a=1)
        [id_] = await way.is_asked()
        looks: list[str] = []
        store = way.bridge.store
        get = store.get

        async def counted(kind: str, handle: str, *, principal: str) -> bytes | None:
            looks.append(kind)
            return await get(kind, handle, principal=principal)

        store.get = counted  # type: ignore[method-assign] - it has the signature of what it stands in for
        with anyio.fail_after(30):
            await visitor.post(f"/approvals/{id_}", data={"answer": "once"}, headers={"hx-request": "true"})
            while not way.arrived:
                await anyio.sleep(0)
        assert "approval" not in looks, "a look at the record is what happens once a second"
        assert "isError" not in await call


async def test_an_approved_call_waits_for_no_record_of_the_approval(tmp_path: Path) -> None:
    """Issue 20: within 200 ms. What is written down of the approval is written while the call is on its way."""
    async with approving(Way, tmp_path) as way, visiting(way.bridge) as visitor:
        call = way.begins(a=1)
        [id_] = await way.is_asked()
        may_write = asyncio.Event()
        store = way.bridge.store
        put, drop = store.put, store.drop

        async def held_put(*args: Any, **named: Any) -> Any:
            await may_write.wait()
            return await put(*args, **named)

        async def held_drop(*args: Any, **named: Any) -> Any:
            await may_write.wait()
            return await drop(*args, **named)

        store.put, store.drop = held_put, held_drop  # type: ignore[method-assign] - they only come later
        with anyio.fail_after(30):
            answering = asyncio.create_task(visitor.post(f"/approvals/{id_}", data={"answer": "once"}))
            while not way.arrived:
                await anyio.sleep(0)
            may_write.set()
            assert (await answering).status_code == 303
        assert "isError" not in await call
        assert "No call waits for you" in await page_of(visitor)


async def test_what_was_answered_and_what_expired_stays_visible(tmp_path: Path) -> None:
    async with approving(Way, tmp_path, timeout=0.3) as way, visiting(way.bridge) as visitor:
        assert is_refused(await way.begins(text="one"), "Nobody answered")
        page = await page_of(visitor)
        assert "gave up waiting; can still be approved" in page
        [id_] = re.findall(r'data-approval="([^"]+)"', page)
        await visitor.post(f"/approvals/{id_}", data={"answer": "deny"})
        page = await page_of(visitor)
        assert "data-approval" not in page
        assert re.search(r"up/echo.*?denied</span> by console:ui", page, re.DOTALL)
        assert re.search(r"expired|denied", page)
        assert "&#34;text&#34;:&#34;one&#34;" in page.replace(" ", "")
        late = await visitor.post(f"/approvals/{id_}", data={"answer": "once"}, headers={"hx-request": "true"})
        assert late.status_code == 409
        assert "already denied by console:ui" in late.text


async def test_what_expired_before_the_bridge_started_is_in_the_call_log(tmp_path: Path) -> None:
    """Then it is known without its arguments, of which the log has the digest."""
    async with approving(Way, tmp_path, timeout=0.1, grant_lifetime=0.1) as way:
        assert is_refused(await way.begins(text="one"), "Nobody answered")
        file = way.bridge.audit.path
    later = PendingApprovals(
        ApprovalSettings(), MemoryStore(), Grants(MemoryStore(), once_seconds=1, session_seconds=1), print
    )
    (one,) = [row for row in await recent_approvals(later, file) if row["event"] == "expired"]
    assert (one["tool"], one["server"], one["client"], one["arguments_line"]) == ("up/echo", "up", "ear", "")


@pytest.mark.parametrize(
    ("settings", "mode", "is_kept"),
    [
        ({}, "own", True),
        ({"call_log": {"enabled": False}}, "own", False),
        ({"calls": {"log_content": False}}, "own", False),
        ({}, "served", False),
        ({"calls": {"log_content": True}}, "served", True),
        ({"call_log": {"enabled": True}}, "own", False),
    ],
)
async def test_arguments_of_approved_calls_are_on_disk_only_where_those_of_calls_are(
    settings: dict[str, Any], mode: RunMode, is_kept: bool, tmp_path: Path
) -> None:
    """Issue 20: one line opts out of what is recorded."""
    sections = {"store": {"path": str(tmp_path / "store.db")}, "approval": {"ask": ["pending"]}, **settings}
    servers = {"up": {"permission": "require_approval"}}
    transport = ScriptedTransport(LEGACY_SERVER)
    async with (
        bridged({"up": transport}, servers=servers, mode=mode, **sections) as bridge,
        visiting(bridge) as visitor,
    ):
        way = Way(bridge, transport)
        async with AsyncExitStack() as stack:
            await way.opens(stack, tmp_path)
            first = way.begins(to="a very private place")
            await way.says("once")
            assert "isError" not in await first
            second = way.begins(to="elsewhere")
            await way.is_asked()
            page = await page_of(visitor)
            assert "a very private place" in page, "it is known while the bridge runs"
            await way.says("no")
            await second
    files = [path.read_bytes() for path in tmp_path.iterdir() if path.is_file()]
    assert any(b"a very private place" in data for data in files) == is_kept


@pytest.mark.parametrize(
    ("id_", "answer", "status"),
    [("nonesuch", "once", 404), ("%2e%2e", "deny", 404), ("abc", "forever", 400), ("abc", "", 400)],
)
async def test_bad_answers_are_refused(tmp_path: Path, id_: str, answer: str, status: int) -> None:
    async with approving(Way, tmp_path) as way, visiting(way.bridge) as visitor:
        for headers in ({}, {"hx-request": "true"}):
            response = await visitor.post(f"/approvals/{id_}", data={"answer": answer}, headers=headers)
            assert response.status_code in (status, 404)
            assert "Traceback" not in response.text


async def test_who_only_looks_sees_the_calls_and_answers_none(tmp_path: Path) -> None:
    async with approving(Way, tmp_path) as way, visiting(way.bridge, "read", "looker") as visitor:
        call = way.begins(a=1)
        [id_] = await way.is_asked()
        page = await page_of(visitor)
        assert f'data-approval="{id_}"' in page
        assert "Approve once" not in page
        assert "Keyboard shortcuts" not in page
        assert (await visitor.post(f"/approvals/{id_}", data={"answer": "once"})).status_code == 403
        await way.says("no")
        assert is_refused(await call)


async def test_hostile_arguments_are_shown_for_what_they_are(tmp_path: Path) -> None:
    async with approving(Way, tmp_path) as way, visiting(way.bridge) as visitor:
        call = way.begins(
            **{"<script>alert(1)</script>": '"><img onerror=alert(1)>\u202e\x1b[31m', "long": "x" * 100_000}
        )
        await way.is_asked()
        page = await page_of(visitor)
        assert "<script>alert" not in page
        assert "<img onerror" not in page
        assert "\u202e" not in page
        assert len(page) < 60_000
        await way.says("no")
        await call
