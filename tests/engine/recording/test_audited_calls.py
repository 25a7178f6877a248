"""What a bridge writes into the audit log: every call however it ends, and who decided (issue 22, Audit)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.storage.audit.checkpoints import Anchor
from mcpbridge.storage.audit.reader import Wanted, every
from mcpbridge.storage.audit.settings import AuditSettings
from mcpbridge.storage.audit.verify import verify
from support.in_process_bridge import BridgeToScripts, Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, Script, ScriptedTransport

NAMES = ("echo", "delete", "ask", "limited")
SERVER: Script = {**LEGACY_SERVER, "tools/list": {"tools": [{"name": name, "inputSchema": {}} for name in NAMES]}}
RULES: list[dict[str, Any]] = [
    {"tools": ["delete"], "permission": "deny", "reason": "nothing is deleted here"},
    {"tools": ["limited"], "when": "args.count > 5", "permission": "deny"},
    {"tools": ["ask"], "permission": "require_approval"},
]


@asynccontextmanager
async def audited(folder: Path, **sections: Any) -> AsyncIterator[BridgeToScripts]:
    sections = {"audit": {"enabled": True, **_places(folder)}, "permissions": RULES, **sections}
    store = {"path": str(folder / "store.db")}
    async with bridged({"old": ScriptedTransport(SERVER)}, store=store, **sections) as bridge:
        yield bridge


def _places(folder: Path) -> dict[str, str]:
    return {"path": str(folder / "log"), "anchor": str(folder / "anchor")}


async def call(bridge: BridgeToScripts, tool: str, **arguments: Any) -> dict[str, Any]:
    ear = Ear(bridge.server)
    await ear.initialize()
    answer = await ear.ask("tools/call", {"name": f"old__{tool}", "arguments": arguments})
    ear.leave()
    return answer


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    anchor = Anchor(folder / "anchor", folder / "log")
    key = anchor.public_key()
    assert key is not None
    assert verify(folder / "log", anchor, [key]).is_intact
    return list(every(folder / "log", Wanted(kind=kind)))


async def test_every_call_has_a_line_that_names_the_rule(tmp_path: Path) -> None:
    """Whether the call log is on or off: a bridge within a program has none."""
    async with audited(tmp_path) as bridge:
        await call(bridge, "echo", text="hi")
        await call(bridge, "delete")
        await call(bridge, "limited", count=9)
        await call(bridge, "limited", count=1)
        await call(bridge, "nothing")
    found = [(one["tool"], one["outcome"], one["rule"]) for one in lines(tmp_path, "call")]
    assert found == [
        ("old/echo", "ok", "`permission` of `calls`"),
        ("old/delete", "refused", "rule 1 of `permissions`"),
        ("old/limited", "refused", "rule 2 of `permissions`"),
        ("old/limited", "ok", "`permission` of `calls`"),
    ]
    unknown = lines(tmp_path, "call.unknown_tool")
    assert [(one["client"], one["tool"], one["outcome"]) for one in unknown] == [("ear", "old__nothing", "refused")]
    assert len(lines(tmp_path, "session.began")) == 5


SECRET = "ghp_" + "x7Qm2Lp9Zt4Vb8Nc3Rw6Ks1Hd5Fg0Jy2Ua"


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("del\u200bete", "old__del‹U+200B›ete"),
        ("\x1b[31mred", "old__‹U+001B›[31mred"),
        ("x" * 100_000, "old__" + "x" * 495),
        (f"get {SECRET}", None),
        (f"get {SECRET[:12]}\u200b{SECRET[12:]}", None),
    ],
    ids=["hidden", "escape", "long", "secret", "hidden in a secret"],
)
async def test_a_tool_that_there_is_not_is_named_as_its_client_wrote_it(
    tmp_path: Path, name: str, kept: str | None
) -> None:
    async with audited(tmp_path) as bridge:
        await call(bridge, name)
    [one] = lines(tmp_path, "call.unknown_tool")
    assert one["tool"] == kept or kept is None
    assert one["tool"].startswith("old__")
    written = b"".join(file.read_bytes() for file in (tmp_path / "log").iterdir() if file.is_file())
    assert SECRET[12:].encode() not in written


async def test_an_approval_and_its_call_are_both_there(tmp_path: Path) -> None:
    async with audited(tmp_path, approval={"ask": ["pending"]}) as bridge:
        calling = asyncio.ensure_future(call(bridge, "ask", text="may I?"))
        while not (waiting := await bridge.approvals.pending()):
            await anyio.sleep(0.01)
        await bridge.approvals.decide(waiting[0].request.id, "once", "console:ada")
        await calling
    steps = lines(tmp_path, "approval.*")
    assert [one["kind"] for one in steps][:2] == ["approval.asked", "approval.granted"]
    assert (steps[1]["who"], steps[1]["rule"]) == ("console:ada", "rule 3 of `permissions`")
    [one] = lines(tmp_path, "call")
    assert one["rule"] == "rule 3 of `permissions`"
    assert "console:ada" in one["approval"]
    assert one["arguments"]["sha256"] == steps[1]["arguments"]["sha256"]


async def test_the_log_is_switched_on_and_off_while_the_bridge_runs(tmp_path: Path) -> None:
    async with audited(tmp_path, audit={"enabled": False}, permissions=[]) as bridge:
        await call(bridge, "echo", text="unseen")
        assert bridge.status()["audit"] is None
        off = bridge.settings
        on = off.model_copy(update={"audit": AuditSettings(enabled=True, **_places(tmp_path))})
        await bridge.reload(on)
        await call(bridge, "echo", text="seen")
        status = bridge.status()["audit"]
        await bridge.reload(off)
        await call(bridge, "echo", text="unseen")
    assert status["folder"] == str(tmp_path / "log")
    assert len(lines(tmp_path, "call")) == 1
    assert [one["facts"]["sections"] for one in lines(tmp_path, "config.reloaded")] == [["audit"]]
    assert [one["detail"] for one in lines(tmp_path, "audit.replaced")] == ["switched off"]
