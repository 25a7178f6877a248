"""References in configuration values: `${VAR}`, `${VAR:-default}`, `${env:VAR}`, `${file:PATH}`, and those to secrets.

`${cmd:COMMAND}`, `${keyring:SERVICE/NAME}` and `${secret:NAME}` are fetched by `config/secrets/providers.py`, once for
all places that have them. A configuration that is only looked at, or that nobody has trusted yet, is expanded without:
they stay as they are written.

Expansion is one pass: the value of a variable is never expanded again. `$${` stands for a plain `${`.

`${PROJECT_ROOT}` is not known before a client connects. Text with it is kept in pieces, so that nothing that another
variable brought in can pass for a reference later.
"""

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Protocol, cast

from msgspec import Struct, field

from mcpbridge.base.late_pattern import late
from mcpbridge.base.masking.known_values import SECRET_NAME, without_secrets
from mcpbridge.upstream.projects import PROJECT_FIELDS, PROJECT_ROOT, ProjectText

_REFERENCE = late(r"\$\$\{|\$\{([^}]*)\}?")
_VARIABLE = late(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_PROJECT = late(rf"{PROJECT_ROOT}(?::-(.*))?", re.DOTALL)
_LARGEST_FILE = 64 * 1024
_LEAST = 32


SECRET_KINDS = ("cmd", "keyring", "secret")
"""What references to secrets begin with."""
Reference = tuple[str, str]
"""Of a reference to a secret: one of `SECRET_KINDS`, and what follows the colon."""
_SECRET = late(rf"(?<!\$)\$\{{({'|'.join(SECRET_KINDS)}):([^}}]*)\}}")


class SecretSource(Protocol):
    """Has the values of references to secrets."""

    def value(self, reference: Reference, directory: Path) -> str:
        """The value. `directory`: where the configuration is.

        Raises:
            NotThereError: it cannot be had; says why.
        """
        ...


def secret_references(value: object) -> Iterator[Reference]:
    """Every reference to a secret in a document, as often as it is there."""
    if isinstance(value, str):
        yield from ((found[1], found[2]) for found in _SECRET.finditer(value))
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from secret_references(item)
    elif isinstance(value, dict):
        for member in cast("dict[str, object]", value).values():
            yield from secret_references(member)


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
    source: SecretSource | None = None
    """Where references to secrets get their values from; None: they stay as they are written."""
    deferred: list[Resolved] = field(default_factory=list[Resolved])
    """Those that stayed."""
    warnings: list[str] = field(default_factory=list[str])
    """For people."""
    files: dict[str, str] = field(default_factory=dict[str, str])
    """By path, the text of each file that can choose what runs; those of secrets change nothing in that."""

    def unread(self, section: str, name: str, keys: Collection[str]) -> list[Missing]:
        """Of a table, what stayed in places that cannot be checked with a reference in them."""
        return [
            Missing(one.key, f"{one.value} is not read before it is used")
            for one in self.deferred
            if one.key[:2] == (section, name) and one.key[2] in keys
        ]

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
        except NotThereError as error:
            self.missing.append(Missing(key, str(error), error.variable))
            return match[0]
        if brought_in is None:
            self.deferred.append(Resolved(key, match[1], match[0]))
            # Keys of stores have a least length; the value will have it.
            return match[0] if key[:1] in (("servers",), ("tools",)) else match[0].ljust(_LEAST)
        self.resolved.append(Resolved(key, match[1], brought_in))
        return brought_in

    def _look_up(self, written: str, body: str, key: tuple[str, ...]) -> str | None:
        if not written.endswith("}"):
            raise NotThereError(f"{written[:40]!r} lacks its closing brace (write $${{ for a plain ${{)")
        kind, colon, rest = body.partition(":")
        if colon and kind == "file":
            return self._from_file(key, rest)
        if colon and kind in SECRET_KINDS:
            return self._secret(written, (kind, rest))
        variable = _VARIABLE.fullmatch(body)
        if variable is None:
            raise NotThereError(f"cannot resolve {written} (write $${{ for a plain ${{)")
        name, default = variable[1], variable[2]
        value = self.environ.get(name)
        if default is not None:
            return value or default  # as in a shell, `:-` also stands in for an empty value
        if value is None:
            raise NotThereError(f"missing variable ${{{name}}}", name)
        return value

    def _secret(self, written: str, reference: Reference) -> str | None:
        if self.source is None:
            return None
        try:
            return self.source.value(reference, self.directory)
        except NotThereError as error:
            raise NotThereError(f"cannot read {without_secrets(written)}: {error}") from error

    def _from_file(self, key: tuple[str, ...], name: str) -> str:
        path = self.directory / Path(name).expanduser()
        try:
            with path.open(encoding="utf-8") as file:
                access = _access(path, os.fstat(file.fileno()))
                text = file.read(_LARGEST_FILE + 1)
        except (OSError, ValueError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a text file"
            raise NotThereError(f"cannot read ${{file:{name}}}: {reason}") from error
        if len(text) > _LARGEST_FILE:
            raise NotThereError(f"cannot read ${{file:{name}}}: larger than 64 KiB")
        if access == "write":
            what = f"cannot read ${{file:{name}}}: every user of this machine can write it"
            raise NotThereError(f"{what} (chmod 600 {path})")
        if access == "read" and _is_secret(key):
            warning = f"{path}: other users can read this file, which has a secret: chmod 600 {path}"
            self.warnings += [warning] if warning not in self.warnings else []
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


class NotThereError(Exception):
    """A reference that cannot be resolved; the message says why."""

    def __init__(self, why: str, variable: str = "") -> None:
        super().__init__(why)
        self.variable = variable


_MOUNTED = ("/run/secrets/", "/var/run/secrets/")
"""Where containers find their secrets: readable by all, and there is one user."""


def _access(path: Path, facts: os.stat_result) -> str:
    """What other users of this machine may do with a file: `write`, `read`, or nothing (empty)."""
    if not hasattr(os, "getuid") or facts.st_uid != os.getuid() or not stat.S_ISREG(facts.st_mode):
        return ""  # it is not this user's to mend
    is_writable = bool(facts.st_mode & stat.S_IWOTH)
    is_readable = bool(facts.st_mode & (stat.S_IRGRP | stat.S_IROTH))
    if not (is_writable or is_readable) or str(path).startswith(_MOUNTED):
        return ""
    for folder in path.absolute().parents:  # nobody gets at what is in a folder that is closed to others
        if not folder.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH):
            return ""
    return "write" if is_writable else "read"
