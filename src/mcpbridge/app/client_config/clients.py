"""The table of clients: which files each has, how they are written, and where in them the servers are.

Nothing here touches a disk. Sources: the documentation of each client as of 2026 (Claude Code and Codex measured as
well); Roo Code's "Using MCP" for `.roo/mcp.json`, Zed's "Model Context Protocol" for `context_servers`, OpenCode's "MCP
servers" for `mcp` and, in its second version, `mcp.servers`, GitHub's "Adding MCP servers for Copilot CLI" for
`.github/mcp.json`, goose's "Configuration Overview" for its place on Windows, Kiro's "Configuration" for
`.kiro/settings/mcp.json`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.suggestions import nearest

Scope = Literal["user", "local", "project"]
"""Whose servers a file holds: the user's everywhere, the user's in one project, or those of a project for everybody."""

Format = Literal["json", "jsonc", "toml", "yaml"]
"""How a file is written. `jsonc` is JSON with comments and commas behind the last member."""

Dialect = Literal["common", "claude", "vscode", "codex", "gemini", "zed", "continue", "librechat", "goose", "opencode"]
"""How one server is described: its keys, and how it names variables. `common` is what most clients say."""


@dataclass(frozen=True, slots=True)
class ClientFile:
    """One file, or all that fit a pattern, in which a client looks for servers."""

    scope: Scope
    format: Format
    key: tuple[str, ...]
    """Where the servers are in the document; a `*` stands for every key (Claude Code: absolute project paths)."""

    path: str
    """`{home}`, `{config}`, `{data}` or `{project}`, then names. A `*` among these stands for any name.

    `{config}` is `$XDG_CONFIG_HOME` or `~/.config`; `{data}` the same on Linux, `~/Library/Application Support` on a
    Mac and `%APPDATA%` on Windows.
    """

    windows: str = ""
    """The same for Windows, where it is not at the same place there."""

    override: tuple[str, str] = ("", "")
    """A variable of the environment, and the path with `{override}` for its value, in use while it is set."""

    dialect: Dialect = "common"

    reads_only: bool = False
    """An older or derived place: read by `import`, and nothing that `install` would write to."""


@dataclass(frozen=True, slots=True)
class KnownClient:
    """A program that starts MCP servers by its own configuration."""

    id: str
    """As people type it."""

    title: str
    files: tuple[ClientFile, ...]
    """Of two files with one scope the client prefers, or people more often have, the first."""

    command: str = ""
    """The program that starts it. On the `PATH` it shows a client that has no files yet; empty: there is none, or
    its name is that of other programs too (`zed`, `goose`, `copilot`)."""


_SERVERS = ("mcpServers",)


def _one(id_: str, title: str, user: str, project: str = "", command: str = "") -> KnownClient:
    """A client with `mcpServers` in a JSON file."""
    files = [ClientFile("user", "json", _SERVERS, user)] if user else []
    files += [ClientFile("project", "json", _SERVERS, f"{{project}}/{project}")] if project else []
    return KnownClient(id_, title, tuple(files), command)


def _code(id_: str, title: str, folder: str, server: str, command: str) -> KnownClient:
    """A build of VS Code; also its profiles, its server on another machine, and settings of early 2025."""
    user, key = f"{{data}}/{folder}/User", ("servers",)
    return KnownClient(
        id_,
        title,
        (
            ClientFile("user", "jsonc", key, f"{user}/mcp.json", dialect="vscode"),
            ClientFile("user", "jsonc", key, f"{user}/profiles/*/mcp.json", dialect="vscode", reads_only=True),
            ClientFile(
                "user", "jsonc", key, f"{{home}}/{server}/data/User/mcp.json", dialect="vscode", reads_only=True
            ),
            ClientFile("user", "jsonc", ("mcp", "servers"), f"{user}/settings.json", dialect="vscode", reads_only=True),
            ClientFile("project", "jsonc", key, "{project}/.vscode/mcp.json", dialect="vscode"),
        ),
        command,
    )


def _extension(id_: str, title: str, name: str, file: str, *others: ClientFile) -> KnownClient:
    """An extension of VS Code, which keeps its file among those of VS Code; also in its relatives and its server."""
    below = f"User/globalStorage/{name}/settings/{file}"
    elsewhere = (f"{{data}}/*/{below}", f"{{home}}/.*-server/data/{below}")
    return KnownClient(
        id_,
        title,
        (
            ClientFile("user", "json", _SERVERS, f"{{data}}/Code/{below}"),
            *others,
            *(ClientFile("user", "json", _SERVERS, path, reads_only=True) for path in elsewhere),
        ),
    )


def _opencode(scope: Scope, where: str) -> tuple[ClientFile, ...]:
    return tuple(
        ClientFile(scope, "jsonc", ("mcp",), f"{where}/opencode.{suffix}", dialect="opencode")
        for suffix in ("json", "jsonc")
    )


_CLAUDE_CODE = ("CLAUDE_CONFIG_DIR", "{override}/.claude.json")
_CLAUDE_FILE = "{home}/.claude.json"

CLIENTS: tuple[KnownClient, ...] = (
    KnownClient(
        "claude-desktop",
        "Claude Desktop",
        (ClientFile("user", "json", _SERVERS, "{data}/Claude/claude_desktop_config.json", dialect="claude"),),
    ),
    KnownClient(
        "claude-code",
        "Claude Code",
        (
            ClientFile("user", "json", _SERVERS, _CLAUDE_FILE, override=_CLAUDE_CODE, dialect="claude"),
            ClientFile(
                "local",
                "json",
                ("projects", "*", "mcpServers"),
                _CLAUDE_FILE,
                override=_CLAUDE_CODE,
                dialect="claude",
            ),
            ClientFile("project", "json", _SERVERS, "{project}/.mcp.json", dialect="claude"),
        ),
        "claude",
    ),
    _one("cursor", "Cursor", "{home}/.cursor/mcp.json", ".cursor/mcp.json", "cursor"),
    _code("vscode", "VS Code", "Code", ".vscode-server", "code"),
    _code("vscode-insiders", "VS Code Insiders", "Code - Insiders", ".vscode-server-insiders", "code-insiders"),
    KnownClient(
        "codex",
        "Codex",
        (
            ClientFile(
                "user",
                "toml",
                ("mcp_servers",),
                "{home}/.codex/config.toml",
                override=("CODEX_HOME", "{override}/config.toml"),
                dialect="codex",
            ),
            ClientFile("project", "toml", ("mcp_servers",), "{project}/.codex/config.toml", dialect="codex"),
        ),
        "codex",
    ),
    KnownClient(
        "gemini",
        "Gemini CLI",
        (
            ClientFile(
                "user",
                "jsonc",
                _SERVERS,
                "{home}/.gemini/settings.json",
                override=("GEMINI_CLI_HOME", "{override}/.gemini/settings.json"),
                dialect="gemini",
            ),
            ClientFile("project", "jsonc", _SERVERS, "{project}/.gemini/settings.json", dialect="gemini"),
        ),
        "gemini",
    ),
    _one("windsurf", "Windsurf", "{home}/.codeium/windsurf/mcp_config.json", command="windsurf"),
    KnownClient(
        "zed",
        "Zed",
        (
            ClientFile(
                "user",
                "jsonc",
                ("context_servers",),
                "{config}/zed/settings.json",
                windows="{data}/Zed/settings.json",
                dialect="zed",
            ),
            ClientFile("project", "jsonc", ("context_servers",), "{project}/.zed/settings.json", dialect="zed"),
        ),
    ),
    _extension(
        "cline",
        "Cline",
        "saoudrizwan.claude-dev",
        "cline_mcp_settings.json",
        ClientFile(
            "user",
            "json",
            _SERVERS,
            "{home}/.cline/data/settings/cline_mcp_settings.json",
            override=("CLINE_DIR", "{override}/data/settings/cline_mcp_settings.json"),
        ),
        ClientFile("user", "json", _SERVERS, "{home}/.cline/mcp.json"),
    ),
    _extension(
        "roo",
        "Roo Code",
        "rooveterinaryinc.roo-cline",
        "mcp_settings.json",
        ClientFile("project", "json", _SERVERS, "{project}/.roo/mcp.json"),
    ),
    KnownClient(
        "continue",
        "Continue",
        (
            ClientFile("user", "yaml", _SERVERS, "{home}/.continue/config.yaml", dialect="continue"),
            ClientFile(
                "user", "yaml", _SERVERS, "{home}/.continue/mcpServers/*.y*ml", dialect="continue", reads_only=True
            ),
            ClientFile("user", "json", _SERVERS, "{home}/.continue/mcpServers/*.json", reads_only=True),
            ClientFile(
                "project", "yaml", _SERVERS, "{project}/.continue/mcpServers/mcpbridge.yaml", dialect="continue"
            ),
            ClientFile(
                "project",
                "yaml",
                _SERVERS,
                "{project}/.continue/mcpServers/*.y*ml",
                dialect="continue",
                reads_only=True,
            ),
            ClientFile("project", "json", _SERVERS, "{project}/.continue/mcpServers/*.json", reads_only=True),
        ),
    ),
    KnownClient(
        "librechat",
        "LibreChat",
        (ClientFile("project", "yaml", _SERVERS, "{project}/librechat.yaml", dialect="librechat"),),
    ),
    KnownClient(
        "goose",
        "goose",
        (
            ClientFile(
                "user",
                "yaml",
                ("extensions",),
                "{config}/goose/config.yaml",
                windows="{data}/Block/goose/config/config.yaml",
                dialect="goose",
            ),
        ),
    ),
    KnownClient(
        "opencode",
        "OpenCode",
        (
            *_opencode("user", "{config}/opencode"),
            *_opencode("project", "{project}"),
        ),
        "opencode",
    ),
    _one("junie", "JetBrains Junie", "{home}/.junie/mcp/mcp.json", ".junie/mcp/mcp.json"),
    _one("lm-studio", "LM Studio", "{home}/.lmstudio/mcp.json"),
    _one("kiro", "Kiro", "{home}/.kiro/settings/mcp.json", ".kiro/settings/mcp.json", "kiro"),
    KnownClient(
        "antigravity",
        "Antigravity",
        (
            ClientFile("user", "json", _SERVERS, "{home}/.gemini/antigravity/mcp_config.json"),
            ClientFile("user", "json", _SERVERS, "{home}/.gemini/config/mcp_config.json"),
        ),
    ),
    KnownClient(
        "copilot",
        "Copilot CLI",
        (
            ClientFile(
                "user",
                "json",
                _SERVERS,
                "{home}/.copilot/mcp-config.json",
                override=("COPILOT_HOME", "{override}/mcp-config.json"),
            ),
            ClientFile("project", "json", _SERVERS, "{project}/.github/mcp.json"),
        ),
    ),
)
"""All clients whose files we know, the most common first."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file of a client would be on this machine. A path with a `*` stands for all that fit."""

    client: KnownClient
    file: ClientFile
    path: Path


