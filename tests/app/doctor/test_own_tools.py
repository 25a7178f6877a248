"""Tools that no server has, as the doctor tells of them (issue 8)."""

import sys
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.app.cli.config.doctor import as_text
from mcpbridge.app.doctor.examination import Examiner
from mcpbridge.app.doctor.own_tools import running_tools
from mcpbridge.app.doctor.report import Report
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import read

CONFIG = """\
packs = ["no_such_pack:pack"]
[tools.root]
function = "math:sqrt"
description = "the root"
[tools.bad]
function = "nowhere_at_all:fn"
[tools.keyed]
endpoint = "http://127.0.0.1:9/x"
headers = { A = "${NOT_SET_ANYWHERE}" }
[tools.off]
function = "nowhere_at_all:fn"
disabled = true
[builtin]
enable = ["file-read", "brief"]
"""


@pytest.fixture
def examiner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examiner:
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    return Examiner(environ, home=tmp_path, platform=sys.platform, project=None, redact=Redactor())


async def examined(examiner: Examiner, path: Path, text: str, *, is_whole: bool = True) -> Report:
    path.write_text(text)
    loaded = read(path, {})
    return await examiner.examine(loaded, loaded.settings.servers, is_whole=is_whole)


async def test_tools_packs_and_builtins_that_do_not_work_are_told_with_the_reason(
    examiner: Examiner, tmp_path: Path
) -> None:
    path = tmp_path / "servers.toml"
    report = await examined(examiner, path, CONFIG)
    found: dict[str, Any] = {tool.id: next((one.code for one in report.of(tool.id)), "") for tool in report.tools}
    assert found == {
        "tools/root": "",
        "tools/bad": "tool-failed",
        "tools/keyed": "variable-not-set",
        "tools/no_such_pack": "tool-failed",
        "builtin/file-read": "tool-inactive",
        "builtin/brief": "",
    }
    assert not report.are_tools_ready
    document = report.as_json()
    assert not document["ok"]
    tools = {tool["name"]: tool for tool in document["tools"]}
    assert tools["root"]["ok"]
    assert "nowhere_at_all" in tools["bad"]["findings"][0]["what"]
    assert tools["keyed"]["findings"][0]["where"] == f"{path}:9"
    assert tools["file-read"]["findings"][0]["level"] == "warn"
    lines = as_text(report, str).splitlines()
    assert "FAIL  keyed         missing variable ${NOT_SET_ANYWHERE} in headers.A" in lines
    assert "ok    root          function; math:sqrt is there" in lines
    assert lines[-1].startswith("2 of 6 tools work; ")


async def test_a_tool_that_only_lacks_something_is_a_warning(examiner: Examiner, tmp_path: Path) -> None:
    report = await examined(examiner, tmp_path / "servers.toml", "[builtin]\nenable = ['file-read']\n")
    assert report.are_tools_ready
    assert report.as_json()["ok"]


async def test_nothing_is_made_where_nothing_is_there_or_servers_are_named(examiner: Examiner, tmp_path: Path) -> None:
    assert "Tools" not in as_text(await examined(examiner, tmp_path / "servers.toml", ""), str)
    report = await examined(examiner, tmp_path / "servers.toml", CONFIG, is_whole=False)
    assert (report.tools, report.are_tools_ready) == ((), True)


async def test_what_cannot_be_made_is_told(examiner: Examiner, tmp_path: Path) -> None:
    report = await examined(
        examiner, tmp_path / "servers.toml", "packs = ['pkg:root']\n[tools.root]\nfunction='math:sqrt'\n"
    )
    [finding] = [one for one in report.findings if one.code == "tools-not-made"]
    assert "there is a server or a tool 'root' already" in finding.what
    assert finding.what in as_text(report, str)
    assert not report.are_tools_ready


def test_a_running_bridge_says_how_its_tools_are(tmp_path: Path) -> None:
    (tmp_path / "servers.toml").write_text(CONFIG)
    settings = read(tmp_path / "servers.toml", {}).settings
    status: dict[str, Any] = {
        "backends": [{"name": "bad", "kind": "function", "state": "failed", "reason": "it is not there", "tools": 0}],
        "inactive": [{"name": "file-read", "reason": "no roots"}],
    }
    assert [(one.id, one.is_ready, one.detail) for one in running_tools(status, settings)] == [
        ("tools/bad", False, "it is not there"),
        ("builtin/file-read", False, "no roots"),
        ("builtin/brief", True, ""),
    ]
    assert running_tools({}, settings) == []
