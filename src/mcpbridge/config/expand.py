"""Variables in configuration values: `${VAR}`, `${VAR:-default}`, `${env:VAR}` and `${file:PATH}`.

Expansion is one pass: what a variable brings in is never expanded again. `$${` stands for a plain `${`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

__all__ = ["Expansion", "Missing", "Resolved"]

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_LARGEST_FILE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Missing:
    """A reference that could not be resolved."""

    key: tuple[str, ...]
    """Where it stands."""

    reason: str
    """What is missing, such as "missing variable ${GH_TOKEN}"; never a value."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A reference that was resolved."""

    key: tuple[str, ...]
    """Where it stands."""

    reference: str
    """What stands between the braces."""

    value: str
    """What it brought in; perhaps a secret."""


@dataclass(slots=True)
class Expansion:
    """Expands whole documents, and keeps what was missing and what was brought in."""

    environ: Mapping[str, str]
    directory: Path
    """Where relative paths of `${file:PATH}` start."""

    missing: list[Missing] = field(default_factory=list[Missing])
    resolved: list[Resolved] = field(default_factory=list[Resolved])

    def of(self, value: object, key: tuple[str, ...] = ()) -> object:
        """The value with every string in it expanded. What is missing stays as it was written, and is noted."""
        if isinstance(value, str):
            return _REFERENCE.sub(lambda match: self._replacement(match, key), value)
        if isinstance(value, list):
            items = cast("list[object]", value)
            return [self.of(item, (*key, str(index))) for index, item in enumerate(items)]
        if isinstance(value, dict):
            members = cast("dict[str, object]", value)
            return {name: self.of(member, (*key, name)) for name, member in members.items()}
        return value

    def _replacement(self, match: re.Match[str], key: tuple[str, ...]) -> str:
        if match[0] == "$${":
            return "${"
        try:
            brought_in = self._look_up(match[0], match[1])
        except _NotThereError as error:
            self.missing.append(Missing(key, str(error)))
            return match[0]
        self.resolved.append(Resolved(key, match[1], brought_in))
        return brought_in

    def _look_up(self, written: str, body: str) -> str:
        if not written.endswith("}"):
            raise _NotThereError(f"{written[:40]!r} lacks its closing brace (write $${{ for a plain ${{)")
        kind, colon, rest = body.partition(":")
        source = self._sources().get(kind) if colon else None
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
            raise _NotThereError(f"missing variable ${{{name}}}")
        return value

    def _sources(self) -> dict[str, Callable[[str], str]]:
        return {"file": self._from_file, "cmd": _not_yet("cmd"), "keyring": _not_yet("keyring")}

    def _from_file(self, name: str) -> str:
        path = self.directory / Path(name).expanduser()
        try:
            with path.open(encoding="utf-8") as file:
                text = file.read(_LARGEST_FILE + 1)
        except (OSError, ValueError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a text file"
            raise _NotThereError(f"cannot read ${{file:{name}}}: {reason}") from error
        if len(text) > _LARGEST_FILE:
            raise _NotThereError(f"cannot read ${{file:{name}}}: larger than 64 KiB")
        return text.removesuffix("\n").removesuffix("\r")


class _NotThereError(Exception):
    """A reference that cannot be resolved; the message says why."""


def _not_yet(kind: str) -> Callable[[str], str]:
    def refuse(rest: str) -> str:
        raise _NotThereError(f"${{{kind}:{rest}}} is not supported yet; use ${{VAR}} or ${{file:PATH}}")

    return refuse
