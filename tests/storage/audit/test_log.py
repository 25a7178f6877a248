"""What the audit log says of calls, what it never says, and what happens in bad times (issue 22, Audit)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.storage.audit.checkpoints import Anchor
from mcpbridge.storage.audit.log import AuditLog
from mcpbridge.storage.audit.reader import Wanted, after, end_position, every, newest
from mcpbridge.storage.audit.settings import AuditSettings
from mcpbridge.storage.audit.verify import Report, verify
from mcpbridge.storage.call_log.format import CallRecord

RECORD = CallRecord(
    at=1_800_000_000.0,
    seconds=0.25,
    method="tools/call",
    server="files",
    tool="files/read",
    client="ear",
    principal="ada",
    session="s1",
    run="",
    outcome="ok",
    error="",
    arguments=b'{"path": "a.txt", "key": "hunter2-hunter2"}',
    result=b"{}",
    sent=20,
    received=2,
    tokens=1,
    rule="rule 1 of `permissions`",
    facts={"approval": "granted by cli:bo", "message": "a.txt is gone", "retries": 2},
)


@asynccontextmanager
async def auditing(root: Path, **keys: Any) -> AsyncIterator[AuditLog]:
    settings = AuditSettings(enabled=True, path=str(root / "log"), anchor=str(root / "anchor"), sync=False, **keys)
    log = AuditLog(settings, redact=Redactor(["hunter2-hunter2"]))
    with anyio.fail_after(60):
        async with log.running():
            yield log


def rows(root: Path, **which: Any) -> list[dict[str, Any]]:
    return list(every(root / "log", Wanted(**which)))


def verified(root: Path) -> Report:
    anchor = Anchor(root / "anchor", root / "log")
    key = anchor.public_key()
    assert key is not None
    return verify(root / "log", anchor, [key])


async def test_a_line_says_who_called_what_and_who_agreed(tmp_path: Path) -> None:
    async with auditing(tmp_path) as log:
        log.append(RECORD)
        log.append(replace(RECORD, principal="", outcome="refused", error="NotPermitted", facts=None, result=b""))
    assert [row["kind"] for row in rows(tmp_path)] == [
        "audit.segment",
        "audit.started",
        "call",
        "call",
        "audit.stopped",
    ]
    one, two = rows(tmp_path, kind="call")
    digest = sha256(b'{"key":"hunter2-hunter2","path":"a.txt"}').hexdigest()
    assert one["arguments"] == {"bytes": len(RECORD.arguments), "sha256": digest}
    expected = {
        "principal": "ada",
        "client": "ear",
        "server": "files",
        "tool": "files/read",
        "outcome": "ok",
        "rule": "rule 1 of `permissions`",
        "approval": "granted by cli:bo",
        "result": {"bytes": 2, "tokens": 1},
        "seconds": 0.25,
        "facts": {"retries": 2},
    }
    assert {key: one[key] for key in expected} == expected
    assert (two["principal"], two["outcome"], two["error"]) == ("", "refused", "NotPermitted")
    text = (tmp_path / "log" / "000000000001.jsonl").read_text()
    assert "hunter2" not in text
    assert "a.txt" not in text
    assert verified(tmp_path).is_intact


async def test_masked_arguments_have_no_secrets(tmp_path: Path) -> None:
    async with auditing(tmp_path, arguments="masked", max_arguments=64) as log:
        log.append(RECORD)
        log.append(replace(RECORD, arguments=b'{"text": "' + b"x" * 10_000 + b'"}'))
    one, two = rows(tmp_path, kind="call")
    assert "a.txt" in one["arguments"]["value"]
    assert "hunter2" not in one["arguments"]["value"]
    assert len(two["arguments"]["value"]) == 64
    assert two["arguments"]["bytes"] > 10_000


async def test_names_that_clients_choose_cannot_break_a_line(tmp_path: Path) -> None:
    hostile = 'a\n{"seq":99}\r\x00"\ud800' + "long" * 1000
    async with auditing(tmp_path) as log:
        log.append(replace(RECORD, client=hostile, tool=hostile, facts={"number": 1 << 80, "deep": {hostile: [1.5]}}))
        log.append_event("approval.granted", {"who": hostile, "arguments": b"{}", "other": hostile})
    report = verified(tmp_path)
    assert report.is_intact
    assert report.lines == 5
    assert len(rows(tmp_path, kind="call")[0]["client"]) == 1000


async def test_what_does_not_fit_is_counted_and_a_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.storage.audit.log._MOST_WAITING", 10)
    async with auditing(tmp_path) as log:
        for _ in range(30):
            log.append(RECORD)
        lost = log.lost
        assert lost >= 20
        assert "missing" in log.problems()[0]
    assert sum(row["count"] for row in rows(tmp_path, kind="audit.lost")) == log.lost
    report = verified(tmp_path)
    assert report.is_intact
    assert "could not be written" in report.notes[0]


async def test_a_folder_that_cannot_be_written_is_reported_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpbridge.storage.audit.log._TRY_AGAIN", 0.05)
    (tmp_path / "log").write_text("in the way")
    async with auditing(tmp_path) as log:
        log.append(RECORD)
        while not log.problems():
            await anyio.sleep(0.01)
        assert "cannot be written" in log.problems()[0]
        (tmp_path / "log").unlink()
        while log.problems():
            await anyio.sleep(0.01)
    assert len(rows(tmp_path, kind="call")) == 1
    assert verified(tmp_path).is_intact


async def test_lines_are_found_by_what_they_say(tmp_path: Path) -> None:
    async with auditing(tmp_path, segment_size=4096) as log:
        for number in range(40):
            log.append(replace(RECORD, tool=f"files/{'read' if number % 2 else 'write'}", at=RECORD.at + number))
        log.append_event("approval.denied", {"tool": "files/write", "who": "cli:bo"})
    folder = tmp_path / "log"
    assert len(newest(folder, Wanted(tool="read"), 5)) == 5
    assert [row["at"][17:19] for row in newest(folder, Wanted(tool="files/wr*", kind="call"), 2)] == ["36", "38"]
    assert len(newest(folder, Wanted(server="files"), 100)) == 41
    assert [row["who"] for row in newest(folder, Wanted(kind="approval.*"), 9)] == ["cli:bo"]
    assert len(newest(folder, Wanted(kind="call", since=RECORD.at + 35, until=RECORD.at + 38), 9)) == 3
    position = end_position(folder)
    async with auditing(tmp_path) as log:
        log.append(RECORD)
    found, position = after(folder, position)
    assert [row["kind"] for row in found] == ["audit.started", "call", "audit.stopped"]
    assert after(folder, position)[0] == []


_WRITES = """
import anyio, sys
from mcpbridge.storage.audit.log import AuditLog
from mcpbridge.storage.audit.settings import AuditSettings

