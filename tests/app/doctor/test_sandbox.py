"""What is said of sandboxes: which there are, what each lets through, and who would run without one."""

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.app.doctor.config_file import Source
from mcpbridge.app.doctor.examination import Examiner
from mcpbridge.app.doctor.finding import Finding
from mcpbridge.app.doctor.sandbox import about_installs, about_profiles, about_sandboxes, look_at_sandboxes
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import read
from mcpbridge.config.schema import Settings
from mcpbridge.sandbox.isolation.self_test import Readiness, TierReport
from mcpbridge.sandbox.settings import PROPERTIES
from mcpbridge.upstream.settings import ServerSettings

NOWHERE = Source(Path("servers.toml"), "")
LINT: dict[str, Any] = {"lint": {"command": ["true"]}}


def said(found: Readiness | None, **settings: Any) -> dict[str, Finding]:
    return {one.code: one for one in about_sandboxes(Settings.model_validate(settings), found, NOWHERE)}


async def test_nothing_is_tried_or_said_where_nothing_needs_one() -> None:
    for given in (
        {},
        {"tools": {"lint": {"command": ["true"], "sandbox": "off"}}},
        {"tools": LINT, "sandbox": "off"},
        {"servers": {"x": {"command": "x"}}},
    ):
        assert await look_at_sandboxes(Settings.model_validate(given)) is None
    assert said(None, servers={"x": {"command": "x"}}) == {}


def test_one_that_is_ready_is_told_with_what_it_does_otherwise_than_expected() -> None:
    reports = (
        TierReport("bubblewrap", lacks="bubblewrap is not installed", fix="Install bubblewrap."),
        TierReport("launcher", PROPERTIES, note="programs may start no further processes there"),
    )
    servers = {"x": {"command": "x", "sandbox": True}}
    found = said(Readiness("auto", PROPERTIES, "launcher", reports), tools=LINT, servers=servers)
    assert {code: one.level for code, one in found.items()} == {
        "sandbox-ready": "ok",
        "sandbox-missing": "note",
        "sandbox-note": "note",
    }
    assert found["sandbox-ready"].why == "It is needed by the tool `lint` and the server `x`."
    assert found["sandbox-missing"].fix == "Install bubblewrap."
    assert "no further processes" in found["sandbox-note"].what


def test_tools_that_run_in_no_sandbox_need_none() -> None:
    ready = Readiness("auto", PROPERTIES, "launcher", (TierReport("launcher", PROPERTIES),))
    enabled = {"enable": ["git-cli", "gh-cli", "gws-cli", "code-execute"]}

    assert said(ready, builtin=enabled)["sandbox-ready"].why == "It is needed by `git-cli` and `code-execute`."
    inside = {**enabled, "git_cli": {"sandbox": "never"}, "gh_cli": {"sandbox": "require"}}
    assert said(ready, builtin=inside)["sandbox-ready"].why == "It is needed by `gh-cli` and `code-execute`."
    assert said(None, builtin={"enable": ["gh-cli", "gws-cli"]}, sandbox="off") == {}


def test_where_none_is_ready_property_and_fix_are_told() -> None:
    holds = tuple(name for name in PROPERTIES if name != "net")
    reports = (
        TierReport("bubblewrap", lacks="bubblewrap is not installed", fix="Install bubblewrap."),
        TierReport("launcher", holds, {"net": "UDP"}, fix="Use a newer kernel."),
    )
    found = said(Readiness("auto", PROPERTIES, "", reports), tools=LINT)
    assert {code: one.level for code, one in found.items()} == {
        "sandbox-none": "fail",
        "sandbox-missing": "note",
        "sandbox-net": "warn",
    }
    assert found["sandbox-none"].what == "the tool `lint` cannot run: no sandbox here passes every check"
    assert "net (UDP)" in found["sandbox-none"].why
    assert "Install bubblewrap." in found["sandbox-none"].fix
    assert found["sandbox-net"].what == "the sandbox `launcher` does not keep programs from the network"
    assert (found["sandbox-net"].why, found["sandbox-net"].fix) == ("This got through: UDP.", "Use a newer kernel.")


def test_a_property_that_is_not_required_is_a_warning_of_the_one_in_use() -> None:
    required = tuple(name for name in PROPERTIES if name != "pids")
    report = TierReport("launcher", required, {"pids": "72 processes"}, fix="Set `pids = 1`.")
    found = said(Readiness("auto", required, "launcher", (report,)), tools=LINT)
    assert found["sandbox-pids"].level == "warn"


def test_who_runs_outside_is_told() -> None:
    outside = {"lint": {"command": ["true"], "sandbox": "off"}}
    assert said(None, tools=outside)["sandbox-off"].what == "the tool `lint` runs outside of any sandbox"
    several = {name: {"command": ["true"]} for name in ("a", "b", "c", "d", "e")}
    found = said(None, tools=several, sandbox="off")["sandbox-off"]
    assert found.what == "the tool `a`, the tool `b`, the tool `c` and 2 more run outside of any sandbox"
    assert said(None, tools=LINT, sandbox={"enabled": False})["sandbox-none"].level == "fail"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no sandbox elsewhere")
async def test_an_examination_tries_them_out(tmp_path: Path) -> None:
    (tmp_path / "servers.toml").write_text('[tools.lint]\ncommand = ["true"]\n')
    loaded = read(tmp_path / "servers.toml", {})
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    examiner = Examiner(environ, home=tmp_path, platform="linux", project=None, redact=Redactor())
    with anyio.fail_after(60):
        report = await examiner.ask(loaded, {})
    [ready] = [one for one in report.findings if one.code == "sandbox-ready"]
    assert ready.about == "machine"


def test_servers_that_could_have_a_profile_are_named() -> None:
    servers = {
        "clock": ServerSettings.model_validate({"command": "uvx", "args": ["mcp-server-time"]}),
        "files": ServerSettings.model_validate({"command": "npx", "args": ["@modelcontextprotocol/server-filesystem"]}),
        "inside": ServerSettings.model_validate({"command": "uvx", "args": ["mcp-server-git"], "sandbox": "profile"}),
        "other": ServerSettings.model_validate({"command": "unknown"}),
        "remote": ServerSettings.model_validate({"url": "https://example.com/mcp"}),
    }
    found = list(about_profiles(servers, Source(Path("servers.toml"), "")))
    if not sys.platform.startswith("linux"):
        assert found == []
        return
    [finding] = found
    assert (finding.code, finding.level) == ("sandbox-profile", "note")
    assert "`clock` and `files` run without a sandbox" in finding.what
    assert 'sandbox = "profile"' in finding.fix


def test_a_runner_that_downloads_while_the_server_starts_is_named() -> None:
    def server(line: str, **sandbox: object) -> ServerSettings:
        command, *args = line.split()
        return ServerSettings.model_validate({"command": command, "args": args, "sandbox": sandbox})

    servers = {
        "bun": server("bunx a", network="none"),
        "pipx": server("pipx run a", network=["a.example:443"]),
        "open": server("bunx a", network="open"),
        "uvx": server("uvx a", network="none"),
        "free": ServerSettings(command="bunx", args=["a"]),
    }
    found = list(about_installs(servers, Source(Path("servers.toml"), "")))
    assert [(one.server, one.code) for one in found] == [
        ("bun", "not-installed-before"),
        ("pipx", "not-installed-before"),
    ]
