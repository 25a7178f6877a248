"""Which configuration files a person trusts that were found in the working directory.

A configuration names programs, and a directory may come from anybody: a cloned repository must not have its programs
run unasked. So a file that nobody named is used only if a person has said yes to it, at this path and with this
content. What counts as content is in `content.py`: the text of the file, each `spec` file, each `${file:PATH}` that can
choose what runs, the Python modules of `[tools]` and `packs` that are beside it, and the files of its repository that
its commands name. The bytes of texts that are compared are those that were read, not those of a second look. A file
that is named (`--config`, `$MCPBRIDGE_CONFIG`, a path given to the library) needs no trust.

The decisions are in `trusted.json` of the state directory, which only this user can read and write.
"""

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from msgspec import Struct

from mcpbridge.base.directories import state_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.files.write_file import read_bytes, replace_file
from mcpbridge.config.trust.content import Content, place_of
from mcpbridge.storage.file_locks import locked

FILE = "trusted.json"
_LOCK = "trusted.lock"


class NotTrusted(ConfigError):
    """A configuration was found in the working directory, and nobody has trusted it in its present form."""

    def __init__(self, path: str, what: str) -> None:
        """`what` completes "PATH: …"."""
        command = f"mcpbridge trust {shlex.quote(path)}"
        hint = f"If you know what it starts, run `{command}`, or name the file: --config {shlex.quote(path)}"
        super().__init__(what, file=path, hint=hint)
        self.path = path


class Decision(Struct, frozen=True):
    """What a person has said yes to."""

    at: str
    """When, as an ISO time."""
    files: dict[str, str]
    """See `Content`."""
    text: str = ""
    """What the configuration said, secrets masked; empty: it was not kept."""


class TrustStore:
    """The decisions of this user."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._folder = state_directory(environ)
        self.path = self._folder / FILE
        """Whoever waits for a decision watches this file."""

    def find(self, path: str | os.PathLike[str]) -> Decision | None:
        """The decision about this configuration; None: there is none."""
        return self.all().get(place_of(path))

    def trusts(self, path: str | os.PathLike[str], content: Content) -> bool:
        """Whether a person has said yes to this configuration with just this content."""
        decision = self.find(path)
        return decision is not None and bool(content) and decision.files == dict(content)

    def why_not(self, path: str | os.PathLike[str], content: Content) -> str:
        """Why a content is not trusted; completes "PATH: …"."""
        decision = self.find(path)
        if decision is None:
            return "it was found in the working directory and says which programs to start; nobody has trusted it yet"
        names = ", ".join(changed_files(decision, content)[:5])
        return f"it has changed since it was trusted at {decision.at} ({names}), and waits for a new yes"

    def add(self, path: str | os.PathLike[str], content: Content, text: str = "") -> None:
        """Keep the decision, in the place of an older one of this path.

        `text`: what the configuration says, secrets masked, so that a later change can be shown.

        Raises:
            ConfigError: it cannot be written.
        """
        decision = Decision(datetime.now(UTC).isoformat(timespec="seconds"), dict(content), text)
        self._update({place_of(path): decision})

    def remove(self, path: str | os.PathLike[str]) -> bool:
        """Forget the decision about a path. Says whether there was one.

        Raises:
            ConfigError: it cannot be written.
        """
        return self.find(path) is not None and self._update({place_of(path): None})

    def all(self) -> dict[str, Decision]:
        """Every decision, by path. A store that others could have written, or that is damaged, holds none."""
        try:
            if not _is_private(self.path):
                return {}
            document = cast("object", json.loads(read_bytes(self.path) or b"{}"))
        except (ConfigError, OSError, ValueError, RecursionError):
            return {}
        return dict(_decisions(document))

    def _update(self, changes: Mapping[str, Decision | None]) -> bool:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked(self._folder / _LOCK):
                decisions = {path: one for path, one in {**self.all(), **changes}.items() if one is not None}
                document = {
                    path: {"at": one.at, "files": one.files, "text": one.text}
                    for path, one in sorted(decisions.items())
                }
                before = read_bytes(self.path)
                if before is not None:
                    self.path.chmod(0o600)
                replace_file(self.path, before, json.dumps(document, indent=1).encode(), private=True)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=str(self.path)) from error
        return True


def changed_files(decision: Decision, content: Content) -> list[str]:
    """The files that came, went or changed since a decision."""
    names = sorted({*decision.files, *content})
    return [name for name in names if decision.files.get(name) != content.get(name)]


def _is_private(path: Path) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return True
    return sys.platform == "win32" or (found.st_uid in (0, os.getuid()) and not found.st_mode & 0o022)


def _decisions(document: object) -> Iterator[tuple[str, Decision]]:
    if not isinstance(document, dict):
        return
    for path, one in cast("dict[str, object]", document).items():
        with suppress(TypeError, KeyError, AttributeError, ValueError):
            fields = cast("dict[str, dict[str, object]]", one)
            files = {str(name): str(value) for name, value in fields["files"].items()}
            yield path, Decision(str(fields["at"]), files, str(fields.get("text", "")))
