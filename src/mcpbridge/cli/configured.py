"""The configuration of commands that look into this user's store, which there is without a configuration too."""

import os

from mcpbridge.config.load import Loaded, find, read
from mcpbridge.config.schema import Settings
from mcpbridge.errors import ConfigError

__all__ = ["load_or_default"]


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
