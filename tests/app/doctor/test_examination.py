"""Parts of an examination that no command shows by itself."""

import sys
from pathlib import Path

import pytest

from mcpbridge.app.client_config.clients import Scope
from mcpbridge.app.client_config.discover.discovered_servers import Found, FoundServer, Problem
from mcpbridge.app.doctor.clients import about_clients_files
from mcpbridge.app.doctor.config_file import Source
from mcpbridge.app.doctor.daemon import about_daemon, about_running_servers
from mcpbridge.app.doctor.examination import Examiner
from mcpbridge.app.doctor.launchers import about_copies, about_reach, about_relative_paths, about_way
from mcpbridge.app.doctor.machine import about_machine, look
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.version import __version__
from mcpbridge.config.load import read
from mcpbridge.upstream.settings import ServerSettings
from support.harness import python_server

PLAIN = python_server("plain")
HERE = (
    f'[servers.here]\ncommand = "{PLAIN["command"]}"\nargs = ["-ES", "{PLAIN["args"][1]}"]\ncwd = "${{PROJECT_ROOT}}"\n'
)


@pytest.mark.parametrize("has_project", [True, False])
async def test_a_server_of_a_project_is_started_in_one(tmp_path: Path, has_project: bool) -> None:
    (tmp_path / "servers.toml").write_text(HERE)
    loaded = read(tmp_path / "servers.toml", {})
    project = tmp_path if has_project else None
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    examiner = Examiner(environ, home=tmp_path, platform=sys.platform, project=project, redact=Redactor(), seconds=20)
    report = await examiner.examine(loaded, loaded.settings.servers, is_whole=True)
    [server] = report.servers
    assert report.are_servers_ready
    assert (server.is_ready, server.is_known) == (has_project, has_project)
    assert ("needs-project" in {one.code for one in report.of("here")}) is not has_project


def found_of(*words: str) -> dict[str, str]:
    """What there is to say of a command line: the fixes by code."""
    settings = ServerSettings(command=words[0], args=list(words[1:]))
    return {one.code: one.fix for one in about_way("x", settings, Source(Path("servers.toml"), ""))}


def test_a_front_for_a_url_is_not_needed() -> None:
    found = found_of("npx", "-y", "mcp-remote@latest", "https://mcp.example.com/sse?key=1234567", "--allow-http")
    assert found.keys() == {"front-not-needed"}
    assert 'url = "https://mcp.example.com/sse"' in found["front-not-needed"]
    assert found_of("mcp-proxy", "https://mcp.example.com/mcp").keys() == {"front-not-needed"}
    assert found_of("npx", "-y", "mcp-remote") == {}
    assert found_of("npx", "-y", "@playwright/mcp", "--origin", "https://example.com") == {}


def test_a_package_that_nobody_keeps_is_told_with_its_successor() -> None:
    assert "github/github-mcp-server" in found_of("npx", "@modelcontextprotocol/server-github@2025.4.8")["archived"]
    assert found_of("uvx", "mcp-server-sqlite").keys() == {"archived"}
    assert found_of("npx", "-y", "@modelcontextprotocol/server-filesystem", "/tmp") == {}


def test_the_machine_is_described_and_open_directories_are_told(tmp_path: Path) -> None:
    runtime = tmp_path / "mcpbridge"
    runtime.mkdir()
    runtime.chmod(0o755)
    places = ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
    machine = look(dict.fromkeys(places, str(tmp_path)))
    assert machine.directories["runtime"] == str(runtime)
    assert machine.extras.keys() == {"code", "embed", "images", "js", "keyring", "otel", "tokens"}
    assert machine.launchers.keys() >= {"node", "npx", "uvx", "docker"}
    if sys.platform.startswith("linux"):
        assert machine.sandbox.keys() == {"user namespaces", "bubblewrap", "Landlock", "seccomp"}
    assert "directory-open" in {one.code for one in about_machine(machine)}
    runtime.chmod(0o700)
    assert not {one.code for one in about_machine(machine)} & {"directory-open", "directory-unusable"}


def test_a_daemon_that_is_not_up_to_date_is_told() -> None:
    assert list(about_daemon({})) == []
    assert list(about_daemon({"pid": 1, "version": __version__})) == []
    error = {"message": "servers.toml:2: unknown key\n  Did you mean `command`?", "file": "servers.toml", "line": "2"}
    status = {"pid": 1, "version": "0.0.1", "config_error": error, "daemon": {"http_error": "the port is in use"}}
    found = {one.code: one.what for one in about_daemon(status)}
    assert found.keys() == {"daemon-config-error", "daemon-version", "daemon-http"}
    assert found["daemon-config-error"].endswith("servers.toml:2: unknown key")


def test_refused_connections_of_a_sandboxed_server_are_shown() -> None:
    egress = {"connections": 2, "refused": {"other.example.com:443": 3}}
    running = {"servers": [{"name": "x", "state": "ready", "egress": egress}, {"name": "y", "state": "ready"}]}
    [found] = about_running_servers(running, {}, Source(Path("servers.toml"), ""), {})
    assert (found.code, found.server) == ("egress-refused", "x")
    assert "other.example.com:443 (3)" in found.what
    assert "servers.x.sandbox.network" in found.fix


