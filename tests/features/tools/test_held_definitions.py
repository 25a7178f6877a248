"""What is held of a server is held on every way to it, and counts until somebody agrees to it (issue 22)."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from mcpbridge.catalog.pins.lock_file import lock_path
from mcpbridge.catalog.pins.signature import sign_lock
from mcpbridge.catalog.pins.trusted_lock import signature_path
from mcpbridge.library.bridge import Bridge
from mcpbridge.pipeline.approvals.request import ApprovalRequest
from mcpbridge.sandbox.python.program import why_none
from support.upstreams.changing_definitions import (
    BASE,
    CHANGES,
    SERVER,
    Files,
    announce,
    call,
    definitions_of,
    listed,
    lock,
    running,
    tool,
    until,
)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def npx(folder: Path, version: str, *command: str) -> Path:
    """A runner of packages that has chosen this version, and starts the command out of it."""
    package = folder / "cache" / "node_modules" / "@team" / "files"
    package.mkdir(parents=True, exist_ok=True)
    (package / "package.json").write_text(json.dumps({"name": "@team/files", "version": version}))
    starter = folder / "cache" / "node_modules" / ".bin" / "files"
    starter.parent.mkdir(exist_ok=True)
    starter.write_text(
        f"import runpy, sys\nsys.argv = {list(command)!r}\nsys.path.insert(0, {str(SERVER.parent)!r})\n"
        f"runpy.run_path({command[0]!r}, run_name='__main__')\n"
    )
    program = folder / "npx"
    program.write_text(f'#!/bin/sh\n"{sys.executable}" -ES "{starter}"\n')
    program.chmod(0o755)
    return program


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which files a process runs from")
async def test_the_version_that_npx_chose_is_in_the_lock(files: Files, tmp_path: Path) -> None:
    """Another one is shown at the next start; where it is not known, nothing is said of it."""
    words = str(SERVER), str(files.shown)
    files.write({"command": str(npx(tmp_path, "1.0.0", *words)), "args": ["-y", "@team/files"]})
    async with running(files) as bridge:
        await lock(files, bridge)
        assert "@team/files 1.0.0" in lock_path(files.config).read_text()
        assert not bridge.pins.findings("up")
    npx(tmp_path, "1.0.1", *words)
    async with running(files) as bridge:
        await bridge.pool.upstreams["up"].tried()
        [finding] = bridge.pins.findings("up")
        assert [str(one) for one in finding.changes] == ["package-version: @team/files 1.0.0 → @team/files 1.0.1"]
        assert finding.effect == "warned"
    (tmp_path / "cache" / "node_modules" / "@team" / "files" / "package.json").unlink()
    async with running(files) as bridge:
        await bridge.pool.upstreams["up"].tried()
        assert not bridge.pins.findings("up")


@pytest.mark.skipif(bool(why_none()), reason="needs the extra `code`")
async def test_programs_neither_see_nor_call_what_is_held(files: Files) -> None:
    """The signatures that programs are given are the agreed ones, and their calls meet the same rule."""
    files.write({}, pin="hold")
    with files.config.open("a") as file:
        file.write('[expose]\nmode = "search"\n[code]\nenabled = true\n')
    async with running(files) as bridge:
        before = await call(bridge, "describe_tools", names=["up__read"])
        assert '"text"' in await call(bridge, "run_code", code='await up__read(path="x", mode="text")')
        changed = CHANGES["default"][0]["tools"][1] | {"description": "Wicked words."}
        files.show(tools=[BASE["tools"][0], changed, tool("evil")])
        await announce(bridge)
        assert await call(bridge, "describe_tools", names=["up__read"]) == before
        described = await call(bridge, "describe_tools", names=["up__evil"])
        assert not re.search(r"def up__evil|wicked", described, re.IGNORECASE)
        for code in ('await up__read(path="x")', 'await call_tool("up__read", {"path": "x"})'):
            said = await call(bridge, "run_code", code=code)
            assert "lock approve up/read" in said, said
        for code in ('await up__evil(path="x")', 'await call_tool("up__evil", {"path": "x"})'):
            said = await call(bridge, "run_code", code=code)
            assert "evil {" not in said, "the server has answered"
            assert "Error" in said, said


async def test_a_change_is_an_event_of_the_timeline(files: Files) -> None:
    """With its classes, and in words; it is there once, however often the list is read."""
    files.write({}, pin="hold")
    with files.config.open("a") as file:
        file.write("[call_log]\nenabled = true\n")
    async with running(files) as bridge:
        events = bridge.events()
        files.show(**CHANGES["default"][0])
        for _ in range(2):
            await announce(bridge)
        events.close()
        [event] = [one async for one in events if one.name == "server.definition_changed"]
        facts = event.data
        assert isinstance(facts, dict)
        assert (facts["server"], facts["of"], facts["name"], facts["effect"]) == ("up", "tools", "read", "refused")
        assert facts["changes"] == ["default"]
        assert "tool read: default at mode" in facts["detail"]


@pytest.mark.parametrize(("policy", "change"), [("warn", "url"), ("hold", "url")])
async def test_who_is_asked_for_a_call_sees_how_its_tool_was_changed(files: Files, policy: str, change: str) -> None:
    """By the classes alone: no text of the server is in the question's own words."""
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    files.write({}, pin=policy)
    with files.config.open("a") as file:
        file.write('[[permissions]]\ntools = ["up/read"]\npermission = "require_approval"\n')
    async with Bridge.open(files.config, remember=True, approver=approve) as bridge:
        assert await bridge.settled(30)
        await call(bridge, "up__read", path="x")
        files.show(**CHANGES[change][0])
        await announce(bridge)
        await call(bridge, "up__read", path="y")
        before, after = (one.reason for one in asked)
        assert "changed" not in before
        assert after.endswith("its server changed the tool, and nobody agreed to that yet: text, new-url")
        assert "evil.example" not in after


