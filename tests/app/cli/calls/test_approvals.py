"""How commands find the call that is meant among several bridges, and what they say when they cannot."""

import asyncio
import io
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from mcpbridge.app.admin.control_socket import publish
from mcpbridge.app.cli.commands import run
from mcpbridge.app.cli.prompts import ask_at_terminal
from mcpbridge.pipeline.approvals.request import ApprovalRequest
from mcpbridge.storage.call_log.reader import Filter
from mcpbridge.storage.call_log.timeline import read_events
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import StoreSettings
from support.harness import Place, python_server
from support.programs.daemon_process import daemon

Message = dict[str, Any]


def entry(id_: str, since: float = 1.0, **more: Any) -> Message:
    """One call that waits, as a bridge tells it."""
    told = {"id": id_, "server": "up", "tool": "up/echo", "arguments": "{}", "arguments_line": "{}", "reason": ""}
    return {**told, "principal": "", "client": "c", "since": since, "until": 9e9, "waiting": True, "here": True, **more}


@asynccontextmanager
async def bridge(
    number: int, entries: list[Message] | None, said: Callable[[Message], Message] | None = None
) -> AsyncIterator[list[Message]]:
    """A bridge as commands see it; yields what it is asked to do. Without entries it is of an older release."""
    asked: list[Message] = []

    def approvals(_: Any) -> Message:
        return {"approvals": entries}

    def decide(request: Any) -> Message:
        asked.append(dict(request))
        return said(request) if said else {**(entries or [{}])[0], "decision": "approve"}

    known = {"status": lambda _: {}} if entries is None else {"approvals": approvals, "decide": decide}
    directory = Path(os.environ["XDG_RUNTIME_DIR"]) / "mcpbridge"
    pid, os.getpid = os.getpid, lambda: number
    try:
        listening = publish(known, directory)
        await listening.__aenter__()
    finally:
        os.getpid = pid
    try:
        yield asked
    finally:
        await listening.__aexit__(None, None, None)


async def command(*args: str) -> int:
    with anyio.fail_after(60):
        # Without the context of this task: a command begins an event loop, as a process of its own would.
        return await asyncio.get_running_loop().run_in_executor(None, run, args)


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MCPBRIDGE_CONFIG", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


async def test_the_bridge_that_waits_gets_the_answer() -> None:
    """Others that share its store know of the call too, but it would hear of their answer later."""
    async with (
        bridge(1, [entry("aaaa", here=False)]) as first,
        bridge(2, [entry("aaaa")]) as second,
        bridge(3, [entry("aaaa", here=False)]) as third,
        bridge(4, None),
    ):
        assert await command("approve", "AA", "--session") == 0
    assert [first, third] == [[], []]
    assert [(one["id"], one["decision"], one["for"]) for one in second] == [("aaaa", "approve", "session")]
    assert second[0]["by"].startswith("cli:")


async def test_the_list_has_each_call_once_and_the_oldest_first(capsys: pytest.CaptureFixture[str]) -> None:
    entries = [entry("bbbb", 2.0), entry("aaaa", 1.0)]
    async with bridge(1, entries), bridge(2, [entry("aaaa", 1.0, here=False)]), bridge(3, None):
        assert await command("approvals", "--json") == 0
    assert [one["id"] for one in json.loads(capsys.readouterr().out)["approvals"]] == ["aaaa", "bbbb"]


async def test_control_characters_of_a_client_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    async with bridge(1, [entry("aaaa", client="x\x1b[2J", tool="up/\x1becho")]):
        assert await command("approvals") == 0
        assert await command("approve", "aaaa") == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "exit_code"), [("unknown", 5), ("decided", 6), ("invalid", 2), ("unsupported", 4), ("", 4)]
)
async def test_each_reason_has_its_exit_code(code: str, exit_code: int, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_: Message) -> Message:
        return {"code": code, "error": "because"}

    async with bridge(1, [entry("aaaa")], refuse):
        assert await command("deny", "aaaa", "--json") == exit_code
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["code"] == exit_code
    assert error["message"] == "because"


async def test_of_several_bridges_the_one_that_remembers_tells(capsys: pytest.CaptureFixture[str]) -> None:
    def decided(_: Message) -> Message:
        return {"code": "decided", "error": "it was denied by ada"}

    def unknown(_: Message) -> Message:
        return {"code": "unknown", "error": "never heard of it"}

    async with bridge(1, [], unknown), bridge(2, [], decided):
        assert await command("approve", "aaaa") == 6
    assert "it was denied by ada" in capsys.readouterr().err


async def test_without_a_bridge_there_is_nothing_to_answer(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["approvals"], ["approve", "abc"], ["deny", "abc"]):
        assert await command(*args) == 4
        assert "no bridge is running" in capsys.readouterr().err


async def test_sockets_that_others_could_have_made_are_not_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mcpbridge").mkdir(mode=0o755)
    for args in (["approvals"], ["approve", "abc"], ["deny", "abc"]):
        assert await command(*args) == 2
        assert "only this user can use" in capsys.readouterr().err


async def test_a_token_for_who_administers_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert await command("token", "new", "ada", "--admin") == 0
    assert capsys.readouterr().out.endswith("admin = true\n")
    assert await command("token", "new", "ada", "--admin", "--json") == 0
    assert json.loads(capsys.readouterr().out)["admin"] is True


# -- calls that gave up waiting, in the store