def test_the_bridges_own_entry_is_looked_at_with_the_clients_eyes(tmp_path: Path) -> None:
    def entry(client: str, name: str, file: str, **server: object) -> FoundServer:
        return FoundServer(client, client.title(), "user", tmp_path / file, 3, name, dict(server))

    bridge = {"command": sys.executable, "args": ["-m", "mcpbridge", "serve", "--config", "/x/servers.toml"]}
    shared = {"command": "npx", "args": ["-y", "some-server"]}
    servers = (
        entry("gemini", "my_bridge", "settings.json", **bridge),
        entry("codex", "one", "config.toml", **bridge),
        entry("codex", "two", "project.toml", **bridge),
        entry("codex", "own", "config.toml", **shared),
        entry("cursor", "own", "mcp.json", **{**shared, "command": "/usr/bin/npx", "args": ["some-server"]}),
    )
    problems = (Problem(tmp_path / "mcp.json", "line 3: not valid JSON", "cursor"),)
    found = [one.code for one in about_clients_files(Found((), servers, problems), {}, None)]
    assert sorted(found) == ["bridge-twice", "client-file-broken", "name-with-underscore", "server-in-several-clients"]
    behind = {"mine": {"command": "npx", "args": ["some-server"]}}
    levels = {one.where: one.level for one in about_clients_files(Found((), servers[1:], ()), behind, None)}
    assert levels[f"{tmp_path}/config.toml:3"] == "warn"  # it has the bridge as well
    assert levels[f"{tmp_path}/mcp.json:3"] == "note"


def test_an_entry_that_names_no_configuration_or_keeps_variables_is_told(tmp_path: Path) -> None:
    def entry(client: str, scope: Scope = "user", *more: str, **server: object) -> FoundServer:
        start = {"command": sys.executable, "args": ["-m", "mcpbridge", "serve", *more]}
        return FoundServer(client, client, scope, tmp_path / f"{client}.{scope}", 3, "mcpbridge", {**start, **server})

    def told(*entries: FoundServer) -> dict[str, str]:
        found = about_clients_files(Found((), entries, ()), behind, None)
        return {one.code: f"{one.what} {one.fix}" for one in found}

    behind: dict[str, dict[str, object]] = {
        "a": {"command": "x", "env": {"A": "${A_TOKEN}", "B": "${LANGUAGE_OF_IT}", "C": "${WITH:-default}"}},
        "off": {"command": "x", "disabled": True, "env": {"A": "${OFF_TOKEN}"}},
    }
    config = ("--config", "/x/servers.toml")
    assert told(entry("cursor", "project")) == told(entry("cursor", "user", *config)) == {}
    assert told(entry("cursor", env={"MCPBRIDGE_CONFIG": "x"})) == {}
    assert "install cursor`" in told(entry("cursor"))["entry-without-config"]
    assert "install claude-code --scope local`" in told(entry("claude-code", "local"))["entry-without-config"]
    assert "A_TOKEN, LANGUAGE_OF_IT" in told(entry("codex", "user", *config))["variables-kept"]
    assert told(entry("codex", "user", *config, inherit_env=["A_TOKEN", "LANGUAGE_OF_IT"])) == {}
    assert "A_TOKEN Run" in told(entry("gemini", "user", *config))["variables-kept"]
    assert told(entry("gemini", "user", *config, env={"A_TOKEN": "${A_TOKEN}"})) == {}


def test_paths_that_mean_two_things_and_servers_that_are_there_twice_are_told(tmp_path: Path) -> None:
    (tmp_path / "here" / "sub").mkdir(parents=True)
    (tmp_path / "servers.toml").write_text("")
    for path in ("near.py", "here/far.py", "here/sub/own.py"):
        (tmp_path / path).write_text("")
    text = """
        [servers.near]
        command = "python"
        args = ["near.py"]
        [servers.far]
        command = "python"
        args = ["--file=./far.py"]
        [servers.told]
        command = "python"
        args = ["near.py"]
        cwd = "."
        [servers.dot]
        command = "fs"
        args = ["."]
        [servers.package]
        command = "npx"
        args = ["-y", "@a/b", "owner/name", "https://near.py"]
        [servers.again]
        command = "/usr/bin/npx"
        args = ["@a/b", "owner/name", "https://near.py"]
    """
    (tmp_path / "servers.toml").write_text(text)
    servers = read(tmp_path / "servers.toml", {}).settings.servers
    source = Source.read(str(tmp_path / "servers.toml"))
    found = {one.server: one.fix for one in about_relative_paths(servers, source, tmp_path / "here")}
    assert found.keys() == {"near", "far", "dot"}
    assert 'cwd = "."' in found["near"]
    assert f'cwd = "{tmp_path}/here"' in found["far"]
    assert not list(about_relative_paths(servers, source, tmp_path))
    assert [(one.server, "'package'" in one.what) for one in about_copies(servers, source)] == [("again", True)]


def test_a_server_that_is_given_the_directory_of_secrets_is_told(tmp_path: Path) -> None:
    config = tmp_path / "config" / "servers.toml"
    (config.parent / "secrets").mkdir(parents=True)
    config.write_text(
        f"""
        [servers.wide]
        command = "fs"
        args = ["{tmp_path}"]
        [servers.narrow]
        command = "fs"
        args = ["{tmp_path}/config/secrets-of-others", "/opt"]
    """
    )
    servers, source = read(config, {}).settings.servers, Source.read(str(config))
    assert [one.server for one in about_reach(servers, source)] == ["wide"]
    (config.parent / "secrets").rmdir()
    assert not list(about_reach(servers, source))
