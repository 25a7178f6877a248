"""`mcpbridge install` and `uninstall`: real files of every client, as they are after people and clients had them."""

import json
import os
import stat
import sys
import tomllib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcpbridge.app.cli.commands import run
from mcpbridge.app.client_config.clients import CLIENTS, find_client, places
from mcpbridge.app.client_config.discover.discovered_servers import ClientEnvironment
from mcpbridge.app.client_config.entry import Launch
from mcpbridge.app.client_config.install import Change, carry_out, plan_install, target_of
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.files.backups import Backups
from mcpbridge.config.mcp_servers_json import plain_json
from support.harness import Finished, Place

PROGRAM = str(Path(sys.executable).parent / "mcpbridge")
FIXTURES = sorted(Path(__file__).parent.joinpath("fixtures").glob("*.*.*"))
SECRET = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"


class Home:
    """A home directory with a project in it, and commands that are run in the project."""

    def __init__(self, folder: Path, said: Callable[[], Finished]) -> None:
        self.path, self.project, self._said = folder, folder / "work" / "site", said
        self.project.mkdir(parents=True)

    def run(self, *words: str) -> Finished:
        self._said()
        code = run(words)
        said = self._said()
        return Finished(code, said.out, said.err)

    def file(self, client: str, scope: str = "user", suffix: str = "") -> Path:
        """Where a client has its file; its folder is made."""
        found = next(
            place.path
            for place in places(find_client(client), os.environ, sys.platform, self.path, self.project)
            if place.file.scope == scope and not place.file.reads_only and place.path.name.endswith(suffix)
        )
        found.parent.mkdir(parents=True, exist_ok=True)
        return found

    def has(self, client: str, text: str, scope: str = "user") -> Path:
        path = self.file(client, scope)
        path.write_bytes(text.encode())
        return path

    @property
    def state(self) -> Path:
        return self.path / ".local/state/mcpbridge"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Home:
    for name in os.environ:
        if name.startswith(("XDG_", "MCPBRIDGE_", "CLAUDE", "CODEX", "GEMINI", "CLINE", "COPILOT")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    commands = {client.command for client in CLIENTS if client.command}
    folders = os.environ["PATH"].split(os.pathsep)
    without = [folder for folder in folders if not any((Path(folder) / command).exists() for command in commands)]
    monkeypatch.setenv("PATH", os.pathsep.join(without))  # a client on this machine is none of the test's
    made = Home(tmp_path, lambda: Finished(0, *capsys.readouterr()))
    monkeypatch.chdir(made.project)
    return made


def read(path: Path) -> Any:
    text = path.read_text("utf-8-sig")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    return yaml.safe_load(text) if path.suffix in (".yaml", ".yml") else json.loads(plain_json(text))


def table(document: Any) -> Any:
    """Where a document has its servers."""
    keys = ("mcpServers", "mcp_servers", "servers", "context_servers", "extensions", "mcp")
    found = next(document[key] for key in keys if key in document)
    if isinstance(found, list):
        return {item.get("name"): item for item in found}
    return found.get("servers", found)  # OpenCode 2


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
def test_every_kind_of_file_is_as_it_was_after_both(home: Home, fixture: Path) -> None:
    client, scope, suffix = fixture.name.rsplit(".", 2)
    path = home.file(client, scope, suffix)
    path.write_bytes(fixture.read_bytes())
    path.chmod(0o640)
    before = read(path)
    had_one = client != "continue" and table(before).pop("mcpbridge", None)

    done = home.run("install", client, "--scope", scope)
    assert (done.code, stat.S_IMODE(path.stat().st_mode)) == (0, 0o640), done.err
    after = read(path)
    ours = table(after).pop("mcpbridge")
    assert PROGRAM in json.dumps(ours)
    assert "serve" in json.dumps(ours)
    if client == "continue":
        after["mcpServers"] = [one for one in after["mcpServers"] if one.get("name") != "mcpbridge"]
    assert after == before

    installed = path.read_bytes()
    assert home.run("install", client, "--scope", scope).out.startswith("was installed")
    assert path.read_bytes() == installed

    done = home.run("uninstall", client, "--scope", scope)
    assert done.code == 0, done.err
    if had_one:  # somebody else's, which is gone from the file, and kept in the copy
        assert read(path) == before
        return
    assert path.read_bytes() == fixture.read_bytes()
    assert not list(home.state.glob("backups/*")), "a copy of what the file is again"


USUAL = "HOME/.config/mcpbridge/servers.toml"
START = {"command": PROGRAM, "args": ["serve", "--config", USUAL]}
OF_CODEX = {"required": True, "startup_timeout_sec": 30, "tool_timeout_sec": 600}
ENTRIES: dict[str, dict[str, Any]] = {
    "claude-desktop": START,
    "claude-code": {"type": "stdio", **START},
    "cursor": START,
    "vscode": {"type": "stdio", **START},
    "vscode-insiders": {"type": "stdio", **START},
    "codex": {**START, **OF_CODEX},
    "gemini": START,
    "windsurf": START,
    "zed": {"source": "custom", **START},
    "cline": START,
    "roo": START,
    "continue": {"name": "mcpbridge", "type": "stdio", **START},
    "librechat": {"type": "stdio", **START, "timeout": 600_000, "initTimeout": 30_000},
    "goose": {
        "enabled": True,
        "type": "stdio",
        "name": "mcpbridge",
        "description": "All MCP servers, through mcpbridge",
        "cmd": PROGRAM,
        "args": START["args"],
        "envs": {},
        "env_keys": [],
        "timeout": 600,
    },
    "opencode": {"type": "local", "command": [PROGRAM, *START["args"]], "enabled": True},
    "copilot": {"type": "local", **START, "tools": ["*"]},
}


def of(home: Home, entry: dict[str, Any]) -> dict[str, Any]:
    """The entry as it is written in this home."""
    return json.loads(json.dumps(entry).replace("HOME", str(home.path)))


@pytest.mark.parametrize("client", [client.id for client in CLIENTS])
def test_a_file_that_was_not_there_is_made_and_taken_away_again(home: Home, client: str) -> None:
    refused = home.run("install", client)
    if client != "librechat":  # has no file of the user
        assert (refused.code, "was not found" in refused.err) == (2, True)
    assert home.run("install", client, "--force").code == 0
    record = json.loads((home.state / "installs.json").read_text())
    [path] = [Path(one["file"]) for one in record.values()]
    wanted = of(home, ENTRIES.get(client, START))
    if client == "librechat":  # in the project, where nothing says where this user's files are
        wanted["args"] = ["serve"]
    assert table(read(path))["mcpbridge"] == wanted
    if "user" in {file.scope for file in find_client(client).files}:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert home.run("uninstall", client).code == 0
    assert not path.exists()


def test_all_clients_that_are_here_get_it_and_lose_it(home: Home) -> None:
    codex = home.has("codex", 'model = "x"\n')
    cursor = home.file("cursor")
    done = home.run("install", "--all", "--json")
    document = json.loads(done.out)
    assert [(one["client"], one["outcome"]) for one in document["changes"]] == [
        ("cursor", "installed"),
        ("codex", "installed"),
    ]
    assert Path(document["changes"][1]["backup"]).read_text() == 'model = "x"\n'
    assert stat.S_IMODE(Path(document["changes"][1]["backup"]).stat().st_mode) == 0o600
    assert "Restart Cursor and Codex" in document["next"][0]
    assert home.run("uninstall", "--all").code == 0
    assert codex.read_text() == 'model = "x"\n'
    assert not cursor.exists()


def test_a_project_s_file_names_the_program_as_everybody_has_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(PROGRAM).parent))
    done = home.run("install", "claude-code", "--scope", "project")
    assert read(home.project / ".mcp.json")["mcpServers"]["mcpbridge"] == {
        "type": "stdio",
        "command": "mcpbridge",
        "args": ["serve"],
    }
    assert "asks once" in done.out
    assert stat.S_IMODE((home.project / ".mcp.json").stat().st_mode) == 0o666 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_the_user_s_part_of_a_project_is_a_table_of_its_own(home: Home) -> None:
    text = '{"projects": {"/elsewhere": {"mcpServers": {}}}}'
    path = home.has("claude-code", text)
    assert home.run("install", "claude-code", "--scope", "local").code == 0
    assert home.run("install", "claude-code").code == 0
    document = read(path)
    assert document["mcpServers"].keys() == {"mcpbridge"}
    assert document["projects"][str(home.project)] == {
        "mcpServers": {"mcpbridge": of(home, {"type": "stdio", **START})}
    }
    assert home.run("uninstall", "claude-code").code == 0
    assert home.run("uninstall", "claude-code", "--scope", "local").code == 0
    assert path.read_text() == text


