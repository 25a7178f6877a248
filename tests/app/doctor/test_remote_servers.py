"""Servers that are reached by a URL and do not work: what the doctor makes of each (issue 7)."""

import ssl
import sys
from pathlib import Path

import pytest
import trustme

from mcpbridge.app.doctor.examination import Examiner
from mcpbridge.app.doctor.finding import Edit, Finding
from mcpbridge.app.doctor.fix import Outcome, Repair, repair_all
from mcpbridge.app.doctor.report import Report
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import read
from support.upstreams.scripted_http import Ask, answer_to, http_server, reply, result_of

OFFERED = {"tools": [{"name": "look", "description": "Looks.", "inputSchema": {"type": "object"}}]}


async def working(ask: Ask) -> bytes:
    """A server over streamable HTTP with one tool."""
    if ask.method == "POST" and ask.message.get("method") == "server/discover":
        error = {"code": -32601, "message": "Method not found"}
        return reply({"jsonrpc": "2.0", "id": ask.id, "error": error})
    if ask.method == "POST" and ask.message.get("method") == "initialize":
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "x", "version": "1"},
        }
        return reply(result_of(ask, result))
    if ask.method == "POST" and ask.message.get("method") == "tools/list":
        return reply(result_of(ask, OFFERED))
    return answer_to(ask)


def examiner(folder: Path) -> Examiner:
    return Examiner(
        {"XDG_RUNTIME_DIR": str(folder)},
        home=folder,
        platform=sys.platform,
        project=None,
        redact=Redactor(),
        seconds=20,
    )


def written(folder: Path, url: str, more: str = "") -> Path:
    file = folder / "servers.toml"
    file.write_text(f'[servers.far]\nurl = "{url}"\n{more}')
    return file


async def examined(file: Path) -> Report:
    loaded = read(file, {})
    return await examiner(file.parent).examine(loaded, loaded.settings.servers, is_whole=True)


async def test_one_that_works_is_measured_too(tmp_path: Path) -> None:
    async with http_server(working) as server:
        report = await examined(written(tmp_path, server.url))
    [one] = report.servers
    assert one.is_ready
    assert (one.transport, one.era, one.tools, one.memory) == ("streamable-http", "legacy", 1, None)
    assert one.listed_ms is not None


@pytest.mark.parametrize(
    ("status", "code"), [(401, "sign-in-needed"), (403, "http-403"), (404, "http-404"), (503, "http-503")]
)
async def test_a_status_is_explained(tmp_path: Path, status: int, code: str) -> None:
    async def refusing(ask: Ask) -> bytes:
        return reply(b"{}", status=status)

    async with http_server(refusing) as server:
        report = await examined(written(tmp_path, server.url))
    [failure] = [one for one in report.of("far") if one.level == "fail"]
    assert failure.code == code
    assert failure.fix
    assert failure.where == f"{tmp_path / 'servers.toml'}:2"
    if status == 401:
        assert "mcpbridge login far" in failure.fix


async def test_nobody_there_is_told_as_that(tmp_path: Path) -> None:
    report = await examined(written(tmp_path, "http://127.0.0.1:9/mcp"))
    assert [one.code for one in report.of("far") if one.level == "fail"] == ["not-reached"]


async def test_a_certificate_that_nobody_vouches_for_is_told_as_that(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with http_server(working, ssl=context) as server:
        report = await examined(written(tmp_path, server.url))
    [failure] = [one for one in report.of("far") if one.level == "fail"]
    assert failure.code == "tls"
    assert "tls = { ca =" in failure.fix


async def test_a_wrong_transport_is_found_out_and_mended(tmp_path: Path) -> None:
    heard: list[Outcome] = []

    async def agree(finding: Finding, lines: str) -> bool:
        return '+transport = "streamable-http"  # I think' in lines

    async with http_server(working) as server:
        file = written(tmp_path, server.url, 'transport = "sse"  # I think\n')
        report = await examined(file)
        [failure] = [one for one in report.of("far") if one.level == "fail"]
        assert failure.code == "wrong-transport"
        [outcome] = await repair_all(
            report.findings,
            Repair(file, {"XDG_STATE_HOME": str(tmp_path / "state")}),
            file,
            examiner(tmp_path),
            {},
            agree=agree,
            report=heard.append,
        )
    assert outcome.is_kept
    assert heard == [outcome]
    assert 'transport = "streamable-http"  # I think' in file.read_text()


async def test_without_agreement_nothing_is_changed(tmp_path: Path) -> None:
    async def refuse(finding: Finding, lines: str) -> bool:
        return False

    async with http_server(working) as server:
        file = written(tmp_path, server.url, 'transport = "sse"\n')
        before = file.read_bytes()
        report = await examined(file)
        [outcome] = await repair_all(
            report.findings,
            Repair(file, {"XDG_STATE_HOME": str(tmp_path / "state")}),
            file,
            examiner(tmp_path),
            {},
            agree=refuse,
            report=lambda outcome: None,
        )
    assert (outcome.is_kept, outcome.why) == (False, "you did not agree")
    assert file.read_bytes() == before
    assert list(tmp_path.rglob("*.bak")) == []


async def test_a_change_that_is_broken_off_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever interrupts the command has the file as it was."""

    async def agree(finding: Finding, lines: str) -> bool:
        return True

    async def again(*_: object) -> None:
        assert "streamable-http" in file.read_text()
        raise KeyboardInterrupt

    file = written(tmp_path, "http://127.0.0.1:9/mcp", 'transport = "sse"\n')
    before = file.read_bytes()
    edit = Edit("far", key=("transport",), value="streamable-http")
    finding = Finding("wrong-transport", "fail", "it speaks another", "far", edit=edit)
    monkeypatch.setattr(Examiner, "again", again)
    repair = Repair(file, {"XDG_STATE_HOME": str(tmp_path / "state")})
    with pytest.raises(KeyboardInterrupt):
        await repair_all([finding], repair, file, examiner(tmp_path), {}, agree=agree, report=lambda outcome: None)
    assert file.read_bytes() == before
