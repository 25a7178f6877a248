"""From the files of all clients to one `servers.toml` (issue 7, import)."""

import json
import os
import stat
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbridge.app.client_config.discover.discover import find_all, find_in_file
from mcpbridge.app.client_config.discover.discovered_servers import ClientEnvironment, Found
from mcpbridge.app.client_config.importing.plan import Plan, SecretsTo, carry_out, plan_import
from mcpbridge.base.errors import ConfigError
from mcpbridge.config import mcp_servers_json as foreign
from mcpbridge.config.load import read
from support.client_home import SECRETS, fill, find_here, found_by_name

NOW = datetime(2026, 11, 22, 10, 20, 30)

NPX = {"command": "npx"}
EXPECTED: dict[str, dict[str, Any]] = {
    "claude-desktop/filesystem": NPX
    | {"args": ["-y", "@modelcontextprotocol/server-filesystem", "~/Documents", "~/Notes"]},
    "claude-desktop/GitHub (work)": {
        "command": "docker",
        "args": ["run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server"],
        "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": SECRETS[0]},
    },
    "claude-desktop/shell": {
        "command": "bash",
        "args": ["-c", "exec $${HOME}/bin/mcp-shell --level $${LEVEL:-1}"],
        "env": {"LEVEL": "2", "WORK": "${WORK_DIR}"},
    },
    "claude-code/github": {
        "url": "https://api.githubcopilot.com/mcp/",
        "transport": "streamable-http",
        "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"},
    },
    "claude-code/live": {"url": "wss://${LIVE_HOST:-live.example.com}/mcp", "transport": "websocket"},
    "claude-code/calendar": {
        "url": "https://calendar.example.com/mcp",
        "transport": "streamable-http",
        "auth": {"client_id": "calendar-desktop"},
    },
    "claude-code/time": NPX | {"args": ["-y", "time-mcp@1.0.0"], "cwd": "~/shop"},
    "claude-code/db": {
        "command": "~/shop/scripts/db-mcp",
        "args": ["--dsn", "postgresql://shop:hunter2hunter2@localhost:5432/shop"],
        "env": {"ROOT": "~/shop"},
        "cwd": "~/shop",
    },
    "cursor/project-notes": {
        "command": "node",
        "args": ["${HOME}/notes/server.js", "--root", "${PROJECT_ROOT}", "--name", "${WORKSPACE_FOLDER_BASENAME}"],
        "env": {"NOTES_TOKEN": "${NOTES_TOKEN}"},
        "share": "project",
    },
    "cursor/linear": {
        "url": "https://mcp.linear.app/mcp",
        "headers": {"X-Team": "core"},
        "auth": {"client_id": "abc", "client_secret": "${LINEAR_SECRET}", "scopes": ["read", "write"]},
    },
    "cursor/tests": {"command": "~/shop/tools/run-tests-mcp", "args": ["~/shop/tests"], "cwd": "~/shop"},
    "vscode/perplexity": NPX
    | {
        "args": ["-y", "server-perplexity-ask", "--region", "${REGION:-eu}"],
        "env": {"PERPLEXITY_API_KEY": "${PERPLEXITY_KEY}"},
    },
    "vscode/local-socket": {},
    "codex/context7": NPX
    | {
        "args": ["-y", "@upstash/context7-mcp"],
        "env": {"CONTEXT7_API_KEY": SECRETS[3], "MODE": "$${not a variable}"},
        "inherit_env": ["HTTPS_PROXY", "NODE_EXTRA_CA_CERTS"],
        "cwd": "~/work",
        "init_timeout": 20,
        "call_timeout": 900,
        "max_call_timeout": 900,
    },
    "codex/figma": {
        "url": "https://mcp.figma.com/mcp",
        "headers": {
            "X-Figma-Region": "us-east-1",
            "Authorization": "Bearer ${FIGMA_OAUTH_TOKEN}",
            "X-Team": "${FIGMA_TEAM}",
        },
        "tools": {"include": ["get_code", "get_[*]"], "exclude": ["delete_file"]},
        "init_timeout": 15,
    },
    "codex/off": {"command": "old-mcp", "disabled": True},
    "gemini/python-tools": {
        "command": "python",
        "args": ["-m", "my_tools", "${TOOLS_DIR}"],
        "env": {
            "DATABASE_URL": "${DB_CONNECTION_STRING}",
            "API_KEY": "${EXTERNAL_API_KEY}",
            "PROFILE": "${USERPROFILE}",
        },
        "call_timeout": 15,
        "tools": {"include": ["safe_tool"], "exclude": ["risky_tool"]},
    },
    "gemini/remote": {
        "url": "https://example.com/mcp",
        "headers": {"X-API-Key": SECRETS[5]},
        "call_timeout": 900,
        "max_call_timeout": 900,
    },
    "gemini/weather": {"url": "https://weather.example.com/sse", "disabled": True},
    "windsurf/figma-remote": {
        "url": "https://figma.example.com/mcp",
        "headers": {"API_KEY": "Bearer ${FIGMA_TOKEN}", "X-Signed": "${file:~/.keys/figma}"},
    },
    "windsurf/github": NPX
    | {
        "args": ["-y", "@modelcontextprotocol/server-github"],
        "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "${GITHUB_TOKEN}"},
        "tools": {"exclude": ["create_repository", "delete_[*]"]},
    },
    "zed/local": {"command": "uvx", "args": ["mcp-server-git", "$${literal}"]},
    "zed/older": {"command": "node", "args": ["server.js"], "env": {"A": "1"}},
    "zed/remote": {"url": "https://example.com/mcp", "headers": {"Authorization": f"Bearer {SECRETS[6]}"}},
    "zed/postgres-context-server": {},
    "cline/browser": NPX | {"args": ["-y", "@playwright/mcp@latest"], "call_timeout": 120},
    "cline/score": {
        "url": "https://score.example.com/mcp",
        "transport": "streamable-http",
        "headers": {"Authorization": "${SCORE_AUTH}"},
    },
    "cline/cli-way": {"url": "https://events.example.com/sse", "transport": "sse", "disabled": True},
    "roo/docs": {
        "url": "https://docs.example.com/mcp",
        "transport": "streamable-http",
        "tools": {"exclude": ["purge"]},
        "call_timeout": 300,
    },
    "roo/build": {
        "command": "node",
        "args": ["build/mcp.js"],
        "cwd": "~/shop/tools",
        "env": {"BUILD_KEY": "${BUILD_KEY}"},
    },
    "continue/Memory server": NPX
    | {
        "args": ["-y", "@modelcontextprotocol/server-memory"],
        "env": {"MEMORY_FILE": "~/memory.json", "MEMORY_TOKEN": "${MEMORY_TOKEN}"},
        "init_timeout": 20,
    },
    "continue/issues": {
        "url": "https://issues.example.com/mcp",
        "transport": "streamable-http",
        "headers": {"X-Org": "acme", "Authorization": "Bearer ${ISSUES_KEY}"},
    },
    "continue/anthropic/memory-mcp": {},
    "librechat/everything": {"url": "http://localhost:3001/sse", "call_timeout": 60, "init_timeout": 15},
    "librechat/per-user": {
        "url": "https://example.com/api/",
        "transport": "streamable-http",
        "headers": {
            "X-User-ID": "${LIBRECHAT_USER_ID}",
            "X-Auth-Token": "${MY_SERVICE_API_KEY}",
            "X-API-Key": "${SOME_API_KEY}",
        },
        "proxy": "http://proxy.example.com:3128",
    },
    "librechat/events": {"url": "ws://localhost:9000/mcp", "transport": "websocket"},
    "goose/developer": {},
    "goose/tavily": NPX
    | {
        "args": ["-y", "tavily-mcp"],
        "env": {"TAVILY_MODE": "fast", "TAVILY_API_KEY": "${TAVILY_API_KEY}"},
        "call_timeout": 300,
    },
    "goose/asana": {
        "url": "https://mcp.asana.com/mcp",
        "transport": "streamable-http",
        "disabled": True,
        "tools": {"include": ["list_tasks"]},
    },
    "opencode/jira": {
        "url": "https://jira.example.com/mcp",
        "disabled": True,
        "headers": {"Authorization": "Bearer ${JIRA_TOKEN}"},
    },
    "opencode/local-tools": {
        "command": "bun",
        "args": ["x", "my-tools"],
        "env": {"KEY_TEXT": "${file:~/.config/opencode/key.txt}", "LEVEL": "3"},
        "init_timeout": 10,
    },
    "opencode/closed": {"url": "https://closed.example.com/mcp", "auth": {"type": "none"}},
    "opencode/second": NPX | {"args": ["-y", "second-mcp"], "cwd": "~/shop", "disabled": True},
    "junie/junie-files": NPX | {"args": ["-y", "files-mcp"]},
    "lm-studio/hf": {"url": "https://huggingface.co/mcp", "headers": {"Authorization": f"Bearer {SECRETS[7]}"}},
    "kiro/aws-docs": {
        "command": "uvx",
        "args": ["awslabs.aws-documentation-mcp-server@latest"],
        "env": {"FASTMCP_LOG_LEVEL": "ERROR", "KEY": "${EXPANDED_VARIABLE}"},
        "tools": {"exclude": ["recommend"]},
    },
    "antigravity/looker": {
        "url": "https://looker.example.com/mcp",
        "auth": {"client_id": "looker-client", "client_secret": SECRETS[8]},
    },
    "copilot/playwright": NPX | {"args": ["@playwright/mcp@latest"]},
    "copilot/context7": {
        "url": "https://mcp.context7.com/mcp",
        "transport": "streamable-http",
        "headers": {"CONTEXT7_API_KEY": SECRETS[4]},
        "tools": {"include": ["get-library-docs"]},
    },
}
"""By hand: what each server of the fixtures is in our words. `~/` stands for the home they are in."""


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which files are trusted is nobody else's business."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def planned(
    found: Found, path: Path, secrets_to: SecretsTo = "env", *, replacing: bool = False, **environ: str
) -> Plan:
    return plan_import(found, path, environ, secrets_to=secrets_to, replacing=replacing)


