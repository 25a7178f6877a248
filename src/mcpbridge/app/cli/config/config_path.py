"""Which configuration file a command means: the one that it reads, and the one that it writes."""

import os
from collections.abc import Mapping
from pathlib import Path

from mcpbridge.base.config_file import FILE_NAME
from mcpbridge.base.directories import config_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.load import Loaded, find, read
from mcpbridge.config.schema import Settings


def configuration_to_write(named: str | None, environ: Mapping[str, str]) -> Path:
    """The file that gets servers: the one that is named, the one that is in use, else the user's."""
    if named := named or environ.get("MCPBRIDGE_CONFIG"):
        return absolute(Path(named).expanduser())
    try:
        return absolute(find(None, environ))
    except ConfigError:
        return config_directory(environ) / FILE_NAME


def absolute(path: Path) -> Path:
    """The path from the root on; a link stays what it is."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links


def config_path(explicit: str | None) -> Path:
    """The configuration that is meant.

    Raises:
        ConfigError: there is none.
    """
    return find(explicit, os.environ).resolve()


def load_or_default(config: str | None) -> Loaded:
    """The file `config`, or the one that other commands find; where there is none, what bridges do unasked.

    Raises:
        ConfigError: there is none of that name, or it is wrong.
    """
    try:
        path = find(config, os.environ)
    except ConfigError:
        if config or os.environ.get("MCPBRIDGE_CONFIG"):
            raise
        return Loaded(Settings())
    return read(path, os.environ)
