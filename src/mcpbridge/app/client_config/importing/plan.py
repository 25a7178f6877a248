"""Plan what `servers.toml` gets of the servers that were found, and carry the plan out.

The plan holds the whole text and every file that would be written, so that it can be shown first. A text that the
bridge would refuse is no plan. Carried out, secrets go into private files first, then a copy of the configuration is
made, then it is written.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal, cast

from mcpbridge.app.client_config.discover.discovered_servers import Found, FoundServer, Json
from mcpbridge.app.client_config.importing.merge import Outcome, merge
from mcpbridge.app.client_config.importing.needed_variables import missing_in
from mcpbridge.app.client_config.importing.secrets import Moved, Proposed, name_secrets, without_secrets
from mcpbridge.app.client_config.importing.servable import servable
from mcpbridge.app.client_config.importing.servers_toml import Table, with_servers
from mcpbridge.base.errors import ConfigError
from mcpbridge.config import line_numbers as position
from mcpbridge.config.check import check, refuse_what_only_loading_sets
from mcpbridge.config.files.edit import NotEditable
from mcpbridge.config.files.write_file import ChangedMeanwhile, decoded, encoded, read_bytes, replace_file
from mcpbridge.config.write_servers_toml import keep_trust

SecretsTo = Literal["env", "file", "keep"]
"""Where secrets go: into variables that people set, into private files, or nowhere: they stay in the text."""

_SECRETS = "secrets"
"""The folder of private files, beside the configuration."""
_VARIABLE = re.compile(r"(?<!\$)\$\{(?:env:)?(?!PROJECT_ROOT\})([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be written, and what became of each server."""

    path: Path
    """The configuration; no symbolic link."""

    before: bytes | None = field(repr=False)
    """What is there now; None: there is no such file."""

    text: str = field(repr=False)
    """What will; perhaps with secrets, if they are kept."""

    outcomes: tuple[Outcome, ...]
    secrets_to: SecretsTo
    moved: tuple[Moved, ...] = ()
    """Secrets that go into variables or files."""

    open_secrets: tuple[str, ...] = field(default=(), repr=False)
    """Secrets that stay in the text; never to be shown."""

    unset: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Variables that are used and not set now, and the servers that wait for each."""

    waiting: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """What each server that the file then has would wait for: variables that are not set, files that are not there."""

    @property
    def written(self) -> list[Outcome]:
        """What goes into the file."""
        return [outcome for outcome in self.outcomes if outcome.is_written]

    @property
    def before_text(self) -> str:
        """What is there now, as text."""
        return decoded(self.before, self.path) if self.before is not None else ""

    @property
    def folder(self) -> Path:
        """Where private files go."""
        return self.path.parent / _SECRETS


def plan_import(
    discovered: Found, path: Path, environ: Mapping[str, str], *, secrets_to: SecretsTo = "env", replacing: bool = False
) -> Plan:
    """What `path` would be with these servers in it. Reads it and changes nothing.

    Raises:
        ConfigError: the file is there and wrong, or not of the kind that can take servers.
    """
    if path.suffix.lower() in (".json", ".jsonc", ".yaml", ".yml"):
        hint = "Name a TOML file to write: --output servers.toml."
        raise ConfigError("servers can be put into a servers.toml only", file=str(path), hint=hint)
    path = path.resolve()
    before = read_bytes(path)
    text = decoded(before, path) if before is not None else ""
    existing = _checked(text, path, environ).get("servers")
    own = cast("dict[str, Json]", existing) if isinstance(existing, dict) else {}
    servers = [_beside(servable(one), path.parent) for one in discovered.servers]
    outcomes = merge(servers, own, replacing=replacing)
    if secrets_to == "file":
        outcomes = [_mended(one, own, environ, path.parent) for one in outcomes]
    chosen = {outcome.name: outcome for outcome in outcomes if outcome.is_written}
    proposed = _proposed(chosen)
    held = partial(_held, path.parent / _SECRETS) if secrets_to == "file" else environ.get
    names, moved = name_secrets(proposed, held) if secrets_to != "keep" else ({}, [])
    tables = [_table(name, outcome, names, secrets_to) for name, outcome in chosen.items()]
    try:
        after = with_servers(text, tables)
    except NotEditable as error:
        where = f"{path}:{error.line}" if error.line else str(path)
        raise ConfigError(error.what, file=where) from error
    written = cast("dict[str, Json]", _checked(after, path, environ).get("servers") or {})
    files = {f"${{file:{_SECRETS}/{one.variable}}}" for one in moved} if secrets_to == "file" else set[str]()
    return Plan(
        path,
        before,
        after,
        tuple(outcomes),
        secrets_to,
        tuple(moved),
        tuple({one.value for one in proposed}) if secrets_to == "keep" else (),
        _unset(tables, environ),
        {
            name: tuple(one for one in missing_in(server, environ, path.parent) if one not in files)
            for name, server in written.items()
        },
    )


def _checked(text: str, path: Path, environ: Mapping[str, str]) -> Json:
    """The document that a text is, if the bridge takes it.

    Raises:
        ConfigError: it does not.
    """
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        document = tomllib.loads(plain)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = re.search(r"line (\d+)", str(error))
        where = f"{path}:{found[1]}" if found else str(path)
        raise ConfigError(
            "not valid TOML", file=where, hint="Mend it first, or name another: --output FILE."
        ) from error
    line_of = partial(position.toml_line, plain)
    refuse_what_only_loading_sets(document, str(path), line_of)
    check(document, path, environ, line_of)
    return tomllib.loads(plain)


def _mended(outcome: Outcome, own: Mapping[str, Json], environ: Mapping[str, str], directory: Path) -> Outcome:
    """A server that is there and waits for what the client's file holds is written anew, unless people changed it."""
    there = own.get(outcome.name, {})
    if outcome.became != "there" or not missing_in(there, environ, directory):
        return outcome
    found = without_secrets(outcome.name, outcome.entry.server, lambda _name, _value: "${}")
    is_as_imported = _without_secrets(there) == _without_secrets(found) and not missing_in(
        outcome.entry.server, environ, directory
    )
    return (
        replace(outcome, became="replaced", detail="gets the secret that it waits for") if is_as_imported else outcome
    )