def tables(plan: Plan) -> dict[str, dict[str, Any]]:
    return tomllib.loads(plan.text)["servers"]


def one_file(folder: Path, servers: object, name: str = "some.json") -> Found:
    path = folder / name
    path.write_text(json.dumps(servers), "utf-8")
    return find_in_file(path, ClientEnvironment({}, folder, "linux"))


def became(plan: Plan) -> dict[str, tuple[str, str]]:
    return {f"{one.entry.client}/{one.entry.name}": (one.became, one.name) for one in plan.outcomes}


def test_every_shape_of_every_client(tmp_path: Path) -> None:
    """Issue 7: import of every file shape, with fixtures of each client's format."""
    found = found_by_name(find_here(tmp_path))
    for name, expected in EXPECTED.items():
        shown = json.loads(json.dumps(found[name].server).replace(f"{tmp_path}/", "~/").replace(str(tmp_path), "~"))
        assert shown == expected, name
        assert bool(found[name].skipped) == (not expected), name


def test_nothing_is_dropped_in_silence(tmp_path: Path) -> None:
    """Issue 7: other importers drop unknown fields; here each is kept as a comment and told."""
    found = find_here(tmp_path)
    left = {name: sorted(one.left_out) for name, one in found_by_name(found).items() if one.left_out}
    assert left["claude-code/calendar"] == ["oauth.callbackPort"]
    assert left["codex/figma"] == ["tools"]
    assert left["vscode/perplexity"] == ["dev", "sandboxEnabled"]
    assert left["librechat/per-user"] == ["customUserVars", "serverInstructions"]
    text = planned(found, tmp_path / "servers.toml").text
    assert '# left out: tools = {"get_code": {"approval_mode": "approve"}}\n[servers.figma]' in text
    for one in found.servers:
        assert all(f"# left out: {key} = " in text for key in one.left_out if not one.skipped), one.name


