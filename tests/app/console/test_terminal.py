"""`mcpbridge top`: what a person sees and decides in a terminal, with Textual's own driver."""

from collections.abc import Mapping
from typing import Any

from textual.widgets import DataTable

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
            "stats": {"tools": [{"tool": "git/git_log", "calls": 7, "errors": 0, "latency": {}}]},
        }
        return answers[do]


def rows(app: Top, table: str) -> list[list[str]]:
    found = app.query_one(f"#{table}", DataTable)
    return [[str(cell) for cell in found.get_row_at(at)] for at in range(found.row_count)]


async def test_a_person_sees_servers_calls_and_approvals_and_approves_one() -> None:
    """Issue 20: `mcpbridge top` with approvals by y and n; what others say is inert."""
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
        assert rows(app, "calls")[0][:2] == ["git/git_log", "7"]
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


async def test_a_bridge_that_does_not_answer_is_said_so() -> None:
    def silent(do: str, **more: Any) -> Mapping[str, Any]:
        return {"error": "it has ended"}

    app = Top(silent)
    async with app.run_test() as pilot:
        trouble = app.query_one("#trouble")
        while "does not answer" not in str(trouble.render()):
            await pilot.pause()
