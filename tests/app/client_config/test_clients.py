"""Which clients there are, and where their files are (issue 7, import)."""

import json
from pathlib import Path

import pytest

from mcpbridge.app.client_config.clients import CLIENTS, find_client, places
from mcpbridge.app.client_config.discover.discover import find_all
from mcpbridge.base.errors import ConfigError

HOME, PROJECT = Path("/home/ada"), Path("/home/ada/shop")


def paths(client: str, platform: str = "linux", **environ: str) -> list[str]:
    return [str(place.path) for place in places(find_client(client), environ, platform, HOME, PROJECT)]


def test_every_client_of_the_issue_is_there() -> None:
    """Issue 7 names them."""
    ids = {client.id for client in CLIENTS}
    assert ids >= {"claude-desktop", "claude-code", "cursor", "vscode", "vscode-insiders", "codex", "gemini"}
    assert ids >= {"windsurf", "zed", "cline", "roo", "continue", "librechat", "goose", "opencode", "junie"}
    assert ids >= {"lm-studio", "kiro", "antigravity", "copilot"}
    assert len(ids) == len(CLIENTS)


@pytest.mark.parametrize(
    ("client", "platform", "path"),
    [
        ("claude-desktop", "linux", "/home/ada/.config/Claude/claude_desktop_config.json"),
        ("claude-desktop", "darwin", "/home/ada/Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", "/home/ada/AppData/Roaming/Claude/claude_desktop_config.json"),
        ("claude-code", "linux", "/home/ada/shop/.mcp.json"),
        ("vscode", "darwin", "/home/ada/Library/Application Support/Code/User/mcp.json"),
        ("vscode-insiders", "linux", "/home/ada/.config/Code - Insiders/User/mcp.json"),
        ("zed", "darwin", "/home/ada/.config/zed/settings.json"),
        ("zed", "win32", "/home/ada/AppData/Roaming/Zed/settings.json"),
        ("goose", "win32", "/home/ada/AppData/Roaming/Block/goose/config/config.yaml"),
        ("cline", "linux", "/home/ada/.cline/data/settings/cline_mcp_settings.json"),
        ("roo", "linux", "/home/ada/shop/.roo/mcp.json"),
        ("copilot", "linux", "/home/ada/.copilot/mcp-config.json"),
    ],
)
def test_each_system_has_its_places(client: str, platform: str, path: str) -> None:
    assert path in paths(client, platform)


@pytest.mark.parametrize(
    ("client", "platform", "environ", "path"),
    [
        ("claude-code", "linux", {"CLAUDE_CONFIG_DIR": "/cc"}, "/cc/.claude.json"),
        ("codex", "linux", {"CODEX_HOME": "/cx"}, "/cx/config.toml"),
        ("gemini", "linux", {"GEMINI_CLI_HOME": "/g"}, "/g/.gemini/settings.json"),
        ("opencode", "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/opencode/opencode.json"),
        ("claude-desktop", "win32", {"APPDATA": "/r"}, "/r/Claude/claude_desktop_config.json"),
    ],
)
def test_the_environment_moves_them(client: str, platform: str, environ: dict[str, str], path: str) -> None:
    assert path in paths(client, platform, **environ)


def test_without_a_project_there_are_no_project_files() -> None:
    assert not [
        place for place in places(find_client("cursor"), {}, "linux", HOME, None) if place.file.scope == "project"
    ]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("Cursor", "cursor"), ("VS Code", "vscode"), ("gemini-cli", "gemini"), ("code", "vscode"), ("codex", "codex")],
)
def test_people_may_write_names_in_their_way(typed: str, meant: str) -> None:
    assert find_client(typed).id == meant


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("claude", "`claude-desktop` or `claude-code`"), ("curser", "Did you mean 'cursor'"), ("emacs-42", "There are:")],
)
def test_what_is_no_client_is_told_with_what_may_be_meant(typed: str, hint: str) -> None:
    with pytest.raises(ConfigError) as error:
        find_client(typed)
    assert hint in str(error.value)


def test_extensions_are_looked_for_in_relatives_of_vs_code_too(tmp_path: Path) -> None:
    folder = "User/globalStorage/saoudrizwan.claude-dev/settings"
    for place in (f".config/Cursor/{folder}", f".cursor-server/data/{folder}"):
        (tmp_path / place).mkdir(parents=True)
        document = {"mcpServers": {place[1:7]: {"command": "x"}}}
        (tmp_path / place / "cline_mcp_settings.json").write_text(json.dumps(document))
    found = find_all({}, tmp_path, "linux", None)
    assert [(one.client, one.name) for one in found.servers] == [("cline", "config"), ("cline", "cursor")]