def test_where_each_stands_is_known(tmp_path: Path) -> None:
    found = found_by_name(find_here(tmp_path))
    assert found["codex/figma"].place == f"{tmp_path}/.codex/config.toml:15"
    assert found["continue/issues"].line == 16
    assert found["claude-code/db"].line == 22


@pytest.mark.parametrize("secrets_to", ["env", "file", "keep"])
def test_the_bridge_takes_what_is_written(tmp_path: Path, secrets_to: SecretsTo) -> None:
    path = tmp_path / "config" / "servers.toml"
    plan = planned(find_here(tmp_path), path, secrets_to)
    assert carry_out(plan, NOW, os.environ) is None
    settings = read(path, {}).settings
    assert settings.servers.keys() == tables(plan).keys()
    assert "mcpbridge" not in settings.servers
    assert settings.servers["codex-off" if "codex-off" in settings.servers else "off"].disabled


def test_secrets_become_variables(tmp_path: Path) -> None:
    """Issue 7: moves secrets to `${VAR}` with a warning."""
    plan = planned(find_here(tmp_path), tmp_path / "servers.toml")
    servers = tables(plan)
    assert servers["stripe"]["args"][-1] == "Authorization: Bearer ${STRIPE_TOKEN}"
    assert servers["db"]["args"][1] == "postgresql://shop:${DB_PASSWORD}@localhost:5432/shop"
    assert servers["hf"]["headers"]["Authorization"] == "Bearer ${HF_TOKEN}"
    assert servers["looker"]["auth"]["client_secret"] == "${LOOKER_CLIENT_SECRET}"
    assert {one.variable for one in plan.moved} <= plan.unset.keys()
    assert not [secret for secret in SECRETS if secret in plan.text or secret in repr(plan)]


