"""`mcpbridge` without a command: five lines, and the next thing to do in each state (issue 19)."""

import os
import sys
from pathlib import Path

import pytest

from mcpbridge.app.cli.commands import COMMANDS, run
from mcpbridge.app.cli.help.names import ConfigNames
from mcpbridge.app.cli.help.start_page import next_step
from mcpbridge.app.cli.main import main
from support.harness import Place, python_server
from support.programs.daemon_process import daemon

SERVERS = '[servers.one]\ncommand = "no-such-program-here"\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of somebody who has nothing yet, and works in it."""
    for name in [*os.environ]:
        if name.startswith(("XDG_", "MCPBRIDGE", "CLAUDE", "CODEX")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # where no client's program is
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configure(home: Path, text: str = SERVERS) -> Path:
    path = home / ".config" / "mcpbridge" / "servers.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def page(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The lines of the page, by how they begin."""
    capsys.readouterr()
    assert main([]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = printed.out.splitlines()
    assert len(lines) == 5
    starts = [line.split("  ")[0] for line in lines]
    assert starts[1:] == ["configuration", "clients", "daemon", "next"]
    return {start: line.removeprefix(start).strip() for start, line in zip(["", *starts[1:]], lines, strict=True)}


def test_without_a_configuration_the_next_thing_is_to_set_up(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = page(capsys)
    assert "mcpbridge --help" in shown[""]
    assert shown["configuration"] == "none yet; it would be ~/.config/mcpbridge/servers.toml"
    assert shown["next"].startswith("mcpbridge init   #")


def test_a_configuration_that_no_client_starts_is_to_be_installed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(home)
    shown = page(capsys)
    assert shown["configuration"] == "~/.config/mcpbridge/servers.toml: 1 server"
    assert shown["clients"] == "none starts the bridge yet"
    assert shown["next"].startswith("mcpbridge install CLIENT ")
    (home / ".cursor").mkdir()
    assert page(capsys)["next"].startswith("mcpbridge install cursor ")
    (home / ".codex").mkdir()
    assert page(capsys)["next"].startswith("mcpbridge install --all ")


def test_once_a_client_starts_it_the_next_thing_is_the_status(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure(home)
    (home / ".cursor").mkdir()
    assert run(["install", "cursor"]) == 0
    shown = page(capsys)
    assert shown["clients"] == "Cursor"
    assert shown["next"].startswith("mcpbridge status ")


def test_a_client_that_was_set_up_by_hand_counts(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure(home)
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").write_text('{"mcpServers": {"all": {"command": "mcpbridge", "args": ["serve"]}}}')
    assert page(capsys)["clients"] == "Cursor"


@pytest.mark.parametrize(("text", "command"), [("[servers", "mcpbridge check"), ("", "mcpbridge import")])
def test_a_configuration_that_is_wrong_or_empty_comes_first(
    home: Path, capsys: pytest.CaptureFixture[str], text: str, command: str
) -> None:
    configure(home, text)
    shown = page(capsys)
    assert shown["next"].startswith(f"{command} ")
    assert ("is not TOML" in shown["configuration"]) == (text != "")


def test_every_next_step_is_a_command() -> None:
    full = ConfigNames(("one",))
    for path, names, clients, here in (
        (None, ConfigNames(), (), ()),
        ("x", ConfigNames(problem="wrong"), (), ()),
        ("x", ConfigNames(), (), ()),
        ("x", full, (), ("cursor", "codex")),
        ("x", full, ("Cursor",), ()),
    ):
        program, command, *_ = next_step(path, names, clients, here).command.split()
        assert (program, command in COMMANDS) == ("mcpbridge", True)


async def test_a_daemon_that_runs_is_shown(place: Place) -> None:
    place.env["MCPBRIDGE_STANDALONE"] = ""
    config = place.config({"one": python_server("plain"), "off": python_server("plain", disabled=True)})
    place.env["MCPBRIDGE_CONFIG"] = str(config)
    async with daemon(place, config) as command:
        assert (await place.run("list")).code == 0
        shown = await place.run()
    assert f"runs, process {command.pid}; 1 of 1 server ready" in shown.out, shown.err


@pytest.mark.skipif(sys.platform == "win32", reason="its terminals are others")
def test_help_has_every_command_once_below_its_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    jobs = [line.rstrip(":") for line in lines if line and not line.startswith(" ") and line.endswith(":")]
    assert jobs == ["Options", "Start", "Servers", "Calls", "Trust", "Trouble", "Shells and programs"]
    below = lines[lines.index("Start:") :]
    named = [line.split()[0] for line in below if line.startswith("  ") and "  " in line.strip()]
    assert [name for name in named if name in COMMANDS] == [*COMMANDS]
    assert all(len(line) <= 80 for line in lines)
