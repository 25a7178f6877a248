"""The mcpServers JSON of other programs (issue 2, Config and commands)."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.base.errors import ConfigError
from mcpbridge.config.load import Loaded, read
from mcpbridge.library.client.open_options import read_config


def loaded(folder: Path, document: object, **environ: str) -> Loaded:
    path = folder / ".mcp.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), "utf-8")
    return read(path, environ)


def test_claude_and_cursor(tmp_path: Path) -> None:
    servers = {
        "files": {"command": "npx", "args": ["-y", "server"], "env": {"A": "b", "PORT": 80}},
        "web": {"type": "http", "url": "https://a/mcp", "headers": {"Authorization": "Bearer ${T}"}},
        "off": {"command": "x", "disabled": True, "autoApprove": ["y"]},
    }
    found = loaded(tmp_path, {"mcpServers": servers, "theme": "dark"}, T="token-value")
    files, web, off = (found.settings.servers[name] for name in ("files", "web", "off"))
    assert (files.command, files.args, files.env) == ("npx", ["-y", "server"], {"A": "b", "PORT": "80"})
    assert (web.transport, web.headers) == ("streamable-http", {"Authorization": "Bearer token-value"})
    assert off.disabled
    assert found.warnings == (f"{tmp_path / '.mcp.json'}: left out, since they are not known here: 'theme'",)


def test_vs_code_with_comments_and_trailing_commas(tmp_path: Path) -> None:
    text = """
    {
      // servers of this workspace
      "inputs": [],
      "servers": {
        "a": { "type": "stdio", "command": "a//b", "args": ["/* no comment */", "x,}"], }, /* one
        more */
      },
    }
    """
    server = loaded(tmp_path, text).settings.servers["a"]
    assert (server.command, server.args) == (str(tmp_path / "a/b"), ["/* no comment */", "x,}"])


def test_gemini_windsurf_and_cline(tmp_path: Path) -> None:
    servers = {
        "gemini": {"httpUrl": "https://a/mcp", "timeout": 90000, "excludeTools": ["drop_*"], "trust": True},
        "windsurf": {"serverUrl": "https://b/mcp", "disabledTools": ["x"]},
        "cline": {"command": "c", "timeout": 90, "alwaysAllow": []},
    }
    settings = loaded(tmp_path, {"mcpServers": servers}).settings.servers
    assert settings["gemini"].url == "https://a/mcp"
    assert settings["gemini"].call_timeout == settings["cline"].call_timeout == 90
    assert settings["gemini"].tools.exclude == ["drop_[*]"]  # a name there, not a pattern
    assert (settings["windsurf"].url, settings["windsurf"].tools.exclude) == ("https://b/mcp", ["x"])


def test_our_own_keys_may_stand_there_too(tmp_path: Path) -> None:
    server = loaded(tmp_path, {"mcpServers": {"a": {"command": "a", "max_concurrent": 3, "era": "legacy"}}})
    assert server.settings.servers["a"].max_concurrent == 3


def test_an_unknown_key_is_a_warning(tmp_path: Path) -> None:
    found = loaded(tmp_path, {"mcpServers": {"a": {"command": "a", "sandbox": {}, "unavailable": "x"}}})
    assert [warning.partition(": ")[2] for warning in found.warnings] == [
        "a: the key 'sandbox' is not known here and was left out",
        "a: the key 'unavailable' is not known here and was left out",
    ]
    assert found.settings.servers["a"].unavailable is None


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        ({"type": "sse", "url": "https://a/sse"}, "sse"),
        ({"type": "ws", "url": "wss://a"}, "websocket"),
        ({"transport": "websocket", "url": "wss://a"}, "websocket"),
        ({"url": "ws://a"}, "websocket"),
        ({"type": "streamableHttp", "url": "https://a"}, "streamable-http"),
        ({"type": "remote", "url": "https://a"}, "streamable-http"),
        ({"type": "local", "command": "a"}, "stdio"),
    ],
)
def test_every_transport_is_known_by_the_names_that_programs_write(
    tmp_path: Path, server: dict[str, str], kind: str
) -> None:
    assert loaded(tmp_path, {"mcpServers": {"a": server}}).settings.servers["a"].kind == kind


def test_a_name_that_other_programs_allow_becomes_one_that_we_do(tmp_path: Path) -> None:
    found = loaded(tmp_path, {"mcpServers": {"My Server (1)": {"command": "a"}}})
    assert list(found.settings.servers) == ["My-Server-1"]
    assert "is called 'My-Server-1' here" in found.warnings[0]


def test_two_names_that_become_one_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="another server is called 'a-b' as well"):
        loaded(tmp_path, {"mcpServers": {"a b": {"command": "a"}, "a-b": {"command": "b"}}})


def test_a_key_that_stands_twice_is_a_warning(tmp_path: Path) -> None:
    found = loaded(tmp_path, '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}')
    assert "'a' is there twice" in found.warnings[0]
    assert found.settings.servers["a"].command == "y"


@pytest.mark.parametrize("document", [{}, [], 1, {"mcpServers": []}, {"other": {}}])
def test_a_document_without_servers_is_an_error(tmp_path: Path, document: object) -> None:
    with pytest.raises(ConfigError, match="expected an object with `mcpServers`"):
        loaded(tmp_path, document)


def test_broken_json_is_told_with_line_and_column(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.mcp\.json:2:16: not valid JSON: expecting"):
        loaded(tmp_path, '{\n "mcpServers": x}')


def test_a_mistake_in_a_server_is_told_with_its_line(tmp_path: Path) -> None:
    text = '{\n "mcpServers": {\n  "a": {\n   "command": "a",\n   "args": "b"\n  }\n }\n}'
    with pytest.raises(ConfigError, match=r"\.mcp\.json:5: servers\.a\.args: expected a list"):
        loaded(tmp_path, text)


# -- sections beside the servers

A = {"a": {"command": "x"}}


@pytest.mark.parametrize(
    ("section", "value", "read_as"),
    [
        ("expose", {"mode": "search"}, lambda settings: settings.expose.mode == "search"),
        ("results", {"strategy": "off"}, lambda settings: settings.results.strategy == "off"),
        (
            "permissions",
            [{"tools": ["a/*"], "permission": "deny"}],
            lambda settings: settings.permissions[0].permission == "deny",
        ),
        ("permissions", [], lambda settings: settings.permissions == []),
        ("calls", {"call_timeout": "7s"}, lambda settings: settings.calls.call_timeout == 7),
        ("http", {"max_event": "2MiB"}, lambda settings: settings.http.max_event == 2 << 20),
        ("log", {"level": "debug"}, lambda settings: settings.log.level == "debug"),
        ("profiles", {"p": {"servers": ["a"]}}, lambda settings: settings.profiles["p"].servers == ["a"]),
        ("tools", {"t": {"command": ["ls"]}}, lambda settings: "t" in settings.tools),
        ("builtin", {"enable": ["http-get"]}, lambda settings: bool(settings.builtin.enable)),
        ("store", {"kind": "memory"}, lambda settings: settings.store.kind == "memory"),
        ("daemon", {"idle_exit": 9}, lambda settings: settings.daemon.idle_exit == 9),
        ("approval", {"ask": []}, lambda settings: list(settings.approval.ask) == []),
        ("limits", {"max_frame": "1MiB"}, lambda settings: settings.limits.max_frame == 1 << 20),
    ],
)
@pytest.mark.parametrize("servers", ["mcpServers", "servers"])
def test_a_section_of_ours_is_read(tmp_path: Path, servers: str, section: str, value: object, read_as: Any) -> None:
    """It was silently ignored, and with it what `permissions` refuse (issue 18)."""
    found = loaded(tmp_path, {servers: A, section: value})
    assert read_as(found.settings)
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("document", "parts"),
    [
        ({"expose": {"mod": "search"}}, ["expose was left out", "'mod'", "did you mean 'mode'?"]),
        ({"permissions": {"allow": ["Bash"]}}, ["permissions was left out", "expected a list"]),  # Claude Code
        ({"hooks": {"PreToolUse": []}}, ["hooks was left out", "expected a list"]),  # Claude Code
        ({"tools": {"sandbox": True}}, ["tools was left out", "'sandbox'"]),  # Gemini CLI
        ({"results": "off"}, ["results was left out", "expected an object"]),
        ({"profiles": {"p": 1}}, ["profiles was left out", "'p'"]),
        ({"http": {"proxy": "x"}}, ["http was left out", "'proxy'"]),  # VS Code
        ({"expse": {"mode": "search"}}, ["not known here", "'expse'"]),
        ({"source": "x"}, ["not known here", "'source'"]),
        ({"numStartups": 1, "theme": "x"}, ["'numStartups', 'theme'"]),
        ({f"key{number}": 1 for number in range(30)}, ["'key0'", "and 22 more"]),
        ({"servers": {"b": {"command": "y"}}}, ["not known here", "'servers'"]),
    ],
)
def test_what_stands_beside_the_servers_and_is_not_read_is_told(
    tmp_path: Path, document: dict[str, object], parts: list[str]
) -> None:
    [warning] = loaded(tmp_path, {"mcpServers": A, **document}).warnings
    for part in parts:
        assert part in warning


@pytest.mark.parametrize(
    "document", [{}, {"$schema": "x"}, {"inputs": []}, {"description": "x"}, {"version": "1"}, {"expose": None}]
)
def test_what_says_nothing_to_a_bridge_is_no_news(tmp_path: Path, document: dict[str, object]) -> None:
    assert loaded(tmp_path, {"mcpServers": A, **document}).warnings == ()


def test_a_mistake_in_a_section_is_told_with_its_line(tmp_path: Path) -> None:
    text = '{\n "mcpServers": {"a": {"command": "x"}},\n "expose": {\n  "mode": "louder"\n }\n}'
    with pytest.raises(ConfigError, match=r"\.mcp\.json:4: expose\.mode"):
        loaded(tmp_path, text)


def test_a_program_may_give_the_same_as_a_table() -> None:
    loaded = read_config({"mcpServers": A, "expose": {"mode": "search"}}, {})
    assert loaded.settings.expose.mode == "search"
