"""What a shim answers from a snapshot while its daemon is silent, and what that daemon hears of it (issue 21)."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.stdio_proxy.conftest import Daemon, Line, Shim
from mcpbridge.app.stdio_proxy.snapshot import (
    address,
    digest,
    digest_of_values,
    encode,
    file_name,
    kind_of,
    open_snapshot,
)
from mcpbridge.base.directories import daemon_key
from support.harness import Place
from support.rpc import MODERN, Message, StdioClient, envelope

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
INFO = {"name": "raw", "version": "1"}
TOOLS = {"tools": [{"name": "one__echo", "inputSchema": {"type": "object"}}]}
CAPABILITIES = {kind: {"listChanged": True} for kind in ("tools", "prompts", "resources")}
LISTS = {
    "tools/list": TOOLS,
    "prompts/list": {"prompts": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
}


def opened(version: str = "2025-11-25") -> Message:
    return {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": {}, "instructions": "from disk"}


def packed(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class Disk:
    """The folder of the snapshots, and how a daemon would have written one."""

    def __init__(self, place: Place, config: Path) -> None:
        self.config = config
        self.folder = place.folder / ".local/state/mcpbridge/snapshots"
        self.folder.mkdir(mode=0o700, parents=True)

    def write(self, revision: str = "2025-11-25", *, answers: dict[str, object] | None = None, **head: object) -> Path:
        """A file for the client `raw` of the tests, of this revision."""
        modern = revision == MODERN
        opening = {"server/discover": {"resultType": "complete"}} if modern else {"initialize": opened(revision)}
        facts: dict[str, object] = {
            "files": {os.path.realpath(self.config): digest(self.config.read_bytes())},
            "variables": ["TOKEN"],
            "values": digest_of_values(["TOKEN"], {}),
            "found": False,
            **head,
        }
        bodies = {name: packed(answer) for name, answer in {**opening, **LISTS, **(answers or {})}.items()}
        kind = kind_of(revision, {}, INFO, modern=modern)
        path = self.folder / file_name(daemon_key(self.config), kind)
        path.write_bytes(encode(facts, bodies))
        path.chmod(0o600)
        return path


@pytest.fixture
def disk(place: Place, daemon: Daemon) -> Disk:
    return Disk(place, daemon.config)


async def taken_over(line: Line, *, answer: Any = TOOLS, lists: int = 1) -> None:
    """The part of a daemon that hears of what a snapshot has answered: the handshake, and the lists."""
    await line.introduced(**CAPABILITIES)
    for _ in range(lists):
        confirming = await line.heard()
        assert str(confirming["id"]).startswith("mcpbridge-again-")
        line.answer(confirming, answer if confirming["method"] == "tools/list" else LISTS[confirming["method"]])


async def ask(client: StdioClient, method: str, **params: Any) -> asyncio.Task[Any]:
    """Send a request, and wait for its answer in a task."""
    task = asyncio.create_task(client.request(method, params, within=60))
    await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("version", REVISIONS)
async def test_lists_come_before_the_daemon_and_a_call_reaches_it_once(
    daemon: Daemon, shim: Shim, disk: Disk, version: str
) -> None:
    disk.write(version)
    async with shim() as client:
        result = await client.initialize(version)
        assert (result["protocolVersion"], result["instructions"]) == (version, "from disk")
        for method, answer in LISTS.items():
            assert (await client.request(method, {}, within=60)).result == answer
        assert (await client.request("ping", within=60)).result == {}
        calling = await ask(client, "tools/call", name="one__echo", arguments={})
        line = await daemon.next()
        await line.greet()
        await taken_over(line, lists=4)
        call = await line.heard()
        assert (call["method"], call["params"]["name"]) == ("tools/call", "one__echo")
        line.answer(call, {"content": []})
        assert (await calling).result == {"content": []}
        pinging = await ask(client, "ping")
        ping = await line.heard()
        assert ping["method"] == "ping", "from the greeting on all is the daemon's, and nothing was kept back"
        line.answer(ping)
        await pinging
        assert client.arrived == [], "the lists are the same"


async def test_a_modern_client_is_answered_without_a_session(daemon: Daemon, shim: Shim, disk: Disk) -> None:
    disk.write(MODERN)
    async with shim() as client:
        assert (await client.request("server/discover", {"_meta": envelope()})).result == {"resultType": "complete"}
        assert (await client.request("tools/list", {"_meta": envelope(progressToken=7)})).result == TOOLS
        listening = await ask(
            client, "subscriptions/listen", notifications={"toolsListChanged": True}, _meta=envelope()
        )
        line = await daemon.next()
        await line.greet()
        confirmed = [await line.heard(), await line.heard()]
        assert [one["method"] for one in confirmed] == ["server/discover", "tools/list"]
        assert confirmed[1]["params"] == {"_meta": envelope()}, "nobody waits for its progress any more"
        line.answer(confirmed[0], {"resultType": "complete"})
        line.answer(confirmed[1], {"tools": []})
        listen = await line.heard()
        assert listen["method"] == "subscriptions/listen"
        stream = {"_meta": {"io.modelcontextprotocol/subscriptionId": listen["id"]}}
        line.notify("notifications/subscriptions/acknowledged", notifications={"toolsListChanged": True}, **stream)
        await client.notice("notifications/tools/list_changed", lambda params: params == stream)
        methods = [one["method"] for one in client.arrived]
        assert methods == ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"]
        line.answer(listen, {"resultType": "complete"})
        await listening


async def test_another_list_is_notified_once(daemon: Daemon, shim: Shim, disk: Disk) -> None:
    disk.write()
    async with shim() as client:
        await client.initialize()
        await client.tools()
        await client.request("prompts/list", {})
        line = await daemon.next()
        await line.greet()
        await taken_over(line, answer={"tools": []}, lists=2)
        await client.notice("notifications/tools/list_changed")
        listing = await ask(client, "tools/list")
        line.answer(await line.heard(), {"tools": []})
        assert (await listing).result == {"tools": []}
        assert len(client.arrived) == 1


async def test_a_change_that_the_daemon_notifies_of_is_not_notified_again(
    daemon: Daemon, shim: Shim, disk: Disk
) -> None:
    disk.write()
    async with shim() as client:
        await client.initialize()
        await client.tools()
        line = await daemon.next()
        await line.greet()
        await line.introduced(**CAPABILITIES)
        confirming = await line.heard()
        line.notify("notifications/tools/list_changed")
        line.answer(confirming, {"tools": []})
        listing = await ask(client, "tools/list")
        line.answer(await line.heard(), {"tools": []})
        await listing
        assert [one["method"] for one in client.arrived] == ["notifications/tools/list_changed"]


async def test_a_call_that_is_cancelled_while_the_daemon_starts_never_reaches_it(
    daemon: Daemon, shim: Shim, disk: Disk
) -> None:
    disk.write()
    async with shim() as client:
        await client.initialize()
        for id_ in ("cancelled", "wanted"):
            request = {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": {"name": id_, "arguments": {}}}
            await client.write(packed(request) + b"\n")
        await client.tell("notifications/cancelled", requestId="cancelled")
        await client.request("ping", within=60)
        line = await daemon.next()
        await line.greet()
        await taken_over(line, lists=0)
        call = await line.heard()
        assert call["params"]["name"] == "wanted"
        waiting = client.expect("wanted")
        line.answer(call, {"content": []})
        await waiting


@pytest.mark.parametrize("when", ["before the greeting", "in the handshake", "before the lists", "with the call"])
async def test_a_daemon_that_dies_while_it_takes_over_costs_no_list_and_repeats_no_call(
    daemon: Daemon, shim: Shim, disk: Disk, when: str
) -> None:
    disk.write()
    async with shim() as client:
        await client.initialize()
        await client.tools()
        calling = await ask(client, "tools/call", name="one__echo", arguments={})
        await client.request("ping", within=60)
        line = await daemon.next()
        if when != "before the greeting":
            await line.greet()
        if when == "in the handshake":
            assert (await line.heard())["method"] == "initialize"
        if when == "before the lists":
            await line.introduced(**CAPABILITIES)
            assert [(await line.heard())["method"] for _ in range(2)] == ["tools/list", "tools/call"]
        if when == "with the call":
            await taken_over(line)
            assert (await line.heard())["method"] == "tools/call"
        await line.crash()
        line = await daemon.next()
        await line.greet()
        if when in ("with the call", "before the lists"):
            reply = await calling
            assert reply.failed, "it may have had its effect"
            await taken_over(line, lists=0 if when == "with the call" else 1)
        else:
            await taken_over(line)
            call = await line.heard()
            assert call["method"] == "tools/call"
            line.answer(call, {"content": []})
            assert not (await calling).failed
        pinging = await ask(client, "ping")
        ping = await line.heard()
        assert ping["method"] == "ping"
        line.answer(ping)
        await pinging
        assert client.arrived == []


async def test_a_running_daemon_is_asked_and_not_the_disk(daemon: Daemon, shim: Shim, disk: Disk) -> None:
    disk.write()
    async with shim() as client:
        line = await daemon.next()
        await line.greet()
        opening = asyncio.create_task(client.initialize())
        await line.introduced(**CAPABILITIES)
        assert "instructions" not in await opening


async def test_a_client_that_leaves_after_its_lists_ends_the_shim(daemon: Daemon, shim: Shim, disk: Disk) -> None:
    disk.write()
    async with shim() as client:
        await client.initialize()
        await client.tools()
        await daemon.next()
        await client.close()
        async with asyncio.timeout(60):
            assert await client.command.process.wait() == 0


# -- files that do not count


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path, Place], None]:
    def spoil(path: Path, place: Place) -> None:
        path.write_bytes(change(path.read_bytes()))

    return spoil


def turned_into_link(path: Path, place: Place) -> None:
    path.rename(place.folder / "elsewhere")
    path.symlink_to(place.folder / "elsewhere")


def turned_into_pipe(path: Path, place: Place) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def edited_config(path: Path, place: Place) -> None:
    config = place.folder / "servers.toml"
    config.write_text(config.read_text() + "# edited\n")


SPOILED: dict[str, Callable[[Path, Place], object]] = {
    "cut at its head": rewritten(lambda data: data[:50]),
    "empty": rewritten(lambda data: b""),
    "cut in the first answer": rewritten(lambda data: data[: data.rindex(b'{"protocolVersion"') + 20]),
    "head changed": rewritten(lambda data: data.replace(b'"found": false', b'"found": 0    ')),
    "answer changed": rewritten(lambda data: data.replace(b"from disk", b"from elsew")),
    "no snapshot": rewritten(lambda data: b"\x00" * len(data)),
    "readable by others": lambda path, place: path.chmod(0o644),
    "in a folder of others": lambda path, place: path.parent.chmod(0o755),
    "a link": turned_into_link,
    "a pipe": turned_into_pipe,
    "with a second name": lambda path, place: os.link(path, place.folder / "second"),
    "configuration edited": edited_config,
    "variable set": lambda path, place: place.env.update(TOKEN="1"),
    "turned off": lambda path, place: place.env.update(MCPBRIDGE_SNAPSHOT="0"),
}


@pytest.mark.parametrize("how", SPOILED)
async def test_a_file_that_does_not_count_is_as_good_as_none(
    daemon: Daemon, shim: Shim, disk: Disk, place: Place, how: str
) -> None:
    """The client's own words go to the daemon, before it has greeted."""
    SPOILED[how](disk.write(), place)
    async with shim() as client:
        opening = asyncio.create_task(client.initialize())
        line = await daemon.next()
        assert "environ" in await line.heard()
        heard = await line.heard()
        assert (heard["method"], heard["id"]) == ("initialize", 1)
        line.say({"mcpbridge": 1, "version": "x", "pid": 1, "listings": ""})
        line.answer(heard, {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}})
        assert "instructions" not in await opening