class Keys:
    """A key that the user trusts, and what it signs."""

    def __init__(self, files: Files, config: Path) -> None:
        self.key, self.lock = Ed25519PrivateKey.generate(), lock_path(files.config)
        folder = config / "mcpbridge" / "lock-keys"
        folder.mkdir(parents=True)
        public = self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / "team.pub").write_bytes(public)

    def sign(self, serial: int) -> None:
        signature_path(self.lock).write_bytes(sign_lock(self.lock.read_bytes(), serial, self.key))

    def put_back(self, files: tuple[bytes, bytes]) -> None:
        self.lock.write_bytes(files[0])
        signature_path(self.lock).write_bytes(files[1])

    def files(self) -> tuple[bytes, bytes]:
        return self.lock.read_bytes(), signature_path(self.lock).read_bytes()


async def test_only_a_signed_lock_agrees_to_what_a_malicious_server_shows(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that a laptop has changed is refused, and so is an older one that was signed well."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    keys = Keys(files, tmp_path / "config")
    files.write({})
    async with running(files) as bridge:
        assert bridge.pins.policy("up") == "hold", "without a lock all is held: keys are trusted"
        assert "up__read" not in await listed(bridge)
        await lock(files, bridge)
        assert "up__read" not in await listed(bridge), "it is not signed"
        keys.sign(1)
        await until(bridge, lambda: "up__read" in bridge.catalog.snapshot.tools)
        first, before = keys.files(), await listed(bridge)

        files.show(**CHANGES["default"][0])
        await announce(bridge)
        assert "lock approve up/read" in await call(bridge, "up__read", path="x")
        await lock(files, bridge)  # the laptop agrees, and cannot sign
        await until(bridge, lambda: "changed after it was signed" in bridge.pins.lock.fault)
        lost = "its definition went with the entry of the signed lock"
        assert await listed(bridge) == {name: one for name, one in before.items() if name != "up__read"}, lost
        assert "lock approve up/read" in await call(bridge, "up__read", path="x")
        keys.sign(2)
        await until(bridge, lambda: not bridge.pins.findings("up"))
        assert (await call(bridge, "up__read", path="x")).startswith("read")
        second = keys.files()

        files.show()
        await announce(bridge)
        keys.put_back(first)
        await until(bridge, lambda: "is older than" in bridge.pins.lock.fault)
        assert definitions_of(bridge)["read"][1] == "refused", "the newer one still counts"
    async with running(files) as bridge:
        assert not [name for name in await listed(bridge) if name.startswith("up__")], "another process holds it all"
    (Path(os.environ["XDG_STATE_HOME"]) / "mcpbridge" / "lock-serials.json").unlink()
    async with running(files) as bridge:
        assert "up__read" in await listed(bridge), "as on a new machine: docs/how-to/review-what-servers-change.md"
        keys.put_back(second)
        await until(bridge, lambda: definitions_of(bridge).get("read", (set(), ""))[1] == "refused")
