"""Which clients there are, and where each keeps its servers on this machine. Nothing here touches a disk."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mcpbridge.client_files.table import CLIENTS, ClientFile, Dialect, Format, KnownClient, Scope
from mcpbridge.errors import ConfigError, nearest

__all__ = ["CLIENTS", "ClientFile", "Dialect", "Format", "KnownClient", "Place", "Scope", "named", "places"]


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


def named(typed: str) -> KnownClient:
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