@pytest.mark.parametrize(
    "head", [{"version": "0.0.0"}, {"found": True}, {"files": {}}, {"variables": "TOKEN"}, {"values": ""}]
)
async def test_a_snapshot_of_something_else_does_not_count(disk: Disk, head: dict[str, object]) -> None:
    snapshot = open_snapshot(str(disk.folder), disk.write(**head).name)
    assert snapshot is not None
    assert not snapshot.holds({}, is_found=False)
    snapshot.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
async def test_a_file_of_somebody_else_does_not_count(disk: Disk) -> None:
    path = disk.write()
    snapshot = open_snapshot(str(disk.folder), path.name)
    assert snapshot is not None
    snapshot.close()
    os.chown(path, 12345, 12345)
    assert open_snapshot(str(disk.folder), path.name) is None
    os.chown(path, 0, 0)
    os.chown(disk.folder, 12345, 12345)
    assert open_snapshot(str(disk.folder), path.name) is None


async def test_line_ends_and_a_mark_of_the_encoding_change_nothing_in_a_configuration(disk: Disk) -> None:
    """A configuration is read without them, and that is what its digest is of."""
    text = disk.config.read_bytes()
    path = disk.write(files={os.path.realpath(disk.config): digest(text)})
    disk.config.write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    snapshot = open_snapshot(str(disk.folder), path.name)
    assert snapshot is not None
    assert snapshot.holds({}, is_found=False)
    disk.config.write_bytes(text + b"# more")
    assert not snapshot.holds({}, is_found=False)
    snapshot.close()


async def test_pages_are_found_by_their_cursors(daemon: Daemon, shim: Shim, disk: Disk) -> None:
    first, second = {"tools": [1], "nextCursor": "next"}, {"tools": [2]}
    disk.write(answers={"tools/list": first, address("tools/list", "next"): second})
    async with shim() as client:
        await client.initialize()
        assert (await client.request("tools/list", {})).result == first
        assert (await client.request("tools/list", {"cursor": "next"})).result == second
        asking = await ask(client, "tools/list", cursor="unknown")
        line = await daemon.next()
        await line.greet()
        await line.introduced(**CAPABILITIES)
        for expected in (first, second):
            line.answer(await line.heard(), expected)
        unknown = await line.heard()
        assert unknown["params"] == {"cursor": "unknown"}
        line.answer(unknown, {"tools": []})
        await asking
        assert client.arrived == []