def test_the_configuration_is_always_named_and_so_is_the_profile(home: Home) -> None:
    """Clients start the bridge in whatever repository is opened, which may have a servers.toml of its own."""
    usual = home.path / ".config/mcpbridge/servers.toml"
    usual.parent.mkdir(parents=True)
    usual.write_text('[profiles.work]\nservers = ["*"]\n[servers.a]\ncommand = "x"\n')
    path = home.has("cursor", "")
    home.run("install", "cursor")
    assert read(path)["mcpServers"]["mcpbridge"]["args"] == ["serve", "--config", str(usual)]
    Path("servers.toml").write_text("")
    assert home.run("trust").code == 0
    done = home.run("install", "cursor")
    assert done.out.startswith("updated")
    assert "the configuration of this directory" in done.err
    here = str(home.project / "servers.toml")
    assert read(path)["mcpServers"]["mcpbridge"]["args"] == ["serve", "--config", here]
    home.run("install", "cursor", "--config", str(usual), "--profile", "work")
    assert read(path)["mcpServers"]["mcpbridge"]["args"] == [
        *("serve", "--config", str(usual)),
        *("--profile", "work"),
    ]
    assert (
        "no profile is called 'play'" in home.run("install", "cursor", "--profile", "play", "--config", str(usual)).err
    )
    assert "no such file" in home.run("install", "cursor", "--config", "nowhere.toml").err
    home.run("uninstall", "cursor")
    assert path.read_text() == ""