def _without_secrets(server: Json) -> str:
    """A server as text, with all that is brought in left out."""
    return re.sub(r"\$\{[^}]*\}", "${}", json.dumps(server, sort_keys=True, default=str))


def _beside(entry: FoundServer, directory: Path) -> FoundServer:
    """A server of the project that the configuration itself is in does not name that project's directory."""
    if entry.project is None or entry.server.get("cwd") != str(entry.project) or entry.project.resolve() != directory:
        return entry
    return replace(entry, server={**entry.server, "cwd": "."})


def _proposed(chosen: Mapping[str, Outcome]) -> list[Proposed]:
    proposed: list[Proposed] = []
    for server, outcome in chosen.items():
        without_secrets(server, outcome.entry.server, _noting(server, proposed))
    return list(dict.fromkeys(proposed))


def _noting(server: str, proposed: list[Proposed]) -> Callable[[str, str], str]:
    def note(name: str, value: str) -> str:
        proposed.append(Proposed(server, name, value))
        return ""

    return note


def _table(name: str, outcome: Outcome, names: Mapping[Proposed, str], secrets_to: SecretsTo) -> Table:
    entry = outcome.entry
    server = without_secrets(name, entry.server, partial(_reference, name, names, secrets_to))
    origin = f"from {entry.title}: {entry.place}"
    return Table(name, server, origin, entry.left_out, outcome.became == "replaced")


def _reference(server: str, names: Mapping[Proposed, str], secrets_to: SecretsTo, name: str, value: str) -> str:
    """What stands in a secret's place."""
    known_as = names.get(Proposed(server, name, value))
    if known_as is None:
        return value.replace("${", "$${")
    return f"${{file:{_SECRETS}/{known_as}}}" if secrets_to == "file" else f"${{{known_as}}}"


def _held(folder: Path, name: str) -> str | None:
    """The secret that a private file of this name holds."""
    try:
        return (folder / name).read_text("utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError):
        return None


def _unset(tables: list[Table], environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for table in tables:
        for name in _VARIABLE.findall(str(list(table.server.values()))):
            if name not in environ:
                found.setdefault(name, {})[table.name] = None
    return {name: tuple(servers) for name, servers in found.items()}


def carry_out(plan: Plan, now: datetime, environ: Mapping[str, str]) -> Path | None:
    """Write what was planned, and return where what stood there before is kept; None: nothing did.

    Raises:
        ConfigError: it cannot be written, or the file is not as it was when the plan was made.
    """
    write_private_files(plan)
    after = encoded(plan.text, plan.before or b"")
    if after == plan.before:
        return None
    backup = None
    try:
        if plan.before is not None:
            backup = _back_up(plan.path, plan.before, now)
            if plan.open_secrets:
                plan.path.chmod(plan.path.stat().st_mode & 0o700)
        with keep_trust(plan.path, environ, plan.text):
            replace_file(plan.path, plan.before, after, private=bool(plan.open_secrets))
    except ChangedMeanwhile as error:
        raise ConfigError("somebody changed it meanwhile", file=str(plan.path), hint="Run it again.") from error
    return backup


def write_private_files(plan: Plan) -> None:
    """Put the secrets that are moved into their private files, before the text that refers to them is written.

    Raises:
        ConfigError: they cannot be written.
    """
    if plan.secrets_to == "file" and plan.moved:
        _make_private(plan.folder)
        for one in plan.moved:
            _write_secret(plan.folder, one)


def _back_up(path: Path, data: bytes, now: datetime) -> Path:
    """A copy of the file, beside it, under a name that none has."""
    for copy in _names(path, now):
        with suppress(ChangedMeanwhile):
            replace_file(copy, None, data, private=True)
            return copy
    raise AssertionError("numbers do not end")


def _names(path: Path, now: datetime) -> Iterator[Path]:
    yield path.with_name(f"{path.name}.{now:%Y-%m-%d-%H%M%S}.bak")
    for number in count(2):
        yield path.with_name(f"{path.name}.{now:%Y-%m-%d-%H%M%S}-{number}.bak")


def _make_private(folder: Path) -> None:
    if folder.is_symlink():
        hint = "Make it a directory of its own, or import with --secrets env."
        raise ConfigError("is a link, and private files go into no directory elsewhere", file=str(folder), hint=hint)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise ConfigError(f"cannot be made: {error.strerror}", file=str(folder)) from error


def _write_secret(folder: Path, secret: Moved) -> None:
    path = folder / secret.variable
    before = read_bytes(path)
    after = f"{secret.value}\n".encode()
    if before != after:
        replace_file(path, before, after, private=True)