def test_comments_hold_no_secret_either(tmp_path: Path) -> None:
    server = {
        "command": "x",
        "type": "http",
        "url": "https://a.b",
        "args": ["--token", "abc-123"],
        "env": {"A_KEY": "k1234567"},
    }
    more = {
        "headersHelper": f"curl -H 'X: {SECRETS[0]}'",
        "vendor": {"apiKey": "of-vendor-1", "list": ["\x7f\n\ud800"]},
    }
    text = planned(one_file(tmp_path, {"mcpServers": {"a": server | more}}), tmp_path / "s.toml").text
    assert all(f"# left out: {key} = " in text for key in ("command", "args", "env", "headersHelper", "vendor"))
    assert not [secret for secret in ("abc-123", "k1234567", SECRETS[0], "of-vendor-1") if secret in text]
    tomllib.loads(text)


def test_secrets_in_private_files_bring_in_what_was_there(tmp_path: Path) -> None:
    """So that the servers work at once; the file of a secret is for its owner alone."""
    path = tmp_path / "config" / "servers.toml"
    plan = planned(find_here(tmp_path), path, "file")
    carry_out(plan, NOW, os.environ)
    settings = read(path, {}).settings
    assert settings.servers["GitHub-work"].env["GITHUB_PERSONAL_ACCESS_TOKEN"] == SECRETS[0]
    assert settings.servers["db"].args[1] == "postgresql://shop:hunter2hunter2@localhost:5432/shop"
    assert settings.servers["remote-zed"].headers["Authorization"] == f"Bearer {SECRETS[6]}"
    assert {file.stat().st_mode & 0o777 for file in (path.parent / "secrets").iterdir()} == {0o600}
    assert (path.parent / "secrets").stat().st_mode & 0o777 == 0o700
    assert not [secret for secret in SECRETS if secret in path.read_text()]


def test_different_secrets_of_one_name_get_names_of_their_own(tmp_path: Path) -> None:
    servers = {
        "work": {"command": "gh", "env": {"GITHUB_TOKEN": "one-secret-1"}},
        "home": {"command": "gh", "env": {"GITHUB_TOKEN": "two-secret-2"}},
        "same": {"command": "gh2", "env": {"GITHUB_TOKEN": "two-secret-2"}},
        "set": {"command": "x", "env": {"A_TOKEN": "of-this-server", "B_TOKEN": "as-it-is-set"}},
    }
    found = one_file(tmp_path, {"mcpServers": servers})
    plan = planned(found, tmp_path / "s.toml", A_TOKEN="of-something-else", B_TOKEN="as-it-is-set")
    written = {name: list(server["env"].values()) for name, server in tables(plan).items()}
    assert written == {
        "work": ["${WORK_GITHUB_TOKEN}"],
        "home": ["${HOME_GITHUB_TOKEN}"],
        "same": ["${SAME_GITHUB_TOKEN}"],
        "set": ["${SET_A_TOKEN}", "${B_TOKEN}"],
    }
    assert {one.variable for one in plan.moved if one.is_set} == {"B_TOKEN"}
    assert "B_TOKEN" not in plan.unset


