"""What `Bridge.open` takes: the configuration (a file, tables or none), and where log lines go.

By default log lines go to the standard library's `logging`. No line holds a secret of the configurations of the
program's open bridges.
"""

import logging
import os
import re
import sys
import tomllib
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from weakref import ref

from msgspec.structs import replace

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.log import LEVELS, Level, Logger
from mcpbridge.base.masking.known_values import Redactor, Redactors, masked_fields
from mcpbridge.config import mcp_servers_json as foreign
from mcpbridge.config.check import check, refuse_what_only_loading_sets
from mcpbridge.config.load import Loaded, find, load, read
from mcpbridge.config.schema import Settings
from mcpbridge.config.secrets.providers import Providers
from mcpbridge.config.trust.decisions import NotTrusted
from mcpbridge.config.variables import secret_references

Config = str | os.PathLike[str] | Mapping[str, Any] | Settings | None
"""`servers.toml` or any mcpServers JSON by its path; the same tables as a mapping; None: what commands find."""

_HERE = "config"


STARTUP_SECONDS = 30.0
"""What the first listing waits for servers that start, where the configuration says nothing: clients of people give up
on a bridge that takes seconds, and a program would continue without half of its tools."""


def patient(settings: Settings) -> Settings:
    """The settings as programs want them where they say nothing."""
    if "startup_wait" in settings.bridge.model_fields_set:
        return settings
    bridge = settings.bridge.model_copy(update={"startup_wait": STARTUP_SECONDS})
    return settings.model_copy(update={"bridge": bridge})


def read_config(
    config: Config, environ: Mapping[str, str] | None = None, *, is_replayed: bool = False, fetches: bool = True
) -> Loaded:
    """What a configuration says, variables filled in.

    `is_replayed`: what fetches answers out of a cassette, so no variable of it need be set. `fetches`: the secrets that
    it refers to are fetched, which may take long; else they stay as they are written.

    Raises:
        ConfigError: it cannot be read, or is wrong; says where.
    """
    environ = os.environ if environ is None else environ
    if is_replayed:
        environ = {**dict.fromkeys(_names_for_fetching(config, environ), _NOT_SET), **environ}
    if config is None:
        return load(None, environ, fetches=fetches)
    if isinstance(config, Settings):
        return Loaded(config)
    if isinstance(config, Mapping):
        return _of_tables(config, environ, fetches=fetches)
    if not isinstance(config, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance] - of programs without types
        raise ConfigError(f"a configuration is a file or its tables, not {type(config).__name__}", key="config")
    return read(Path(config).expanduser(), environ, providers=Providers(environ) if fetches else None)


_LATE = {"servers", "tools", "builtin"}
"""Sections that a bridge uses first when it starts."""


def read_without_waiting(
    config: Config, environ: Mapping[str, str] | None = None, *, is_replayed: bool = False
) -> Loaded:
    """The same, for an event loop that must not wait: secrets of servers and tools may stay as they are written.

    Then `is_deferred` says so, and `read_config` is to be called in a thread before anything starts. Secrets of other
    sections are fetched in any case: a bridge cannot be made without them.
    """
    try:
        loaded = read_config(config, environ, is_replayed=is_replayed, fetches=False)
    except NotTrusted:
        raise
    except ConfigError:
        return read_config(config, environ, is_replayed=is_replayed)
    if loaded.is_deferred and any(secret_references(loaded.settings.model_dump(mode="json", exclude=_LATE))):
        return read_config(config, environ, is_replayed=is_replayed)
    return loaded


def _of_tables(tables: Mapping[str, Any], environ: Mapping[str, str], *, fetches: bool) -> Loaded:
    document, warnings = dict(tables), list[str]()
    if "mcpServers" in document:
        document, warnings = foreign.translate(document, _HERE)
    else:
        refuse_what_only_loading_sets(document, _HERE, _no_line)
    # Paths in it are relative to the working directory.
    checked = check(document, Path(_HERE), environ, _no_line, providers=Providers(environ) if fetches else None)
    loaded = Loaded(
        checked.settings,
        (*warnings, *checked.warnings),
        tuple(sorted(checked.secrets)),
        checked.missing,
        is_deferred=checked.is_deferred,
    )
    return replace(loaded, settings=checked.settings.model_copy(update={"source": None}))


_FETCHING = ("web_search", "http_get", "crypto_price")
"""Tables of `[builtin]`. A variable that is missing for a server or a tool of `[tools]` only turns that off, which a
replay takes back."""
_NOT_SET = "http://not-set.invalid"
_NAMED = re.compile(r"(?<!\$)\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")


def _names_for_fetching(config: Config, environ: Mapping[str, str]) -> list[str]:
    """The variables that built-in tools which fetch cannot do without."""
    try:
        if isinstance(config, Mapping):
            tables = config
        elif isinstance(config, Settings):
            return []
        else:
            path = find(None, environ) if config is None else Path(config).expanduser()
            tables = {} if path.suffix.lower() in (".json", ".jsonc") else tomllib.loads(path.read_text("utf-8"))
    except (ConfigError, OSError, ValueError, TypeError):
        return []  # which reading it tells
    builtin = tables.get("builtin")
    if not isinstance(builtin, Mapping):
        return []
    return _NAMED.findall(str([cast("Mapping[str, Any]", builtin).get(name) for name in _FETCHING]))


def _no_line(_: object) -> None:
    """A mapping has no lines."""


_LOG = logging.getLogger("mcpbridge")

_redactors: tuple[ref[Redactor], ...] = ()
"""Of all bridges: a line does not say whose it is. Lines come from any thread, so this is never changed in place."""


def use_logging(redact: Redactor) -> None:
    """Send lines to the logger `mcpbridge`, unless somebody has said where they go: a command, or structlog's set-up.

    What nobody has set up shows warnings and errors on standard error, as of every library. `redact` masks the secrets
    of one more bridge in all lines.
    """
    global _redactors
    _redactors = (*(known for known in _redactors if known() not in (None, redact)), ref(redact))
    structlog = sys.modules.get("structlog")
    if Logger.sink is None and not (structlog is not None and structlog.is_configured()):
        Logger.sink = _log


def _log(level: Level, event: str, fields: dict[str, Any], /) -> None:
    number = LEVELS[level]
    if not _LOG.isEnabledFor(number):
        return
    error, trace = _error_of(fields.pop("exc_info", None)), str(fields.pop("trace", "")).rstrip("\n")
    fields = masked_fields(fields, _masked)
    said = "".join(f" {name}={_masked_repr(value)}" for name, value in fields.items())
    if error is not None and not trace:
        told = "".join(traceback.format_exception(error)).rstrip("\n")
        if _masked(told) != told:  # whoever formats the error itself would tell it
            error, trace = None, told
    _LOG.log(number, "%s", _masked(f"{event}{said}\n{trace}" if trace else f"{event}{said}"), exc_info=error)


def _error_of(exc_info: object) -> BaseException | None:
    """The error that a line is about; see `Sink`."""
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return next((one for one in exc_info if isinstance(one, BaseException)), None)  # pyright: ignore[reportUnknownVariableType] - of any
    return sys.exc_info()[1] if exc_info else None


def _masked_repr(value: object) -> str:
    return repr(_masked(value) if isinstance(value, str) else value)


def _masked(text: str) -> str:
    known = [redact for one in _redactors if (redact := one()) is not None]
    return Redactors(*known)(text)