def test_in_a_file_that_others_have_stands_no_path_of_this_machine(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(PROGRAM).parent))
    elsewhere = home.path / "elsewhere.toml"
    elsewhere.write_text("")
    done = home.run("install", "gemini", "--scope", "project", "--config", str(elsewhere))
    assert table(read(home.file("gemini", "project")))["mcpbridge"] == {"command": "mcpbridge", "args": ["serve"]}
    assert "lies outside the project" in done.err
    Path("servers.toml").write_text("")
    assert home.run("trust").code == 0
    for client, config in (
        ("gemini", "servers.toml"),
        ("claude-code", "servers.toml"),
        ("cursor", "${workspaceFolder}/servers.toml"),
        ("vscode", "${workspaceFolder}/servers.toml"),
    ):
        assert home.run("install", client, "--scope", "project", "--force").code == 0
        entry = table(read(home.file(client, "project")))["mcpbridge"]
        assert (entry["command"], entry["args"]) == ("mcpbridge", ["serve", "--config", config])


def test_variables_reach_the_bridge_where_the_client_would_keep_them(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codex hands on none that it was not told of, Gemini CLI none that is called a token."""
    monkeypatch.setenv("B_TOKEN", "of-b-0001")
    Path("servers.toml").write_text(
        '[servers.a]\ncommand = "a"\nenv = { A = "${A_TOKEN}", B = "x ${B_TOKEN:-}", C = "$${C}" }\n'
        '[servers.off]\ncommand = "a"\ndisabled = true\nenv = { A = "${OFF}" }\n'
    )
    assert home.run("trust").code == 0
    codex = home.has("codex", '[mcp_servers.mcpbridge]\ncommand = "mcpbridge"\nargs = ["serve"]\nenv_vars = ["MINE"]\n')
    gemini = home.has("gemini", "")
    assert home.run("install", "codex", "gemini").code == 0
    assert read(codex)["mcp_servers"]["mcpbridge"]["env_vars"] == ["A_TOKEN", "B_TOKEN", "MINE"]
    assert read(gemini)["mcpServers"]["mcpbridge"]["env"] == {"B_TOKEN": "$B_TOKEN"}
    assert "unchanged" in home.run("install", "codex", "--json").out


ELSEWHERE, HERE = "https://bridge.example/mcp", "http://127.0.0.1:8808/mcp"
VISITS: list[tuple[str, dict[str, Any], str]] = [
    ("cursor", {"url": ""}, "headers"),
    ("claude-code", {"type": "http", "url": ""}, "headers"),
    ("gemini", {"httpUrl": ""}, "headers"),
    ("windsurf", {"serverUrl": ""}, "headers"),
    ("codex", {"url": "", **OF_CODEX}, "http_headers"),
    ("opencode", {"type": "remote", "url": "", "enabled": True}, "headers"),
    ("vscode", {"type": "http", "url": ""}, "headers"),
    ("zed", {"url": ""}, "headers"),
]


@pytest.mark.parametrize(("client", "entry", "_"), VISITS)
def test_clients_may_visit_a_bridge_instead(home: Home, client: str, entry: dict[str, Any], _: str) -> None:
    path = home.has(client, "")
    assert home.run("install", client, "--http", ELSEWHERE).code == 0
    found = table(read(path))["mcpbridge"]
    assert found == {key: value or ELSEWHERE for key, value in entry.items()}
    assert not token_of(home).exists(), "this machine's token is none of its business"


@pytest.mark.parametrize(("client", "entry", "headers"), VISITS)
def test_a_client_that_visits_a_bridge_of_this_machine_gets_the_token(
    home: Home, client: str, entry: dict[str, Any], headers: str
) -> None:
    """Without a configuration it is asked for; nobody has to know where it is."""
    path = home.has(client, "")
    shown = home.run("install", client, "--http", HERE)
    assert shown.code == 0
    token = token_of(home).read_text().strip()
    expected = {key: value or HERE for key, value in entry.items()}
    assert table(read(path))["mcpbridge"] == {**expected, headers: {"Authorization": f"Bearer {token}"}}
    assert token not in shown.out + shown.err


def test_the_token_is_shown_in_no_plan(home: Home) -> None:
    home.has("cursor", "{}")
    for more in ([], ["--json"]):
        shown = home.run("install", "cursor", "--http", HERE, "--dry-run", *more)
        assert "Authorization" in shown.out
        assert token_of(home).read_text().strip() not in shown.out + shown.err


def test_a_token_that_was_made_anew_takes_the_place_of_the_old_one_and_leaves_other_headers(home: Home) -> None:
    path = home.has("cursor", "{}")
    home.run("install", "cursor", "--http", HERE)
    entry = table(read(path))["mcpbridge"]
    entry["headers"]["X-Own"] = "1"
    path.write_text(json.dumps({"mcpServers": {"mcpbridge": entry}}))
    token_of(home).unlink()
    home.run("install", "cursor", "--http", HERE)
    token = token_of(home).read_text().strip()
    assert table(read(path))["mcpbridge"]["headers"] == {"Authorization": f"Bearer {token}", "X-Own": "1"}


def test_where_tokens_are_configured_people_put_theirs(home: Home, tmp_path: Path) -> None:
    path = home.has("cursor", "{}")
    config = tmp_path / "tokens.toml"
    config.write_text(f'[[http.tokens]]\nname = "me"\nsha256 = "{"0" * 64}"\n')
    shown = home.run("install", "cursor", "--http", HERE, "--config", str(config))
    assert "http.tokens" in shown.err
    assert table(read(path))["mcpbridge"] == {"url": HERE}


def test_a_projects_file_gets_no_token(home: Home) -> None:
    """Others have it too."""
    shown = home.run("install", "claude-code", "--scope", "project", "--http", HERE, "--force")
    assert shown.code == 0
    assert "may be shared" in shown.err
    assert "Bearer" not in (home.project / ".mcp.json").read_text()


def token_of(home: Home) -> Path:
    return home.state / "http-token"


def test_what_is_no_url_and_who_has_none_is_said(home: Home) -> None:
    home.has("claude-desktop", "{}")
    assert "holds no URLs" in home.run("install", "claude-desktop", "--http", "http://127.0.0.1:1/mcp").err
    assert "no URL: '8808'" in home.run("install", "claude-desktop", "--http", "8808").err


def test_the_second_version_of_opencode_has_its_servers_deeper(home: Home) -> None:
    text = '{\n  "mcp": {\n    "servers": {\n      "a": {"type": "local", "command": ["x"]}\n    }\n  }\n}\n'
    path = home.has("opencode", text)
    home.run("install", "opencode")
    assert read(path)["mcp"]["servers"]["mcpbridge"] == of(
        home, {"type": "local", "command": [PROGRAM, *START["args"]]}
    )
    assert home.run("uninstall", "opencode").code == 0
    assert path.read_text() == text


OTHERS = f"""{{
  // all of them
  "mcpServers": {{
    "github": {{"command": "npx", "args": ["gh"], "env": {{"GITHUB_TOKEN": "{SECRET}"}}}}, // {SECRET}
    "mine": {{"command": "mcpbridge", "args": ["serve"]}}
  }}
}}
"""


def test_a_dry_run_shows_our_lines_and_nobody_s_values(home: Home) -> None:
    path = home.has("gemini", OTHERS)
    one_line = home.has("cursor", json.dumps({"mcpServers": {"x": {"command": "x", "env": {"TOKEN": SECRET}}}}))
    done = home.run("install", "gemini", "cursor", "--dry-run")
    args = json.dumps(of(home, START)["args"])
    assert f'+    "mcpbridge": {{"command": "{PROGRAM}", "args": {args}}}' in done.out
    assert "'mine' runs the bridge too" in done.err
    home.run("install", "cursor")
    for shown in (
        done,
        home.run("uninstall", "cursor", "--dry-run"),
        home.run("install", "gemini", "--dry-run", "--json"),
    ):
        assert SECRET not in shown.out + shown.err
    assert path.read_text() == OTHERS
    assert "mcpbridge" in one_line.read_text()
    assert "TOKEN" not in json.dumps(json.loads((home.state / "installs.json").read_text()))


def test_what_was_changed_meanwhile_stays(home: Home) -> None:
    path = home.has("cursor", '{"mcpServers": {}}')
    home.run("install", "cursor")
    document = read(path)
    document["mcpServers"]["new"] = {"command": "n"}
    path.write_text(json.dumps(document, indent=4))
    refused = home.run("uninstall", "cursor", "--restore")
    assert (refused.code, "was changed since the install" in refused.err) == (2, True)
    done = home.run("uninstall", "cursor")
    assert read(path) == {"mcpServers": {"new": {"command": "n"}}}
    [kept] = home.state.glob("backups/*")
    assert str(kept) in done.err
    assert kept.read_text() == '{"mcpServers": {}}'


def test_the_file_is_put_back_where_nothing_else_was_changed(home: Home) -> None:
    path = home.has("cursor", '{"mcpServers": null}')
    home.run("install", "cursor")
    assert home.run("uninstall", "cursor", "--restore").out.startswith("restored")
    assert path.read_text() == '{"mcpServers": null}'
    assert "no install is remembered" in home.run("uninstall", "cursor", "--restore").err
    assert home.run("uninstall", "cursor").out.startswith("was not there")


def test_without_its_records_it_is_taken_out_all_the_same(home: Home) -> None:
    path = home.has("codex", '[mcp_servers.a]\ncommand = "x"\n')
    home.run("install", "codex")
    (home.state / "installs.json").write_text("[damaged")
    assert home.run("uninstall", "codex").code == 0
    assert path.read_text() == '[mcp_servers.a]\ncommand = "x"\n'


def test_a_newer_install_takes_the_place_of_an_older_one_without_a_trace(home: Home) -> None:
    text = "extensions:\n  a:\n    cmd: x # mine\n"
    path = home.has("goose", text)
    Path("servers.toml").write_text("")
    assert home.run("trust").code == 0
    home.run("install", "goose")
    path.write_text(path.read_text() + "GOOSE_MODE: auto\n")
    home.run("install", "goose", "--http", "https://example.org/mcp")
    assert read(path)["extensions"]["mcpbridge"]["uri"] == "https://example.org/mcp"
    home.run("uninstall", "goose", "--restore")
    assert path.read_text() == text + "GOOSE_MODE: auto\n"


def test_what_people_and_the_client_added_to_the_entry_stays_in_it(home: Home) -> None:
    path = home.has("codex", "")
    home.run("install", "codex")
    grown = path.read_text() + '\n[mcp_servers.mcpbridge.tools.x]\napproval_mode = "auto"\n'
    path.write_text(grown)
    assert home.run("install", "codex").out.startswith("was installed")
    assert path.read_text() == grown
    Path("servers.toml").write_text("")
    assert home.run("trust").code == 0
    home.run("install", "codex")
    here = ["serve", "--config", str(home.project / "servers.toml")]
    wanted = {**START, **OF_CODEX, "args": here, "tools": {"x": {"approval_mode": "auto"}}}
    assert read(path)["mcp_servers"]["mcpbridge"] == wanted
    home.run("uninstall", "codex")
    assert path.read_text().strip() == ""


def test_a_stranger_of_its_name_gives_way_and_is_kept_in_the_copy(home: Home) -> None:
    text = "extensions:\n  mcpbridge:\n    cmd: other\n    timeout: 1.5\n    weight: 2024-01-01\n"
    path = home.has("goose", text)
    refused = home.run("install", "goose")
    assert (refused.code, "--force" in refused.err, path.read_text()) == (2, True, text)
    assert "takes the place of a server" in home.run("install", "goose", "--force").err
    assert home.run("uninstall", "goose", "--restore").code == 0
    assert path.read_text() == text


@pytest.mark.parametrize("text", ["", "\n", "name: mcpbridge\nversion: 1.0.0\nschema: v1\n"])
def test_an_empty_file_gets_what_its_client_needs_and_is_empty_again(home: Home, text: str) -> None:
    path = home.has("continue", text)
    home.run("install", "continue")
    assert read(path).keys() == {"name", "version", "schema", "mcpServers"}
    home.run("uninstall", "continue")
    assert path.read_text() == text


def test_links_stay_and_lead_to_the_edited_file(home: Home) -> None:
    kept = home.path / "dotfiles.toml"
    kept.write_text("a = 1\n")
    kept.chmod(0o640)
    link = home.file("codex")
    link.symlink_to(kept)
    home.run("install", "codex")
    assert link.is_symlink()
    assert "mcpbridge" in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640
    home.run("uninstall", "codex")
    assert kept.read_text() == "a = 1\n"


def test_other_encodings_stay_as_they_are(home: Home) -> None:
    path = home.file("vscode")
    path.write_bytes('\ufeff{\r\n\t"servers": {} // ü\r\n}'.encode("utf-16-le"))
    before = path.read_bytes()
    assert home.run("install", "vscode").code == 0
    assert "mcpbridge" in path.read_bytes().decode("utf-16")
    home.run("uninstall", "vscode")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{\n  "mcpServers": {\n', "mcp.json:3: not valid JSON: expected a name in quotes, and found the end"),
        (b'{"mcpServers": []}', "expected a table with keys at `mcpServers`, and found a list"),
        (b"a\xff", "mcp.json:1: not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_edited_is_left_alone(home: Home, text: bytes, said: str) -> None:
    path = home.file("cursor")
    path.write_bytes(text)
    for words in (("install", "cursor"), ("uninstall", "cursor")):
        refused = home.run(*words)
        assert (refused.code, said in refused.err) == (2, True), refused.err
    assert path.read_bytes() == text


def test_one_broken_file_does_not_keep_the_others_from_it(home: Home) -> None:
    home.has("cursor", "{")
    codex = home.has("codex", "")
    done = home.run("install", "--all")
    assert done.code == 2
    assert "mcp.json:1: not valid JSON" in done.err
    assert "installed  Codex" in done.out
    assert "mcpbridge" in codex.read_text()


def test_names_that_are_not_known_and_scopes_that_are_not_there_are_said(home: Home) -> None:
    assert "Did you mean 'claude-code'?" in home.run("install", "cloude-code").err
    assert "may be two clients" in home.run("install", "claude").err
    assert "has no file for the scope 'project'" in home.run("install", "windsurf", "--scope", "project").err
    assert "Name clients, or say --all" in home.run("install").err
    assert "no client was found" in home.run("install", "--all").err
    assert "no such directory" in home.run("install", "cursor", "--project", "nowhere").err
    os.chdir(home.path)
    assert "the home directory is no project" in home.run("install", "cursor", "--scope", "project").err


def test_a_client_that_was_never_started_is_found_by_its_program(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has a file of it yet: the first thing done with it is to put the bridge there."""
    assert "was not found on this machine" in home.run("install", "claude-code").err
    programs = home.path / "programs"
    programs.mkdir()
    for name in ("claude", "codex"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), os.environ["PATH"]]))
    assert "installed  Claude Code" in home.run("install", "claude-code").out
    assert home.run("install", "--all").code == 0
    assert "mcpbridge" in read(home.path / ".claude.json")["mcpServers"]
    assert "mcpbridge" in read(home.path / ".codex" / "config.toml")["mcp_servers"]


