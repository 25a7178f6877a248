"""Variables in the spellings of clients, as ours: `${X}`, `${X:-default}`, `${file:PATH}` and `${PROJECT_ROOT}`.

What a client would not expand stays the text that it is (`$${` here), except that `${X}` outside of `args` is taken
as a variable even where the client knows none: whoever wrote it there meant one. Sources: the documentation of each
client; Cursor and VS Code (`${env:X}`, `${workspaceFolder}`, `${userHome}`, `${input:id}`), Gemini CLI (`$X`, `%X%`),
Windsurf (`${file:/path}`), Continue (`${{ secrets.X }}`), LibreChat (`{{X}}`), OpenCode (`{env:X}`, `{file:path}`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from mcpbridge.app.client_config.clients import Dialect

PROJECT = "${PROJECT_ROOT}"
"""The directory that a client works in; the bridge knows it of each client."""

_ANY = {
    "braces": r"\$\{\{(?P<braces>[^{}]*)\}\}",
    "escaped": r"(?P<escaped>\$\$\{)",
    "plain": r"\$\{(?P<plain>(?:(?!\$\{)[^}])*)\}",
    "open": r"(?P<open>\$\{)",
}
_MORE: dict[Dialect, dict[str, str]] = {
    "gemini": {"dollar": r"\$(?P<dollar>[A-Za-z_]\w*)", "percent": r"%(?P<percent>[A-Za-z_]\w*)%"},
    "librechat": {"double": r"\{\{\s*(?P<double>[A-Za-z_]\w*)\s*\}\}"},
    "opencode": {"env": r"\{env:(?P<env>[^{}]*)\}", "file": r"\{file:(?P<file>[^{}]*)\}"},
}
_EXPANDS_NOTHING = ("codex", "goose", "zed")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WITH_DEFAULT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(:-.*)?", re.DOTALL)
_PROJECT_NAMES = {"workspaceFolder", "workspaceRoot", "fileWorkspaceFolder", "cwd", "CLAUDE_PROJECT_DIR"}
_ASKED = ("input", "secret", "secrets", "inputs", "user_config", "config", "command", "prompt")
"""What some clients look up elsewhere, or ask their user for."""


@dataclass(slots=True)
class Variables:
    """Rewrites the texts of the servers of one file, and keeps what people should know of it."""

    dialect: Dialect
    directory: Path
    """Where relative paths of `{file:…}` start."""

    project: Path | None = None
    """The project that the file belongs to: then the project is no variable."""

    expands: bool = True
    """Whether the client knows variables at all."""

    home: str = "HOME"
    """The variable that names the home directory on this system."""

    separator: str = "/"
    inputs: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """What the client asks its user for, by id: the words it asks with, and what it takes for no answer."""

    notes: dict[str, None] = field(default_factory=dict[str, None])
    """For people, in order."""

    def of(self, value: object, *, is_argument: bool = False) -> object:
        """The value with all texts in it rewritten. Of an argument (`args`), a shell may have the expanding to do."""
        if isinstance(value, str):
            return self._text(value, is_argument=is_argument)
        if isinstance(value, list):
            return [self.of(item, is_argument=is_argument) for item in cast("list[object]", value)]
        if isinstance(value, dict):
            members = cast("dict[str, object]", value)
            return {name: self.of(member, is_argument=is_argument) for name, member in members.items()}
        return value

    def _text(self, text: str, *, is_argument: bool) -> str:
        if not (self.expands and self.dialect not in _EXPANDS_NOTHING):
            return text.replace("${", "$${") if is_argument else re.sub(r"\$\{([^${}]*\}|)", self._unexpanded, text)
        pattern = "|".join({**_ANY, **_MORE.get(self.dialect, {})}.values())
        return re.sub(pattern, self._replacement, text)

    def _unexpanded(self, match: re.Match[str]) -> str:
        name = match[1].removesuffix("}")
        if not _VARIABLE.fullmatch(name):
            return f"${match[0]}"
        self.notes[f"`${{{name}}}` is a variable here; the client passed it on as it is"] = None
        return match[0]

    def _replacement(self, match: re.Match[str]) -> str:
        kind, body = str(match.lastgroup), match[match.lastgroup or 0]
        if kind == "escaped":
            return match[0]
        if kind == "file":
            return self._file(body)
        if kind == "braces":
            asked_for = body.strip().rpartition("/")[2].rpartition(".")[2]
            reference = self._asked(asked_for) if asked_for else None
        elif kind == "double":
            reference = self._asked(body)
        elif kind == "plain":
            reference = self._braced(body)
        else:
            reference = f"${{{body}}}" if _VARIABLE.fullmatch(body) else None
        return reference if reference is not None else match[0].replace("${", "$${")

    def _braced(self, body: str) -> str | None:
        """What `${body}` is in our words; None if it is nothing that a client would expand."""
        if variable := _WITH_DEFAULT.fullmatch(body):
            return self._named(variable[1], variable[2] or "")
        if body == "/":
            return self.separator
        kind, _, rest = body.partition("." if body.startswith("user_config.") else ":")
        if kind == "env" and (
            variable := _WITH_DEFAULT.fullmatch(rest.replace(":", ":-", 1) if ":-" not in rest else rest)
        ):
            return f"${{{variable[1]}{variable[2] or ''}}}"
        if kind == "file" and rest:
            return self._file(rest)
        if kind in _PROJECT_NAMES:  # of one folder of several
            return self._named(kind, "")
        return self._asked(rest) if kind in _ASKED and rest else None

    def _named(self, name: str, default: str) -> str:
        if name in _PROJECT_NAMES:
            return str(self.project) if self.project else PROJECT
        if name == "userHome":
            return f"${{{self.home}}}"
        if name == "pathSeparator":
            return self.separator
        if name == "workspaceFolderBasename":
            return self.project.name if self.project else self._asked("workspace_folder_basename")
        return f"${{{name}{default}}}"

    def _asked(self, id_: str) -> str:
        name = variable_name(id_)
        asks, default = self.inputs.get(id_, ("", ""))
        if default and "}" not in default:
            return f"${{{name}:-{default}}}"
        words = f": {asks}" if asks else ""
        self.notes[f"`${{{name}}}` stands for what the client asked for, or took from elsewhere{words}"] = None
        return f"${{{name}}}"

    def _file(self, path: str) -> str:
        is_absolute = path.startswith(("/", "~")) or Path(path).is_absolute()
        return f"${{file:{path if is_absolute else self.directory / path}}}"


def variable_name(text: str) -> str:
    """A name for a variable of the environment: `github-token` becomes `GITHUB_TOKEN`."""
    spaced = text if text.isupper() else re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    name = re.sub(r"[^A-Za-z0-9]+", "_", spaced).strip("_").upper()
    return name if _VARIABLE.fullmatch(name) else f"VALUE_{name}".rstrip("_")
