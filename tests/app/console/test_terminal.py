"""`mcpbridge top`: what a person sees and decides in a terminal, with Textual's own driver."""

import time
from collections.abc import Mapping
from typing import Any

import anyio
from textual.widgets import DataTable
from textual.worker import WorkerCancelled

from mcpbridge.app.console.terminal import Top

STATUS = {
    "config": "/home/you/servers.toml",
    "servers": [
        {"name": "git", "state": "ready", "calls": 1200, "errors": 3, "latency": {"p50": 0.0123, "p95": 0.5}},
        {"name": "bad\x1b[31m[bold]", "state": "failed", "reason": "command not found"},
    ],
}
WAITING = {
    "id": "abc",
    "tool": "shop/refund_order",
    "arguments_line": '{"order": 1, "note": "\x1b[2J[link=x]"}',
    "reason": "require_approval",
    "client": "t",
}

RUNNING = {
    "method": "tools/call",
    "tool": "shop/refund_order",
    "client": "t",
    "stage": "approval",
}
FAILED = {
    "at": "2026-01-01T00:00:00Z",
    "method": "tools/call",
    "tool": "git/git_log",
    "client": "t",
    "outcome": "tool_error",
    "seconds": 0.25,
    "facts": {"message": "no such branch \x1b[2J"},
}
DONE = {**FAILED, "outcome": "ok", "facts": {}, "result": {"size": 4000, "tokens": 1234}}


class Bridge:
    """Answers as the control socket does."""

    def __init__(self) -> None:
        self.waiting = [WAITING]
        self.decided: list[Mapping[str, Any]] = []

    def __call__(self, do: str, **more: Any) -> Mapping[str, Any]:
        if do == "decide":
            self.decided.append(more)
            self.waiting = []
            return {"decision": more["decision"], "tool": "shop/refund_order"}
        answers: dict[str, Mapping[str, Any]] = {
            "status": STATUS,
            "approvals": {"approvals": self.waiting},
            "calls": {"running": [{**RUNNING, "since": time.time() - 300}], "ended": [FAILED, DONE]},
        }
        return answers[do]


def rows(app: Top, table: str) -> list[list[str]]:
    found = app.query_one(f"#{table}", DataTable)
    return [[str(cell) for cell in found.get_row_at(at)] for at in range(found.row_count)]


async def test_a_person_sees_servers_calls_and_approvals_and_approves_one() -> None:
    """Issue 20: `mcpbridge top`: servers, live calls, approvals by y and n; what others say is inert."""
    bridge = Bridge()
    app = Top(bridge)
    async with app.run_test(size=(160, 50)) as pilot:
        while not rows(app, "approvals"):
            await pilot.pause()
        [approval] = rows(app, "approvals")
        assert approval[0] == "shop/refund_order"
        assert "\x1b" not in approval[1]
        assert "⟦ESC⟧[2J[link=x]" in approval[1]
        servers = rows(app, "servers")
        assert servers[0][:4] == ["git", "ready", "1,200", "3"]
        assert servers[1][:2] == ["bad⟦ESC⟧[31m[bold]", "failed: command not found"]
        running, failed, done = rows(app, "calls")
        assert running[1:5] == ["shop/refund_order", "waits for approval", "t", "5 min"]
        assert failed[1:5] == ["git/git_log", "tool error", "t", "250 ms"]
        assert failed[6] == "no such branch ⟦ESC⟧[2J"
        assert done[2] == "ok"
        assert done[5] == "1,234"
        await pilot.press("y")
        while rows(app, "approvals"):
            await pilot.pause()
        assert bridge.decided == [{"id": "abc", "by": "top", "decision": "approve"}]


async def test_a_person_denies_or_approves_for_the_session() -> None:
    for key, said in (("n", {"decision": "deny"}), ("s", {"decision": "approve", "for": "session"})):
        bridge = Bridge()
        app = Top(bridge, by="ann")
        async with app.run_test() as pilot:
            while not rows(app, "approvals"):
                await pilot.pause()
            await pilot.press(key)
            while not bridge.decided:
                await pilot.pause()
        assert bridge.decided == [{"id": "abc", "by": "ann", **said}]


async def test_what_is_seen_while_it_ends_is_no_failure() -> None:
    app = Top(Bridge())
    async with app.run_test() as pilot:
        while not rows(app, "approvals"):
            await pilot.pause()
        await app.screen.remove_children()
        with anyio.fail_after(60):
            while not await is_looked(app):
                pass


async def is_looked(app: Top) -> bool:
    """Look; raises what went wrong. False: the timer began another look before this one was over."""
    try:
        await app.look().wait()
    except WorkerCancelled:
        return False
    return True


async def test_a_bridge_that_does_not_answer_is_said_so() -> None:
    def silent(do: str, **more: Any) -> Mapping[str, Any]:
        return {"error": "it has ended"}

    app = Top(silent)
    async with app.run_test() as pilot:
        trouble = app.query_one("#trouble")
        while "does not answer" not in str(trouble.render()):
            await pilot.pause()