async def main():
    log = AuditLog(AuditSettings(enabled=True, path=sys.argv[1], anchor=sys.argv[2]))
    async with log.running():
        while True:
            for _ in range(200):
                log.append_event("tick", {"detail": "x" * 300})
            await anyio.sleep(0.01)
            if log.written:
                print(log.written, flush=True)

anyio.run(main)
"""


@pytest.mark.parametrize("times", [3])
def test_a_bridge_that_is_killed_leaves_a_chain_that_goes_on(tmp_path: Path, times: int) -> None:
    """SIGKILL in the middle of writing: nothing before it is lost, and nothing looks like tampering."""
    seen = 0
    for _ in range(times):
        command = [sys.executable, "-c", _WRITES, str(tmp_path / "log"), str(tmp_path / "anchor")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            written = int(process.stdout.readline())
            os.kill(process.pid, signal.SIGKILL)
        report = verified(tmp_path)
        assert report.is_intact, report.findings
        assert report.last >= seen + written
        seen = report.last


async def test_what_runs_after_a_torn_line_says_so(tmp_path: Path) -> None:
    async with auditing(tmp_path) as log:
        log.append(RECORD)
    (file,) = (tmp_path / "log").glob("*.jsonl")
    with file.open("ab") as end:
        end.write(b'{"seq":5,"prev"')
    async with auditing(tmp_path) as log:
        log.append(RECORD)
    assert [row["torn"]["bytes"] for row in rows(tmp_path, kind="audit.recovered")] == [15]
    assert verified(tmp_path).is_intact


async def test_a_program_gets_checkpoints_that_verify_elsewhere(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    program = [sys.executable, "-c", f"import sys; open({str(kept)!r}, 'a').write(sys.stdin.read())"]
    async with auditing(tmp_path, anchor_command=program) as log:
        log.append(RECORD)
    lines = kept.read_bytes().splitlines()
    assert json.loads(lines[-1])["seq"] == 4
    (tmp_path / "log" / "000000000001.jsonl").write_bytes(b"")
    anchor = Anchor(tmp_path / "anchor", tmp_path / "log")
    key = anchor.public_key()
    assert key is not None
    report = verify(tmp_path / "log", Anchor(tmp_path / "none", tmp_path / "log"), [key], lines)
    assert [one.what for one in report.findings] == ["cut_off"]