def test_a_password_in_a_url_becomes_a_header(tmp_path: Path) -> None:
    """The bridge refuses it there, since URLs show in logs."""
    found = one_file(
        tmp_path, {"mcpServers": {"a": {"url": "https://ada:pass%20word@example.com/mcp?token=abcd1234efgh"}}}
    )
    path = tmp_path / "s.toml"
    carry_out(planned(found, path, "file"), NOW, os.environ)
    server = read(path, {}).settings.servers["a"]
    assert server.url == "https://example.com/mcp?token=abcd1234efgh"
    assert server.headers == {"Authorization": "Basic YWRhOnBhc3Mgd29yZA=="}
    assert "abcd1234efgh" not in path.read_text()


def test_the_same_server_is_taken_once(tmp_path: Path) -> None:
    plan = planned(find_here(tmp_path), tmp_path / "servers.toml")
    what = became(plan)
    assert what["cursor/filesystem"] == ("same", "filesystem")
    assert what["copilot/playwright"] == ("same", "browser")
    assert what["vscode/github"] == ("new", "github-vscode")
    assert what["claude-desktop/mcpbridge"][0] == "bridge"


def test_a_server_that_one_client_uses_is_on(tmp_path: Path) -> None:
    off, on = {"command": "x", "disabled": True}, {"command": "x"}
    plan = planned(one_file(tmp_path, {"mcpServers": {"a": off, "b": on}}), tmp_path / "s.toml")
    assert tables(plan) == {"a": {"command": "x"}}


def test_what_is_there_stays_as_it_is(tmp_path: Path) -> None:
    """Comments, order and line ends included."""
    path = tmp_path / "servers.toml"
    before = b'# mine\r\n[servers.time]   # my clock\r\ncommand = "my-clock"\r\n\r\n[calls]\r\nretry = 2 # twice\r\n'
    path.write_bytes(before)
    plan = planned(find_here(tmp_path, "claude-code"), path)
    assert became(plan)["claude-code/time"] == ("new", "time-claude-code")
    assert [one.became for one in plan.outcomes if one.name == "time"] == ["kept"]
    backup = carry_out(plan, NOW, os.environ)
    assert backup
    assert backup.name == "servers.toml.2026-11-22-102030.bak"
    assert backup.read_bytes() == before
    after = path.read_bytes()
    assert after.startswith(before)
    assert b"\n" not in after.replace(b"\r\n", b"")
    assert read(path, {}).settings.servers["time"].command == "my-clock"


def test_replace_takes_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "servers.toml"
    path.write_text('# mine\n[servers.a]\ncommand = "old"\nargs = ["x"]\n\n# next\n[servers.b]\ncommand = "b"\n')
    found = one_file(tmp_path, {"mcpServers": {"a": {"command": "new"}}})
    plan = planned(found, path, replacing=True)
    assert plan.text == '# mine\n[servers.a]\ncommand = "new"\n\n# next\n[servers.b]\ncommand = "b"\n'


@pytest.mark.parametrize(
    "before", ['servers = { a = { command = "x" } }\n', 'servers.a.command = "x"\n', "[servers]\n"]
)
def test_servers_may_be_written_in_any_way(tmp_path: Path, before: str) -> None:
    path = tmp_path / "servers.toml"
    path.write_text(before)
    plan = planned(one_file(tmp_path, {"mcpServers": {"b": {"command": "y"}}}), path)
    assert tables(plan)["b"] == {"command": "y"}
    assert tables(plan).get("a", {"command": "x"}) == {"command": "x"}


@pytest.mark.parametrize("secrets_to", ["env", "file", "keep"])
def test_a_second_time_there_is_nothing_to_do(tmp_path: Path, secrets_to: SecretsTo) -> None:
    path, found = tmp_path / "servers.toml", find_here(tmp_path)
    carry_out(planned(found, path, secrets_to), NOW, os.environ)
    for again in ("env", "file", "keep"):
        plan = planned(found, path, again)
        if (secrets_to, again) == ("env", "file"):  # what waits for variables would get its secrets
            assert {one.became for one in plan.written} == {"replaced"}
            assert not any(server in plan.waiting[server] for one in plan.moved for server in one.servers)
            continue
        assert not plan.written
        assert plan.text == path.read_text("utf-8")


