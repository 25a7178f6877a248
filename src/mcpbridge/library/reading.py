"""The configuration of a program: a file, tables as that file has them, or none."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mcpbridge.config import foreign
from mcpbridge.config.check import check, refuse_what_only_loading_sets
from mcpbridge.config.load import Loaded, load, read
from mcpbridge.config.schema import Settings

__all__ = ["Config", "patient", "read_config"]

Config = str | os.PathLike[str] | Mapping[str, Any] | Settings | None
"""`servers.toml` or any mcpServers JSON by its path; the same tables as a mapping; None: what commands find."""

_HERE = "config"


STARTUP_SECONDS = 30.0
"""What the first listing waits for servers that start, where the configuration says nothing: clients of people give up
on a bridge that takes seconds, and a program would go on without half of its tools."""


def patient(settings: Settings) -> Settings:
    """The settings as programs want them where they say nothing."""
    if "startup_wait" in settings.bridge.model_fields_set:
        return settings
    bridge = settings.bridge.model_copy(update={"startup_wait": STARTUP_SECONDS})
    return settings.model_copy(update={"bridge": bridge})


def read_config(config: Config, environ: Mapping[str, str] | None = None) -> Loaded:
    """What a configuration says, variables filled in.

    Raises:
        ConfigError: it cannot be read, or is wrong; says where.
    """
    environ = os.environ if environ is None else environ
    if config is None:
        return load(None, environ)
    if isinstance(config, Settings):
        return Loaded(config)
    if isinstance(config, Mapping):
        return _of_tables(config, environ)
    return read(Path(config).expanduser(), environ)


def _of_tables(tables: Mapping[str, Any], environ: Mapping[str, str]) -> Loaded:
    document, warnings = dict(tables), list[str]()
    if "mcpServers" in document:
        document, warnings = foreign.translate(document, _HERE)
    else:
        refuse_what_only_loading_sets(document, _HERE, _no_line)
    checked = check(document, Path(_HERE), environ, _no_line)  # paths in it are relative to the working directory
    loaded = Loaded(checked.settings, (*warnings, *checked.warnings), tuple(sorted(checked.secrets)), checked.missing)
    return replace(loaded, settings=checked.settings.model_copy(update={"source": None}))


def _no_line(_: object) -> None:
    """A mapping has no lines."""
