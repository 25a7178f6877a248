"""The overview: what each server does, what waits, what was saved, and what the doctor finds."""

import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mcpbridge.app.console.pages.sparkline import HEIGHT, WIDTH, polyline
from mcpbridge.storage.call_log.format import MinuteRecord
from support.console_app import visible, visit, visiting
from support.harness import eventually, python_server

CONFIG: dict[str, Any] = {"servers": {"gated": python_server("gated"), "gone": {"command": "no-such-program"}}}
MINUTE = MinuteRecord(
    at=0, server="gated", tool="gated/echo", client="ear", calls=3, errors=1, refused=0, cancelled=0, seconds=0.3,
    upstream_seconds=0.2, bytes_in=10, bytes_out=10, retries=0, cache_hits=0, buckets=[0, 0, 0, 3, *[0] * 11],
)  # fmt: skip


async def test_a_server_shows_its_state_uptime_memory_and_latency(tmp_path: Path) -> None:
    """Issue 20: state, why, uptime, era, transport, calls/min, p50/p95, errors, memory, restarts."""
    async with visiting(CONFIG, tmp_path) as one:
        await one.bridge.call_tool("gated/echo", {"text": "x"})
        one.console.forget_status()
        text = visible(await one.get(""))
        for words in ("gated", "ready", "stdio, 2025-11-25 (legacy)", "Up for", "p50, p95", "Restarts", "Memory", "MB"):
            assert words in text
        assert "command not found: no-such-program" in text
        assert "Approvals waiting 0" in text
        assert "Tokens saved today" in text


async def test_the_last_hour_is_drawn_as_a_line_with_its_rates(tmp_path: Path) -> None:
    """Issue 20: cards with sparklines."""
    async with visiting(CONFIG, tmp_path) as one:
        now = int(time.time() // 60) * 60
        one.bridge.audit.append_minutes([replace(MINUTE, at=now - 60 * ago, calls=ago) for ago in (2, 5, 30)])
        html = await eventually(lambda: one.get("parts/overview"), lambda text: "<polyline" in text, within=60)
        assert "at most 30" in html
        text = visible(html)
        assert "last hour" in text
        assert "75 ms" in text  # the middle of the bucket from 50 to 100 ms


async def test_the_doctor_looks_at_the_first_visit_and_when_asked_and_is_remembered(tmp_path: Path) -> None:
    """Issue 20: findings of the doctor; run in the background, never on each load."""
    async with visiting(CONFIG, tmp_path) as one:
        assert "Looking at configuration" in visible(await one.get(""))
        text = await eventually(lambda: one.get("parts/doctor"), lambda text: "Examine again" in text, within=90)
        assert "finding" in visible(text)
        assert visible(text) in visible(await one.get(""))  # nobody looked again
        assert "Looking at configuration" in visible(await one.post("doctor"))
        await eventually(lambda: one.get("parts/doctor"), lambda text: "Examine again" in text, within=90)


async def test_who_may_only_look_cannot_have_it_examined(tmp_path: Path) -> None:
    async with visiting({}, tmp_path, role="read") as reader:
        assert "Examine" not in visible(await reader.get("")).replace("Not examined yet", "")
        await reader.post("doctor", status=403)


async def test_an_approval_that_waits_is_on_the_overview(tmp_path: Path) -> None:
    import asyncio

    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    rules = {
        "permissions": [{"tools": "tools/pay", "permission": "require_approval"}],
        "approval": {"ask": ["pending"]},
    }
    async with visiting(rules, tmp_path, tools=[pay]) as one:
        call = asyncio.create_task(one.bridge.call_tool("pay", {"amount": 3}))
        text = await eventually(lambda: one.get(""), lambda text: "Waiting for you" in text)
        assert "tools/pay" in text
        assert "Approvals waiting 1" in visible(text)
        call.cancel()


async def test_a_bridge_without_servers_says_what_to_do_first(tmp_path: Path) -> None:
    async with visiting({}, tmp_path) as one, visit(one.bridge) as other:
        text = visible(await other.get(""))
        assert "No server is configured" in text
        assert "No client is connected" in text


def test_a_line_stays_within_its_box() -> None:
    assert polyline([]) == ""
    points = [tuple(map(float, point.split(","))) for point in polyline([0, 5, 10, -3]).split()]
    assert points[0][0] == 0
    assert points[-1][0] == WIDTH
    assert all(0 <= y <= HEIGHT for _, y in points)
    assert points[2][1] < points[1][1] < points[0][1]
    assert len(polyline([7]).split()) == 1