def test_a_program_that_a_project_brings_along_is_left_out(tmp_path: Path) -> None:
    found = one_file(tmp_path, {"mcpServers": {"a": {"command": "./bin/run"}}})
    [outcome] = planned(found, tmp_path / "servers.toml").outcomes
    assert (outcome.became, "brings along" in outcome.detail) == ("left-out", True)


def test_every_copy_is_kept_and_secrets_stay_with_their_owner(tmp_path: Path) -> None:
    path = tmp_path / "servers.toml"
    path.write_text("# first\n")
    path.chmod(0o644)
    copies = [
        carry_out(
            planned(
                one_file(tmp_path, {"mcpServers": {name: {"command": name, "env": {"T_TOKEN": name}}}}), path, "keep"
            ),
            NOW,
            os.environ,
        )
        for name in ("a", "b")
    ]
    assert [copy.read_text().count("servers.") for copy in copies if copy] == [0, 1]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (tmp_path / "secrets").symlink_to(elsewhere)
    found = one_file(tmp_path, {"mcpServers": {"c": {"command": "c", "env": {"T_TOKEN": "c"}}}})
    with pytest.raises(ConfigError, match="is a link"):
        carry_out(planned(found, path, "file"), NOW, os.environ)
    assert not list(elsewhere.iterdir())


def test_what_people_changed_since_is_not_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "servers.toml"
    found = one_file(tmp_path, {"mcpServers": {"a": {"command": "a", "env": {"A_TOKEN": SECRETS[0]}}}})
    carry_out(planned(found, path), NOW, os.environ)
    plan = planned(found, path, "file")
    assert [one.became for one in plan.outcomes] == ["replaced"]
    assert tables(plan)["a"]["env"] == {"A_TOKEN": "${file:secrets/A_TOKEN}"}
    assert plan.waiting == {"a": ()}
    path.write_text(path.read_text() + "start = 'eager'\n")
    plan = planned(found, path, "file")
    assert [one.became for one in plan.outcomes] == ["there"]
    assert plan.waiting == {"a": ("${A_TOKEN}",)}
    assert planned(found, path, "file", A_TOKEN="x").waiting == {"a": ()}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"command": "fs", "args": ["."]}, {"cwd": "${PROJECT_ROOT}"}),
        ({"command": "serena", "args": ["--project=./sub"]}, {"cwd": "${PROJECT_ROOT}"}),
        ({"command": "x", "cwd": "./sub"}, {"cwd": "${PROJECT_ROOT}/sub"}),
        ({"command": "npx", "args": ["-y", "@a/b", "./x"], "cwd": "/abs"}, {"cwd": "/abs"}),
        ({"command": "npx", "args": ["-y", "@a/b", "owner/name"]}, {}),
        ({"command": "/opt/run", "args": ["..."]}, {}),
    ],
)
def test_relative_paths_start_in_the_project_as_they_did(
    tmp_path: Path, given: dict[str, object], wanted: dict[str, str]
) -> None:
    plan = planned(one_file(tmp_path, {"mcpServers": {"a": given}}), tmp_path / "servers.toml")
    [server] = tables(plan).values()
    changed = {**given, **wanted, **({"share": "project"} if "PROJECT" in str(wanted) else {})}
    assert server == changed
    assert ("relative paths" in str(plan.outcomes[0].entry.notes)) == ("share" in changed)


def test_a_configuration_in_the_project_does_not_name_its_directory(tmp_path: Path) -> None:
    found = find_here(tmp_path, "roo")
    inside = tables(planned(found, tmp_path / "shop" / "servers.toml"))
    assert inside["build"]["cwd"] == str(tmp_path / "shop" / "tools")
    found = find_here(tmp_path, "opencode")
    assert tables(planned(found, tmp_path / "shop" / "servers.toml"))["second"]["cwd"] == "."


def test_a_file_with_variables_is_read_in(tmp_path: Path) -> None:
    """`envFile` of Cursor and VS Code; without it the server would not work."""
    project = fill(tmp_path, "cursor")
    (project / ".env.mcp").write_text("# c\nA=1\nexport B='x y' # c\nSECRET_TOKEN=abc # d\nSHELL_LIKE=${A}\n")
    found = found_by_name(find_here(tmp_path, "cursor"))["cursor/tests"]
    assert found.server["env"] == {"A": "1", "B": "x y", "SECRET_TOKEN": "abc", "SHELL_LIKE": "$${A}"}
    assert not found.left_out