async def gave_up(id_: str, path: Path | None = None) -> None:
    """Such a call, as its bridge left it."""
    request = ApprovalRequest(id_, "up", "up/echo", b'{"a":1}', "", "", "c", "s", 1.0, 2.0, "binding")
    store = LazyStore(StoreSettings(path=None if path is None else str(path)))
    await store.put("approval", msgspec.json.encode(request), principal="", expires_in=600, handle=id_)
    await store.close()


async def grants(path: Path | None = None) -> list[str]:
    """What may pass without a question."""
    store = LazyStore(StoreSettings(path=None if path is None else str(path)))
    found = await store.entries("grant", principal=None)
    await store.close()
    return [entry.handle for entry in found]


async def test_a_late_yes_needs_no_bridge(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    await gave_up("aaaa")
    await gave_up("bbbb")
    assert await command("approvals", "--json") == 0
    listed = json.loads(capsys.readouterr().out)["approvals"]
    assert [(one["id"], one["tool"], one["waiting"]) for one in listed] == [
        ("aaaa", "up/echo", False),
        ("bbbb", "up/echo", False),
    ]
    assert await command("approve", "aa") == 0
    assert "passes when it is made again" in capsys.readouterr().out
    assert await grants() == ["once-binding-aaaa"]
    assert await command("deny", "bbbb", "--json") == 0
    assert json.loads(capsys.readouterr().out)["decision"] == "deny"
    assert await grants() == ["once-binding-aaaa"]
    for id_ in ("aaaa", "bbbb"):
        assert await command("approve", id_) == 4
    events = read_events(tmp_path / "state" / "mcpbridge" / "calls.db", Filter(), limit=10)
    assert [(event["event"], event["tool"]) for event in events] == [("granted", "up/echo"), ("denied", "up/echo")]
    assert all(event["who"].startswith("cli:") for event in events)


async def test_bridges_that_know_nothing_of_a_call_do_not_hide_it(capsys: pytest.CaptureFixture[str]) -> None:
    """They may have another store."""
    await gave_up("aaaa")
    async with bridge(1, [entry("bbbb", 0.5)]) as asked, bridge(2, [entry("cccc", 2.0, here=False)]):
        assert await command("approvals", "--json") == 0
        listed = json.loads(capsys.readouterr().out)["approvals"]
        assert [one["id"] for one in listed] == ["bbbb", "aaaa", "cccc"]
        assert await command("approve", "aaaa") == 0
    assert asked == []
    assert len(await grants()) == 1


async def test_a_bridge_that_knows_a_call_of_the_store_is_asked() -> None:
    await gave_up("aaaa")
    async with bridge(1, [entry("aaaa", here=False)]) as asked:
        assert await command("approve", "aaaa") == 0
    assert [one["id"] for one in asked] == ["aaaa"]
    assert await grants() == []


async def test_the_store_is_the_one_of_the_configuration(tmp_path: Path) -> None:
    config, path = tmp_path / "other.toml", tmp_path / "other.db"
    config.write_text('[store]\npath = "other.db"')
    await gave_up("aaaa", path)
    assert await command("approve", "aaaa") == 4
    assert await command("approve", "aaaa", "--config", str(config)) == 0
    assert len(await grants(path)) == 1


async def test_a_wrong_configuration_counts_where_it_was_named_or_nobody_else_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "servers.toml").write_text("nonsense = 1")
    for args in (["approvals"], ["approve", "a"], ["approvals", "--config", "nowhere.toml"]):
        assert await command(*args) == 2
    async with bridge(1, [entry("aaaa")]):
        assert await command("approvals", "--json") == 0
        assert "aaaa" in capsys.readouterr().out
        assert await command("approvals", "--config", "servers.toml") == 2


async def test_looking_for_calls_makes_no_file(tmp_path: Path) -> None:
    assert await command("approvals") == 4
    assert not (tmp_path / "state").exists()


# -- `mcpbridge call`, whose bridge nobody else finds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "said"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("", False)]
)
async def test_who_runs_a_command_is_asked_at_the_terminal(
    typed: str, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    request = ApprovalRequest("id", "up", "up/echo", b'{"a":"\x1b"}', "because", "", "", "", 0.0, 1.0, "")
    with anyio.fail_after(30):
        assert await ask_at_terminal(request) is said
    assert "up/echo needs your approval (because)" in shown.getvalue()
    assert "Call it? [y/N]" in shown.getvalue()
    assert "\x1b" not in shown.getvalue()


async def test_without_a_terminal_a_command_is_refused_and_does_not_wait(place: Place) -> None:
    servers = {"up": python_server("plain", permission="require_approval")}
    finished = await place.run("call", "up/echo", "text=a", "--config", str(place.config(servers)))
    assert finished.code == 5
    assert "without a terminal" in finished.out
    assert "A person has to run it in a terminal" in finished.out
    assert "approval.ask" not in finished.out  # it is set, and no other setting would help


async def test_an_unattended_call_is_one_pending_approval_however_often_it_is_made(place: Place) -> None:
    config = place.config({"up": python_server("plain", permission="require_approval")})
    call = ("call", "up/echo", "text=a", "--config", str(config))
    async with daemon(place, config):
        place.env["MCPBRIDGE_STANDALONE"] = "0"
        for _ in range(3):
            finished = await place.run(*call)
            assert finished.code == 5
            assert "mcpbridge approve" in finished.out
        said = await place.run("approvals", "--config", str(config), "--json")
        [pending] = json.loads(said.out)["approvals"]
        assert pending["asked"] == 3
        assert (await place.run("approve", pending["id"], "--config", str(config))).code == 0
        finished = await place.run(*call)
        assert (finished.code, finished.out.strip()) == (0, "a")
