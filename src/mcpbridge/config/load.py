"""Find, read, expand and check the configuration.

A missing `${VAR}` costs the server that needs it, not the bridge; anything else that is wrong is a `ConfigError`,
because a bridge that guesses what was meant is worse than one that says what to mend.

Each step has a file of its own: `variables.py` expands, `check.py` checks, `error_messages.py` words what is wrong.
Which file is read is decided in `base/config_file.py`, which a start needs before all else.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.base.config_file import FILE_NAME, find_config, is_found_in_working_directory, is_ours, named_config
from mcpbridge.base.directories import config_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config import mcp_servers_json as foreign
from mcpbridge.config.check import check, refuse_what_only_loading_sets
from mcpbridge.config.schema import Settings
from mcpbridge.config.secrets.providers import Providers
from mcpbridge.config.trust.content import digest, place_of, whole_content
from mcpbridge.config.trust.decisions import NotTrusted, TrustStore
from mcpbridge.core.model import TOOLS
from mcpbridge.tools.factory import has_several
from mcpbridge.tools.settings import pack_name

_LARGEST_FILE = 4 * 1024**2


class Loaded(Struct, frozen=True):
    """A configuration, and what came to light while reading it."""

    settings: Settings
    warnings: tuple[str, ...] = ()
    """What was left out or assumed; for people."""
    secrets: tuple[str, ...] = ()
    """Values to mask wherever text leaves the process."""
    missing: frozenset[str] = frozenset()
    """Variables of the environment that servers are off for."""
    content: Mapping[str, str] = {}
    """By path, the digests of the texts that it was read from, as far as they choose what runs; see `trust.py`."""
    references: frozenset[str] = frozenset()
    """Which variables and files it has read, as they are written between the braces of `${…}`."""
    is_empty: bool = False
    """The file says nothing at all."""
    is_found: bool = False
    """Nobody named the file: it was found in the working directory, and what changes in it waits for a person."""
    text: str = ""
    """What the file says, which may have secrets in it."""
    is_deferred: bool = False
    """References to secrets are in it as they are written: it is for looking at, not for use."""
    providers: Providers | None = None
    """What fetched the secrets that it refers to, and keeps them."""
    trusted: Mapping[str, str] = {}
    """Of one that was found: by path, the digests of all that a person said yes to."""
    as_written: Settings | None = None
    """See `judged`."""

    @property
    def judged(self) -> Settings:
        """The settings for the person who decides about them: what is off since a variable is missing is as written."""
        return self.as_written or self.settings

    @property
    def masked_text(self) -> str:
        """What the file says, secrets masked: may be kept and shown."""
        return Redactor(self.secrets)(self.text)


Agree = Callable[[Loaded, TrustStore], bool]
"""Asks a person whether they trust a configuration that was found in the working directory."""


def load(
    explicit: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    here: bool = True,
    agree: Agree = lambda loaded, store: False,
    fetches: bool = True,
) -> Loaded:
    """The configuration that a command started here and now should use. `here`: see `find`.

    One that was found in the working directory must be trusted; `agree` asks for that, and a yes is kept. `fetches`:
    the secrets that it refers to are fetched; else it is only to be looked at.

    Raises:
        NotTrusted: a person has to say yes to it first, and has not.
        ConfigError: there is none, it cannot be read, or it is wrong.
    """
    environ = os.environ if environ is None else environ
    is_found = here and is_found_in_working_directory(explicit, environ)
    path = find(explicit, environ, here=here)
    if not is_found:
        return read(path, environ, providers=Providers(environ) if fetches else None)
    return require_trust(read(path, environ), environ, agree=agree, fetches=fetches)


def require_trust(
    loaded: Loaded,
    environ: Mapping[str, str],
    *,
    agree: Agree = lambda loaded, store: False,
    fetches: bool = True,
) -> Loaded:
    """The same configuration, known as one that was found, once a person trusts it; with the secrets it refers to.

    `agree`, `fetches`: as for `load`.

    Raises:
        NotTrusted: nobody does.
        ConfigError: it is wrong with the secrets in it.
    """
    store, path = TrustStore(environ), str(loaded.settings.source)
    content = whole_content(loaded.judged, loaded.content)
    if not store.trusts(path, content):
        if not agree(loaded, store):
            raise NotTrusted(place_of(path), store.why_not(path, content))
        store.add(path, content, loaded.masked_text)
    loaded = with_secrets(loaded, environ, Providers(environ)) if fetches else loaded
    return replace(loaded, is_found=True, trusted=content)


def with_secrets(loaded: Loaded, environ: Mapping[str, str], providers: Providers) -> Loaded:
    """A configuration that was read without its secrets, with them. What is read is the text that was read before.

    Raises:
        NotTrusted: a file that is a part of it has changed meanwhile.
        ConfigError: it is wrong with the secrets in it.
    """
    if not loaded.is_deferred:
        return replace(loaded, providers=providers)
    path = Path(loaded.settings.source or "")
    again = read(path, environ, text=loaded.text, providers=providers)
    if again.content != loaded.content:
        raise NotTrusted(place_of(path), "a file that it names changed while it was read")
    return again


def find(explicit: str | None, environ: Mapping[str, str], *, here: bool = True) -> Path:
    """Which file to read: `explicit`, `$MCPBRIDGE_CONFIG`, `./servers.toml`, the user's configuration directory.

    `here` False: not `./servers.toml` (see `find_config` of `base/config_file.py`).

    Raises:
        ConfigError: none of them is there.
    """
    found = find_config(explicit, environ, here=here)
    if found is not None:
        return Path(found)
    named = named_config(explicit, environ)
    if named is not None:
        path, source = named
        what = "is a directory" if Path(path).is_dir() else "no such file"
        raise ConfigError(f"{what} (from {source})", file=path)
    places = [*([Path(FILE_NAME)] if here else []), config_directory(environ) / FILE_NAME]
    looked = " and ".join(str(place) for place in places)
    if Path(FILE_NAME).is_file():
        why = "nobody named it" if is_ours(FILE_NAME) else "others could have written it (look at its owner and mode)"
        hint = f"{Path(FILE_NAME).absolute()} is not taken: {why}. Name it: --config {FILE_NAME}."
        raise ConfigError(f"no configuration: looked for {looked}", hint=hint)
    hint = (
        "`mcpbridge init` makes one of the servers that your clients have, `mcpbridge add NAME -- COMMAND` one of a\n"
        f"  single server. Or write {FILE_NAME}, for instance:\n\n    [servers.time]\n"
        '    command = "uvx"\n    args = ["mcp-server-time"]\n\n'
        "  or name one: --config FILE (any mcpServers JSON works too)."
    )
    raise ConfigError(f"no configuration: looked for {looked}", hint=hint)


def read(
    path: Path, environ: Mapping[str, str], *, text: str | None = None, providers: Providers | None = None
) -> Loaded:
    """Read and check one file: `servers.toml`, or an `mcpServers` JSON if its name ends in `.json`.

    `text`: what it is to say; None: what it says. `providers` fetches the secrets that it refers to, which may run
    commands; None: they stay as they are written, which is enough to look at it.

    Raises:
        ConfigError: it cannot be read, or it is wrong.
    """
    file = str(path)
    text = _text(path) if text is None else text.replace("\r\n", "\n")
    if path.suffix.lower() in (".json", ".jsonc"):
        document, warnings = _parse_json(text, file)
        line_of = partial(_json_line, foreign.plain_json(text))
    else:
        document, warnings = _parse_toml(text, file), []
        line_of = partial(_toml_line, text)
        refuse_what_only_loading_sets(document, file, line_of)
    checked = check(document, path, environ, line_of, providers=providers)
    warnings += checked.warnings
    settings = checked.settings
    if not (settings.servers or settings.tools or settings.packs or settings.builtin.enable):
        warnings.append(f"{file}: no servers are configured")
    texts = {str(path.absolute()): text, **checked.files}
    content = {place_of(name): digest(one.encode()) for name, one in texts.items()}
    return Loaded(
        checked.settings,
        tuple(warnings),
        tuple(sorted(checked.secrets)),
        checked.missing,
        content,
        checked.references,
        not document,
        text=text,
        is_deferred=checked.is_deferred,
        providers=providers,
        as_written=checked.judged,
    )


def only_server(settings: Settings, name: str) -> Settings:
    """The settings for a bridge that serves this one server alone; the others are not even started.

    Raises:
        ConfigError: there is no such server, or it is disabled.
    """
    if name not in settings.servers or settings.servers[name].disabled:
        if chosen := _chosen(settings, name):
            hint = f"A profile serves it alone: [profiles.NAME] with `{chosen}`, then --profile NAME."
            raise ConfigError(f"{name!r} is of [tools] or a pack, not a server", key="--server", hint=hint)
        known = ", ".join(sorted(known for known, server in settings.servers.items() if not server.disabled)) or "none"
        raise ConfigError(f"no server is called {name!r}", key="--server", hint=f"Known: {known}.")
    return settings.model_copy(update={"servers": {name: settings.servers[name]}})


def _chosen(settings: Settings, name: str) -> str:
    """What a profile says that has the tools of this backend; empty: there is none."""
    if name in settings.tools:
        return f'servers = ["{name}"]' if has_several(settings.tools[name]) else f'tools = ["{TOOLS}/{name}"]'
    return f'servers = ["{name}"]' if name in map(pack_name, settings.packs) else ""


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    if len(data) > _LARGEST_FILE:
        raise ConfigError("larger than 4 MiB, which no configuration is", file=str(path))
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("not UTF-8", file=f"{path}:{line}", hint="Save it as UTF-8.") from error


def _parse_toml(text: str, file: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"^(.*) \(at (?:line (\d+), column (\d+)|end of document)\)$", str(error), re.DOTALL)
        what, line, column = found.groups() if found else (str(error), None, None)
        where = f"{file}:{line}:{column}" if line else f"{file}:{text.count(chr(10)) + 1}"
        shown = text.splitlines()[int(line) - 1].strip()[:80] if line and int(line) <= len(text.splitlines()) else ""
        hint = _toml_hint(shown)
        raise ConfigError(f"not valid TOML: {what[:1].lower()}{what[1:]}", file=where, hint=hint) from error
    except RecursionError as error:
        raise ConfigError("nested too deeply", file=file) from error


def _toml_hint(line: str) -> str | None:
    """What a line that TOML refuses probably needs. Shows the line only up to its `=`: a value may be a secret."""
    key, equals, value = line.partition("=")
    if equals and re.match(r"\s*[A-Za-z$~/.]", value) and value.strip() not in ("true", "false"):
        return f"At `{key.strip()} = …`: text needs quotes."
    if line.startswith("{"):
        return "This looks like JSON: give the file a name that ends in .json."
    return f"At `{key.strip()}{' = …' if equals else ''}`." if key.strip() else None


def _parse_json(text: str, file: str) -> tuple[dict[str, object], list[str]]:
    repeated: list[str] = []

    def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in pairs]
        repeated.extend(sorted({name for name in names if names.count(name) > 1}))
        return dict(pairs)

    try:
        parsed: object = json.loads(foreign.plain_json(text), object_pairs_hook=members)
    except json.JSONDecodeError as error:
        where = f"{file}:{error.lineno}:{error.colno}"
        raise ConfigError(f"not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}", file=where) from error
    except RecursionError as error:
        raise ConfigError("nested too deeply", file=file) from error
    document, warnings = foreign.translate(parsed, file)
    return document, [f"{file}: the key {name!r} is there twice; the last one counts" for name in repeated] + warnings


def _toml_line(text: str, key: Sequence[str]) -> int | None:
    from mcpbridge.config import line_numbers as position  # for errors

    return position.toml_line(text, key)


def _json_line(text: str, key: Sequence[str]) -> int | None:
    from mcpbridge.config import line_numbers as position

    head, *rest = key or [""]
    if head != "servers":
        return position.json_line(text, list(key))
    return next(filter(None, (position.json_line(text, [top, *rest]) for top in ("mcpServers", "servers"))), None)