@pytest.mark.parametrize("where", ["settings.local.json", ".claude.json"])
def test_a_server_of_a_project_that_its_user_rejected_stays_off(tmp_path: Path, where: str) -> None:
    """Claude Code asks before it starts what a repository brings along."""
    project = fill(tmp_path, "claude-code")
    rejected = {"disabledMcpjsonServers": ["sentry"]}
    if where == ".claude.json":
        (tmp_path / where).write_text(json.dumps({"projects": {str(project): rejected}}))
    else:
        (project / ".claude").mkdir()
        (project / ".claude" / where).write_text(json.dumps(rejected))
    found = find_all({}, tmp_path, "linux", project)
    servers = {one.name: one.server for one in found.servers if one.scope == "project"}
    assert {name for name, server in servers.items() if server.get("disabled")} == {"sentry"}


def test_servers_of_other_projects_are_told_of(tmp_path: Path) -> None:
    found = find_here(tmp_path, "claude-code")
    assert "claude-code/posts" not in found_by_name(found)
    (problem,) = found.problems
    assert problem.message.endswith("/blog")
    assert not problem.is_error


def test_a_broken_file_does_not_stop_the_others(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / ".cursor" / "mcp.json").write_text('{\n  "mcpServers": {\n    "a": nonsense')
    found = find_all({}, tmp_path, "linux", tmp_path / "shop")
    broken = [problem for problem in found.problems if problem.is_error]
    assert [(one.client, one.message.partition(":")[0]) for one in broken] == [("cursor", "line 3")]
    assert {"zed/local", "cursor/tests"} <= found_by_name(found).keys()


@pytest.mark.parametrize(
    ("name", "document", "server"),
    [
        ("a.json", {"mcpServers": {"t": {"command": "x"}}}, {"command": "x"}),
        ("a.json", {"t": {"command": "x"}}, {"command": "x"}),
        ("a.json", {"servers": {"t": {"command": "${env:X}"}}}, {"command": "${X}"}),
        ("a.json", {"mcp": {"servers": {"t": {"command": "x"}}}}, {"command": "x"}),
        ("a.json", {"mcp": {"t": {"type": "local", "command": ["x", "y"]}}}, {"command": "x", "args": ["y"]}),
        ("a.json", {"context_servers": {"t": {"command": {"path": "x"}}}}, {"command": "x"}),
        ("a.json", {"mcpServers": {"t": {"httpUrl": "https://a.b", "timeout": 500}}}, {"call_timeout": 0.5}),
        ("a.json", {"amp.mcpServers": {"t": {"command": "x"}}}, {"command": "x"}),
        ("a.yaml", {"mcpServers": [{"name": "t", "command": "x"}]}, {"command": "x"}),
        ("a.yaml", {"mcpServers": {"t": {"command": "{{X}}"}}}, {"command": "${X}"}),
        ("a.yaml", {"extensions": {"t": {"type": "stdio", "cmd": "x", "name": "t"}}}, {"command": "x"}),
        ("mcp.json", {"mcpServers": {"t": {"command": "npx -y x"}}}, {"command": "npx", "args": ["-y", "x"]}),
    ],
)
def test_any_file_is_known_by_what_stands_in_it(
    tmp_path: Path, name: str, document: object, server: dict[str, Any]
) -> None:
    (found,) = one_file(tmp_path, document, name).servers
    assert found.name == "t"
    assert server.items() <= found.server.items()


@pytest.mark.parametrize("document", [{}, [], 1, {"other": {}}, {"mcpServers": 3}])
def test_a_file_without_servers_is_told(tmp_path: Path, document: object) -> None:
    found = one_file(tmp_path, document)
    assert not found.servers
    assert [one.is_error for one in found.problems] == [True]