def of_cursor(home: Home) -> tuple[Callable[[], Change], Path, Backups]:
    path = home.has("cursor", "{}")
    backups = Backups(os.environ)
    target = target_of(find_client("cursor"), ClientEnvironment(os.environ, home.path, sys.platform))
    return (lambda: plan_install(target, Launch("b"), backups)), path, backups


def test_what_another_program_wrote_in_between_is_kept(home: Home) -> None:
    plan, path, backups = of_cursor(home)
    others = iter(['{"a": 1}', '{"a": 2}'])

    def disturbed() -> Change:
        change = plan()
        if (text := next(others, None)) is not None:
            path.write_text(text)
        return change

    carry_out(disturbed, backups, datetime.now())
    assert read(path) == {"a": 2, "mcpServers": {"mcpbridge": {"command": "b", "args": []}}}
    assert len(list(home.state.glob("backups/*"))) == 1


def test_who_never_stops_writing_keeps_the_file(home: Home) -> None:
    plan, path, backups = of_cursor(home)
    written = [0]

    def disturbed() -> Change:
        change = plan()
        written[0] += 1
        path.write_text(json.dumps({"a": written[0]}))
        return change

    with pytest.raises(ConfigError, match="changed again and again"):
        carry_out(disturbed, backups, datetime.now())
    assert read(path) == {"a": 3}
    assert not [*home.state.glob("backups/*"), *path.parent.glob(".*")]