_BY_ID = {client.id: client for client in CLIENTS}
_ALIASES = {
    **dict.fromkeys(("claudecode", "claude_code"), "claude-code"),
    **dict.fromkeys(("claudedesktop", "claude_desktop", "claude-app"), "claude-desktop"),
    **dict.fromkeys(("code", "vs-code", "visual-studio-code", "github-copilot"), "vscode"),
    **dict.fromkeys(("code-insiders", "insiders", "vs-code-insiders"), "vscode-insiders"),
    **dict.fromkeys(("gemini-cli", "gemini_cli"), "gemini"),
    **dict.fromkeys(("jetbrains", "intellij", "idea", "pycharm", "webstorm"), "junie"),
    **dict.fromkeys(("lmstudio", "lm_studio"), "lm-studio"),
    **dict.fromkeys(("copilot-cli", "copilot_cli"), "copilot"),
    **dict.fromkeys(("roo-code", "roocode", "roo-cline"), "roo"),
    **dict.fromkeys(("open-code", "opencode-ai"), "opencode"),
    **dict.fromkeys(("codex-cli", "openai-codex"), "codex"),
    "codeium": "windsurf",
    "libre-chat": "librechat",
}


def find_client(typed: str) -> KnownClient:
    """The client that people mean.

    Raises:
        ConfigError: none, or not a single one; names those that may be meant.
    """
    wanted = typed.strip().lower().replace(" ", "-")
    if client := _BY_ID.get(_ALIASES.get(wanted, wanted)):
        return client
    if wanted in ("claude", "anthropic"):
        raise ConfigError(f"{typed!r} may be two clients", hint="Say `claude-desktop` or `claude-code`.")
    close = nearest(wanted, [*_BY_ID, *_ALIASES], limit=1)
    meant = _ALIASES.get(close[0], close[0]) if close else ""
    hint = f"Did you mean {meant!r}?" if meant else f"There are: {', '.join(_BY_ID)}."
    raise ConfigError(f"no client is called {typed!r}", hint=hint)


def places(
    client: KnownClient, environ: Mapping[str, str], platform: str, home: Path, project: Path | None
) -> list[Place]:
    """Where the files of a client would be, in its order; those of projects only if there is one.

    `platform`: as `sys.platform` says it. `home` and `project` are absolute.
    """
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    data = {"darwin": home / "Library" / "Application Support", "win32": _roaming(environ, home)}.get(platform, config)
    roots = {"home": home, "config": config, "data": data, "project": project}
    found: list[Place] = []
    for file in client.files:
        template = file.windows if platform == "win32" and file.windows else file.path
        variable, instead = file.override
        if given := environ.get(variable) if variable else None:
            template, roots = instead, roots | {"override": Path(given)}
        root, *names = template.split("/")
        if (start := roots[root.strip("{}")]) is not None:
            found.append(Place(client, file, start.joinpath(*names)))
    return found


def _roaming(environ: Mapping[str, str], home: Path) -> Path:
    return Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