def test_what_the_bridge_would_refuse_is_mended_or_left_out(tmp_path: Path) -> None:
    servers = {
        "slow": {"command": "x", "timeout": -1, "init_timeout": "soon"},
        "bad": {"url": "ftp://example.com"},
        "odd": {"command": "x", "env": {"A=B": "c"}},
        "text": "npx foo",
        "both": {"command": "x", "url": "https://example.com/mcp"},
        "remote": {"command": "x", "type": "http", "url": "https://example.com/mcp"},
        "nan": {"command": "y", "init_timeout": float("nan")},
    }
    plan = planned(one_file(tmp_path, {"mcpServers": servers}), tmp_path / "s.toml")
    assert tables(plan) == {
        "slow": {"command": "x"},
        "nan": {"command": "y"},
        "remote": {"url": "https://example.com/mcp", "transport": "streamable-http"},
    }
    what = became(plan)
    assert {name for name, (kind, _) in what.items() if kind == "left-out"} == {"/bad", "/odd", "/text"}
    assert what["/both"] == ("same", "slow")


def test_a_configuration_that_is_wrong_already_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "servers.toml"
    path.write_text("[servers.a]\nkommand = 'x'\n")
    with pytest.raises(ConfigError, match=r"servers\.toml:2"):
        planned(one_file(tmp_path, {"mcpServers": {"b": {"command": "y"}}}), path)
    with pytest.raises(ConfigError, match=r"a servers\.toml only"):
        planned(Found(), tmp_path / "mcp.json")


def test_what_somebody_else_wrote_meanwhile_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "servers.toml"
    plan = planned(one_file(tmp_path, {"mcpServers": {"b": {"command": "y"}}}), path)
    path.write_text("# quicker\n")
    with pytest.raises(ConfigError, match="meanwhile"):
        carry_out(plan, NOW, os.environ)
    assert path.read_text() == "# quicker\n"


def test_a_link_is_followed(tmp_path: Path) -> None:
    """People keep such files in a repository of their own."""
    (tmp_path / "dotfiles").mkdir()
    path = tmp_path / "servers.toml"
    path.symlink_to(tmp_path / "dotfiles" / "servers.toml")
    carry_out(planned(one_file(tmp_path, {"mcpServers": {"b": {"command": "y"}}}), path), NOW, os.environ)
    assert path.is_symlink()
    assert "servers.b" in (tmp_path / "dotfiles" / "servers.toml").read_text()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["${A}", "sk-" + "a1" * 12]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = (
    st.sampled_from(["command", "args", "env", "cwd", "url", "httpUrl", "headers", "type", "transport", "timeout"])
    | st.sampled_from(["disabled", "enabled", "tools", "includeTools", "disabledTools", "oauth", "auth", "name"])
    | st.sampled_from(["title", "tool", "results", "config", "proxy", "envFile", "env_vars", "env_keys", "envs"])
    | st.sampled_from(["cmd", "uri", "requestOptions", "apiKey", "bearer_token_env_var", "unknown", "share"])
)
SERVER = st.dictionaries(KEYS, JSON | st.just("x") | st.just("https://a.b/c"), max_size=5) | JSON
DOCUMENT = st.fixed_dictionaries(
    {}, optional={key: st.dictionaries(st.text(max_size=4), SERVER, max_size=3) | st.lists(SERVER, max_size=2) | JSON
                  for key in ("mcpServers", "servers", "mcp_servers", "context_servers", "extensions", "mcp", "inputs")}
)  # fmt: skip


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(DOCUMENT, st.sampled_from(["a.json", "a.yaml"]), st.sampled_from(["env", "file", "keep"]))
def test_any_file_becomes_something_that_the_bridge_takes(
    tmp_path: Path, document: object, name: str, secrets_to: SecretsTo
) -> None:
    """And what looks like a secret is not in it, unless that was asked for."""
    found = one_file(tmp_path, document, name)
    path = tmp_path / "never-written.toml"
    plan = planned(found, path, secrets_to)
    assert tables(plan).keys() == {one.name for one in plan.written} if plan.written else plan.text == ""
    assert all(one.became for one in plan.outcomes)


@settings(max_examples=100, deadline=None)
@given(DOCUMENT)
def test_any_file_is_served_as_it_is_or_refused(document: object) -> None:
    """`serve --config FILE.json` reads the same files."""
    try:
        translated, _ = foreign.translate(document, "f")
    except ConfigError:
        return
    assert translated.keys() == {"servers"}