REPLACED = f"""[mcp_servers.github]
command = "npx"
args = ["-y", "gh"]
env = {{ GITHUB_TOKEN = "{SECRET}" }}

[mcp_servers.other]
command = "mcpbridge"
args = ["serve"]

[tui]
theme = "dark"
"""


def test_other_servers_move_behind_the_bridge_once_they_are_safe_there(home: Home) -> None:
    path = home.has("codex", REPLACED)
    refused = home.run("install", "codex", "--replace")
    assert (refused.code, "Say --yes" in refused.err, path.read_text()) == (2, True, REPLACED)
    assert home.run("install", "codex", "--replace", "--dry-run").code == 0
    assert not (home.path / ".config").exists()

    done = home.run("install", "codex", "--replace", "--yes")
    assert done.code == 0, done.err
    assert SECRET not in done.out + done.err
    configured = home.path / ".config/mcpbridge/servers.toml"
    assert list(read(configured)["servers"]) == ["github"]
    assert read(path) == {"tui": {"theme": "dark"}, "mcp_servers": {"mcpbridge": of(home, {**START, **OF_CODEX})}}
    assert home.run("install", "codex", "--replace", "--yes").out.startswith("was installed")
    assert home.run("uninstall", "codex", "--restore").out.startswith("restored")
    assert path.read_text() == REPLACED


