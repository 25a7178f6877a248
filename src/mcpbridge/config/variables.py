"""Variables in configuration values: `${VAR}`, `${VAR:-default}`, `${env:VAR}` and `${file:PATH}`.

Expansion is one pass: the value of a variable is never expanded again. `$${` stands for a plain `${`.

`${PROJECT_ROOT}` is not known before a client connects. Text with it is kept in pieces, so that nothing that another
variable brought in can pass for a reference later.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import cast

from msgspec import Struct, field

from mcpbridge.base.masking.known_values import SECRET_NAME
from mcpbridge.upstream.projects import PROJECT_FIELDS, PROJECT_ROOT, ProjectText

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_PROJECT = re.compile(rf"{PROJECT_ROOT}(?::-(.*))?", re.DOTALL)
_LARGEST_FILE = 64 * 1024


class Missing(Struct, frozen=True):
    """A reference that could not be resolved."""

    key: tuple[str, ...]
    """Where it is."""

    reason: str
    """What is missing, such as "missing variable ${GH_TOKEN}"; never a value."""

    variable: str = ""
    """Which environment variable that is, if it is one."""


class Resolved(Struct, frozen=True):
    """A reference that was resolved."""

    key: tuple[str, ...]
    """Where it is."""

    reference: str
    """What is between the braces."""

    value: str
    """What it brought in; perhaps a secret."""


class Expansion(Struct):
    """Expands whole documents, and keeps what was missing, what was brought in, and what waits for a project."""

    environ: Mapping[str, str]
    directory: Path
    """Where relative paths of `${file:PATH}` start."""

    missing: list[Missing] = field(default_factory=list[Missing])
    resolved: list[Resolved] = field(default_factory=list[Resolved])
    misplaced: list[Missing] = field(default_factory=list[Missing])
    """Each `${PROJECT_ROOT}` in a place without a project."""
    of_project: list[ProjectText] = field(default_factory=list[ProjectText])
    """The texts with a `${PROJECT_ROOT}`, which stays in them as it was written."""
    files: dict[str, str] = field(default_factory=dict[str, str])
    """By path, the text of each file that can choose what runs; those of secrets change nothing in that."""

    def of(self, value: object, key: tuple[str, ...] = ()) -> object:
        """The value with every string in it expanded. What is missing stays as it was written, and is noted."""
        if isinstance(value, str):
            return self._text(value, key) if "${" in value else value
        if isinstance(value, list):
            items = cast("list[object]", value)
            return [self.of(item, (*key, str(index))) for index, item in enumerate(items)]
        if isinstance(value, dict):
            members = cast("dict[str, object]", value)
            return {name: self.of(member, (*key, name)) for name, member in members.items()}
        return value

    def _text(self, value: str, key: tuple[str, ...]) -> str:
        parts, written, defaults, end = [""], list[str](), list[str | None](), 0
        for match in _REFERENCE.finditer(value):
            parts[-1] += value[end : match.start()]
            end = match.end()
            if match[0].endswith("}") and (project := _PROJECT.fullmatch(match[1] or "")):
                written.append(match[0])
                defaults.append(project[1])
                parts.append("")
            else:
                parts[-1] += self._replacement(match, key)
        parts[-1] += value[end:]
        if written and _has_project(key):
            self.of_project.append(ProjectText(key=key, parts=tuple(parts), defaults=tuple(defaults)))
        elif written:
            self.misplaced.append(Missing(key, _ELSEWHERE))
        return "".join(part for pair in zip(parts, [*written, ""], strict=True) for part in pair)

    def _replacement(self, match: re.Match[str], key: tuple[str, ...]) -> str:
        if match[0] == "$${":
            return "${"
        try:
            brought_in = self._look_up(match[0], match[1], key)
        except _NotThereError as error:
            self.missing.append(Missing(key, str(error), error.variable))
            return match[0]
        self.resolved.append(Resolved(key, match[1], brought_in))
        return brought_in

    def _look_up(self, written: str, body: str, key: tuple[str, ...]) -> str:
        if not written.endswith("}"):
            raise _NotThereError(f"{written[:40]!r} lacks its closing brace (write $${{ for a plain ${{)")
        kind, colon, rest = body.partition(":")
        source = self._sources(key).get(kind) if colon else None
        if source:
            return source(rest)
        variable = _VARIABLE.fullmatch(body)
        if variable is None:
            raise _NotThereError(f"cannot resolve {written} (write $${{ for a plain ${{)")
        name, default = variable[1], variable[2]
        value = self.environ.get(name)
        if default is not None:
            return value or default  # as in a shell, `:-` also stands in for an empty value
        if value is None:
            raise _NotThereError(f"missing variable ${{{name}}}", name)
        return value

    def _sources(self, key: tuple[str, ...]) -> dict[str, Callable[[str], str]]:
        return {"file": partial(self._from_file, key), "cmd": _not_yet("cmd"), "keyring": _not_yet("keyring")}

    def _from_file(self, key: tuple[str, ...], name: str) -> str:
        path = self.directory / Path(name).expanduser()
        try:
            with path.open(encoding="utf-8") as file:
                text = file.read(_LARGEST_FILE + 1)
        except (OSError, ValueError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a text file"
            raise _NotThereError(f"cannot read ${{file:{name}}}: {reason}") from error
        if len(text) > _LARGEST_FILE:
            raise _NotThereError(f"cannot read ${{file:{name}}}: larger than 64 KiB")
        if not _is_secret(key):
            self.files[str(path)] = text
        return text.removesuffix("\n").removesuffix("\r")


_ELSEWHERE = (
    f"${{{PROJECT_ROOT}}} has no meaning here: it may be in a server's "
    f"{', '.join(f'`{name}`' for name in sorted(PROJECT_FIELDS - {'command'}))}"
)


def _is_secret(key: tuple[str, ...]) -> bool:
    """Whether a value stands where people keep secrets, which change often and choose no program."""
    return bool({"headers", "auth", "metadata"}.intersection(key)) or bool(SECRET_NAME.search(key[-1] if key else ""))


def _has_project(key: tuple[str, ...]) -> bool:
    return len(key) > 2 and key[0] == "servers" and key[2] in PROJECT_FIELDS


class _NotThereError(Exception):
    """A reference that cannot be resolved; the message says why."""

    def __init__(self, why: str, variable: str = "") -> None:
        super().__init__(why)
        self.variable = variable


def _not_yet(kind: str) -> Callable[[str], str]:
    def refuse(rest: str) -> str:
        raise _NotThereError(f"${{{kind}:{rest}}} is not supported yet; use ${{VAR}} or ${{file:PATH}}")

    return refuse