def test_a_server_whose_secret_is_nowhere_else_is_not_taken_out(home: Home) -> None:
    """After an `import` to variables the client's file is the only place that has the value."""
    text = json.dumps({"mcpServers": {"a": {"command": "a", "env": {"A_TOKEN": SECRET}}}}, indent=2)
    path = home.has("cursor", text)
    assert home.run("import", "cursor", "--secrets", "env", "--yes").code == 0
    done = home.run("install", "cursor", "--replace", "--secrets", "env", "--yes")
    assert "a stays in Cursor's file" in done.err
    assert "would lack ${A_TOKEN}" in done.err
    assert read(path)["mcpServers"].keys() == {"a", "mcpbridge"}

    done = home.run("install", "cursor", "--replace", "--yes")
    assert done.code == 0, done.err
    assert SECRET not in done.out + done.err
    assert read(path)["mcpServers"].keys() == {"mcpbridge"}
    configured = home.path / ".config/mcpbridge"
    assert read(configured / "servers.toml")["servers"]["a"]["env"] == {"A_TOKEN": "${file:secrets/A_TOKEN}"}
    assert (configured / "secrets/A_TOKEN").read_text().strip() == SECRET


def test_a_server_that_the_bridge_could_not_serve_stays_where_it_is(home: Home) -> None:
    path = home.has("cursor", '{"mcpServers": {"a": {"command": "x"}, "odd": {"what": 1}}}')
    assert home.run("install", "cursor", "--replace", "--yes").code == 0
    assert read(path)["mcpServers"] == {"odd": {"what": 1}, "mcpbridge": of(home, START)}
    done = home.run("uninstall", "cursor")
    assert read(path)["mcpServers"] == {"odd": {"what": 1}}
    assert "(a) stay in servers.toml" in done.err


async def test_the_program_that_is_written_down_is_the_one_that_ran(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (tmp_path / ".cursor").mkdir()
    finished = await place.run("install", "cursor")
    assert finished.code == 0, finished.err
    [command, *_] = [read(tmp_path / ".cursor/mcp.json")["mcpServers"]["mcpbridge"]["command"]]
    assert command == PROGRAM
    assert os.access(command, os.X_OK)
    assert (await place.run("uninstall", "cursor")).code == 0
    assert not (tmp_path / ".cursor/mcp.json").exists()
